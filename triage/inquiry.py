"""Planning asks the installed server: its release and the flags that its own parser knows.

In: a unit as it is. Out: its parser, or why there is none. Called by `planning`. It starts nothing itself: the question
goes through the spool, root's one-shot starts the unit's program with --help as the unit's own user, and the answer is
read from root's folder (docs/architecture.md, Asking the installed server).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from triage.actionmodel import Unit
from triage.actions import asking
from triage.actions.spool import Spool
from triage.model import Pending, Refused
from triage.rulebase.parser import Parser

PATIENCE = 90.0  # seconds; an import of SGLang alone takes 25


class Inquiry:
    """`patience`: seconds to wait for an answer; 0 for whoever must not wait (the web process)."""

    def __init__(self, spool: Spool, folder: Path, patience: float = PATIENCE) -> None:
        self.spool, self.folder, self.patience = spool, folder, patience
        self._asking: dict[str, subprocess.Popen[bytes]] = {}  # a private one-shot that was started for a unit
        self._silent: set[str] = set()  # units that gave no answer: not waited for again, rung after rung

    def parser(
        self, unit: Unit, listening: Callable[[], bool], rouse: Callable[[], subprocess.Popen[bytes] | None]
    ) -> tuple[Parser | None, str]:
        """What the server says, else None and why. Raises Pending where an answer is under way, not waited for."""
        try:
            argv, program = asking.asked(unit)
        except Refused as reason:
            return None, unasked(str(reason))
        answer = asking.load(self.folder, unit.name)
        if answer is None or not answer.fresh(argv, program, time.time()):
            if unit.name in self._silent or not listening():
                return None, unasked("nobody is there to ask it")
            answer = self._ask(unit.name, answer, rouse)
        if answer is None or answer.error or not answer.of(argv):
            self._silent.add(unit.name)
            return None, unasked(answer.error if answer and answer.error else "it gave no answer")
        return Parser(answer.help, answer.release), ""

    def _ask(
        self, unit: str, before: asking.Answer | None, rouse: Callable[[], subprocess.Popen[bytes] | None]
    ) -> asking.Answer | None:
        """File the question, wait for a new answer."""
        try:
            (self.spool.folder / asking.ASKS).mkdir(parents=True, exist_ok=True, mode=0o700)
            child = self._asking.pop(unit, None)
            if child is None:  # who looks again and again starts one process, not many
                child = None if asking.filed(self.spool.folder, unit) else rouse()
        except OSError:
            return None
        until = time.monotonic() + self.patience
        while True:
            ended = child is not None and child.poll() is not None
            answer = asking.load(self.folder, unit)
            if answer is not None and answer != before:
                return answer
            if ended:
                return None
            if time.monotonic() > until:
                break
            time.sleep(0.1)
        if self.patience:
            return None
        if child is not None:
            self._asking[unit] = child
        raise Pending(f"the server of {unit} is being asked for its flags, which takes up to a minute: look again then")


def unasked(why: str) -> str:
    return f"the installed server was not asked for its flags ({why}): they are those of its release, if that is known"
