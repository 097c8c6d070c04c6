"""A collective that did not end: which rank never reached it.

In come the failures of one crash and the ranks that its log has shown; out go those that are suspected. Called by
`engine.burst` for each picture of a crash. Pure judgement; it must not name anybody where the log leaves it open.
"""

from __future__ import annotations

import re

from triage.engine.entries import Entry

_SEQUENCE = re.compile(r"SeqNum=(\d+)")
_BARRIER = re.compile(r"[Rr]anks? (?P<ranks>\d+(?:, ?\d+)*) failed to (?:pass|call|reach) \w*[Bb]arrier")
_SELF = re.compile(r"^.{0,60}?\bRank (\d+)\].*", re.DOTALL)
_NUMBER = re.compile(r"(?:rank|\bTP)(\d+)")


def suspects(root: Entry, entries: list[Entry], known: set[str], world: int) -> tuple[str, ...]:
    """The ranks that the others waited for, as SGLang names them where it does; () where nobody can tell.

    Three marks: the barrier says whom it missed; a rank reports an earlier collective than the rest; or most of the
    ranks report the time-out, and few do not. `world`: how many ranks there are, by the server's flags; 0: unknown.
    """
    names = {number: tag for tag in sorted(known) if (number := _number(tag)) is not None}
    for entry in entries:
        barrier = _BARRIER.search(entry.cause.message)
        if barrier is not None:
            return tuple(names.get(int(n), f"rank{n}") for n in re.findall(r"\d+", barrier["ranks"]))
    if root.name != "collective" or any("PP" in tag for tag in known):
        return ()
    waiting: dict[int, int] = {}  # rank -> the first collective it waited for
    for entry in entries:
        number = _number(entry.rank or _SELF.sub(r"rank\1", entry.cause.message))
        sequence = _SEQUENCE.search(entry.cause.message) if entry.name == "collective" else None
        if number is not None and sequence is not None:
            waiting.setdefault(number, int(sequence[1]))
    late = max(waiting.values(), default=0)
    behind = [number for number, at in waiting.items() if at < late]
    absent = [number for number in names if number not in waiting]
    found = behind or (absent if waiting.keys() <= names.keys() and len(names) >= world else [])
    if not found or 2 * len(found) > max(len(names), len(waiting)):
        return ()
    return tuple(names.get(number, f"rank{number}") for number in sorted(found))


def _number(rank: str | None) -> int | None:
    match = _NUMBER.search(rank or "")
    return int(match[1]) if match else None
