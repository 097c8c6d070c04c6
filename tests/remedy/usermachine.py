"""A user's manager and home for tests, and a deputy in this process in place of one that systemd starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.remedy.fixtures import DISABLE_GRAPH, UNITS, remedy
from tests.remedy.machine import NOW, UNIT, FakeManager, FakeProof, as_request
from triage.actionmodel import Owner, Request, Unit
from triage.actions import described, theirs
from triage.actions.carry import Carrier
from triage.actions.deputy import Deputy
from triage.actions.ledger import Ledger, Record
from triage.actions.policy import Policy
from triage.actions.theirs import Session, TheirManager, TheirPlace
from triage.model import Edit
from triage.remedy import plan, plan_rollback
from triage.units.dropin import standing
from triage.units.systemctl import State
from triage.units.unitsearch import search, with_environment_files

POLICY = Policy.parse('units=["sglang*"]\nusers=["a*"]\n[flags]\n"*"=".*"\n')


class Killed(BaseException):
    """As kill -9 is: nothing catches it."""


class OwnManager(FakeManager):
    """The simulated manager, for the units of one user's home."""

    def __init__(self, folder: Path, owner: Owner) -> None:
        self.owner = owner
        super().__init__(folder)

    def read_unit(self, name: str) -> Unit:
        return with_environment_files(replace(search(name, (Path(self.owner.folder),)), owner=self.owner))

    def state(self, name: str) -> State:
        """With an invocation as systemd has them."""
        state = super().state(name)
        number = state.invocation.removeprefix("inv")
        return replace(state, invocation=f"{int(number):032x}" if number else "")

    def asked_to_stop(self, name: str, invocation: str) -> bool:
        return super().asked_to_stop(name, f"inv{int(invocation, 16)}")


class Wire(Session):
    """The deputy in this process; all that passes goes through JSON. `dies` before or after so many calls."""

    def __init__(self, machine: UserMachine, dies: int = -1, *, after: bool = False) -> None:
        super().__init__(machine.owner, UNIT)
        self.deputy = Deputy(machine.owner, machine.manager)
        self.said: list[str] = []
        self.dies, self.after = dies, after

    def call(self, do: str, *args: Any, limit: float = 0) -> Any:
        self.said.append(do)
        self.dies -= 1
        if self.dies == 0 and not self.after:
            raise Killed
        line = self.deputy.answer(json.dumps({"do": do, "with": described.plain(args)}).encode())
        if self.dies == 0:
            raise Killed
        return theirs._value(line)


class UserMachine:
    def __init__(self, folder: Path, uid: int = 1000, name: str = "ada") -> None:
        self.owner = Owner(uid, name, str(folder / name))
        units = Path(self.owner.folder)
        if not units.exists():
            units.mkdir(parents=True)
            (units / UNIT).write_text((UNITS / "kimi-k26-dflash.service").read_text())
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        self.ledger.create()
        (folder / f"manager-{name}" / "etc").mkdir(parents=True, exist_ok=True)
        self.manager = OwnManager(folder / f"manager-{name}", self.owner)
        self.time = NOW

    def clock(self) -> int:
        self.time += 1000
        return self.time

    def carrier(self, session: Session, policy: Policy = POLICY) -> Carrier:
        manager = TheirManager(session)
        manager._own = self.manager  # type: ignore[assignment]  # what root reads itself: the journal, /proc
        proof = FakeProof(self.manager)
        proof.manager = manager
        place = TheirPlace(session)
        return Carrier(self.ledger, manager, place, proof, lambda: policy, self.clock, owner=self.owner)

    def request(self, *edits: Edit, action: str = "i3-1") -> Request:
        unit = self.manager.read_unit(UNIT)
        known = standing(self.ledger.results(), UNIT, owner=self.owner.uid)
        made = plan(unit, 3, "some-rule", remedy(*(edits or (DISABLE_GRAPH,))), known, action=action, now=self.time)
        assert made.owner == self.owner.uid
        return replace(as_request(made, "apply"), owner=made.owner)

    def request_text(self) -> str:
        unit = self.manager.read_unit(UNIT)
        made = plan(unit, 3, "some-rule", remedy(DISABLE_GRAPH), standing((), UNIT), action="i3-1", now=self.time)
        assert made.drop_in_path == f"{self.owner.folder}/{UNIT}.d/zzz-triage.conf"
        return made.drop_in_text

    def rollback(self, target: str, action: str) -> Request:
        known = standing(self.ledger.results(), UNIT, owner=self.owner.uid)
        undo = plan_rollback(self.manager.read_unit(UNIT), known, target, action=action, now=self.time)
        return replace(as_request(undo, "rollback", target), owner=undo.owner)

    def carry(self, request: Request, session: Session | None = None) -> Record:
        self.ledger.claim(request)
        return self.carrier(session or Wire(self)).carry(request)

    def files(self) -> dict[str, bytes]:
        below = Path(self.owner.folder)
        return {str(path.relative_to(below)): path.read_bytes() if path.is_file() else b"" for path in below.rglob("*")}
