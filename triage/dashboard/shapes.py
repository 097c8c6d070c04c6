"""The JSON of /api/v1, as models that OpenAPI shows. Each is made of a row or value by `of`; times are ISO 8601 UTC.

Called by `api` alone. Fields may be added; renaming or dropping one needs a new `schema` number (contracts.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from triage.actionmodel import Plan
from triage.dashboard.desk import MICRO, UnitState
from triage.model import Edit
from triage.rulebase.rule import Rule
from triage.store import ActionRow, CrashRow, IncidentRow, ProofRow, TimelineRow, UnitSeen


def moment(time: int | None) -> datetime | None:
    return None if time is None else datetime.fromtimestamp(time / MICRO, UTC)


def moment_of(time: int) -> datetime:
    return datetime.fromtimestamp(time / MICRO, UTC)


class Shape(BaseModel):
    model_config = ConfigDict(frozen=True)


class ProblemShape(Shape):
    type: str
    title: str
    status: int
    code: str = Field(description="stable; scripts may rely on it")
    detail: str


class Incident(Shape):
    number: int
    host: str
    unit: str
    signature: str
    state: str
    severity: str
    title: str
    rule: str | None
    phase: str
    outcome: str
    exception: str
    message: str
    place: str
    sglang_version: str | None
    crashes: int
    first_seen: datetime
    last_seen: datetime
    muted_until: datetime | None
    url: str

    @classmethod
    def of(cls, row: IncidentRow) -> Incident:
        return cls(
            number=row.number,
            host=row.host,
            unit=row.unit,
            signature=row.signature,
            state=row.state,
            severity=row.severity,
            title=row.title,
            rule=row.rule,
            phase=row.phase,
            outcome=row.outcome,
            exception=row.exception,
            message=row.message,
            place=row.place,
            sglang_version=row.sglang_version,
            crashes=row.crashes,
            first_seen=moment_of(row.first_seen),
            last_seen=moment_of(row.last_seen),
            muted_until=moment(row.mute_until),
            url=f"/incidents/{row.number}",
        )


class IncidentPage(Shape):
    schema_: int = Field(default=1, alias="schema")
    items: list[Incident]
    next: str | None = Field(description="`cursor` of the next page")


class Crash(Shape):
    number: int
    incident: int
    opened: datetime
    closed: datetime | None
    crash: dict[str, Any] = Field(description="CRASH, as `triage scan --json` gives it")

    @classmethod
    def of(cls, row: CrashRow) -> Crash:
        return cls(
            number=row.number,
            incident=row.incident,
            opened=moment_of(row.opened_at),
            closed=moment(row.closed_at),
            crash=dict(row.document),
        )


class CrashPage(Shape):
    schema_: int = Field(default=1, alias="schema")
    items: list[Crash]
    next: str | None


class Timeline(Shape):
    time: datetime
    kind: str
    text: str
    who: str
    action: str | None

    @classmethod
    def of(cls, row: TimelineRow) -> Timeline:
        return cls(time=moment_of(row.time), kind=row.kind, text=row.text, who=row.who, action=row.action)


class EditShape(Shape):
    op: str
    name: str
    value: str | int | float | None = None
    floor: float | None = None
    ceiling: float | None = None

    @classmethod
    def of(cls, edit: Edit) -> EditShape:
        return cls(op=edit.op, name=edit.name, value=edit.value, floor=edit.floor, ceiling=edit.ceiling)


class StepShape(Shape):
    name: str
    state: str
    time: datetime
    text: str


class Proof(Shape):
    """The proof that goes on after root's own."""

    state: str = Field(description="planned, soak, window, proved, failed, ended")
    sent: int = Field(description="requests of the soak so far")
    wanted: int
    text: str
    measured: dict[str, str]
    changed: datetime

    @classmethod
    def of(cls, row: ProofRow) -> Proof:
        return cls(
            state=row.state,
            sent=row.sent,
            wanted=row.wanted,
            text=row.text,
            measured=dict(row.measured),
            changed=moment_of(row.changed_at),
        )


class Action(Shape):
    name: str
    kind: str
    state: str
    host: str
    unit: str
    incident: int
    rule: str
    remedy: str
    title: str
    cost: str
    target: str | None
    who: str
    requested: datetime
    started: datetime | None
    ended: datetime | None
    in_force: bool
    settled: bool
    text: str
    diff: str
    edits: list[EditShape]
    steps: list[StepShape]
    measured: dict[str, str]
    proof: Proof | None = Field(description="null: it is not proved any further")
    url: str

    @classmethod
    def of(cls, row: ActionRow) -> Action:
        return cls(
            name=row.name,
            kind=row.kind,
            state=row.state,
            host=row.host,
            unit=row.unit,
            incident=row.incident,
            rule=row.rule,
            remedy=row.remedy,
            title=row.title,
            cost=row.cost,
            target=row.target,
            who=row.who,
            requested=moment_of(row.requested_at),
            started=moment(row.started),
            ended=moment(row.ended),
            in_force=row.in_force,
            settled=row.settled,
            text=row.text,
            diff=row.diff,
            edits=[EditShape.of(edit) for edit in row.edits],
            steps=[StepShape(name=s.name, state=s.state, time=moment_of(s.time), text=s.text) for s in row.steps],
            measured=dict(row.measured),
            proof=Proof.of(row.proof) if row.proof else None,
            url=f"/actions/{row.name}",
        )


class ActionPage(Shape):
    schema_: int = Field(default=1, alias="schema")
    items: list[Action]
    next: str | None


class Workarounds(Shape):
    schema_: int = Field(default=1, alias="schema")
    items: list[Action]


class OneIncident(Shape):
    schema_: int = Field(default=1, alias="schema")
    incident: Incident
    crashes: list[Crash] = Field(description="the newest")
    timeline: list[Timeline]
    actions: list[Action]


class UnitShape(Shape):
    name: str
    state: str | None = Field(description="null: not on this machine")
    sglang_version: str | None
    argv: list[str]
    open_incidents: int
    incidents: int

    @classmethod
    def of(cls, name: str, state: UnitState | None, seen: UnitSeen | None) -> UnitShape:
        return cls(
            name=name,
            state=state.state if state else None,
            sglang_version=state.version if state else None,
            argv=list(state.argv) if state else [],
            open_incidents=seen.open_incidents if seen else 0,
            incidents=seen.incidents if seen else 0,
        )


class Units(Shape):
    schema_: int = Field(default=1, alias="schema")
    items: list[UnitShape]
    trouble: str | None = Field(description="why the manager could not be asked")


class RuleShape(Shape):
    id: str
    area: str
    title: str
    cause: str
    severity: str
    confidence: float
    digest: str
    references: list[str]
    remedies: list[Mapping[str, Any]]

    @classmethod
    def of(cls, rule: Rule) -> RuleShape:
        return cls(
            id=rule.id,
            area=rule.area,
            title=rule.title,
            cause=rule.cause,
            severity=rule.severity,
            confidence=rule.confidence,
            digest=rule.digest,
            references=list(rule.references),
            remedies=[
                {"id": one.id, "kind": one.kind, "title": one.title, "cost": one.cost, "confirmed": one.confirmed}
                for one in rule.remedies
            ],
        )


class Rules(Shape):
    schema_: int = Field(default=1, alias="schema")
    items: list[RuleShape]


class EnvChange(Shape):
    name: str
    before: str | None
    after: str | None


class PlanShape(Shape):
    schema_: int = Field(default=1, alias="schema")
    unit: str
    incident: int
    rule: str
    remedy: str
    title: str
    cost: str
    edits: list[EditShape]
    drop_in_path: str
    diff: str
    seen_digest: str = Field(description="of the unit's files; send it with apply: a unit that changed is then refused")
    result_digest: str
    argv_before: list[str]
    argv_after: list[str]
    env_changes: list[EnvChange]
    notes: list[str]
    owner: int | None = Field(default=None, description="uid of the user whose unit it is; null: the system's")

    @classmethod
    def of(cls, plan: Plan) -> PlanShape:
        return cls(
            unit=plan.unit,
            incident=plan.incident,
            rule=plan.rule,
            remedy=plan.remedy,
            title=plan.title,
            cost=plan.cost,
            edits=[EditShape.of(edit) for edit in plan.edits],
            drop_in_path=plan.drop_in_path,
            diff=plan.diff,
            seen_digest=plan.seen_digest,
            result_digest=plan.result_digest,
            argv_before=list(plan.argv_before),
            argv_after=list(plan.argv_after),
            env_changes=[EnvChange(name=name, before=before, after=after) for name, before, after in plan.env_changes],
            notes=list(plan.notes),
            owner=plan.owner,
        )


class ApplyBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    remedy: str | None = Field(default=None, max_length=200, description="default: the first that fits")
    seen_digest: str | None = Field(default=None, max_length=64, description="of the plan that was seen")


class ApproveBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    seen_digest: str | None = Field(default=None, max_length=64, description="of the plan that was seen")


class MuteBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    until: AwareDatetime
    why: str = Field(min_length=1, max_length=200)

    @property
    def until_micros(self) -> int:
        return int(self.until.timestamp() * MICRO)
