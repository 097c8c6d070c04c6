"""`create_app`: the dashboard as one ASGI application, out of settings, a store and what acts.

Called by the command line, which runs it under a server bound to loopback. Everything is read-only until somebody shows
the token; the guard stands around all of it. One process: the streams' watcher lives here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import Scope

from triage import __version__
from triage.dashboard import api, forms, pages
from triage.dashboard.auth import Keeper, check_bind
from triage.dashboard.desk import Desk, Hands, UnitState
from triage.dashboard.events import Pulse
from triage.dashboard.guard import Guard
from triage.dashboard.metrics import metrics_text
from triage.dashboard.problem import CODES, Problem, answer, of_error
from triage.dashboard.render import Templates
from triage.model import TriageError
from triage.rulebase.shelf import InForce
from triage.settings import Settings
from triage.shipped import shipped
from triage.store import Store

log = logging.getLogger(__name__)
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def create_app(
    settings: Settings,
    store: Store,
    *,
    token: str,
    hands: Hands,
    units: Callable[[], tuple[UnitState, ...]],
    in_force: Callable[[], InForce] = InForce,
    read_only: bool = False,
    clock: Callable[[], float] = time.time,
) -> FastAPI:
    """The application. `token` from `auth.load_token`. Raises InputError where the settings bind to another address
    than loopback."""
    check_bind(settings.web.host)
    desk = Desk(
        settings=settings,
        store=store,
        keeper=Keeper(token, settings.web.port),
        templates=Templates(clock),
        hands=hands,
        units=units,
        in_force=in_force,
        read_only=read_only,
    )
    pulse = Pulse(store.pulse)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        pulse.close()

    app = FastAPI(
        title="triage",
        version=__version__,
        summary="Crashes of SGLang units: what failed first, why, and the remedy.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # both would load their script from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.pulse = pulse
    app.include_router(pages.routes(desk))
    app.include_router(forms.routes(desk))
    app.include_router(api.routes(desk, pulse))
    _house(app, desk)
    app.mount("/static", StaticFiles(directory=shipped("web") / "static"), name="static")
    _errors(app, desk)

    def refuse(scope: Scope, status: int, code: str, detail: str) -> Response:
        return _told(desk, Request(scope), status, code, detail)

    app.add_middleware(Guard, keeper=desk.keeper, refuse=refuse, clock=clock, read_only=read_only)
    return app


def _house(app: FastAPI, desk: Desk) -> None:
    """What a supervisor and Prometheus ask."""

    @app.get("/livez", include_in_schema=False)
    def livez() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.get("/readyz", include_in_schema=False)
    def readyz() -> PlainTextResponse:
        try:
            desk.store.ready()
        except TriageError as error:
            return PlainTextResponse(f"{error}\n", 503)
        return PlainTextResponse("ok\n")

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        return Response(metrics_text(desk.store), media_type=METRICS_TYPE)


def _errors(app: FastAPI, desk: Desk) -> None:
    """Every error becomes a page or a problem document; which, the path says."""

    @app.exception_handler(Problem)
    def problem(request: Request, error: Problem) -> Response:
        return _told(desk, request, error.status_code, error.code, str(error.detail))

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        return _told(desk, request, error.status_code, CODES.get(error.status_code, "error"), str(error.detail))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        missing_number = first["loc"][0] == "path"
        status, code = (404, "not-found") if missing_number else (422, "invalid")
        return _told(desk, request, status, code, f"{where}: {first['msg']}")

    @app.exception_handler(TriageError)
    def known(request: Request, error: TriageError) -> Response:
        status, code = of_error(error)
        return _told(desk, request, status, code, str(error))


def _told(desk: Desk, request: Request, status: int, code: str, detail: str) -> Response:
    """The refusal in the form that the asker reads."""
    if request.url.path.startswith("/api/"):
        return answer(status, code, detail)
    if code == "host-not-allowed":  # no page for a stranger's name
        return PlainTextResponse(detail + "\n", status)
    titles = {404: "Not here", 401: "Sign in first", 403: "Not allowed", 409: "Refused", 503: "Not reachable"}
    values = {"text": detail, "sign_in": code in ("token-required", "csrf")}
    try:
        return pages.page(
            desk, request, "error.html", titles.get(status, "That did not work"), values, status_code=status
        )
    except TriageError:  # the store itself is gone: its footer cannot be told
        return PlainTextResponse(detail + "\n", status)
