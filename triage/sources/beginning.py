"""Where a live source without a cursor begins: the last minutes, and the start of whatever runs now.

In: a reader of the journal that may be moved about, which units are ours, the present. Out: windows of time. Called by
`sources.journal` alone. Crashes of last month are history and stay silent; the first minutes of an invocation that
still runs are read for what they tell of it: arguments, release, milestones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triage.sources.entry import raw_field

MINUTE = 60_000_000
RECENT = 10 * MINUTE  # a first start looks back so far ...
LOADING = 20 * MINUTE  # ... and at so much after the start of each running invocation

Window = tuple[int, int | None]

_STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
_STARTED = "39f53479d3a045ac8e11786248231fbf"
_ENDED = ("9d1aaa27d60140bd96365438aad20286", "7ad2d189f7e94e70a38c781354912448", "d9b373ed55a64feb8242e02dbe79a49c")
_NAMES = ("UNIT", "USER_UNIT", "MESSAGE_ID", "INVOCATION_ID", "USER_INVOCATION_ID")
_LOOK_BACK = 20_000  # starts and ends of all units of this boot that are looked at


def first_windows(reader: Any, is_ours: Callable[[bytes], bool], now: int) -> list[Window]:
    """Spans from, until in microseconds, in order, without overlap; the last one is open. `reader` is closed."""
    recent = now - RECENT
    with reader:
        starts = sorted(start for start in _running(reader, is_ours).values() if 0 < start < recent)
    windows: list[Window] = []
    for start in starts:
        end = min(start + LOADING, recent)
        if windows and start <= (windows[-1][1] or 0):
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((start, end))
    return [*windows, (recent, None)]


def _running(reader: Any, is_ours: Callable[[bytes], bool]) -> dict[bytes, int]:
    """Unit -> start of the invocation that runs now, 0 where none does; from the manager's entries of this boot."""
    reader.seek_tail()
    if not reader._previous():
        return {}
    # The boot of the newest entry: a service with ProcSubset=pid cannot ask /proc/sys which one this is.
    boot = next((part for part in reader._get_cursor().split(";") if part.startswith("b=")), "b=")
    for message in (_STARTING, _STARTED, *_ENDED):
        reader.add_match(f"MESSAGE_ID={message}")
    reader.add_conjunction()
    reader.add_match(f"_BOOT_ID={boot[2:]}")
    reader.seek_tail()
    found: dict[bytes, int] = {}
    invocation: dict[bytes, bytes] = {}
    for _ in range(_LOOK_BACK):
        if not reader._previous():
            break
        fields = {name: raw_field(reader, name) for name in _NAMES}
        unit, run = fields["UNIT"] or fields["USER_UNIT"], fields["INVOCATION_ID"] or fields["USER_INVOCATION_ID"]
        if not is_ours(unit):
            continue
        if unit not in found:  # the newest word on it
            found[unit] = 0 if fields["MESSAGE_ID"].decode() in _ENDED else reader._get_realtime()
            invocation[unit] = run
        elif found[unit] and invocation[unit] == run:  # 'Starting' of the same invocation lies earlier
            found[unit] = reader._get_realtime()
    return found
