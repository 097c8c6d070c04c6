"""Open incidents that no rule knew are matched again when rules have changed: nobody has to wait for the next crash.

In: the store, a way to name a crash. Out: their newest crash under its rule, and what there is to tell. Called by
`watch` between two batches, a few at a time, since reading may not wait. It changes no state, sends no alert and asks
for no action.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from triage.document import crash_of, finding_document
from triage.model import Crash, Finding
from triage.store import Store

AT_MOST = 500  # incidents a turn; what is older waits for its next crash
A_ROUND = 5


class Rematch:
    def __init__(self, store: Store, diagnose: Callable[[Crash], Finding]) -> None:
        self._store, self._diagnose = store, diagnose
        self._waiting: deque[int] = deque()

    def begin(self) -> None:
        """Rules have changed, or may have while nobody was looking."""
        self._waiting = deque(self._store.undiagnosed(AT_MOST))

    def go_on(self, now: int) -> list[str]:
        """A few of those that wait; in words which are known now."""
        told = []
        for _ in range(min(A_ROUND, len(self._waiting))):
            number = self._waiting.popleft()
            if text := self._match(number, now):
                told.append(text)
        return told

    def _match(self, number: int, now: int) -> str:
        newest = next(iter(self._store.incident(number, crash_limit=1, timeline_limit=1).crashes), None)
        if newest is None or newest.closed_at is None:  # one that is open is named as it goes on
            return ""
        try:
            finding = self._diagnose(crash_of(newest.document))
        except (KeyError, TypeError, ValueError):  # kept by a release whose documents said less
            return ""
        if not finding.matches:
            return ""
        named = finding_document(replace(finding, nearest=()))
        again = {key: named[key] for key in ("severity", "title", "matches", "nearest", "general")}
        known = self._store.diagnosed(newest.number, finding, {**newest.document, **again}, now)
        return f"incident {number} is known now: {finding.matches[0].rule}" if known else ""
