"""What root wants done with a unit of a user's, done as that user: no file below a home is ever root's to open.

In: calls as JSON on stdin, one a line, from root's `theirs`. Out: one answer a line on stdout. Started by root through
the system's manager as a transient unit under the user's uid (`python -I -m triage.actions.deputy [UNIT]`), it has the
user's rights and no more: the user's manager, the user's files, the user's server. It ends with its input. With UNIT no
other of its kind acts on that unit at the same time: the one that a killed root left behind finishes its call first.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, BinaryIO

from triage.actionmodel import Owner
from triage.actions.described import plain
from triage.actions.place import Place
from triage.actions.probe import Answer
from triage.actions.readiness import Limits, Proof
from triage.model import NotPermitted, Refused, TriageError, Unreachable
from triage.units.dropin import with_drop_in
from triage.units.flagfile import of_unit
from triage.units.owners import owner_of
from triage.units.servers import installed
from triage.units.systemctl import Manager, NotKnown, Systemd

ERRORS: tuple[type[TriageError], ...] = (NotKnown, Refused, NotPermitted, Unreachable)  # NotKnown is a Refused too
_OTHERS = 0o004  # readable for all


class Deputy:
    """`calls`: by name, what can be asked."""

    def __init__(self, owner: Owner, manager: Manager | None = None) -> None:
        self.manager: Manager = manager or Systemd(owner)
        self.place = Place(owner=owner)
        self.calls: dict[str, Callable[..., Any]] = {
            "read_unit": self.manager.read_unit,
            "verify": self._verify,
            "reload": self.manager.reload,
            "loaded": self.manager.loaded,
            "state": self.manager.state,
            "restart": self.manager.restart,
            "read": self._read,
            "mode": self.place.mode,
            "has_folder": self.place.has_folder,
            "make_folder": self.place.make_folder,
            "write": self._write,
            "remove": lambda unit, folder_too: self.place.remove(unit, folder_too=folder_too),
            "endpoint": self._endpoint,
            "healthy": self._healthy,
            "put": self._put,
            "speed": lambda unit, seconds: self._proof(seconds).speed(unit),
            "view": self._view,
        }

    def answer(self, line: bytes) -> bytes:
        """One call; whatever it raises is an answer too."""
        try:
            call = json.loads(line)
            found: dict[str, Any] = {"value": plain(self.calls[call["do"]](*call["with"]))}
        except (TriageError, OSError) as error:
            kind = next((kind for kind in ERRORS if isinstance(error, kind)), TriageError)
            found = {"error": kind.__name__, "text": str(error)}
        return json.dumps(found).encode()

    def _verify(self, name: str, text: str) -> tuple[str, ...]:
        before = self.manager.read_unit(name)
        return self.manager.verify(before, with_drop_in(before, text))

    def _read(self, unit: str) -> str | None:
        data = self.place.read(unit)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def _write(self, unit: str, text: str, mode: int) -> None:
        self.place.write(unit, text.encode("utf-8", "surrogateescape"), mode)

    # ------------------------------------------------------------ its server

    def _proof(self, seconds: float = 300) -> Proof:
        return Proof(self.manager, Limits(probe=seconds, baseline=seconds))

    def _endpoint(self, unit: str) -> dict[str, str]:
        """What can be asked there; where it listens and its key stay here."""
        at = self._proof().endpoint(unit)
        return {"kind": at.kind.value, "note": at.note}

    def _healthy(self, unit: str) -> tuple[bool, str]:
        proof = self._proof()
        return proof.healthy(unit, proof.endpoint(unit))

    def _put(self, unit: str, invocation: str, seconds: float) -> Answer:
        """One request. Whether the run ended by itself or by somebody's hand, root sees in the journal."""

        def gone() -> str:
            try:
                state = self.manager.state(unit)
            except TriageError:  # the manager is slow to answer: that says nothing about the server
                return ""
            same = state.invocation in ("", invocation) and state.active not in ("failed", "inactive")
            return "" if same else f"{unit} is {state.active}"

        return self._proof(seconds).ask(unit, gone)

    # ------------------------------------------------------------ for those without rights

    def _view(self, name: str) -> dict[str, Any]:
        """All that planning needs, from files that everybody might read if the home let them in."""
        unit = self.manager.read_unit(name)
        for file in unit.files:
            if not file.mode & _OTHERS:
                raise NotPermitted(f"{file.path} is for its user alone: chmod o+r {file.path} lets triage plan with it")
        readable = tuple(file for file in unit.environment_files if file.mode & _OTHERS)
        filed = of_unit(unit)
        shown = filed is not None and os.stat(filed.path).st_mode & _OTHERS
        return {
            "unit": replace(unit, environment_files=readable),
            "loaded": self.manager.loaded(unit.name),
            "state": self.manager.state(unit.name),
            "release": installed(unit) or "",
            "flags": {"path": filed.path, "values": dict(filed.values)} if filed and shown else None,
        }


def serve(deputy: Deputy, calls: BinaryIO, answers: BinaryIO) -> None:
    """Until the calls are over."""
    for line in calls:
        answers.write(deputy.answer(line) + b"\n")
        answers.flush()


def main(argv: list[str] | None = None) -> int:
    units = (sys.argv[1:] if argv is None else argv)[:1]
    os.umask(0o022)
    try:
        owner = owner_of(os.geteuid())
        if not units:
            serve(Deputy(owner), sys.stdin.buffer, sys.stdout.buffer)
            return 0
        with open(f"{owner.runtime}/triage-{units[0].replace('/', '_')}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            serve(Deputy(owner), sys.stdin.buffer, sys.stdout.buffer)
    except (TriageError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
