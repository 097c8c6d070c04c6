"""A thousand bad nights: seeded schedules of actions with faults in them, over a simulated manager and the real store.

Killed before any deed (a file renamed, made or removed, a row written), a disk that is full for a while, a manager that
does not answer, operators' hands in between, two who ask at once. After each night everything is settled the same way
on both sides of the privilege line, and nothing was restarted more often than planned.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.remedy.fixtures import DISABLE_GRAPH
from tests.remedy.machine import UNIT, USELESS, FakeProof, Machine, as_request
from tests.store.made import closed, made_finding, record
from triage.actionmodel import ActionResult, ActionState, Plan
from triage.actions.probe import Answer
from triage.debt import EVERY, Collector
from triage.model import Edit, TriageError, Unreachable
from triage.remedy import plan_rollback
from triage.request import ABANDONED, Requester
from triage.settings import Guards, Settings
from triage.store import ActionRow, Store
from triage.units.dropin import Standing, standing
from triage.units.unitfile import digest

NIGHTS = 1000
CHUNKS = 10
DEEDS = ("rename", "unlink", "mkdir", "rmdir")
CALLS = ("read_unit", "verify", "reload", "loaded", "state", "restart")
EDITS = (
    DISABLE_GRAPH,
    USELESS,
    Edit("set-flag", "--mem-fraction-static", "0.8"),
    Edit("set-env", "SGLANG_NIGHT", "1"),
)
LOOSE = Guards(signature_per_day=99, unit_per_day=99, host_per_day=99, breaker_actions=99)


class Killed(BaseException):
    """kill -9, as far as it can be had without a process: nothing in the code under test catches it."""


class Fate:
    """Strikes at the n-th deed or call, once; a full disk lasts for some deeds."""

    def __init__(self, kind: str = "", at: int = 0, span: int = 1) -> None:
        self.kind, self.at, self.span = kind, at, span
        self.seen = 0

    def deed(self) -> None:
        self.seen += self.kind in ("kill", "full")
        if self.kind == "kill" and self.seen == self.at:
            raise Killed
        if self.kind == "full" and self.at <= self.seen < self.at + self.span:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def call(self) -> None:
        self.seen += self.kind == "silent"
        if self.kind == "silent" and self.at <= self.seen < self.at + self.span:
            raise Unreachable("the manager gave no answer")


class Watched(FakeProof):
    """A server that is not cured crashes at the probe, and `watch` reads of it."""

    def __init__(self, night: Night) -> None:
        super().__init__(night.machine.manager)
        self.night = night

    def probe(self, unit: str, invocation: str) -> Answer:
        answer = super().probe(unit, invocation)
        if "went away" in answer.text:
            self.night.crashed()
        return answer


class Night:
    """One machine with both sides of the line. `fate` is asked before every deed."""

    def __init__(self, folder: Path, store: Store, seed: int) -> None:
        self.dice = random.Random(seed)
        self.machine = Machine(folder)
        self.store = store
        store.host = f"night-{seed}"
        self.hands = Requester(Settings(state_dir=folder / "state", apply_dir=folder / "ledger"), store)
        self.hands.manager, self.hands.private, self.hands.clock = self.machine.manager, False, self.machine.clock
        self.hands.limits = LOOSE
        self.hands.spool.create()
        self.fate = Fate()
        self.number = 0
        self.touched = False  # the drop-in, by a hand
        self.by_hand = False  # removed by one
        self.planned = 0  # restarts
        self.taken_in: dict[str, ActionResult] = {}
        self.late = random.Random(-seed)  # when `watch` and the worker look
        self.unread: list[int] = []  # crashes that nobody has recorded yet
        self.trials = 0  # of retirements that a crash ended
        self.machine.incident = self.first_crash()
        for name in CALLS:
            setattr(self.machine.manager, name, self._asked(getattr(self.machine.manager, name)))

    def _asked(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.fate.call()
            return real(*args)

        return call

    # ------------------------------------------------------------ what happens

    def draw_fate(self) -> Fate:
        kind = self.dice.choice(("", "kill", "kill", "kill", "full", "silent"))
        most = {"kill": 75, "full": 60, "silent": 14}.get(kind, 1)
        return Fate(kind, self.dice.randint(1, most), self.dice.choice((1, 1, 2, 30)))

    def event(self) -> None:
        common = (self.apply, self.apply, self.apply, self.undo, self.undo)
        deed = self.dice.choice((*common, self.twice, self.operator, self.retire_soon))
        if self.dice.random() < 0.2:
            manager = self.machine.manager
            meanwhile = (manager.crash, manager.stop, self.edit_drop_in, self.edit_unit)
            self.dice.choice((manager.while_loading, manager.while_probed)).append(self.dice.choice(meanwhile))
        self.fate = self.draw_fate()
        with suppress(Killed, TriageError, OSError):
            deed()
            self.root()
        self.at_most_one()
        self.fate = self.draw_fate() if self.dice.random() < 0.3 else Fate()
        with suppress(Killed, OSError):
            self.root()
        self.fate = Fate()
        self.machine.manager.while_loading.clear()
        self.machine.manager.while_probed.clear()
        self.root()
        self.worker()

    def known(self) -> Standing:
        return standing(self.machine.ledger.results(), UNIT)

    def apply(self, edit: Edit | None = None) -> None:
        self.number += 1
        self.file(self.machine.plan(edit or self.dice.choice(EDITS), action=f"i3-{self.number}"), "apply")

    def retire_soon(self) -> None:
        """The cure, and within its window its retirement: that fails, and the cure stays."""
        fate, self.fate = self.fate, Fate()
        self.apply(DISABLE_GRAPH)
        self.root()
        self.take_in()
        self.fate = fate
        self.undo("retire")

    def undo(self, kind: str = "") -> None:
        held = self.known().actions
        if held:
            target = held[-1].action if kind else self.dice.choice(held).action
            self.number += 1
            unit = self.machine.manager.read_unit(UNIT)
            plan = plan_rollback(unit, self.known(), target, action=f"i3-{self.number}", now=self.machine.time)
            self.file(plan, kind or self.dice.choice(("rollback", "retire")), target)

    def twice(self) -> None:
        """Two who planned on the same unit at the same moment."""
        self.number += 2
        plans = [self.machine.plan(edit, action=f"i3-{self.number - n}") for n, edit in enumerate(EDITS[:2])]
        for plan in plans:
            self.file(plan, "apply")

    def file(self, plan: Plan, kind: str, target: str | None = None) -> None:
        request = replace(as_request(plan, kind, target), time=self.machine.time)
        self.planned += 1 if kind == "rollback" else 2
        self.fate.deed()
        self.hands._file(request, plan, "ada")

    def operator(self) -> None:
        self.dice.choice((self.edit_unit, self.edit_drop_in, self.remove_drop_in, self.machine.manager.crash))()

    def edit_unit(self) -> None:
        path = self.machine.folder / "etc/systemd/system" / UNIT
        path.write_text(f"# seen at {self.machine.time}\n{path.read_text()}")

    def edit_drop_in(self) -> None:
        if self.machine.drop_in.exists():
            self.machine.drop_in.write_text(self.machine.drop_in.read_text() + "# mine\n")
            self.touched = True

    def remove_drop_in(self) -> None:
        self.by_hand |= self.machine.drop_in.exists()
        self.machine.drop_in.unlink(missing_ok=True)

    # ------------------------------------------------------------ what follows

    def root(self) -> None:
        """The path unit: started as long as there is something to take."""
        for _ in range(12):
            self.hands.spool.claim(self.machine.ledger, lambda text: None)
            claims = self.machine.ledger.claims()
            if not claims:
                return
            self.machine.carrier(proof=Watched(self)).carry(claims[0])
        raise AssertionError("root never comes to an end")

    def first_crash(self) -> int:
        """What all remedies of the night are for."""
        self.unread.append(self.machine.clock())
        self.watch()
        return self.store.crashes(limit=1).rows[0].incident

    def crashed(self) -> None:
        """As the probe sees it. Whether `watch` or the worker is faster, nobody knows."""
        self.unread.append(self.machine.clock())
        self.trials += any(claim.kind == "retire" for claim in self.machine.ledger.claims())
        for look in self.late.sample((self.watch, self.take_in), self.late.choice((0, 1, 2))):
            look()

    def watch(self) -> None:
        while self.unread:
            finding = made_finding(started=self.unread.pop(0), unit=UNIT)
            crash = replace(finding.crash, host=self.store.host, id=f"at {self.machine.time}")
            record(self.store, closed(replace(finding, crash=crash)), now=self.machine.time)

    def worker(self) -> None:
        if self.late.random() < 0.5:
            self.watch()
        self.take_in()
        self.watch()
        self.hands.settle_abandoned(self.machine.time + 2 * ABANDONED)
        for row in self.in_store() if self.by_hand else ():
            if self.hands.removed_by_hand(row):
                self.number += 1
                self.hands.rollback(row, f"i3-{self.number}", "triage", reason="removed by hand")
                self.root()
                self.take_in()
                self.touched = False
                break

    def take_in(self) -> None:
        for result in self.machine.ledger.results():
            if self.taken_in.get(result.request.action) != result:
                self.store.import_result(result, self.machine.time)
                self.taken_in[result.request.action] = result

    def in_store(self) -> list[ActionRow]:
        return [row for row in self.store.workarounds(UNIT) if row.host == self.store.host]

    # ------------------------------------------------------------ what must hold

    def at_most_one(self) -> None:
        begun = [row for row in self.store.unsettled(self.machine.time * 2) if row.unit == UNIT]
        assert len(begun) <= 1, begun

    def check(self) -> None:
        assert self.store.unsettled(self.machine.time * 2) == (), "every action is settled"
        assert self.machine.ledger.claims() == ()
        assert self.hands.spool.waiting() == ()
        results = self.machine.ledger.results()
        assert all(result.ended is not None for result in results)
        known = standing(results, UNIT)
        assert [row.name for row in self.in_store()] == sorted(item.action for item in known.actions)
        starts = self.machine.manager.facts()["starts"]
        assert starts <= self.planned, f"{starts} restarts, {self.planned} planned"
        if not self.touched:
            present = self.machine.drop_in.read_text() if self.machine.drop_in.exists() else ""
            assert (digest(present) if present else "") == known.digest, "the disk is what the ledger says"

    def check_blame(self) -> None:
        """A server crashes without the cure alone, so never under one that stands: none is to be taken back."""
        results = self.machine.ledger.results()
        if any(result.request.kind == "retire" and result.measured.get("well") == "no" for result in results):
            return  # it could not be put back, and the server crashes under whatever else stands
        wanted = [row.action for row in self.store.wanted_rollbacks() if row.host == self.store.host]
        assert wanted == [], f"{wanted} are to be taken back"
        back = {one.action for one in self.store.tried(UNIT) if one.came_back}
        assert not back & {row.name for row in self.in_store()}, "what stands is not remembered as failed"

    def undo_all(self, clean: set[str]) -> None:
        """Without faults: what is left is the operator's own, byte for byte."""
        if self.touched:
            return
        unit = self.machine.folder / "etc/systemd/system" / UNIT
        own = unit.read_bytes()
        while held := self.in_store():
            self.number += 1
            self.hands.rollback(held[-1], f"i3-{self.number}", "ada")
            self.root()
            self.take_in()
            done = self.machine.ledger.result(f"i3-{self.number}")
            assert done is not None
            assert done.state is ActionState.UNDONE
        left = set(self.machine.files()) - clean
        assert left <= ({f"systemd/system/{UNIT}.d"} if self.by_hand else set()), "a hand leaves the empty folder"
        assert unit.read_bytes() == own


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be had: a hundred nights write a hundred thousand small files."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="triage-nights-") as folder:
        yield Path(folder)


@contextmanager
def deeds_counted(monkeypatch: pytest.MonkeyPatch, night: Night) -> Iterator[None]:
    with monkeypatch.context() as patch:
        for name in DEEDS:
            patch.setattr(os, name, _counted(getattr(os, name), night))
        yield


def _counted(real: Callable[..., Any], night: Night) -> Callable[..., Any]:
    def deed(*args: Any, **named: Any) -> Any:
        night.fate.deed()
        return real(*args, **named)

    return deed


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_thousand_bad_nights(place: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    store = Store(f"sqlite:///{place / 'triage.db'}")
    store.upgrade()
    spread: set[str] = set()
    trials = 0
    for seed in range(chunk * NIGHTS // CHUNKS, (chunk + 1) * NIGHTS // CHUNKS):
        folder = place / str(seed)
        folder.mkdir()
        night = Night(folder, store, seed)
        clean = set(night.machine.files())
        with deeds_counted(monkeypatch, night):
            for _ in range(night.dice.choice((1, 1, 1, 2, 2))):
                try:
                    night.event()
                    night.check()
                    night.check_blame()
                except Exception as error:
                    raise AssertionError(f"night {seed}: {error}") from error
            if seed % 8 == 0:
                night.undo_all(clean)
        spread |= {str(result.state) for result in night.machine.ledger.results()}
        trials += night.trials
        shutil.rmtree(folder)
    assert {"verified", "rolled-back", "refused"} <= spread
    assert trials > 3, "retirements that failed by a crash"
    store.close()


def test_a_debt_of_a_unit_that_was_removed_is_closed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the worker where the drop-in went with it; else it is said, and a rollback takes the drop-in away."""
    store = Store(f"sqlite:///{place / 'triage.db'}")
    store.upgrade()
    for left in (False, True):
        folder = place / str(left)
        folder.mkdir()
        night = Night(folder, store, int(left))
        monkeypatch.setattr("triage.planning.drop_in_path", lambda unit, night=night: str(night.machine.drop_in))
        monkeypatch.setattr("triage.request.drop_in_path", lambda unit, night=night: str(night.machine.drop_in))
        night.apply(DISABLE_GRAPH)
        night.root()
        night.take_in()
        (row,) = night.in_store()
        (folder / "etc/systemd/system" / UNIT).unlink()
        if not left:
            shutil.rmtree(night.machine.drop_in.parent)
        collector = Collector(store, night.hands, lambda name: None)
        assert collector.round(night.machine.time + 10 * EVERY) == (not left)
        note = night.hands.outdated(row)
        assert f"{UNIT} is not known to systemd any more" in note
        assert f"triage rollback {row.name}" in note
        if left:
            night.hands.rollback(row, "i3-9", "ada")
        night.root()
        night.take_in()
        assert night.in_store() == []
        assert not night.machine.drop_in.exists()
    store.close()
