"""Exports that begin with the newest line (`journalctl -r`, many log viewers): put in order.

In come lines as the file has them, out come the same in the order of their times. Called by `sources.stream`. A file
has to be held for that, so only its beginning is: the newest lines, up to a bound, and what is older is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise

from triage.engine.tracelines import HEADER
from triage.model import Line
from triage.sources.bytes import Notes

LOOK_LINES = 2_000
FRAME = '  File "'
MAX_HELD = 48_000_000  # characters
EACH = 600  # what a line costs beside its text


def newest_first(lines: Iterable[Line], *, journal: bool) -> bool:
    """Whether the times of a file's beginning only go back; where they do not tell, whether its tracebacks stand on
    their heads. `journal`: its order is that of time, so one step back is enough."""
    some = list(islice(lines, LOOK_LINES))
    times = [line.time for line in some if line.time is not None]
    steps = [after - before for before, after in pairwise(times) if after != before]
    if any(step > 0 for step in steps):
        return False
    return len(steps) > (0 if journal else 1) or _upside_down([line.text for line in some])


def _upside_down(texts: list[str]) -> bool:
    """Whether headers stand below the first frame and never above one."""
    headers = [n for n, text in enumerate(texts) if HEADER in text]
    below = any(n and FRAME in texts[n - 1] for n in headers)
    return below and not any(FRAME in text for n in headers for text in texts[n + 1 : n + 2])


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
