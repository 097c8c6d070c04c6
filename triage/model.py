"""The values that flow through triage, the two seams, and the error tree.

Everything here is frozen and made of the standard library only (root's one-shot imports it). Times are integer
microseconds UTC, as journald gives them. Every other room imports this one; this one imports none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from triage.frozen import frozen

EMPTY: Mapping[str, str] = MappingProxyType({})


# ---------------------------------------------------------------- errors


class TriageError(Exception):
    """Root of the tree. The message is one sentence for the operator: what is wrong and how to mend it."""

    exit_code = 70


class InputError(TriageError):
    """Usage, or input that cannot be read."""

    exit_code = 2


class Refused(TriageError):
    """Refused or declined; nothing was changed."""

    exit_code = 3


class Busy(Refused):
    """Another action of the unit is not settled yet: the same may be asked again later."""


class Pending(Refused):
    """The answer is under way: ask again in a moment."""


class Damaged(Refused):
    """A file of root's own is not what root wrote: nothing that rests on it is done until a person has mended it."""


class VerificationFailed(TriageError):
    """The change did not prove itself and was rolled back."""

    exit_code = 4


class RollbackFailed(TriageError):
    """The change did not prove itself and taking it back failed too."""

    exit_code = 5


class Unreachable(TriageError):
    """A service, the manager or the database cannot be reached."""

    exit_code = 6


class NotPermitted(TriageError):
    """Needs other rights; the message carries the command that would have them."""

    exit_code = 7


# ---------------------------------------------------------------- lines


class Origin(StrEnum):
    PROCESS = "process"  # written by the unit's own processes
    MANAGER = "manager"  # PID 1 (or a user manager) about the unit
    KERNEL = "kernel"
    JOURNALD = "journald"  # journald's own notices (suppressed, rotated ...)


BROKEN_OFF, AT_NUL = "line-max", "nul"  # a process's field _LINE_BREAK: its line goes on in the next entry
CONTAINER = "CONTAINER"  # a field of the lines of a container of docker's: no manager will ever write of it
OWNER = "OWNER"  # a field of the lines of a user's unit: the uid of that user
LOST = "LOST"  # a field of journald's lines: so many entries are missing here, says the source that reads them


@frozen
class Line:
    """One journal entry, or one line of a file, without its line end.

    `text` is as the source gave it; taking rank tags and supervisors' prefixes off is the work of `engine.lines`.
    `fields` is filled only for entries of the manager, the kernel and journald (MESSAGE_ID, EXIT_CODE, EXIT_STATUS,
    UNIT_RESULT, JOB_TYPE, JOB_RESULT, N_RESTARTS, N_DROPPED ...), and with OWNER for those of a user's unit,
    CONTAINER for those of a container.
    """

    text: str
    n: int | None = None  # 1-based line number of a file; None in a journal
    time: int | None = None  # microseconds UTC
    host: str | None = None
    unit: str | None = None
    invocation: str | None = None
    pid: int | None = None
    stream: str | None = None  # _STREAM_ID: one stdout, shared by all ranks
    origin: Origin = Origin.PROCESS
    cut: bool = False  # journald or an exporter lost part of it
    fields: Mapping[str, str] = field(default_factory=lambda: EMPTY)

    @property
    def position(self) -> str:
        """Where it stands in its source, the same on every reading. Another day's file has the same line numbers."""
        time = f"t{self.time}" if self.time is not None or self.n is None else ""
        return time if self.n is None else f"n{self.n}{time}"


@frozen
class Batch:
    """Some lines in reading order. `cursor` resumes *after* the last of them; `time` is the source's present."""

    lines: tuple[Line, ...]
    cursor: str | None = None
    time: int | None = None
    notices: tuple[str, ...] = ()  # what the source has to tell the operator: lost entries, cut fields, bad bytes
    passed: Mapping[str | None, int] = field(
        default_factory=dict
    )  # lines passed over unread, by unit; less those of before
    broken: bool = False  # the input breaks off here: a damaged archive, a disk that fails

    @property
    def size(self) -> int:
        """How many lines were read, those that were passed over too."""
        return len(self.lines) + sum(self.passed.values())


class Gate(Protocol):
    """Says which lines a source may pass over: `triage.engine.gate`."""

    @property
    def quiet(self) -> bool: ...
    @property
    def spots(self) -> Callable[[bytes], list[int]]: ...
    def begins(self, raw: bytes) -> bool: ...


class Source(Protocol):
    """A way in: the journal, journal files, text files, stdin."""

    name: str

    def batches(self) -> Iterator[Batch]:
        """Batches until the end; a live source never ends and gives empty ones (time moves on) in quiet."""
        ...

    def close(self) -> None: ...


# ---------------------------------------------------------------- crashes


class Phase(StrEnum):
    ARGUMENTS = "arguments"
    LOAD = "load"
    MEMORY = "memory"
    CAPTURE = "capture"
    WARMUP = "warmup"
    SERVING = "serving"
    SHUTDOWN = "shutdown"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    FATAL = "fatal"
    DEGRADED = "degraded"
    REQUEST_ERROR = "request-error"
    RECOVERED = "recovered"
    UNKNOWN = "unknown"

    @property
    def actionable(self) -> bool:
        """Only such a crash may lead to an action."""
        return self in (Outcome.FATAL, Outcome.DEGRADED)


class Severity(StrEnum):
    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Role(StrEnum):
    ROOT = "root"
    CASCADE = "cascade"
    CONFIRMATION = "confirmation"
    ADVICE = "advice"
    NOISE = "noise"


class Grade(StrEnum):
    COMPLETE = "complete"
    CUT = "cut"
    SUPPRESSED = "suppressed"
    ROTATED = "rotated"
    MIXED = "mixed"


@frozen
class Frame:
    """One place in a stack."""

    path: str  # as printed
    function: str
    line: int | None

    @property
    def file(self) -> str:
        return self.path.replace("\\", "/").rsplit("/", 1)[-1]


@frozen
class Link:
    """One exception of a chain. `frames` outermost first; `frame` is the one that names the place (contracts.md)."""

    exception: str  # class name as printed, or triage's own word (SIGKILL, Xid 79, UsageError ...)
    message: str
    frame: Frame | None = None
    frames: tuple[Frame, ...] = ()


@frozen
class Failure:
    """What one process (or the kernel, or the manager) reported: a traceback, a fatal line, a kernel line."""

    role: Role
    chain: tuple[Link, ...]  # deepest cause first, what wraps it after it; never empty
    lines: tuple[Line, ...]
    rank: str | None = None
    pid: int | None = None
    time: int | None = None
    why: str = ""  # why it has this role, in words

    @property
    def cause(self) -> Link:
        return self.chain[0]


NEW_EACH_TIME = frozenset({"random_seed", "nccl_port"})  # flags that SGLang chooses anew at each start


def with_version(flags: Mapping[str, str], version: str | None) -> dict[str, str]:
    return {**flags, "sglang_version": version} if version else dict(flags)


@frozen
class Pace:
    """How fast a server decodes at one load, by its own lines: speeds at other loads say nothing about each other."""

    running: int  # requests at once
    samples: int
    speed: float  # tokens/s, of its better lines: a pause between two requests counts into the others
    accepted: float = 0.0  # length of what a draft got accepted; 0 without speculation


@frozen
class Context:
    """What the log of this invocation said before: kept per running invocation, saved with the cursor."""

    phase: Phase = Phase.UNKNOWN
    sglang_version: str | None = None
    flags: Mapping[str, str] = field(
        default_factory=lambda: EMPTY
    )  # from server_args=: 'speculative_num_draft_tokens' -> '16'; secrets left out
    milestones: tuple[tuple[str, int | None], ...] = ()  # (name, time)
    warnings: tuple[Line, ...] = ()  # lines that may turn out to be causes
    answered: int = 0  # generations since it was ready; counted no further than `engine.pace` says
    pace: tuple[Pace, ...] = ()  # how fast it decoded
    stopping: int | None = None  # time of the manager's 'Stopping' entry: a requested stop
    good: Mapping[str, str] | None = None  # flags and 'sglang_version' of the unit's last run that came up
    ended: Ended | None = None  # the invocation is over
    front: int | None = None  # pid of the process that takes the requests

    @property
    def changes(self) -> tuple[tuple[str, str | None, str | None], ...] | None:
        """What differs from the unit's last good run: name, before, now. None: that run, or this one, is not known."""
        if self.good is None or not self.flags:
            return None
        now = with_version(self.flags, self.sglang_version)
        names = sorted((self.good.keys() | now.keys()) - NEW_EACH_TIME)
        return tuple(
            (name, self.good.get(name), now.get(name)) for name in names if self.good.get(name) != now.get(name)
        )


@frozen
class UnitEnd:
    """How the manager says the invocation ended."""

    result: str  # systemd's result: success, exit-code, signal, core-dump, timeout, oom-kill, start-limit-hit ...
    code: str | None = None  # exited, killed, dumped
    status: str | None = None  # number or signal name
    time: int | None = None
    requested: bool = False  # a stop job came first


@frozen
class Ended:
    """An invocation whose end was dealt with. The manager may tell its result hours later (docs/architecture.md)."""

    end: UnitEnd
    settled: bool = True  # whatever comes now changes nothing
    line: Line | None = None  # the manager's entry that told it
    crash: Crash | None = None  # where that end is all that is known of it; None too where it looked like no failure


@frozen
class Crash:
    """One invocation's crash, all ranks together. `id` and `position` are fixed when it opens; the rest is amended."""

    id: str
    position: str
    phase: Phase
    outcome: Outcome
    root: Failure
    failures: tuple[Failure, ...]  # root first, then in the order seen
    ranks: tuple[str, ...]  # root first
    evidence: tuple[Line, ...]
    grade: Grade = Grade.COMPLETE
    host: str | None = None
    unit: str | None = None
    invocation: str | None = None
    started: int | None = None
    ended: int | None = None
    context: Context = Context()
    end: UnitEnd | None = None
    suspects: tuple[str, ...] = ()  # of a collective, step or start that did not end: the ranks that never came
    follows: str = ""  # id of the crash whose aftermath this is: memory or a port that it still held, a rank it took
    owner: int | None = None  # uid of the user whose unit it is (systemctl --user); None: the system's, or not known

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """The store's key: the same crash read again has the same; the next of a restart loop has another."""
        return (self.host or "", self.unit or "", self.invocation or "", self.position, self.id)

    @property
    def cascades(self) -> int:
        return sum(1 for f in self.failures if f.role is Role.CASCADE)


class Change(StrEnum):
    OPENED = "opened"
    AMENDED = "amended"
    CLOSED = "closed"
    CORRECTED = "corrected"  # after it was closed the manager said better how the unit ended


@frozen
class CrashEvent:
    """What the assembler says: the crash as it is known now, and whether it is new, grown or finished."""

    change: Change
    crash: Crash


# ---------------------------------------------------------------- diagnosis


@frozen
class Signature:
    """What makes two crashes the same."""

    version: int
    key: str  # short hex
    title: str  # in words
    parts: tuple[tuple[str, str], ...]  # what went into the key, explained: (name, value)


@frozen
class Edit:
    """One change of one thing in a unit. `value`, `floor`, `ceiling` as in contracts.md."""

    op: str  # set-flag remove-flag cap-flag scale-flag step-flag set-env unset-env set-unit
    name: str  # --mem-fraction-static, SGLANG_X, Service.LimitNOFILE
    value: str | int | float | None = None
    floor: float | None = None
    ceiling: float | None = None
    also: tuple[str, ...] = ()  # abbreviations of the flag that stand in this command
    takes: str = ""  # what the release says the flag takes: nothing, value, list; '' where that is not known


@frozen
class Verify:
    """How a remedy is proved. None: what the settings (and for `ready_timeout` root's policy) say."""

    ready_timeout: float | None = None  # seconds until it serves; root's policy is the ceiling
    soak: int | None = None  # requests
    rate: float | None = None  # of them in a second, at most
    timeout: float | None = None  # seconds for one answer
    window: float | None = None  # seconds in which the signature must stay away
    min_speed: float | None = None  # share of the speed before that has to be left


AS_SET = Verify()


@frozen
class Remedy:
    """One way out of a crash, filled in for it."""

    id: str
    kind: str  # flag env unit upgrade downgrade install system model hardware request advice
    title: str
    cost: str
    confirmed: bool
    edits: tuple[Edit, ...] = ()
    versions: str | None = None
    applicable: bool = False  # `triage apply` can carry it out
    speed: float | None = None  # the cost announced as a share: at least this much of the tokens/s is left
    blocked_by: str | None = None  # why it does not fit here
    known_bad: tuple[tuple[str, str], ...] = ()  # releases in which it makes things worse, and how


@frozen
class Match:
    """A rule that means a crash."""

    rule: str
    rule_digest: str
    title: str
    confidence: float
    cause: str
    severity: Severity
    captures: Mapping[str, str]
    references: tuple[str, ...]
    remedies: tuple[Remedy, ...]  # cheapest that fits first
    verify: Verify = AS_SET


@frozen
class Near:
    """A rule that came close to an undiagnosed crash and does not mean it."""

    rule: str
    title: str
    holds: tuple[str, ...]  # what was right: exception, message, at ...
    why: tuple[str, ...]  # what was not, in words


@frozen
class Finding:
    """A crash with its name: what `record` stores and every page shows."""

    crash: Crash
    signature: Signature
    severity: Severity
    matches: tuple[Match, ...] = ()  # best first; empty = undiagnosed
    nearest: tuple[Near, ...] = ()  # only where no rule matches

    @property
    def title(self) -> str:
        return self.matches[0].title if self.matches else self.signature.title


@frozen
class FindingEvent:
    """A crash, named, and what became of it."""

    change: Change
    finding: Finding


class Recorder(Protocol):
    """The way out of the pipeline: one transaction for everything read so far."""

    def record(
        self,
        source: str,
        events: tuple[FindingEvent, ...],
        *,
        cursor: str | None,
        contexts: Mapping[str, Context] | None,
        now: int,
    ) -> None:
        """Store events, and (where not None) the cursor and the contexts that belong to it, all or nothing."""
        ...
