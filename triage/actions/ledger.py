"""Root's own folder: claims, results with their steps, old bytes.

Written only by root's one-shot (`/var/lib/triage-apply`, root:triage 0750), in a checkout by its child process. The
unprivileged side reads results here, never writes. Every file is written whole; a claim stays until its result is
settled, so that the path unit starts the one-shot again after a kill or a reboot.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from triage.actionmodel import ActionResult, ActionState, Request, Step, StepState
from triage.actions import durable, wire
from triage.model import Damaged, NotPermitted, Refused
from triage.units.dropin import mask

CLAIMS, RESULTS, OLD = "claims", "results", "old"
_KEPT_REFUSALS = 500


class Ledger:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opening = threading.Lock()  # a number for each: units are worked on side by side

    def create(self) -> None:
        """The folders, where tmpfiles.d has not made them. 0750: the group may read results."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        for name, mode in ((CLAIMS, 0o750), (RESULTS, 0o2750), (OLD, 0o700)):
            if not (self.folder / name).is_dir():
                (self.folder / name).mkdir(mode=mode)
                with contextlib.suppress(PermissionError):
                    os.chmod(self.folder / name, mode)

    # ------------------------------------------------------------ claims

    def claim(self, request: Request) -> None:
        self._write(CLAIMS, request.action, wire.dump_request(request), 0o640)

    def claims(self) -> tuple[Request, ...]:
        """Unfinished ones, oldest first."""
        found = []
        for name, data in self._files(CLAIMS):
            try:
                found.append(wire.load_request(data))
            except Refused:  # of an older release, or a disk that lied: it cannot be carried out any more
                self.finish(name)
        return tuple(sorted(found, key=lambda request: (request.time, request.action)))

    def finish(self, action: str) -> None:
        """The claim is settled: the path unit need not come back for it."""
        with durable.opened(self.folder, CLAIMS) as folder:
            durable.remove(folder, action)

    def knows(self, action: str) -> bool:
        return any(os.path.lexists(self.folder / place / action) for place in (CLAIMS, RESULTS))

    # ------------------------------------------------------------ results

    def write_result(self, result: ActionResult) -> None:
        self._write(RESULTS, result.request.action, wire.dump_result(result), 0o640)

    def result(self, action: str) -> ActionResult | None:
        if not wire.NAME.fullmatch(action):
            return None
        try:
            with durable.opened(self.folder, RESULTS) as folder:
                data = durable.read(folder, action)
        except FileNotFoundError:
            return None
        return None if data is None else self._load(action, data)

    def results(self) -> tuple[ActionResult, ...]:
        """All of them, in the order of their numbers. Raises NotPermitted where root's folder may not be read, Damaged
        where one of them is none: what is in force is not known then."""
        return tuple(self.each())

    def each(self) -> Iterator[ActionResult]:
        """All that can be read, in the order of their numbers; then raises Damaged where there are others."""
        found, damaged = self._readable()
        yield from found
        if damaged:
            raise Damaged("; ".join(damaged[:3]))

    def _readable(self) -> tuple[list[ActionResult], list[str]]:
        """Those that can be read, and what is wrong with the others."""
        found, damaged = [], []
        for name, data in self._files(RESULTS):
            try:
                found.append(self._load(name, data))
            except Damaged as reason:
                damaged.append(str(reason))
        return sorted(found, key=lambda result: (sequence(result), result.started)), damaged

    def _load(self, name: str, data: bytes) -> ActionResult:
        try:
            return wire.load_result(data)
        except Refused as reason:
            path = self.folder / RESULTS / name
            raise Damaged(
                f"{path} is damaged ({reason}): what is in force is not known, and nothing is begun. Put it back from "
                f"a backup; else look at its unit (triage actions show {name}, systemctl cat UNIT), take away by hand "
                f"what it left there, and sudo mv {path} /root/"
            ) from None

    def names(self) -> frozenset[str]:
        """Every action name ever used here."""
        return frozenset(name for place in (CLAIMS, RESULTS) for name in self._names(place))

    def prune(self) -> None:
        """Refusals changed nothing; only the newest are kept, or a flood would fill the disk."""
        found, _ = self._readable()
        refused = [result.request.action for result in found if result.state is ActionState.REFUSED]
        with durable.opened(self.folder, RESULTS) as folder:
            for action in refused[:-_KEPT_REFUSALS]:
                durable.remove(folder, action)

    # ------------------------------------------------------------ old bytes

    def save_old(self, action: str, data: bytes) -> None:
        self._write(OLD, action, data, 0o600)

    def old(self, action: str) -> bytes | None:
        with durable.opened(self.folder, OLD) as folder:
            return durable.read(folder, action)

    # ------------------------------------------------------------ files

    def _write(self, place: str, name: str, data: bytes, mode: int) -> None:
        with durable.opened(self.folder, place) as folder:
            durable.write(folder, name, data, mode)

    def _names(self, place: str) -> list[str]:
        try:
            names = os.listdir(self.folder / place)
        except FileNotFoundError:
            return []
        except PermissionError:
            raise NotPermitted(
                f"{self.folder} is for root and group triage: run this as user triage or with sudo"
            ) from None
        return sorted(name for name in names if not name.startswith("."))

    def _files(self, place: str) -> Iterator[tuple[str, bytes]]:
        names = self._names(place)
        if not names:
            return
        with durable.opened(self.folder, place) as folder:
            for name in names:
                data = durable.read(folder, name)
                if data is not None:
                    yield name, data


def sequence(result: ActionResult) -> int:
    """The order in which root began its actions, whatever the clock did."""
    return int(result.kept.get("sequence", "0"))


class Record:
    """The result of one action while it is carried out: every change of it is on the disk before the next deed."""

    def __init__(self, ledger: Ledger, result: ActionResult, clock: Callable[[], int]) -> None:
        self.ledger = ledger
        self.result = result
        self.clock = clock
        self._noted = 0
        self._missed = False

    @classmethod
    def open(cls, ledger: Ledger, request: Request, clock: Callable[[], int]) -> Record:
        """A new one, or the one that a kill left unfinished."""
        with ledger.opening:
            found = ledger.result(request.action)
            if found is None:
                others, _ = ledger._readable()
                number = 1 + max((sequence(result) for result in others), default=0)
                kept = {"sequence": str(number)}
                time = clock()
                claimed = Step("claim", StepState.DONE, time)
                found = ActionResult(request, ActionState.RUNNING, (claimed,), time, kept=kept)
            record = cls(ledger, found, clock)
            if record.result.ended is None:
                record.keep(attempts=str(int(record.kept.get("attempts", "0")) + 1))
                record.save()
        return record

    @property
    def request(self) -> Request:
        return self.result.request

    @property
    def kept(self) -> Mapping[str, str]:
        return self.result.kept

    def keep(self, **values: str) -> None:
        """Remember for a later start; on the disk with the next step."""
        self.result = replace(self.result, kept={**self.kept, **values})

    def measure(self, **values: str) -> None:
        self.result = replace(self.result, measured={**self.result.measured, **values})

    def save(self) -> None:
        self.ledger.write_result(self.result)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Record]:
        """Recorded before and after; an error is recorded and goes on."""
        self._put(Step(name, StepState.RUNNING, self.clock()))
        self._missed = False
        try:
            yield self
        except Exception as error:
            self._end(StepState.FAILED, str(error))
            raise
        self._end(StepState.FAILED if self._missed else StepState.DONE, self.result.steps[-1].text)

    def miss(self) -> None:
        """The present step did not come to what it was for, and what follows goes on all the same."""
        self._missed = True

    def skip(self, name: str, why: str) -> None:
        self._put(Step(name, StepState.SKIPPED, self.clock(), why))

    def say(self, text: str) -> None:
        """What the present step has come to; on the disk with its end."""
        steps = self.result.steps
        self.result = replace(self.result, steps=(*steps[:-1], replace(steps[-1], text=mask(text)[:500])))

    def report(self, text: str) -> None:
        """Progress of a long step, on the disk every few seconds."""
        self.say(text)
        if self.clock() - self._noted > 2_000_000:
            self._noted = self.clock()
            self.save()

    def settle(self, state: ActionState, text: str, digest: str) -> None:
        """The end: from here on the action is what this file says."""
        self.result = replace(self.result, state=state, text=mask(text)[:1000], digest=digest, ended=self.clock())
        self.save()

    def _put(self, step: Step) -> None:
        # A step that a kill cut off is begun again in its own line.
        steps = self.result.steps
        cut_off = steps and steps[-1].name == step.name and steps[-1].state is StepState.RUNNING
        self.result = replace(self.result, steps=(*(steps[:-1] if cut_off else steps), step))
        self.save()

    def _end(self, state: StepState, text: str) -> None:
        steps = self.result.steps
        last = replace(steps[-1], state=state, time=self.clock(), text=mask(text)[:500])
        self.result = replace(self.result, steps=(*steps[:-1], last))
        self.save()
