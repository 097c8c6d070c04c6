"""A collective that did not end: which rank never reached it.

In come the failures of one crash and the ranks that its log has shown; out go those that are suspected. Called by
`engine.burst` for each picture of a crash. Pure judgement; it must not name anybody where the log leaves it open.
"""

from __future__ import annotations

import re

from triage.engine.entries import Entry

_SEQUENCE = re.compile(r"SeqNum=(\d+)")
_ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (-?\d+)")
NEAR = 8  # a rank is a collective or two behind the rest; numbers farther apart are of different groups
_BARRIER = re.compile(r"[Rr]anks? (?P<ranks>\d+(?:, ?\d+)*) failed to (?:pass|call|reach) \w*[Bb]arrier")
_SELF = re.compile(r"^.{0,60}?\bRank (\d+)\].*", re.DOTALL)
_NUMBER = re.compile(r"(?:rank|\bTP)(\d+)")


def suspects(root: Entry, entries: list[Entry], known: set[str], world: int) -> tuple[str, ...]:
    """The ranks that the others waited for, as SGLang names them where it does; () where nobody can tell.

    Four marks: the barrier says whom it missed; a rank reports an earlier collective than the rest; a rank that others
    told of the time-out had not begun what they waited for; or most of the ranks report the time-out, and few do not.
    `world`: how many ranks there are, by the server's flags; 0: unknown. Where no line has a rank's tag they are
    numbered as torch does it.
    """
    names = {number: tag for tag in sorted(known) if (number := _number(tag)) is not None}
    for entry in entries:
        barrier = _BARRIER.search(entry.cause.message)
        if barrier is not None:
            return tuple(names.get(int(n), f"rank{n}") for n in re.findall(r"\d+", barrier["ranks"]))
    if root.name != "collective" or any("PP" in tag for tag in known):
        return ()
    waiting: dict[int, int] = {}  # rank -> the first collective it waited for
    begun: dict[int, int] = {}  # rank -> the last one it had begun when others told it
    for entry in entries:
        text = entry.cause.message
        number = _number(entry.rank or _SELF.sub(r"rank\1", text))
        sequence = {"collective": _SEQUENCE, "told": _ENQUEUED}.get(entry.name.partition(" ")[0])
        found = sequence.search(text) if sequence is not None else None
        if number is not None and found is not None:
            (waiting if entry.name == "collective" else begun).setdefault(number, int(found[1]))
    late = max(waiting.values(), default=0)
    behind = {number for number, at in waiting.items() if late - NEAR <= at < late}
    behind |= {number for number, at in begun.items() if number not in waiting and late - NEAR <= at < late}
    every = set(names) or set(range(max([world, *(number + 1 for number in waiting)])))
    seen = waiting.keys() <= every and len(every) >= world and len(set(waiting.values())) == 1
    missing = behind or (every - waiting.keys() if seen else set())
    if not missing or 2 * len(missing) > max(len(every), len(waiting)):
        return ()
    return tuple(names.get(number, f"rank{number}") for number in sorted(missing))


def _number(rank: str | None) -> int | None:
    match = _NUMBER.search(rank or "")
    return int(match[1]) if match else None
