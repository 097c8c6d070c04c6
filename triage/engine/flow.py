"""How many lines an invocation wrote lately: as many as journald takes, then its last words may be missing.

journald tells of lines that it dropped with the unit's next line; a unit that dies meanwhile has none, and nothing in
its journal says that anything is missing. In come the time and the number of lines so far, once a second of log time;
called by `engine.runs`. It must not count lines itself: most are never read (engine.gate).
"""

from __future__ import annotations

from collections import deque

WINDOW = 30_000_000  # microseconds: RateLimitIntervalSec=
LIMIT = 10_000  # lines in it: RateLimitBurst=, which journald raises on a large disk, never lowers
STEP = 1_000_000


class Flow:
    """`due`: when it wants to be told again."""

    __slots__ = ("_marks", "due")

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque(maxlen=WINDOW // STEP + 1)
        self.due = 0

    def mark(self, time: int, lines: int) -> None:
        """So many lines were written before this moment."""
        self._marks.append((time, lines))
        self.due = time + STEP

    def limited(self, time: int | None, lines: int) -> int:
        """Lines in the window before `time`, if journald may have dropped what followed them; else 0."""
        if time is None:
            return 0
        first = next((before for at, before in self._marks if time - WINDOW <= at <= time), lines)
        return lines - first if lines - first >= LIMIT else 0
