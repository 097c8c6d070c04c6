"""What the queries give: frozen rows, parsed once, with nothing of SQLAlchemy in them. Times are microseconds UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from triage.actionmodel import ActionState, Level, Step
from triage.frozen import frozen
from triage.model import Edit, Grade, Outcome, Phase, Severity, Verify

Row = TypeVar("Row")


class IncidentState(StrEnum):
    OPEN = "open"
    MITIGATED = "mitigated"  # an action was verified
    RESOLVED = "resolved"
    REGRESSED = "regressed"  # came back after either


@frozen
class IncidentRow:
    """All crashes of one signature on one unit and host. `number` is what people call it by."""

    number: int
    host: str
    unit: str
    signature: str  # version:key
    state: IncidentState
    severity: Severity
    title: str
    rule: str | None  # None = undiagnosed
    phase: Phase
    outcome: Outcome
    exception: str
    message: str
    place: str  # 'dflash_worker.py:715 in forward', or ''
    sglang_version: str | None
    crashes: int
    alarms: int  # of those, the ones that count as failures; 0: request errors and the like only
    first_seen: int
    last_seen: int
    mute_until: int | None
    mute_why: str
    merged_into: int | None
    changed_at: int

    def muted(self, now: int) -> bool:
        return self.mute_until is not None and self.mute_until > now


@frozen
class CrashRow:
    """One crash; `document` is CRASH of contracts.md as it was known last."""

    number: int
    incident: int
    id: str
    host: str
    unit: str
    invocation: str
    signature: str
    title: str
    rule: str | None
    phase: Phase
    outcome: Outcome
    severity: Severity
    grade: Grade
    started: int | None
    ended: int | None
    opened_at: int
    closed_at: int | None  # None: still growing
    document: Mapping[str, Any]


@frozen
class TimelineRow:
    number: int
    time: int
    kind: str  # crash state mute merge action note rollback
    text: str
    who: str
    action: str | None


class ProofState(StrEnum):
    PLANNED = "planned"  # root's own proof comes first
    SOAK = "soak"
    WINDOW = "window"  # soak and speed have held; the signature must still stay away
    PROVED = "proved"
    FAILED = "failed"  # its rollback is asked for
    ENDED = "ended"  # without a verdict: undone, stopped, never verified


@frozen
class ProofRow:
    """The proof of an action that goes on after root's own."""

    state: ProofState
    sent: int  # requests of the soak so far
    wanted: int
    text: str
    measured: Mapping[str, str]
    changed_at: int
    profile: Verify

    @property
    def settled(self) -> bool:
        return self.state in (ProofState.PROVED, ProofState.FAILED, ProofState.ENDED)

    @property
    def words(self) -> str:
        """For people: `proving: soak 60/150: ...`."""
        match self.state:
            case ProofState.SOAK:
                head = f"proving: soak {self.sent}/{self.wanted}"
            case ProofState.WINDOW:
                head = "proving: the signature has to stay away"
            case _:
                head = str(self.state)
        return f"{head}: {self.text}" if self.text else head


@frozen
class SoakRow:
    """A proof that is in its soak."""

    action: str
    unit: str
    profile: Verify
    sent: int
    effective_at: int
    measured: Mapping[str, str]  # by root: speed_before among them
    owner: int | None = None  # uid of the user whose unit it is; None: the system's
    skipped: int = 0  # of those sent: of a kind that the server does not take


@frozen
class ActionRow:
    """One plan carried out or asked for, as root's account was imported last."""

    name: str
    host: str
    kind: str  # apply | rollback
    unit: str
    incident: int
    rule: str
    remedy: str
    target: str | None  # rollback: the action it undoes
    state: ActionState
    title: str
    cost: str
    diff: str
    who: str
    reason: str
    edits: tuple[Edit, ...]
    verify: bool
    root: str  # folder of --root; '' for the machine itself
    requested_at: int
    started: int | None
    ended: int | None
    effective_at: int | None  # the unit runs with it since then
    watched_at: int | None  # when its window had passed in silence
    text: str
    steps: tuple[Step, ...]
    measured: Mapping[str, str]
    proof: ProofRow | None = None
    owner: int | None = None  # uid of the user whose unit it is; None: the system's

    @property
    def in_force(self) -> bool:
        """Its edits are in the unit's drop-in: also where taking them back failed."""
        stuck = self.state is ActionState.ROLLBACK_FAILED and "stands" in self.measured
        return self.kind == "apply" and (stuck or self.state in (ActionState.VERIFIED, ActionState.UNVERIFIED))

    @property
    def speeds(self) -> str:
        """Tokens per second before and after, as measured; '' where not both are known."""
        known = {**self.measured, **(self.proof.measured if self.proof else {})}
        before, after = known.get("speed_before"), known.get("speed_after")
        return f"{before} -> {after} tokens/s" if before and after else ""

    @property
    def settled(self) -> bool:
        """Nothing more will come of it by itself."""
        return self.state not in (ActionState.REQUESTED, ActionState.RUNNING)


@frozen
class IncidentView:
    """What a page of one incident shows."""

    incident: IncidentRow
    crashes: tuple[CrashRow, ...]  # newest first
    timeline: tuple[TimelineRow, ...]  # oldest first
    actions: tuple[ActionRow, ...]  # newest first


@frozen
class Page(Generic[Row]):
    """Some rows, and what to hand back as `before` for the next; None at the end."""

    rows: tuple[Row, ...]
    next: str | None


@frozen
class WantedRollback:
    """A signature came back under an action: file a rollback of it."""

    action: str
    host: str
    unit: str
    incident: int
    reason: str
    created_at: int


@frozen
class Breaker:
    """Of one host. While it is open nothing is applied, whoever asks."""

    host: str
    opened_at: int | None
    why: str
    reset_at: int
    who: str  # reset it last


@frozen
class Demotion:
    """A rule that failed its proof on a unit: it does nothing unasked there until a person resets it."""

    rule: str
    unit: str
    action: str
    why: str
    since: int


@frozen
class Guarded:
    breaker: Breaker
    demotions: tuple[Demotion, ...]


class Verdict(StrEnum):
    HELD = "held"  # there is nothing to offer, or the guards said no
    PROPOSED = "proposed"
    WAITING = "waiting"  # for a person's yes
    FILING = "filing"  # about to be filed: a kill here leaves it undone
    FILED = "filed"


@frozen
class Decision:
    """What autonomy made of one crash. `shadow`: what it would have made of it."""

    crash: int
    incident: int
    unit: str
    rule: str
    level: Level
    verdict: Verdict = Verdict.HELD
    remedy: str = ""
    text: str = ""
    action: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    shadow: bool = False
    decided_at: int = 0


@frozen
class Retirement:
    """What is known of the end of a workaround."""

    action: str
    release: str = ""  # a person's condition
    due: int | None = None  # a person's condition
    proposed_at: int | None = None
    proposed_for: str = ""  # release that was installed then
    why: str = ""
    failed: tuple[str, ...] = ()  # releases on which it was tried and the crash came back


@frozen
class DueDelivery:
    """One event for one channel whose time has come. `id` is the webhook-id, the same on every try."""

    id: str
    channel: str
    type: str
    payload: str
    tries: int  # so far


@frozen
class SourceHealth:
    host: str
    source: str
    cursor: str | None
    read_at: int  # when it was last known to read


@frozen
class OutboxDepth:
    waiting: int  # events not yet handed to the channels, and deliveries not yet made
    dead: int  # deliveries given up, until they are pruned


@frozen
class Health:
    sources: tuple[SourceHealth, ...]
    outbox: OutboxDepth
    database_bytes: int
    revision: str | None


@frozen
class UnitSeen:
    """A unit the store knows of, by its incidents."""

    host: str
    unit: str
    open_incidents: int
    incidents: int
    last_seen: int


@frozen
class OpenCount:
    host: str
    unit: str
    severity: Severity
    state: IncidentState
    count: int


@frozen
class Counter:
    """A number of another process, for /metrics. `name` without the `triage_` in front."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@frozen
class Pruned:
    crashes: int
    incidents: int
    events: int
