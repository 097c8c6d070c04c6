"""A user's unit as those see it who may ask neither its manager nor its files: by what root passed on.

In: a user and a unit's name. Out: `View`, and a manager made of it that can be read alone. Called by `planning` (and by
the soak, through it). The question goes through the spool like any other; root's one-shot has it answered by a process
of that user's (`actions.deputy`), reads the answer strictly and keeps it in its own folder. An answer is as old as it
says: a plan that is made of one is proved against the unit itself by root, who compares digests.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from triage.actionmodel import Owner, Unit
from triage.actions import asking, durable
from triage.actions.described import loaded_of, state_of, unit_of
from triage.actions.spool import Spool
from triage.frozen import frozen
from triage.model import Pending, Refused, Unreachable
from triage.units.flagfile import FlagFile
from triage.units.processes import Leftover
from triage.units.systemctl import Loaded, State
from triage.units.unitfile import environment_file

PATIENCE = 15.0  # seconds; it takes about one
PLANNED = 120.0  # seconds: how old an answer may be for whoever does not wait: a page that asked and is loaded again
MOVING = 3.0  # seconds in which a state holds by itself, and an answer for whoever can wait for a new one
_CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")


@frozen
class View:
    unit: Unit
    loaded: Loaded
    state: State
    release: str
    flags: FlagFile | None  # of --config
    time: float  # seconds UTC, by root


class Views:
    """`listening` and `rouse`: as `Inquiry` takes them."""

    def __init__(
        self,
        spool: Spool,
        folder: Path,
        listening: Callable[[], bool],
        rouse: Callable[[], subprocess.Popen[bytes] | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spool, self.folder = spool, folder
        self.listening, self.rouse = listening, rouse
        self.clock = clock

    def view(self, owner: Owner, unit: str, *, age: float, patience: float) -> View:
        """One that is at most `age` seconds old. Raises Pending where it does not come in time, Refused with root's
        reason where there is none, Unreachable where nobody answers here."""
        present = self.clock()
        since = present - age
        # Whoever has mended what an answer named, and can wait, is not told the same again.
        refused = present if patience else since
        found = self._load(owner, unit, since, refused)
        if found is not None:
            return found
        if not self.listening():
            raise Unreachable(f"{unit} is a unit of user {owner.name}: root's side, which would look, is not listening")
        child = self._ask(owner, unit)
        until = time.monotonic() + patience
        while time.monotonic() < until:
            if (found := self._load(owner, unit, since, refused)) is not None:
                return found
            if child is not None and child.poll() is not None and self._load(owner, unit, since, refused) is None:
                raise Unreachable(f"root's side did not look at {unit}: see {self.folder}.log")
            time.sleep(0.1)
        raise Pending(f"{unit} of user {owner.name} is being looked at: look again in a moment")

    def last(self, owner: Owner, unit: str) -> View | None:
        """As it was seen last, however long ago."""
        with contextlib.suppress(Refused):
            return self._load(owner, unit, 0.0, 0.0)
        return None

    def _ask(self, owner: Owner, unit: str) -> subprocess.Popen[bytes] | None:
        try:
            (self.spool.folder / asking.ASKS).mkdir(parents=True, exist_ok=True, mode=0o700)
            return None if asking.filed(self.spool.folder, asking.view_name(owner.uid, unit)) else self.rouse()
        except OSError as error:
            raise Unreachable(f"cannot ask root's side for {unit}: {error.strerror}") from None

    def _load(self, owner: Owner, unit: str, since: float, refused: float) -> View | None:
        """What was seen after `since`; a refusal counts if it came after `refused`."""
        try:
            with durable.opened(self.folder, asking.ANSWERS) as answers:
                data = durable.read(answers, asking.view_name(owner.uid, unit))
            content: dict[str, Any] = json.loads(data) if data else {}
            taken = float(content["time"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if taken < since or taken > self.clock() + 60:
            return None
        if content.get("error"):
            if taken < refused:
                return None
            raise Refused(str(content["error"]))
        flags = content["flags"]
        return View(
            unit_of(content["unit"], owner),
            loaded_of(content["loaded"]),
            state_of(content["state"]),
            str(content["release"]),
            FlagFile(str(flags["path"]), dict(flags["values"])) if flags else None,
            taken,
        )


class Seen:
    """What a manager tells, for those without rights; it can be read alone. `age`, `patience`: seconds. `changed`: when
    triage itself changed that unit last, seconds UTC; no look is older."""

    live = True

    def __init__(
        self,
        views: Views,
        owner: Owner,
        *,
        age: float | None = None,
        patience: float = PATIENCE,
        changed: Callable[[str], float] = lambda unit: 0.0,
    ) -> None:
        self.views, self.owner, self.patience, self.changed = views, owner, patience, changed
        self.age = age if age is not None else MOVING if patience else PLANNED
        self._last: View | None = None

    def view(self, name: str, age: float | None = None) -> View:
        since_change = max(0.0, self.views.clock() - self.changed(name))
        age = min(self.age if age is None else age, since_change)
        self._last = self.views.view(self.owner, name, age=age, patience=self.patience)
        return self._last

    def read_unit(self, name: str) -> Unit:
        return self.view(name).unit

    def loaded(self, name: str) -> Loaded:
        """With what may be read of its environment files among the variables."""
        view = self.view(name)
        found = dict(item.partition("=")[::2] for item in view.loaded.environment)
        for file in view.unit.environment_files:
            found |= environment_file(file.text)
        items = tuple(f"{key}={value}" for key, value in found.items())
        return replace(view.loaded, environment=items, environment_files=())

    def state(self, name: str) -> State:
        """As it was seen, while its main process is in its control group still; else it is looked at anew."""
        last = self._last
        if last is not None and last.unit.name == name and last.state.active == "active":
            young = self.views.clock() - last.time < MOVING
            if young or in_cgroup(last.state.pid, last.state.cgroup):
                return last.state
        return self.view(name, age=MOVING).state

    def verify(self, before: Unit, after: Unit) -> tuple[str, ...]:
        return ()

    def reload(self) -> None:
        raise Refused("a unit that is only seen cannot be acted on")

    def restart(self, name: str) -> None:
        raise Refused(f"{name} is only seen here, it cannot be acted on")

    def asked_to_stop(self, name: str, invocation: str) -> bool:
        return False

    def leftovers(self, name: str) -> tuple[Leftover, ...]:
        return ()


def in_cgroup(pid: int, path: str, bases: tuple[str, ...] = _CGROUPS) -> bool:
    """Whether that process is in that control group now; False too where nobody can tell."""
    for base in bases if pid > 0 and path else ():
        try:
            return str(pid) in (Path(base + path) / "cgroup.procs").read_text().split()
        except OSError:
            continue
    return False
