"""/api/v1: the same as the pages for programs. JSON out, problem+json on error, cursors for the next page.

Called by `app`. The shapes are in `shapes`; crash documents are those of `triage scan --json`. What changes something
needs the token (the guard sees to it) and, for what restarts a unit, an Idempotency-Key; a header of one's own is what
no foreign page can send, so that the cookie of a signed-in browser is enough there without a CSRF word.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import StreamingResponse

from triage.dashboard.actions import Seen, apply_once, approve_once, find, prepared, rollback_once, view, work_out
from triage.dashboard.desk import Desk
from triage.dashboard.events import Pulse
from triage.dashboard.pages import Name, Number
from triage.dashboard.problem import Problem
from triage.dashboard.shapes import (
    Action,
    ActionPage,
    ApplyBody,
    ApproveBody,
    Crash,
    CrashPage,
    Incident,
    IncidentPage,
    MuteBody,
    OneIncident,
    PlanShape,
    ProblemShape,
    Rules,
    RuleShape,
    Timeline,
    Units,
    UnitShape,
    Workarounds,
)
from triage.model import Severity, Unreachable
from triage.rulebase.rule import Rule
from triage.store import IncidentState

Limit = Annotated[int, Query(ge=1, le=200)]
Cursor = Annotated[str | None, Query(max_length=100, description="`next` of the page before")]
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=255)]
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ProblemShape, "description": "application/problem+json with a stable `code`"}
}


def routes(desk: Desk, pulse: Pulse) -> APIRouter:
    router = APIRouter(prefix="/api/v1", responses=ERRORS)
    _incidents(router, desk)
    _others(router, desk)
    _acting(router, desk)

    @router.get("/events", responses={200: {"content": {"text/event-stream": {}}}}, response_class=StreamingResponse)
    async def events() -> Response:
        """A `change` event whenever something that a page shows has changed."""
        if pulse.full():
            raise Problem(503, "too-many-streams", "too many event streams are open; try again later")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(pulse.stream(), media_type="text/event-stream", headers=headers)

    return router


def _incidents(router: APIRouter, desk: Desk) -> None:
    @router.get("/incidents")
    def incidents(
        state: Annotated[list[IncidentState] | None, Query()] = None,
        unit: Annotated[str | None, Query(max_length=256)] = None,
        severity: Severity | None = None,
        text: Annotated[str | None, Query(max_length=200)] = None,
        alarming: Annotated[bool, Query(description="false: request errors and the like too")] = True,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> IncidentPage:
        """Newest first."""
        found = desk.store.incidents(
            states=tuple(state or ()),
            unit=unit,
            severity=severity,
            text=text,
            alarming=alarming,
            limit=limit,
            before=cursor,
        )
        return IncidentPage(items=[Incident.of(row) for row in found.rows], next=found.next)

    @router.get("/incidents/{n}")
    def incident(n: Number) -> OneIncident:
        """One incident; a merged one answers with the one it lives on in."""
        found = view(desk, n)
        return OneIncident(
            incident=Incident.of(found.incident),
            crashes=[Crash.of(row) for row in found.crashes],
            timeline=[Timeline.of(row) for row in found.timeline],
            actions=[Action.of(row) for row in found.actions],
        )

    @router.get("/crashes")
    def crashes(
        incident: Annotated[int | None, Query(ge=1, le=2**31)] = None, limit: Limit = 50, cursor: Cursor = None
    ) -> CrashPage:
        """Newest first, of one incident or of all."""
        number = view(desk, incident).incident.number if incident is not None else None
        found = desk.store.crashes(number, limit=limit, before=cursor)
        return CrashPage(items=[Crash.of(row) for row in found.rows], next=found.next)

    @router.get("/incidents/{n}/plan")
    def plan(n: Number, remedy: Annotated[str | None, Query(max_length=200)] = None) -> PlanShape:
        """A remedy worked out for the unit as it is now; without `remedy`, the first that fits. Changes nothing."""
        return PlanShape.of(work_out(desk, n, remedy, "preview", desk.now()))

    @router.get("/incidents/{n}/waiting")
    def waiting(n: Number) -> PlanShape:
        """The plan that autonomy prepared and that waits for a yes (`approve`)."""
        return PlanShape.of(prepared(desk, view(desk, n).incident.number)[1])


def _others(router: APIRouter, desk: Desk) -> None:
    @router.get("/actions")
    def actions(
        unit: Annotated[str | None, Query(max_length=256)] = None, limit: Limit = 50, cursor: Cursor = None
    ) -> ActionPage:
        """Newest first."""
        found = desk.store.actions(unit=unit, limit=limit, before=cursor)
        return ActionPage(items=[Action.of(row) for row in found.rows], next=found.next)

    @router.get("/actions/{name}")
    def action(name: Name) -> Action:
        """One action with its steps so far."""
        row = find(desk, name)
        if row is None:
            raise Problem(404, "not-found", f"there is no action '{name}'")
        return Action.of(row)

    @router.get("/workarounds")
    def workarounds() -> Workarounds:
        """Actions in force, oldest first."""
        return Workarounds(items=[Action.of(row) for row in desk.store.workarounds()])

    @router.get("/units")
    def units() -> Units:
        """SGLang units: those of this machine, and those the store knows of."""
        try:
            states = {unit.name: unit for unit in desk.units()}
            trouble = None
        except Unreachable as error:
            states, trouble = {}, str(error)
        seen = {row.unit: row for row in desk.store.units() if row.unit}
        names = sorted(states.keys() | seen.keys())
        return Units(items=[UnitShape.of(name, states.get(name), seen.get(name)) for name in names], trouble=trouble)

    @router.get("/rules")
    def rules() -> Rules:
        """The rules in force."""
        return Rules(items=[RuleShape.of(rule) for rule in sorted(desk.rules.values(), key=lambda rule: rule.id)])

    @router.get("/rules/{rule}")
    def rule_(rule: str) -> RuleShape:
        known: Rule | None = desk.rules.get(rule)
        if known is None:
            raise Problem(404, "not-found", "there is no such rule in force")
        return RuleShape.of(known)


def _acting(router: APIRouter, desk: Desk) -> None:
    def who(request: Request) -> str:
        session = request.state.session
        return "api" if request.state.bearer or session is None else f"page ({session.name[:8]})"

    def needed(key: str | None) -> str:
        if not key:
            raise Problem(400, "idempotency-key-required", "send an Idempotency-Key header, a new one for each action")
        return key

    @router.post("/incidents/{n}/apply", status_code=202)
    def apply(
        request: Request, response: Response, n: Number, body: ApplyBody | None = None, key: Key = None
    ) -> Action:
        """File the request to apply a remedy. Follow the action at `Location`."""
        asked = body or ApplyBody()
        row = apply_once(desk, n, asked.remedy, Seen(unit_digest=asked.seen_digest), needed(key), who(request))
        response.headers["Location"] = f"/api/v1/actions/{row.name}"
        return Action.of(row)

    @router.post("/incidents/{n}/approve", status_code=202)
    def approve(
        request: Request, response: Response, n: Number, body: ApproveBody | None = None, key: Key = None
    ) -> Action:
        """Say yes to the plan that waits: exactly that one is filed, or nothing."""
        needed(key)
        row = approve_once(desk, n, Seen(unit_digest=body.seen_digest if body else None), who(request))
        response.headers["Location"] = f"/api/v1/actions/{row.name}"
        return Action.of(row)

    @router.post("/actions/{name}/rollback", status_code=202)
    def rollback(request: Request, response: Response, name: Name, key: Key = None) -> Action:
        """File the request to take an action back."""
        row = rollback_once(desk, name, Seen(), needed(key), who(request))
        response.headers["Location"] = f"/api/v1/actions/{row.name}"
        return Action.of(row)

    @router.post("/actions/{name}/retire", status_code=202)
    def retire(request: Request, response: Response, name: Name, key: Key = None) -> Action:
        """File the request to do without a workaround: proved like an apply, and put back where that fails."""
        row = rollback_once(desk, name, Seen(), needed(key), who(request), retire=True)
        response.headers["Location"] = f"/api/v1/actions/{row.name}"
        return Action.of(row)

    def settled(n: int) -> Incident:
        return Incident.of(view(desk, n).incident)

    @router.post("/incidents/{n}/resolve")
    def resolve(request: Request, n: Number) -> Incident:
        needs_own_page(request)
        desk.store.resolve(settled(n).number, who(request), desk.now())
        return settled(n)

    @router.post("/incidents/{n}/reopen")
    def reopen(request: Request, n: Number) -> Incident:
        needs_own_page(request)
        desk.store.reopen(settled(n).number, who(request), desk.now())
        return settled(n)

    @router.post("/incidents/{n}/mute")
    def mute(request: Request, n: Number, body: MuteBody) -> Incident:
        """No alerts until then; a time that has passed ends a mute."""
        needs_own_page(request)
        desk.store.mute(settled(n).number, body.until_micros, body.why, who(request), desk.now())
        return settled(n)


def needs_own_page(request: Request) -> None:
    """What has no Idempotency-Key asks a cookie for its CSRF word, in a header."""
    session = request.state.session
    if not request.state.bearer and (session is None or request.headers.get("x-csrf-token") != session.csrf):
        raise Problem(403, "csrf", "send the token as Authorization: Bearer")
