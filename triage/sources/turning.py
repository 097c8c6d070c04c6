"""Exports that begin with the newest line (`journalctl -r`, many log viewers): put in order.

In come lines as the file has them, out come the same in the order of their times. Called by `sources.stream`. A file
has to be held for that, so only its beginning is: the newest lines, up to a bound, and what is older is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise

from triage.model import Line
from triage.sources.bytes import Notes

LOOK_LINES = 2_000
MAX_HELD = 48_000_000  # characters
EACH = 600  # what a line costs beside its text


def newest_first(lines: Iterable[Line]) -> bool:
    """Whether the times of a file's beginning only go back."""
    times = [line.time for line in islice(lines, LOOK_LINES) if line.time is not None]
    steps = [after - before for before, after in pairwise(times) if after != before]
    return len(steps) > 1 and all(step < 0 for step in steps)


def turned(lines: Iterable[Line], notes: Notes, *, headed: bool) -> Iterator[Line]:
    """The lines from the oldest on. `headed`: an entry's further lines have no head and stand below its first."""
    entries: list[list[Line]] = []
    size = 0
    for line in lines:
        if headed and line.host is None and line.time is None and entries:
            entries[-1].append(line)
        else:
            entries.append([line])
        size += len(line.text) + EACH
        if size > MAX_HELD:
            notes.unturned = True
            break
    while entries:
        yield from entries.pop()
