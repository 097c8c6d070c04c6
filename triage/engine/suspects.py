"""A collective, a step or a start that the ranks did not end together: which rank never came.

In come the failures of one crash and the ranks that its log has shown; out go those that are suspected. Called by
`engine.burst` for each picture of a crash. Pure judgement; it must not name anybody where the log leaves it open.
"""

from __future__ import annotations

import re

from triage.engine.entries import Entry

_SEQUENCE = re.compile(r"SeqNum=(\d+)")
_ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (-?\d+)")
MAX_WORLD = 4096
NEAR = 8  # a rank is a collective or two behind the rest; numbers farther apart are of different groups
_BARRIER = re.compile(r"[Rr]anks? (?P<ranks>\d+(?:, ?\d+)*) failed to (?:pass|call|reach) \w*[Bb]arrier")
_JOINED = re.compile(r"waiting for clients\. (?P<came>\d{1,6})/(?P<all>\d{1,6}) clients joined")
_SELF = re.compile(r"^.{0,60}?\bRank (\d+)\].*", re.DOTALL)
_PLAIN = re.compile(r"TP\d+")
_NUMBER = re.compile(r"(?:rank|\bTP)(\d+)")


def suspects(root: Entry, entries: list[Entry], known: set[str], world: int) -> tuple[str, ...]:
    """The ranks that the others waited for, as SGLang names them where it does; () where nobody can tell.

    The marks: the barrier says whom it missed; the store says how many came to it, and just as many wrote something; a
    rank reports an earlier collective than the rest; a rank that others told of the time-out had not begun what they
    waited for; most of the ranks report the time-out, and few do not; or the watchdogs of all but one fired.
    `world`: how many ranks there are, by the server's flags; 0: unknown. Where no line has a rank's tag they are
    numbered as torch does it.
    """
    names = {number: tag for tag in sorted(known) if (number := _number(tag)) is not None}
    for entry in entries:
        barrier = _BARRIER.search(entry.cause.message)
        if barrier is not None:
            return tuple(names.get(int(n), f"rank{n}") for n in re.findall(r"\d+", barrier["ranks"]))
    if any("PP" in tag for tag in known):
        return ()
    joined = _JOINED.search(root.cause.message)
    if joined is not None:
        return _absent(known, int(joined["came"]), int(joined["all"]))
    if root.name == "watchdog":
        return _silent(entries, known, world)
    if root.name != "collective":
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


def _absent(known: set[str], came: int, every: int) -> tuple[str, ...]:
    """Of so many ranks those that wrote nothing, where the rest are just those that came."""
    numbers = _numbers(known)
    missing = [number for number in range(every) if number not in numbers] if every <= MAX_WORLD else []
    if len(numbers) != came or len(missing) != every - came:
        return ()
    word = "TP" if all(_PLAIN.fullmatch(tag) for tag in known) else "rank"
    return tuple(f"{word}{number}" for number in missing)


def _silent(entries: list[Entry], known: set[str], world: int) -> tuple[str, ...]:
    """The one rank whose watchdog did not fire: a process whose thread cannot even say so holds up the others."""
    names = _numbers(known)
    fired = {number for entry in entries if entry.name == "watchdog" and (number := _number(entry.rank)) is not None}
    missing = names.keys() - fired
    if len(missing) != 1 or len(fired) < 2 or len(names) < world:
        return ()
    return (names[missing.pop()],)


def _numbers(known: set[str]) -> dict[int, str]:
    """The ranks by their numbers; none where several have the same, as the replicas of one model do."""
    names: dict[int, str] = {}
    for tag in sorted(known):
        number = _number(tag)
        if number is not None:
            if "DP" in names.get(number, "") and "DP" in tag:
                return {}
            names[number] = tag
    return names


def _number(rank: str | None) -> int | None:
    match = _NUMBER.search(rank or "")
    return int(match[1]) if match else None
