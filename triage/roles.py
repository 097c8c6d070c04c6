"""What each failure is beside the others: root, cascade, confirmation, advice.

In come the entries of one crash in the order they were read, out go the root, roles with their reasons, and the
outcome. Called by `triage.crashes`. Pure judgement: it must not keep state, and what one line or one traceback says
by itself is the business of `triage.signs` and `triage.tracebacks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from triage import signs
from triage.model import Line, Link, Outcome, Role, UnitEnd
from triage.signs import Kind, Sign
from triage.tracebacks import Traceback, is_engine

TOLERANCE = 2_000_000  # a likelier root counts though it was printed up to two seconds later
AFTER = 3_000_000  # work done this long after the last failure shows that the server lives


@dataclass(slots=True)
class Entry:
    """One failure while its crash is open."""

    kind: Kind
    name: str  # entries of one name and process fold into one
    why: str
    lines: list[Line]
    texts: list[str]  # the lines that make up the id, prefixes off
    links: tuple[Link, ...]
    rank: str | None = None
    pid: int | None = None
    time: int | None = None
    ends_server: bool = False
    cut: bool = False
    mixed: bool = False
    folded: int = 0
    body: object = None  # the Traceback or Dump it is read from, while it may still grow

    @property
    def cause(self) -> Link:
        return self.links[0]


@dataclass(slots=True)
class Verdict:
    root: Entry
    roles: list[tuple[Entry, Role, str]] = field(default_factory=list)


def judge_traceback(body: Traceback, links: tuple[Link, ...], *, bare: bool, failed: bool) -> tuple[Kind, str, bool]:
    """Kind, reason, and whether the whole server ended with it."""
    last = links[-1]
    main = _main_program(body) and not bare
    if any(signs.peer_lost(link.exception, link.message) for link in links):
        return Kind.HINT, "it only tells that another process is gone", main
    if signs.is_request(body.lead):
        return Kind.REQUEST, "one request failed", False
    if failed:
        return Kind.CASCADE, "the same process had failed before", main
    if bare:
        return Kind.BARE, "an exception line without its traceback", False
    if signs.FATAL_LEAD.search(body.lead):
        return Kind.FATAL, "the exception that ended the process", main
    if main:
        return Kind.FATAL, "uncaught in the main program", True
    if "timeout" in last.exception.lower() and "watchdog" in last.message.lower():
        return Kind.COLLECTIVE, "the scheduler made no step in time", False
    return Kind.PLAIN, "a traceback", False


def _main_program(body: Traceback) -> bool:
    if body.lead.strip() or not body.texts:
        return False
    chain_frames = body.frames
    if not chain_frames:
        return False
    first = chain_frames[0]
    return first.path.startswith("<frozen runpy>") or (first.function == "<module>" and not is_engine(first.path))


def sign_entry(sign: Sign, line: Line, text: str, rank: str | None) -> Entry:
    link = Link(sign.exception, sign.message[:2000])
    pid = sign.pid if sign.pid is not None else None
    return Entry(
        sign.kind, sign.name, sign.why, [line], [text], (link,), rank, pid, line.time, sign.ends_server, line.cut
    )


def choose_root(entries: list[Entry]) -> Entry | None:
    """The first failure, unless a likelier kind was printed within the tolerance after it."""
    able = [entry for entry in entries if entry.kind < Kind.HINT]
    if not able:
        return None
    root = able[0]
    for entry in able[1:]:
        if entry.kind < root.kind and _replaces(entry, root):
            root = entry
    return root


def _replaces(new: Entry, root: Entry) -> bool:
    late = new.time is not None and root.time is not None and new.time - root.time > TOLERANCE
    if late:
        return False
    if new.kind is Kind.HARDWARE:
        return True
    if new.kind is Kind.NATIVE:  # a process that raised and then aborted did not begin with the abort
        return root.kind >= Kind.EXIT
    return root.kind in (Kind.EXIT, Kind.COLLECTIVE, Kind.BARE)


def promote(entries: list[Entry]) -> Entry | None:
    """Where no failure can be a root: the best of those that usually are not; None if only parents' lines are there."""
    for entry in entries:
        if entry.kind is Kind.HINT and not entry.name.startswith("xid"):
            return entry
    return next((entry for entry in entries if entry.kind is Kind.HINT), None)


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
    if entry.kind is Kind.EXIT and entry.pid is not None and entry.pid == root.pid:
        return Role.CONFIRMATION, "the end of the process that failed first"
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


@dataclass(slots=True, frozen=True)
class Signs:
    """What the outcome is judged from."""

    plain: bool  # no manager can speak: a plain file
    stopping: int | None
    end: UnitEnd | None
    active: int | None  # last sign of work of the server
    last: int | None  # last failure
    ends_server: bool  # SGLang's own end-of-server lines, or a main program that ended
    over: bool  # the log of this server ends here


def outcome(root: Entry, entries: list[Entry], seen: Signs) -> Outcome:
    """What became of it: by the manager's entries where there are any, by the log's own end otherwise."""
    if all(entry.kind is Kind.REQUEST for entry in entries if entry.kind is not Kind.CASCADE) and (
        root.kind is Kind.REQUEST
    ):
        return Outcome.REQUEST_ERROR
    if seen.end is not None:
        if seen.end.requested:
            return Outcome.UNKNOWN
        return Outcome.FATAL if seen.end.result != "success" or seen.ends_server else Outcome.UNKNOWN
    if seen.stopping is not None:
        return Outcome.UNKNOWN
    worked = seen.active is not None and (seen.last is None or seen.active < 0 or seen.active - seen.last >= AFTER)
    if seen.plain:
        if seen.over and seen.ends_server and not worked:
            return Outcome.FATAL
        return Outcome.UNKNOWN if not worked else Outcome.RECOVERED
    if worked:
        return Outcome.DEGRADED if root.kind in (Kind.HARDWARE, Kind.NATIVE, Kind.FATAL) else Outcome.RECOVERED
    return Outcome.UNKNOWN
