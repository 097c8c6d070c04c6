"""The pages people read: incidents, incident, preview, actions, workarounds, units, rules. None changes anything.

Called by `app`; forms that change something are in `forms`. A route asks the store, lets `views` make values of the
rows, and renders one template. Sync on purpose: they run in the server's threads, next to the one async stream.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from triage import __version__
from triage.actionmodel import Plan
from triage.autonomy import waiting
from triage.dashboard import views
from triage.dashboard.actions import action_name, find, newest, prepared, view, work_out
from triage.dashboard.desk import MICRO, Desk
from triage.dashboard.logtext import flat
from triage.dashboard.problem import Problem
from triage.debt import Debt, debts
from triage.frozen import frozen
from triage.model import Pending, Refused, Severity, TriageError, Unreachable
from triage.poison import poison
from triage.rulebase.rule import Rule, slots
from triage.store import ActionRow, IncidentState, IncidentView

Number = Annotated[int, Path(ge=1, le=2**31)]
Name = Annotated[str, Path(pattern=r"^[a-z0-9._-]{1,64}$")]
Word = Annotated[str, Query(max_length=200)]

ACTIVE = (IncidentState.OPEN, IncidentState.REGRESSED, IncidentState.MITIGATED)
SHOWN_LINES = 60
LOOK_AGAIN = 3  # seconds until a page that waits for an answer comes again
QUIET_SECONDS = 60  # watch saves its place every few seconds: later than this it is not reading


@frozen
class Status:
    """The footer: is what these pages say still the present?"""

    last_line: int | None
    late: bool
    lag: float | None
    outbox: int


def status(desk: Desk) -> Status:
    health = desk.store.health()
    read = [source.read_at for source in health.sources]
    last = max(read) if read else None
    lag = [counter.value for counter in desk.store.counters() if counter.name == "lag_seconds"]
    late = last is not None and desk.now() - last > QUIET_SECONDS * MICRO
    return Status(last, late, max(lag) if lag else None, health.outbox.waiting)


def page(
    desk: Desk,
    request: Request,
    template: str,
    title: str,
    values: Mapping[str, Any],
    *,
    here: str = "",
    status_code: int = 200,
) -> HTMLResponse:
    """One template with what every page needs."""
    frame = {
        "title": title,
        "here": here,
        "request": request,
        "session": request.state.session,
        "read_only": desk.read_only,
        "version": __version__,
        "status": status(desk),
    }
    return HTMLResponse(desk.templates.page(template, {**frame, **values}), status_code)


def preview_page(
    desk: Desk, request: Request, n: int, remedy: str, *, refusal: str = "", changed: str = ""
) -> HTMLResponse:
    """The plan as computed now, or the reason why there is none."""
    found = view(desk, n)
    document = newest(found).document
    rungs = document["matches"][0]["remedies"] if document["matches"] else ()
    rung = next((one for one in rungs if one["id"] == remedy), None)
    if rung is None:
        raise Problem(404, "not-found", f"incident {n} has no remedy '{flat(remedy)}'")
    key, time = secrets.token_hex(12), desk.now()
    name = action_name(found.incident.number, "apply", key)
    values = {
        "remedy": rung,
        "changed": changed,
        "command": views.apply_command(found.incident.number, remedy),
        "key": key,
        "time": time,
    }
    return _plan_page(desk, request, found, values, lambda: work_out(desk, n, remedy, name, time), refusal)


def waiting_page(desk: Desk, request: Request, n: int, *, refusal: str = "") -> HTMLResponse:
    """The plan that autonomy prepared, as it was made, or the reason why it may not be said yes to any more."""
    found = view(desk, n)
    number = found.incident.number
    decision = next(iter(waiting(desk.store, number)), None)
    if decision is None:
        raise Problem(404, "not-found", f"nothing waits for a yes on incident {number}")
    document = newest(found).document
    rungs = document["matches"][0]["remedies"] if document["matches"] else ()
    unknown = {"id": decision.remedy, "title": decision.remedy, "confirmed": False}
    values = {
        "remedy": next((one for one in rungs if one["id"] == decision.remedy), unknown),
        "changed": "",
        "command": f"sudo triage guards approve {number}",
        "decision": decision,
    }
    return _plan_page(desk, request, found, values, lambda: prepared(desk, number)[1], refusal)


def _plan_page(
    desk: Desk,
    request: Request,
    found: IncidentView,
    more: Mapping[str, Any],
    work: Callable[[], Plan],
    refusal: str,
) -> HTMLResponse:
    plan = None
    pending = False
    rung, changed = more["remedy"], more["changed"]
    try:
        plan = work()
    except (Refused, Unreachable) as error:
        pending = isinstance(error, Pending) and not refusal
        refusal = refusal or str(error)
    values = {
        "i": views.item(found.incident, desk.rules, desk.now()),
        "plan": plan,
        "refusal": refusal,
        "pending": pending,
        "button": desk.hands.listening(),
        "root": desk.hands.root,
        "decision": None,
        **more,
    }
    status_code = 200 if pending or not (refusal or changed) else 409
    answer = page(
        desk, request, "preview.html", f"Preview: {rung['title']}", values, here="/incidents", status_code=status_code
    )
    if pending:  # the page comes again by itself, script or not
        answer.headers["Refresh"] = str(LOOK_AGAIN)
    return answer


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    _incidents(router, desk)
    _actions(router, desk)
    _knowledge(router, desk)
    return router


def _incidents(router: APIRouter, desk: Desk) -> None:
    @router.get("/")
    def home() -> RedirectResponse:
        return RedirectResponse("/incidents", 307)

    @router.get("/incidents")
    def incidents(
        request: Request,
        state: Word = "active",
        unit: Word = "",
        severity: Word = "",
        text: Word = "",
        before: Word = "",
    ) -> HTMLResponse:
        return incidents_page(desk, request, state, unit, severity, text.strip(), before)

    @router.get("/incidents/{n}")
    def incident(request: Request, n: Number, crash: Annotated[int | None, Query(ge=1, le=2**31)] = None) -> Response:
        found = view(desk, n)
        if found.incident.number != n:
            return RedirectResponse(f"/incidents/{found.incident.number}", 307)
        return incident_page(desk, request, found, crash)

    @router.get("/incidents/{n}/remedies/{remedy}")
    def preview(request: Request, n: Number, remedy: Annotated[str, Path(max_length=200)]) -> HTMLResponse:
        return preview_page(desk, request, n, remedy)

    @router.get("/incidents/{n}/waiting")
    def waiting_(request: Request, n: Number) -> HTMLResponse:
        return waiting_page(desk, request, n)


def _actions(router: APIRouter, desk: Desk) -> None:
    @router.get("/actions")
    def actions(request: Request, before: Word = "") -> HTMLResponse:
        rows = desk.store.actions(before=before or None)
        values = {
            "rows": [views.action_view(row, desk.now()) for row in rows.rows],
            "next_page": f"/actions?{urlencode({'before': rows.next})}" if rows.next else None,
            "held": desk.store.guarded(),
            "waiting": waiting(desk.store),
        }
        return page(desk, request, "actions.html", "Actions", values, here="/actions")

    @router.get("/actions/{name}")
    def action(request: Request, name: Name) -> HTMLResponse:
        row = find(desk, name)
        if row is None:
            raise Problem(404, "not-found", f"there is no action '{name}'")
        tries = len([one for one in desk.store.incident(row.incident).actions if one.target == name])
        values = {
            "a": views.action_view(row, desk.now()),
            "button": desk.hands.listening(),
            "root": desk.hands.root,
            "command": views.rollback_command(name),
            "key": f"undo-{name}-{tries}",  # the same on every look, another one after a try that failed
            "due": debt_of(desk, row),
            **undo_values(desk, row),
        }
        return page(desk, request, "action.html", f"{row.title or row.remedy}: {row.state}", values, here="/actions")

    @router.get("/workarounds")
    def workarounds(request: Request) -> HTMLResponse:
        found = debts(desk.store, desk.hands, desk.rules.get, None, desk.now())
        values = {"rows": [(views.action_view(one.action, desk.now()), one) for one in found]}
        return page(desk, request, "workarounds.html", "Workarounds", values, here="/workarounds")


def debt_of(desk: Desk, row: ActionRow) -> Debt | None:
    """When this one may go; None of what is not in force."""
    found = debts(desk.store, desk.hands, desk.rules.get, row.unit, desk.now()) if row.in_force else []
    return next((one for one in found if one.action.name == row.name), None)


def undo_values(desk: Desk, row: ActionRow) -> dict[str, Any]:
    """What taking this action back would change, as computed now, or the reason why it cannot be told."""
    if not row.in_force:
        return {"undo": None, "undo_refused": ""}
    try:
        return {"undo": desk.hands.plan_rollback(row, row.name, desk.now()), "undo_refused": ""}
    except TriageError as reason:
        return {"undo": None, "undo_refused": str(reason)}


def _knowledge(router: APIRouter, desk: Desk) -> None:
    @router.get("/units")
    def units(request: Request) -> HTMLResponse:
        return units_page(desk, request)

    @router.get("/rules")
    def rules(request: Request, text: Word = "") -> HTMLResponse:
        text = text.strip()
        words = [word for part in text.split() if (word := _plain(part))]
        rows = [
            rule for rule in sorted(desk.rules.values(), key=lambda rule: (rule.area, rule.id)) if _says(rule, words)
        ]
        areas = [(area, list(group)) for area, group in groupby(rows, key=lambda rule: rule.area)]
        values = {"rows": rows, "areas": areas, "text": text, "trouble": desk.in_force().trouble}
        return page(desk, request, "rules.html", "Rules", values, here="/rules")

    @router.get("/rules/{rule}")
    def rule_(request: Request, rule: Annotated[str, Path(max_length=200)]) -> HTMLResponse:
        known = desk.rules.get(rule)
        if known is None:
            raise Problem(404, "not-found", f"there is no rule '{flat(rule)}' in force")
        return page(
            desk,
            request,
            "rule.html",
            slots(known.title),
            {"rule": known, "text": rule_text(known.path)},
            here="/rules",
        )


def _says(rule: Rule, words: Sequence[str]) -> bool:
    """Whether what a rule tells people, or looks for in a log, holds each of these words."""
    told = [rule.id, rule.title, rule.cause, *(f"{remedy.id} {remedy.title}" for remedy in rule.remedies)]
    for clause in rule.clauses:
        told += clause.exceptions
        told += (pattern.text.replace("\\", "") for pattern in (*clause.messages, *clause.lines))
    every = _plain("\n".join(told))
    return all(word in every or _own(word) in every for word in words)


def _plain(text: str) -> str:
    """As it is compared: small letters, `_` and `-` the same, without the punctuation that is pasted around a word."""
    return text.casefold().replace("_", "-").strip("\"'`‘’“”:;.,()")


def _own(word: str) -> str:
    """The class's own name of a dotted one: `torch.outofmemoryerror` is told of as `outofmemoryerror`."""
    return word.rsplit(".", 1)[-1] if word.endswith(("error", "exception")) else word


def rule_text(path: Any) -> str:
    """The rule's file as it lies on disk now; it may have gone since the start."""
    try:
        return str(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return f"# cannot be read now: {error.strerror}"


@frozen
class Filter:
    """What the list was asked for, cleaned."""

    state: str
    unit: str
    severity: str
    text: str
    cursor: str

    @property
    def set(self) -> bool:
        return bool(self.unit or self.severity or self.text) or self.state not in ("active", "all")

    def link(self, before: str = "") -> str:
        given = {"state": self.state, "unit": self.unit, "severity": self.severity, "text": self.text, "before": before}
        return "/incidents?" + urlencode({name: value for name, value in given.items() if value})


def incidents_page(
    desk: Desk, request: Request, state: str, unit: str, severity: str, text: str, before: str
) -> HTMLResponse:
    states = {"active": ACTIVE, "all": ()} | {str(one): (one,) for one in IncidentState}
    asked = Filter(
        state=state if state in states else "active",
        unit=unit,
        severity=severity if severity in list(Severity) else "",
        text=text,
        cursor=before,
    )
    rows = desk.store.incidents(
        states=tuple(states[asked.state]),
        unit=asked.unit or None,
        severity=Severity(asked.severity) if asked.severity else None,
        text=asked.text or None,
        alarming=asked.state != "all",
        before=before or None,
    )
    now = desk.now()
    counts: dict[str, int] = {}
    for row in desk.store.open_counts():
        counts[row.state] = counts.get(row.state, 0) + row.count
    settled = not rows.rows and desk.store.incidents(states=(IncidentState.RESOLVED,), limit=1).rows
    known = sorted({seen.unit for seen in desk.store.units() if seen.unit} | ({asked.unit} - {""}))
    values = {
        "rows": [views.item(row, desk.rules, now) for row in rows.rows],
        "filter": asked,
        "counts": counts,
        "settled": bool(settled),
        "units": known,
        "next_page": asked.link(rows.next) if rows.next else None,
        "first_page": asked.link(),
    }
    return page(desk, request, "incidents.html", "Incidents", values, here="/incidents")


def incident_page(desk: Desk, request: Request, found: IncidentView, number: int | None) -> HTMLResponse:
    now = desk.now()
    wanted = [crash for crash in found.crashes if crash.number == number]
    if number is not None and not wanted:
        wanted = list(desk.store.crashes(found.incident.number, before=str(number + 1), limit=1).rows)
        if not wanted or wanted[0].number != number:
            raise Problem(404, "not-found", f"incident {found.incident.number} has no crash {number}")
    current = wanted[0] if wanted else newest(found)
    document = current.document
    match = document["matches"][0] if document["matches"] else None
    rungs = desk.hands.rungs(match["remedies"], found.incident, document) if match else ()
    values = {
        "i": views.item(found.incident, desk.rules, now),
        "crash": document,
        "growing": current.closed_at is None,
        "match": match,
        "others": max(0, len(document["ranks"]) - 1),
        "rungs": views.ladder(rungs, document, found.actions),
        "lines": views.evidence(document),
        "shown_lines": SHOWN_LINES,
        "grade_note": views.GRADES.get(document["evidence"]["grade"], ""),
        "root_why": views.root_why(document),
        "failures": views.failures(document),
        "end": views.end_words(document),
        "crashes": [views.crash_item(crash, current.number) for crash in found.crashes],
        "timeline": [views.moment(row) for row in reversed(found.timeline)],
        "standing": views.standing(found.actions, now),
        "poison": poison(found),
        "waiting": next(iter(waiting(desk.store, found.incident.number)), None),
    }
    title = f"#{found.incident.number} {found.incident.title}"
    return page(desk, request, "incident.html", title, values, here="/incidents")


def units_page(desk: Desk, request: Request) -> HTMLResponse:
    trouble = ""
    found: dict[str, views.UnitItem] = {}
    try:
        states = {unit.name: unit for unit in desk.units()}
    except Unreachable as error:
        states, trouble = {}, str(error)
    seen = {row.unit: row for row in desk.store.units() if row.unit}
    held = [row.unit for row in desk.store.workarounds()]
    for name in sorted(states.keys() | seen.keys()):
        state, row = states.get(name), seen.get(name)
        found[name] = views.UnitItem(
            name=name,
            state=state.state if state else "not here",
            version=state.version if state else None,
            argv=state.argv if state else (),
            incidents=row.open_incidents if row else 0,
            workarounds=held.count(name),
        )
    values = {"rows": list(found.values()), "globs": desk.settings.units, "trouble": trouble}
    return page(desk, request, "units.html", "Units", values, here="/units")
