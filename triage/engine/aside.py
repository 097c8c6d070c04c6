"""What stands beside a failure and may tell more than it: lines around a traceback that was cut, py-spy's stacks.

In come the lines that no traceback took and no sign was seen in, out go the few that belong to a failure's evidence.
Called by `engine.runs` and `engine.burst`, one `Aside` per invocation. It must not judge them, and keeps a bounded
number.
"""

from __future__ import annotations

from collections import deque

from triage.model import Line

BEFORE = 6
AFTER = 4
NEAR = 10_000_000
LINES = 16  # so far above a traceback its reason is looked for
WORDS = ("Pyspy dump for PID",)  # for the gate: no other line begins a dump
PROCESSES = 16
FRAMES = 10
_ACCESS = " HTTP/1."  # uvicorn's lines say nothing here, and a request's path is somebody else's text


class Aside:
    """The loose lines of one invocation."""

    __slots__ = ("_after", "_armed", "_before", "_head", "_left", "stacks")

    def __init__(self) -> None:
        self._before: deque[tuple[int, Line]] = deque(maxlen=BEFORE)  # with their serials
        self._after: list[Line] | None = None  # of the cut traceback that was seen last
        self._armed = False  # a dump of py-spy is being written
        self._head: Line | None = None
        self._left = 0
        self.stacks: list[Line] = []  # of main threads only: process, thread, innermost Python frames

    @property
    def expecting(self) -> bool:
        """A dump goes on."""
        return self._armed

    def note(self, line: Line, text: str, serial: int, *, headed: bool) -> bool:
        """A line that nothing else took; True where it is part of a dump."""
        if WORDS[0] in text:
            self._armed, self._left = True, 0
        elif self._armed and not headed:
            return self._stack(line, text)
        else:
            self._armed = False
            self._loose(line, text, serial)
        return False

    def _loose(self, line: Line, text: str, serial: int) -> None:
        if _ACCESS in text:
            return
        if self._after is not None and len(self._after) < AFTER:
            self._after.append(line)
        self._before.append((serial, line))

    def _stack(self, line: Line, text: str) -> bool:
        if text.startswith("Process "):
            self._head, self._left = line, 0
        elif text.startswith("Thread "):
            self._left = 0
            if '"MainThread"' in text and self._head is not None and len(self.stacks) < PROCESSES * (FRAMES + 2):
                self.stacks += [self._head, line]
                self._left = FRAMES
        elif self._left and ".py:" in text:
            self.stacks.append(line)
            self._left -= 1
        return True

    def cut(self, start: int, time: int | None) -> tuple[list[Line], list[Line]]:
        """A traceback broke off that began with serial `start`: the lines just before it, and those just behind it; the
        second list grows."""
        near = [(serial, line) for serial, line in self._before if start - serial <= LINES and _close(line.time, time)]
        self._before.clear()
        self._after = [line for serial, line in near if serial > start][:AFTER]
        return [line for serial, line in near if serial < start], self._after


def _close(one: int | None, other: int | None) -> bool:
    return one is None or other is None or abs(one - other) <= NEAR
