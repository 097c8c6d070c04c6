"""What every request passes before a route sees it, and what every answer carries.

An ASGI wrapper around the whole application: the Host header, for unsafe methods Origin, Sec-Fetch-Site and the token,
and the security headers on every answer, errors too. Routes find who is asking in `request.state.session` and
`request.state.bearer`. It decides nothing about incidents; the CSRF word of a form is checked where its body is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triage.dashboard.auth import UNSAFE, Keeper, Session, foreign_origin, host_allowed

log = logging.getLogger(__name__)

BODY_LIMIT = 64 * 1024  # no form or document of ours comes near
SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}

# (scope, status, stable code, one sentence) -> the answer, as a page or as problem+json
Refusal = Callable[[Scope, int, str, str], Response]


class Guard:
    """The wrapper. `refuse` makes the answer, since it depends on who is asking for what."""

    def __init__(
        self, app: ASGIApp, *, keeper: Keeper, refuse: Refusal, clock: Callable[[], float], read_only: bool
    ) -> None:
        self._app = app
        self._keeper = keeper
        self._refuse = refuse
        self._clock = clock
        self._read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        state = scope.setdefault("state", {})
        state["session"] = self._session(headers)
        state["bearer"] = self._keeper.bearer(headers.get("authorization", ""))
        app = self._check(scope, headers) or self._app
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                out = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    out.setdefault(name, value)
                # Pages hold log text: no copy of them stays behind. Files of ours may, if they are still the same.
                static = scope["path"].startswith("/static/")
                out.setdefault("Cache-Control", "no-cache" if static else "no-store")
            await send(message)

        try:
            await app(scope, receive, send_guarded)
        except Exception:
            if started:
                raise
            log.exception("%s %s failed", scope["method"], scope["path"])
            fault = self._refuse(scope, 500, "internal", "triage itself failed here; its own log says why")
            await fault(scope, receive, send_guarded)

    def _session(self, headers: Headers) -> Session | None:
        jar: SimpleCookie = SimpleCookie()
        try:
            jar.load(headers.get("cookie", ""))
        except CookieError:
            return None
        morsel = jar.get(self._keeper.cookie)
        return self._keeper.session(morsel.value, self._clock()) if morsel else None

    def _check(self, scope: Scope, headers: Headers) -> Response | None:
        """The refusal, or None to go on."""
        if not host_allowed(headers.get("host", "")):
            return self._refuse(
                scope, 400, "host-not-allowed", "this dashboard answers to localhost, 127.0.0.1 and [::1] only"
            )
        if scope["method"] not in UNSAFE:
            return None
        if why := foreign_origin(headers):
            return self._refuse(scope, 403, "foreign-origin", f"{why}; nothing was changed")
        if self._read_only:
            return self._refuse(scope, 403, "read-only", "this dashboard is read only; nothing was changed")
        if not headers.get("content-length", "0").isdigit() or int(headers.get("content-length", "0")) > BODY_LIMIT:
            return self._refuse(scope, 413, "too-large", f"more than {BODY_LIMIT} bytes were sent; nothing was changed")
        if "transfer-encoding" in headers:
            return self._refuse(scope, 411, "length-required", "the request does not say how long it is")
        if scope["path"] != "/login" and not (scope["state"]["session"] or scope["state"]["bearer"]):
            return self._refuse(
                scope,
                401,
                "token-required",
                "this needs the token of the link that `triage web` printed when it started; nothing was changed",
            )
        return None
