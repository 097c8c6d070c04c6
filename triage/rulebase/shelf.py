"""The rules in force while a process runs: read again when their files have changed.

In: the folders of rules. Out: `InForce`, replaced as a whole. Called by `watch` between two batches, by the pages and
by the worker. It looks (names, times and sizes, no contents) every few seconds when it is asked, and starts no thread.
Files with a fault never replace what is in force. The first time, when there is nothing to keep, the sound ones count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock

from triage.frozen import frozen
from triage.model import Crash, Match, Near
from triage.rulebase.rule import Rules
from triage.rulebase.rulebook import Rulebook
from triage.rulebase.rulecache import changed_at, files_state, read_rules
from triage.rulebase.rulefile import RuleErrors

LOOK_EVERY = 3.0  # seconds
SETTLED = 1.0  # seconds since the last change: an editor may be writing still, and half a file reads as a mask


NONE = Rules(())


@frozen
class InForce:
    rules: Rules = NONE
    trouble: str = ""  # what is wrong with the files, and what is in force all the same


class Shelf:
    """Called, it says what is in force. Many threads may ask; one of them looks."""

    def __init__(self, folders: Iterable[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._folders, self._clock, self._lock = tuple(folders), clock, Lock()
        self._next = clock() + LOOK_EVERY
        self._read = self._seen = files_state(self._folders)
        self._in_force = self._load(None)

    def __call__(self) -> InForce:
        if self._clock() >= self._next and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()
        return self._in_force

    def _look(self) -> None:
        self._next = self._clock() + LOOK_EVERY
        try:
            state = files_state(self._folders)
        except OSError:  # triage itself is being replaced by a package
            return
        settled = state == self._seen or time.time() - changed_at(state) >= SETTLED
        self._seen = state
        if state != self._read and settled:
            self._read = state
            self._in_force = self._load(self._in_force)

    def _load(self, before: InForce | None) -> InForce:
        try:
            return InForce(read_rules(self._folders))
        except RuleErrors as errors:
            if before is None:
                return InForce(errors.sound, f"left out, for a fault: {errors}")
            return InForce(before.rules, f"the rules stay as they were, a file has a fault:\n{errors}")


class LiveBook:
    """A rulebook that follows its files, at moments that its caller picks: `follow`."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf, self._in_force = shelf, shelf()
        self._book = Rulebook(self._in_force.rules.rules)
        self.turn = 0  # how often the rules were replaced
        self._untold = [self._in_force.trouble] if self._in_force.trouble else []

    def match(self, crash: Crash) -> tuple[Match, ...]:
        return self._book.match(crash)

    def nearest(self, crash: Crash) -> tuple[Near, ...]:
        return self._book.nearest(crash)

    def follow(self) -> list[str]:
        """Take over what has changed, never in the middle of a diagnosis; what there is to tell, each thing once."""
        told, self._untold = [*self._untold, *self._book.notices], []
        self._book.notices.clear()
        present = self._shelf()
        if present is not self._in_force:
            if present.rules is not self._in_force.rules:
                self._book = Rulebook(present.rules.rules)
                self.turn += 1
            told.append(present.trouble or f"rules were read again: {len(present.rules.rules)} in force")
            self._in_force = present
        return told
