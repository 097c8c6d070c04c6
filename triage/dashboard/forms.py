"""The pages' forms: sign in and out, apply, approve, undo, retire, settle. Every one answers with a redirect to a page.

Called by `app`. The guard has checked Host, Origin and token before; here the CSRF word of the session is compared, and
the digest that the form carries with the plan as it is now: what was not seen is not applied.
"""

from __future__ import annotations

import hmac
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from triage.dashboard.actions import Changed, Seen, apply_once, approve_once, rollback_once, view
from triage.dashboard.auth import SESSION_SECONDS, local_path
from triage.dashboard.desk import MICRO, Desk
from triage.dashboard.pages import Name, Number, page, preview_page, waiting_page
from triage.dashboard.problem import Problem
from triage.model import Refused

Text = Annotated[str, Form(max_length=200)]


def _see(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303)


def _who(request: Request, csrf: str) -> str:
    """Who asks. A form without the word of its session is not ours."""
    session = request.state.session
    if session is None and request.state.bearer:
        return "api"
    if session is None or not hmac.compare_digest(csrf.encode(), session.csrf.encode()):
        raise Problem(403, "csrf", "the form is not of this session; load the page again and repeat")
    return f"page ({session.name[:8]})"


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    _signing(router, desk)
    _acting(router, desk)
    _settling(router, desk)
    return router


def _signing(router: APIRouter, desk: Desk) -> None:
    @router.get("/login")
    def login(request: Request, token: str = "", next: str = "/") -> Response:  # noqa: A002 - the query's name
        if token:
            return _sign_in(request, token, next)
        return login_page(request, next, wrong=False)

    @router.post("/login")
    def login_form(request: Request, token: Text, next: Text = "/") -> Response:  # noqa: A002
        return _sign_in(request, token, next)

    def login_page(request: Request, target: str, *, wrong: bool) -> HTMLResponse:
        values = {
            "next": local_path(target),
            "wrong": wrong,
            "token_path": str(desk.settings.runtime_dir / "web-token"),
        }
        return page(desk, request, "login.html", "Sign in", values, status_code=403 if wrong else 200)

    def _sign_in(request: Request, token: str, target: str) -> Response:
        if desk.read_only or not desk.keeper.accepts(token.strip()):
            return login_page(request, target, wrong=not desk.read_only)
        answer = _see(local_path(target))
        cookie = desk.keeper.issue(desk.templates.clock())
        answer.set_cookie(
            desk.keeper.cookie, cookie, max_age=SESSION_SECONDS, path="/", httponly=True, samesite="strict"
        )
        return answer

    @router.post("/logout")
    def logout(request: Request, csrf: Text = "") -> Response:
        _who(request, csrf)
        answer = _see("/incidents")
        answer.delete_cookie(desk.keeper.cookie, path="/", httponly=True, samesite="strict")
        return answer


def _acting(router: APIRouter, desk: Desk) -> None:
    @router.post("/incidents/{n}/apply")
    def apply(
        request: Request,
        n: Number,
        remedy: Text,
        seen_digest: Text,
        result_digest: Text,
        time: Annotated[int, Form(ge=0, le=2**62)],
        key: Text,
        csrf: Text = "",
        agreed: Text = "",
    ) -> Response:
        person = _who(request, csrf)
        if agreed != "yes":
            return preview_page(desk, request, n, remedy, refusal="the box was not ticked")
        try:
            action = apply_once(desk, n, remedy, Seen(seen_digest, result_digest, time), key, person)
        except Changed as error:
            return preview_page(desk, request, n, remedy, changed=str(error))
        except Refused as error:
            return preview_page(desk, request, n, remedy, refusal=str(error))
        return _see(f"/actions/{quote(action.name)}")

    @router.post("/incidents/{n}/approve")
    def approve(
        request: Request, n: Number, seen_digest: Text, result_digest: Text, csrf: Text = "", agreed: Text = ""
    ) -> Response:
        person = _who(request, csrf)
        if agreed != "yes":
            return waiting_page(desk, request, n, refusal="the box was not ticked")
        try:
            action = approve_once(desk, n, Seen(seen_digest, result_digest), person)
        except Refused as error:
            return waiting_page(desk, request, n, refusal=str(error))
        return _see(f"/actions/{quote(action.name)}")

    @router.post("/actions/{name}/rollback")
    @router.post("/actions/{name}/retire")
    def rollback(
        request: Request,
        name: Name,
        key: Text,
        unit_digest: Text,
        result_digest: Text = "",
        csrf: Text = "",
        agreed: Text = "",
    ) -> Response:
        person = _who(request, csrf)
        if agreed != "yes":
            raise Problem(422, "invalid", "the box was not ticked; nothing was changed")
        retire = request.url.path.endswith("/retire")
        action = rollback_once(desk, name, Seen(unit_digest, result_digest), key, person, retire=retire)
        return _see(f"/actions/{quote(action.name)}")


def _settling(router: APIRouter, desk: Desk) -> None:
    @router.post("/guards/reset")
    def reset(request: Request, rule: Text = "", unit: Text = "", csrf: Text = "") -> Response:
        person = _who(request, csrf)
        if rule:
            desk.store.reset_demotion(rule, unit)
        else:
            desk.store.reset_breaker(person, desk.now())
        return _see("/actions")

    @router.post("/incidents/{n}/resolve")
    def resolve(request: Request, n: Number, csrf: Text = "") -> Response:
        person = _who(request, csrf)
        desk.store.resolve(view(desk, n).incident.number, person, desk.now())
        return _see(f"/incidents/{n}")

    @router.post("/incidents/{n}/reopen")
    def reopen(request: Request, n: Number, csrf: Text = "") -> Response:
        person = _who(request, csrf)
        desk.store.reopen(view(desk, n).incident.number, person, desk.now())
        return _see(f"/incidents/{n}")

    @router.post("/incidents/{n}/mute")
    def mute(
        request: Request, n: Number, hours: Annotated[int, Form(ge=1, le=24 * 90)], why: Text, csrf: Text = ""
    ) -> Response:
        person = _who(request, csrf)
        now = desk.now()
        desk.store.mute(view(desk, n).incident.number, now + hours * 3600 * MICRO, why, person, now)
        return _see(f"/incidents/{n}")

    @router.post("/incidents/{n}/unmute")
    def unmute(request: Request, n: Number, csrf: Text = "") -> Response:
        person = _who(request, csrf)
        now = desk.now()
        desk.store.mute(view(desk, n).incident.number, now, "", person, now)
        return _see(f"/incidents/{n}")
