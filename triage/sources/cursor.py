"""What a cursor of the journal tells by itself: its sequence and number, how many entries lie between two, and whether
two name one entry.

Called by `sources.journal` and `sources.track`. Pure text: it must not ask the journal.
"""

from __future__ import annotations

import re

_SEQUENCE = re.compile(r"s=(?P<sequence>[^;]+);i=(?P<number>[0-9a-fA-F]{1,16});")


def lost(before: str | None, after: str, read: int) -> int | None:
    """How many entries are missing between two cursors of which `read` were read, by the sequence number; None where
    the two are of different sequences."""
    old, new = sequence(before), sequence(after)
    if old is None or new is None or old[0] != new[0]:
        return None
    return new[1] - old[1] - read


def sequence(cursor: str | None) -> tuple[str, int] | None:
    """`s=` and `i=` of a cursor: whose sequence, and the number in it."""
    match = _SEQUENCE.match(cursor or "")
    return (match["sequence"], int(match["number"], 16)) if match is not None else None


def same_entry(one: str, other: str) -> bool:
    """Whether both name one entry. What journald copies (a flush of /run to /var) gets new sequence numbers; boot,
    monotonic time and the hash of the fields stay."""
    own, its = _parts(one), _parts(other)
    return all(own.get(key) == its.get(key) is not None for key in ("b", "m", "x"))


def moment_of(cursor: str) -> int | None:
    """When its entry was received, microseconds UTC."""
    try:
        return int(_parts(cursor)["t"], 16)
    except (KeyError, ValueError):
        return None


def _parts(cursor: str | None) -> dict[str, str]:
    return dict(part.split("=", 1) for part in (cursor or "").split(";") if "=" in part)
