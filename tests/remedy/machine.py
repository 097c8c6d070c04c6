"""A machine for tests: unit files below a folder, a manager that remembers across processes, a proof without a network.

The server of the unit is well when `--disable-cuda-graph` is in the command that was loaded at its last start.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

from tests.remedy.fixtures import DISABLE_GRAPH, UNITS, remedy
from triage.actionmodel import Plan, Request, Unit
from triage.actions.carry import Carrier
from triage.actions.ledger import Ledger, Record
from triage.actions.place import Place
from triage.actions.policy import Policy
from triage.actions.probe import Answer
from triage.actions.readiness import Limits, Proof, Report
from triage.model import Edit, Refused
from triage.remedy import plan, plan_rollback
from triage.units.dropin import standing
from triage.units.processes import Leftover
from triage.units.systemctl import Folder, Loaded, NotKnown, State
from triage.units.unitfile import effective, own_drop_in

UNIT = "sglang-k26-dflash.service"
NOW = 1_764_424_800_000_000
USELESS = Edit("set-flag", "--max-running-requests", 64)


class FakeManager:
    """What is loaded, how often it was started: in one file, so that a killed process leaves it behind."""

    live = True

    def __init__(self, folder: Path) -> None:
        self.disk = Folder(folder)
        self.file = folder / "manager.json"
        if not self.file.exists():
            self._save(
                {"command": [], "environment": {}, "invocation": 1, "starts": 0, "reloads": 0, "active": "active"}
            )
            self.reload()
        self.objections: tuple[str, ...] = ()
        self.left: tuple[Leftover, ...] = ()
        self.crashes_at_load = False
        self.loads_something_else = False
        self.while_loading: list[Callable[[], None]] = []  # what happens to the unit, one at each wait for it
        self.while_probed: list[Callable[[], None]] = []

    def facts(self) -> dict:  # type: ignore[type-arg]
        return json.loads(self.file.read_text())  # type: ignore[no-any-return]

    def _save(self, facts: dict) -> None:  # type: ignore[type-arg]
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(facts))
        os.replace(part, self.file)

    def read_unit(self, name: str) -> Unit:
        try:
            return self.disk.read_unit(name)
        except Refused as reason:
            raise (NotKnown(str(reason)) if "is in none of" in str(reason) else reason) from None

    def verify(self, before: Unit, after: Unit) -> tuple[str, ...]:
        return self.objections

    def reload(self) -> None:
        try:
            found = effective(self.read_unit(UNIT), with_drop_in=True)
        except NotKnown:
            return
        facts = self.facts()
        words = [list(command.argv) for command in found.commands]
        environment = dict(found.environment)
        self._save(
            {
                **facts,
                "command": words,
                "environment": environment,
                "unset": found.unset,
                "reloads": facts["reloads"] + 1,
            }
        )

    def loaded(self, name: str) -> Loaded:
        facts = self.facts()
        commands = tuple(tuple(words) for words in facts["command"])
        extra = (("surprise",),) if self.loads_something_else else ()
        items = tuple(f"{key}={value}" for key, value in facts["environment"].items())
        return Loaded((*commands, *extra), items, tuple(facts["unset"]))

    def state(self, name: str) -> State:
        facts = self.facts()
        invocation = "" if facts.get("forgotten") else f"inv{facts['invocation']}"
        return State(facts["active"], "running", "success", invocation, 0, 4711)

    def restart(self, name: str) -> None:
        self.forget()
        self.begin()

    def asked_to_stop(self, name: str, invocation: str) -> bool:
        return invocation in self.facts().get("jobs", ())

    def leftovers(self, name: str) -> tuple[Leftover, ...]:
        return self.left

    def stop(self, *, begin: bool = False) -> None:
        """By an operator. SGLang ends itself by SIGKILL, so the unit is failed afterwards."""
        facts = self.facts()
        ended = [*facts.get("jobs", ()), f"inv{facts['invocation']}"]
        self._save({**facts, "active": "failed", "jobs": ended})
        if begin:
            self.begin()

    def crash(self) -> None:
        self._save({**self.facts(), "active": "failed"})

    def forget(self) -> None:
        """reset-failed: a unit that is down is forgotten, and its invocation with it."""
        facts = self.facts()
        if facts["active"] == "failed":
            self._save({**facts, "active": "inactive", "forgotten": True})

    def begin(self) -> None:
        facts = self.facts()
        news = {"invocation": facts["invocation"] + 1, "starts": facts["starts"] + 1, "active": "active"}
        self._save({**facts, **news, "forgotten": False})


class FakeProof(Proof):
    def __init__(self, manager: FakeManager) -> None:
        super().__init__(manager, Limits(), sleep=lambda _: None)
        self.fake = manager

    def ready(self, unit: str, invocation: str, report: Report, timeout: float = 0) -> Answer:
        report("0 s: loading")
        if self.fake.while_loading:
            self.fake.while_loading.pop(0)()
        gone = self.gone(unit, invocation)
        if gone:
            return Answer(False, gone)
        return Answer(
            not self.fake.crashes_at_load, "crashed while loading" if self.fake.crashes_at_load else "healthy", 3.0
        )

    def speed(self, unit: str) -> float:
        return 80.0

    def probe(self, unit: str, invocation: str) -> Answer:
        if self.fake.while_probed:
            self.fake.while_probed.pop(0)()
        gone = self.gone(unit, invocation)
        if gone:
            return Answer(False, gone)
        cured = "--disable-cuda-graph" in self.manager.loaded(unit).commands[0]
        return Answer(cured, "answered 'ready'" if cured else "the server went away", 0.5)


class Machine:
    def __init__(self, folder: Path, fixture: str = "kimi-k26-dflash") -> None:
        self.folder = folder
        units = folder / "etc/systemd/system"
        if not units.exists():
            units.mkdir(parents=True)
            (units / UNIT).write_text((UNITS / f"{fixture}.service").read_text())
        self.ledger = Ledger(folder / "ledger")
        self.ledger.create()
        self.manager = FakeManager(folder)
        self.time = NOW
        self.incident = 3

    @property
    def drop_in(self) -> Path:
        return self.folder / f"etc/systemd/system/{UNIT}.d/zzz-triage.conf"

    def clock(self) -> int:
        self.time += 1000
        return self.time

    def carrier(self, policy: Callable[[], Policy] | None = None, proof: Proof | None = None) -> Carrier:
        allowed = Policy.parse(
            'units=["sglang*"]\n[flags]\n"*"=".*"\n[environment]\n"*"=".*"\n[directives]\n"*"=".*"\n'
        )
        proof = proof or FakeProof(self.manager)
        return Carrier(self.ledger, self.manager, Place(self.folder), proof, policy or (lambda: allowed), self.clock)

    def plan(self, *edits: Edit, action: str = "i3-1") -> Plan:
        unit = self.manager.read_unit(UNIT)
        known = standing(self.ledger.results(), UNIT)
        cure = remedy(*(edits or (DISABLE_GRAPH,)))
        return plan(unit, self.incident, "dflash-graph-replay-none", cure, known, action=action, now=NOW)

    def apply_request(self, *edits: Edit, action: str = "i3-1", verify: bool = True) -> Request:
        return as_request(self.plan(*edits, action=action), "apply", verify=verify)

    def rollback_request(self, target: str, action: str) -> Request:
        unit = self.manager.read_unit(UNIT)
        known = standing(self.ledger.results(), UNIT)
        return as_request(plan_rollback(unit, known, target, action=action, now=NOW), "rollback", target)

    def carry(self, request: Request) -> Record:
        self.ledger.claim(request)
        return self.carrier().carry(request)

    def files(self) -> dict[str, bytes]:
        below = self.folder / "etc"
        return {str(path.relative_to(below)): path.read_bytes() if path.is_file() else b"" for path in below.rglob("*")}

    def own_file_loaded(self) -> bool:
        return any(own_drop_in(file.path) for file in self.manager.read_unit(UNIT).files)


def as_request(plan: Plan, kind: str, target: str | None = None, *, verify: bool = True) -> Request:
    return Request(
        action=plan.action,
        kind=kind,
        unit=plan.unit,
        incident=plan.incident,
        rule=plan.rule,
        remedy=plan.remedy,
        edits=plan.edits if kind == "apply" else (),
        seen_digest=plan.seen_digest,
        result_digest=plan.result_digest,
        uid=1000,
        sudo_uid=None,
        time=plan.time,
        target=target,
        verify=verify,
        root=plan.root,
    )
