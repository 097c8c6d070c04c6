"""Errors as `application/problem+json` (RFC 9457) with a stable `code`, and which status each error of the tree has.

Called by `app` and `api`. The codes are part of the contract: scripts read them, people read `detail`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse

from triage.model import InputError, NotPermitted, Refused, TriageError, Unreachable

CODES = {400: "bad-request", 401: "token-required", 403: "forbidden", 404: "not-found", 405: "method-not-allowed"}


class Problem(HTTPException):
    """Raised by a route: status, stable code and one sentence."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(status, detail)
        self.code = code


class ProblemResponse(JSONResponse):
    media_type = "application/problem+json"


def answer(status: int, code: str, detail: str, **more: Any) -> ProblemResponse:
    body = {"type": f"urn:triage:problem:{code}", "title": HTTPStatus(status).phrase, "status": status}
    headers = {"WWW-Authenticate": 'Bearer realm="triage"'} if status == 401 else None
    return ProblemResponse({**body, "code": code, "detail": detail, **more}, status, headers)


def of_error(error: TriageError) -> tuple[int, str]:
    """Status and code of an error of the tree."""
    match error:
        case Refused():
            return 409, "refused"
        case InputError():
            return 422, "invalid"
        case NotPermitted():
            return 403, "not-permitted"
        case Unreachable():
            return 503, "unreachable"
        case _:
            return 500, "internal"
