"""What each failure is beside the others: root, cascade, confirmation, advice.

In come the entries of one crash in the order they were read, out go the root, roles with their reasons, and the
outcome. Called by `engine.crashes`. Pure judgement: it must not keep state, and what one line or one traceback says
by itself is the business of `engine.signs` and `engine.tracebacks`.
"""

from __future__ import annotations

from triage.engine.entries import Entry, is_child, is_thread
from triage.engine.kinds import HANG, Kind
from triage.engine.manager import RUNTIME_LIMIT
from triage.frozen import frozen
from triage.model import Outcome, Role, UnitEnd

TOLERANCE = 2_000_000  # a likelier root counts though it was printed up to two seconds later
AFTER = 3_000_000  # work done this long after the last failure shows that the server lives
BEFORE = 1_000_000  # what failed so long before somebody asked for an end is no part of that end
_BESIDE = ("utils", "entrypoints/", "metrics/", "observability/", "tracing/")  # of the engine's files: beside serving
DRAIN = 300_000_000  # a server that was told to end may finish its requests first


def choose_root(entries: list[Entry]) -> Entry | None:
    """The first failure, unless a likelier kind was printed within the tolerance after it. What a request may have
    written is none where something else failed."""
    able = [entry for entry in entries if entry.kind < Kind.HINT]
    able = [entry for entry in able if not entry.quoted] or able
    if not able:
        return None
    able = [entry for entry in able if entry.name != HANG] or able  # what made it hang is told later
    root = able[0]
    for entry in able[1:]:
        if entry.kind < root.kind and _replaces(entry, root):
            root = entry
    alike = [
        entry for entry in able if entry.kind is root.kind and entry.time == root.time and same_failure(root, entry)
    ]
    return min(alike, key=lambda entry: entry.start, default=root)


def _replaces(new: Entry, root: Entry) -> bool:
    late = new.time is not None and root.time is not None and new.time - root.time > TOLERANCE
    if late:
        return False
    if new.kind is Kind.HARDWARE:
        return True
    if new.kind is Kind.NATIVE:  # a process that raised and then aborted did not begin with the abort
        return root.kind in (Kind.EXIT, Kind.BARE)  # and a time-out had begun minutes before whatever came behind it
    if new.kind is Kind.EXIT:
        return root.kind is Kind.BARE
    return root.kind in (Kind.EXIT, Kind.COLLECTIVE, Kind.BARE)


def rank_of(root: Entry, entries: list[Entry]) -> str | None:
    """A native death whose lines name no rank is that of the one rank whose end by that signal the parent tells."""
    if root.rank is not None or root.kind is not Kind.NATIVE:
        return root.rank
    native = [entry for entry in entries if entry.kind is Kind.NATIVE or _signalled(entry)]
    ends = [entry for entry in entries if entry.kind is Kind.EXIT and entry.name.startswith("exit")]
    if len(native) != 1 or len(ends) != 1 or ends[0].cause.exception != root.links[-1].exception:
        return None
    return ends[0].rank if root.pid in (None, ends[0].pid) else None


def _signalled(entry: Entry) -> bool:
    """Whether its process wrote that a signal ended it: of writers without a name the second counts as a cascade."""
    return entry.body is not None and entry.links[-1].exception.startswith("SIG")


def promote(entries: list[Entry]) -> Entry | None:
    """Where no failure can be a root: the best of those that usually are not; None if only parents' lines are there."""
    hints = [entry for entry in entries if entry.kind is Kind.HINT]
    return min(hints, key=_weakness, default=None)


def _weakness(entry: Entry) -> int:
    """Of hints an exception says most, then a library's line, a cut traceback, a device assert, the driver's view."""
    if entry.name == "traceback":
        return 0
    return {"cut": 2, "assert": 3}.get(entry.name, 4 if entry.name.startswith("xid") else 1)


def assign(root: Entry, entries: list[Entry]) -> list[tuple[Entry, Role, str]]:
    """Each entry with its role and the reason, the root first."""
    roles: list[tuple[Entry, Role, str]] = [(root, Role.ROOT, root.why or "it came first")]
    for entry in entries:
        if entry is root:
            continue
        roles.append((entry, *_role(root, entry)))
    return roles


def _role(root: Entry, entry: Entry) -> tuple[Role, str]:
    if entry.kind is Kind.REQUEST:
        return Role.NOISE, entry.why
    if (entry.kind is Kind.HINT and entry.name in ("assert",)) or entry.name.startswith("xid"):
        return Role.CONFIRMATION, entry.why
    died_alike = entry.cause.exception in {link.exception for link in root.links}
    if entry.kind is Kind.EXIT and ((entry.pid is not None and entry.pid == root.pid) or died_alike):
        return Role.CONFIRMATION, "the end of the process that failed first"
    if entry.name == "oom" and root.name == "oom":
        return Role.CONFIRMATION, entry.why
    if entry.quoted and entry.kind is not Kind.HARDWARE and not root.quoted:
        return Role.NOISE, f"it may be a request's text ({entry.why})"
    if same_failure(root, entry):
        return Role.CASCADE, "the same failure in another process"
    if entry.kind < Kind.HINT:
        return Role.CASCADE, f"it followed the root ({entry.why})"
    return Role.CASCADE, entry.why


def same_failure(one: Entry, other: Entry) -> bool:
    a, b = one.cause, other.cause
    same_place = (
        (a.frame.file, a.frame.line) == (b.frame.file, b.frame.line) if a.frame and b.frame else a.frame is b.frame
    )
    return a.exception == b.exception and same_place


@frozen
class Signs:
    """What the outcome is judged from."""

    plain: bool  # no manager can speak: a plain file
    stopping: int | None
    end: UnitEnd | None
    active: int | None  # last sign of work of the server
    last: int | None  # last failure
    ends_server: bool  # SGLang's own end-of-server lines, or a main program that ended
    over: bool  # the log of this server ends here
    told: int | None  # when the server said that it was asked to end
    outlived: bool  # the process that is said to have died went on working
    handled: bool  # it was but a traceback, and the server worked on until something else failed


def _asked(root: Entry, end: UnitEnd, told: int | None) -> bool:
    """Whether nothing failed but the process: the unit's own RuntimeMaxSec= was over, or it had said that it was told
    to end, by somebody else than the manager. A request can imitate these words, so they excuse no failure that the
    log shows."""
    if root.kind is not Kind.EXIT or root.name != "end":
        return False
    if end.result == RUNTIME_LIMIT:
        return True
    return end.code == "killed" and told is not None and end.time is not None and 0 <= end.time - told <= DRAIN


def worked(seen: Signs) -> bool:
    """Whether something was done for a client well after the last failure."""
    return seen.active is not None and (seen.last is None or seen.active < 0 or seen.active - seen.last >= AFTER)


def _died(root: Entry, seen: Signs) -> bool:
    """Whether its process ended with it."""
    ended = root.kind in (Kind.HARDWARE, Kind.NATIVE, Kind.FATAL) or root.name in ("fault", "dump")
    return ended and not seen.outlived


def _gone(root: Entry, seen: Signs) -> bool:
    """Whether the unit misses a rank's process since."""
    return (
        _died(root, seen) and root.own and not root.doubtful and (root.kind is not Kind.HARDWARE or root.name == "oom")
    )


def _missed(root: Entry, seen: Signs) -> bool:
    """Whether a thread or helper ended with it, which its process outlives: it does not come back. A library's thread,
    or one that reports or measures, is not missed by those who are served."""
    if not is_child(root) or root.doubtful:
        return False
    return serves(root) if is_thread(root) else not seen.outlived


def serves(root: Entry) -> bool:
    """Whether code of the engine's ran there that requests go through."""
    paths = [frame.path.partition("sglang/srt/")[2] for frame in root.cause.frames]
    return any(path and not path.startswith(_BESIDE) for path in paths)


def outcome(root: Entry, entries: list[Entry], seen: Signs) -> Outcome:
    """What became of it: by the manager's entries where there are any, by the log's own end otherwise."""
    if all(entry.kind is Kind.REQUEST for entry in entries if entry.kind is not Kind.CASCADE) and (
        root.kind is Kind.REQUEST
    ):
        return Outcome.REQUEST_ERROR
    if seen.end is not None:
        if seen.end.requested and _gone(root, seen) and root.time is not None and seen.stopping is not None:
            return Outcome.DEGRADED if root.time + BEFORE <= seen.stopping else Outcome.UNKNOWN
        if seen.end.requested or _asked(root, seen.end, seen.told):
            return Outcome.UNKNOWN
        failed = seen.end.result != "success" or seen.ends_server or _died(root, seen)
        return Outcome.FATAL if failed or root.kind in (Kind.EXIT, Kind.COLLECTIVE) else Outcome.UNKNOWN
    if seen.stopping is not None:
        return Outcome.UNKNOWN
    lived = Outcome.DEGRADED if _missed(root, seen) else Outcome.RECOVERED
    if seen.handled:
        return lived
    working = worked(seen)
    if seen.plain and working and not seen.outlived and (seen.ends_server or root.kind is Kind.FATAL):
        return Outcome.UNKNOWN  # another server's lines or a forged end: no such process works on
    if seen.plain:
        if seen.over and seen.ends_server and not working and not root.quoted and root.kind is not Kind.CASCADE:
            return Outcome.FATAL
        return Outcome.UNKNOWN if not working else lived
    if working:
        return Outcome.DEGRADED if _died(root, seen) else lived
    return Outcome.DEGRADED if _gone(root, seen) and not seen.over else Outcome.UNKNOWN
