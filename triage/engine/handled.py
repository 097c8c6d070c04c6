"""Whether the traceback that is open was dealt with by its process, or is another's: then a later failure is a crash of
its own, and does not follow from it.

In come the open crash and what fails now. Called by `engine.burst`. Pure judgement: it must not keep state.
"""

from __future__ import annotations

from collections.abc import Collection

from triage.engine import leads
from triage.engine.aftermath import NEAR, time_out
from triage.engine.crashes import OpenCrash
from triage.engine.entries import Entry, is_child, of_front
from triage.engine.kinds import Kind
from triage.engine.roles import same_failure
from triage.engine.tracebacks import Traceback

HANDLED = (Kind.PLAIN, Kind.BARE)  # what a process may go on after
LONG = 10_000_000  # microseconds: what is so long ago, and alone, is no reason for what ends a process now
_ENDS = (Kind.HARDWARE, Kind.NATIVE, Kind.FATAL, Kind.EXIT, Kind.COLLECTIVE)


def front(entry: Entry, tags: Collection[str]) -> bool:
    """Whether the process raised it that takes the requests: its frames tell so, or the record that announces it; where
    ranks name themselves in their records (`tags`), one without a name is no rank's."""
    if entry.rank is not None:
        return False
    record = _lead(entry) and not is_child(entry)
    return bool(record and tags) or of_front(entry.cause)


def elsewhere(root: Entry, tags: Collection[str]) -> bool:
    """Whether the process is known that raised it, and is none that a rank needs."""
    return front(root, tags) or _no_rank(root)


def beside(root: Entry, entry: Entry, tags: Collection[str]) -> bool:
    """Whether a rank ends with `entry`, which did not begin with what another kind of process met."""
    if root.kind not in HANDLED or same_failure(root, entry) or entry.kind is not Kind.FATAL:
        return False
    # The only rank of a server that has one bears no name.
    rank = entry.rank is not None or "Scheduler hit an exception" in _lead(entry)
    return (_no_rank(root) and entry.own) or (rank and front(root, tags))


def passed(root: Entry, entry: Entry) -> bool:
    """Whether a rank ends with `entry` that had gone on after the root, which has no name."""
    if root.kind not in HANDLED or root.rank is not None or is_child(root) or same_failure(root, entry):
        return False
    return entry.kind is Kind.FATAL


def untold(root: Entry, entries: list[Entry]) -> bool:
    """Whether nobody can tell whose the root is, nor whether it began what ended a rank then: it has neither a name nor
    a record that announces it, and the other has."""
    if root.kind not in HANDLED or root.rank is not None or root.own or _lead(root):
        return False
    return any(
        entry.start > root.start and leads.FATAL_LEAD.search(_lead(entry)) and not same_failure(root, entry)
        for entry in entries
    )


def _lead(entry: Entry) -> str:
    return entry.body.lead.strip() if isinstance(entry.body, Traceback) else ""


def over(root: Entry, entry: Entry) -> bool:
    """Whether something ends with `entry` that did not begin with what its process had handled before. A client can
    have the server print a traceback when it likes."""
    if root.kind not in HANDLED or same_failure(root, entry):
        return False
    return entry.kind < Kind.HINT and (entry.kind not in HANDLED or is_child(entry))


def long_before(crash: OpenCrash, entry: Entry, mark: int) -> int | None:
    """Serial of the last traceback that is so long ago, in a crash that holds nothing else, that it is no reason for
    what ends a process now; None if there is none. The journal's crashes are closed by then. `mark`: serial of the last
    milestone but one, for lines without a time."""
    root = crash.root
    if root is None or root.kind not in HANDLED or same_failure(root, entry):
        return None
    if entry.kind > Kind.COLLECTIVE or entry.kind is Kind.PLAIN or (entry.kind is Kind.EXIT and is_child(root)):
        return None
    if crash.ends_server or any(each.kind in _ENDS for each in crash.entries):
        return None
    if entry.time is None:  # two milestones on no rank is missed: they wait for each other in between
        old = [each for each in crash.entries if each.start <= mark] if entry.kind is not Kind.COLLECTIVE else []
    else:
        since = LONG
        if entry.kind is Kind.COLLECTIVE:  # whoever waited began to before that: only what ended by then is past
            ran = time_out(link.message for link in entry.links)
            since = ran + NEAR if ran is not None else entry.time
        old = [each for each in crash.entries if each.time is not None and each.time <= entry.time - since]
    return max(each.start for each in old) if root in old else None


def _no_rank(entry: Entry) -> bool:
    return entry.pid is not None and entry.rank is None and not entry.own
