"""What a crash does beyond itself: it leaves the next start no memory or no port, takes other nodes along, and others
wait for what died in it until their time is up.

In come the other crash and this one; out goes whether this one only follows it. Called by
`engine.burst`; by `triage scan` with all crashes of what it read. Pure judgement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from triage.engine.kinds import peer_lost
from triage.frozen import frozen
from triage.model import Crash, Outcome, Phase

_ENDED = (Outcome.FATAL, Outcome.DEGRADED, Outcome.UNKNOWN)

WITHIN = 900_000_000  # microseconds between the end of the one and the other
NEAR = 60_000_000  # a collective begins about when the rank dies that it then waits for
TOGETHER = 60_000_000  # nodes wait for each other at most so long before they notice
_LEFT = re.compile(
    r"(?P<port>address already in use|port \d+ is (?:already )?(?:in use|occupied|not available))|"
    r"(?P<memory>[Nn]ot enough memory|[Oo]ut of memory|memory capacity is unbalanced|[Ff]ree memory on device)"
)
_TIME_OUT = re.compile(r"Timeout\(ms\)=(?P<ms>\d{1,9})\b|watchdog_timeout=(?P<s>\d{1,6})\b")
_EARLY = (Phase.UNKNOWN, Phase.ARGUMENTS, Phase.LOAD, Phase.MEMORY, Phase.CAPTURE, Phase.WARMUP)


@frozen
class Before:
    """The first crash of a restart loop."""

    id: str
    what: str  # its exception
    left: str | None  # of which kind it is itself
    ended: int | None
    began: int | None = None
    outcome: Outcome = Outcome.UNKNOWN


def remember(crash: Crash, before: Before | None) -> Before:
    """What the next start has to know of this crash; a follower hands on what it follows."""
    ended = crash.ended if crash.ended is not None else crash.started
    if before is not None and crash.follows == before.id:
        return Before(before.id, before.what, before.left, ended, before.began, before.outcome)
    return Before(crash.id, crash.root.cause.exception, left_over(crash), ended, crash.started, crash.outcome)


def left_over(crash: Crash) -> str | None:
    """'port' or 'memory' where the root says that it is taken."""
    match = _LEFT.search(crash.root.cause.message)
    return match.lastgroup if match is not None else None


def same_moment(crash: Crash, sibling: Crash) -> bool:
    """Whether two nodes of one unit failed together: the one that failed later follows the other."""
    if crash.host == sibling.host or crash.started is None or sibling.started is None:
        return False
    if peer_lost(sibling.root.cause.exception, sibling.root.cause.message):  # it only saw that others were gone
        return False
    return 0 <= crash.started - sibling.started <= TOGETHER


def cluster(unit: str | None, flags: Mapping[str, str]) -> tuple[str | None, str, str] | None:
    """Unit, number of nodes and meeting point of a server that runs on several nodes."""
    nodes, address = flags.get("nnodes", ""), flags.get("dist_init_addr", "")
    return (unit, nodes, address) if nodes.isdecimal() and int(nodes) > 1 and address else None


def across(crashes: Sequence[Crash]) -> dict[int, Crash]:
    """Crashes of one server's nodes that were read one node after the other: those that follow another node's, by their
    place in the sequence, and how they are told then."""
    nodes: dict[object, list[int]] = {}
    for n, crash in enumerate(crashes):
        server = cluster(crash.unit, crash.context.flags)
        if server is not None and crash.started is not None and crash.outcome in _ENDED:
            nodes.setdefault(server, []).append(n)
    told: dict[int, Crash] = {}
    for here in nodes.values():
        causes = [crashes[n] for n in here if not _lost(crashes[n]) and not crashes[n].follows]
        for n in here:
            crash = crashes[n]
            before = [cause for cause in causes if _after(crash, cause)]
            first = min(before, key=lambda cause: abs(_began(crash) - _began(cause)), default=None)
            if first is not None and not crash.follows:
                why = (
                    f"{crash.root.why}; another node, {_node(first)}, had failed by then ({first.root.cause.exception})"
                )
                root = replace(crash.root, why=why)
                told[n] = replace(crash, root=root, failures=(root, *crash.failures[1:]), follows=first.id)
    return told


def _after(crash: Crash, first: Crash) -> bool:
    """Whether a crash came of that one of another node. Where it only saw others gone their clocks need not agree."""
    if crash is first or _node(crash) == _node(first):
        return False
    later = _began(crash) - _began(first)
    return -NEAR <= later <= TOGETHER if _lost(crash) else 0 < later <= TOGETHER


def _began(crash: Crash) -> int:
    return crash.started or 0


def _lost(crash: Crash) -> bool:
    return peer_lost(crash.root.cause.exception, crash.root.cause.message)


def _node(crash: Crash) -> str:
    return crash.host or f"rank {crash.context.flags.get('node_rank', '0')}"


def waited(crash: Crash, silent: Before, *, end: bool) -> bool:
    """Whether a time-out began to run when that crash began, which nobody is known to have outlived. A rank that died
    comes never back: whatever timed out since waited for it, and so did who made an `end` of it."""
    if silent.began is None or crash.started is None or crash.id == silent.id:
        return False
    died = silent.outcome is Outcome.DEGRADED
    ran = time_out(link.message for link in crash.root.chain)
    if ran is None:
        return end and died
    return died or abs(crash.started - ran - silent.began) <= NEAR


def time_out(texts: Iterable[str]) -> int | None:
    """Microseconds that somebody waited, where a time-out's words say so."""
    found = next((match for match in map(_TIME_OUT.search, texts) if match is not None), None)
    if found is None:
        return None
    return int(found["ms"]) * 1000 if found["ms"] else int(found["s"]) * 1_000_000


def follows(crash: Crash, before: Before | None) -> bool:
    """Whether it is but the other's aftermath: at start, soon after it, for want of what that one still held."""
    if before is None or crash.phase not in _EARLY:
        return False
    soon = crash.started is None or before.ended is None or 0 <= crash.started - before.ended <= WITHIN
    what = left_over(crash)
    return soon and what is not None and what != before.left
