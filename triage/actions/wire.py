"""Requests and results as JSON, read back strictly.

In: bytes that somebody else may have written. Out: `Request` or `ActionResult`, or `Refused` that says what is wrong.
Called by `spool` and `ledger`. Pure. Unknown and repeated keys, wrong types, long texts and control characters are
all refused: this is the only thing that crosses the privilege line.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from triage.actionmodel import ActionResult, ActionState, Request, Step, StepState
from triage.model import Edit, Refused
from triage.units.edits import check_edit
from triage.units.unitfile import UNIT_NAME

LIMIT = 64 * 1024
NAME = re.compile(r"[a-z0-9_-][a-z0-9._-]{0,63}")  # no leading dot: hidden files are half-written ones
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_EDITS = 16
_SINCE = {"ready_timeout": 0, "owner": None}  # keys that requests of older releases lack
_DEFAULTS = {
    field.name: field.default for field in dataclasses.fields(Request) if field.default is not dataclasses.MISSING
}


def dump_request(request: Request) -> bytes:
    return json.dumps(_plain(request), separators=(",", ":")).encode()


def load_request(data: bytes) -> Request:
    """Raises Refused on anything but a request as `dump_request` writes it; one of an older release may lack what has
    come since then: an upgrade must not lose a claim."""
    content = {**_SINCE, **_parse(data)}
    fields = {field.name for field in dataclasses.fields(Request)}
    if set(content) != fields:
        raise Refused(f"the request has other keys than a request: {sorted(set(content) ^ fields)[:5]}")
    return _request(content)


def _request(content: Mapping[str, Any]) -> Request:
    request = Request(
        action=_matching(content, "action", NAME),
        kind=_text(content, "kind", 10),
        unit=_matching(content, "unit", UNIT_NAME),
        incident=_whole(content, "incident"),
        rule=_matching(content, "rule", NAME),
        remedy=_matching(content, "remedy", NAME),
        edits=_edits(content["edits"]),
        seen_digest=_matching(content, "seen_digest", _DIGEST),
        result_digest=_text(content, "result_digest", 64),
        uid=_whole(content, "uid"),
        sudo_uid=None if content["sudo_uid"] is None else _whole(content, "sudo_uid"),
        time=_whole(content, "time"),
        target=None if content["target"] is None else _matching(content, "target", NAME),
        verify=_truth(content, "verify"),
        reason=_text(content, "reason", 500),
        root=_text(content, "root", 4096),
        ready_timeout=_whole(content, "ready_timeout"),
        owner=None if content["owner"] is None else _whole(content, "owner"),
    )
    _check_sense(request)
    return request


def _check_sense(request: Request) -> None:
    if request.kind not in ("apply", "rollback", "retire"):
        raise Refused("the request is neither to apply nor to roll back")
    if (request.kind != "apply" and request.target is None) or (request.kind == "apply") != bool(request.edits):
        raise Refused("the request lacks its edits or its target")
    if request.result_digest and not _DIGEST.fullmatch(request.result_digest):
        raise Refused("the request's result digest is none")
    if request.root and request.owner is not None:
        raise Refused("the request is for files below a folder and for a user's unit at once")
    if ".." in request.unit:
        raise Refused("the request's unit is none")
    for edit in request.edits:
        check_edit(edit)


def dump_result(result: ActionResult) -> bytes:
    return json.dumps(_plain(result), ensure_ascii=False).encode("utf-8", "backslashreplace")


def load_result(data: bytes) -> ActionResult:
    """A result as `dump_result` wrote it. It is root's own file; unknown keys of a newer release are passed over."""
    content = _parse(data, limit=1 << 20)
    try:
        return ActionResult(
            request=_request({**_DEFAULTS, **content["request"]}),
            state=ActionState(content["state"]),
            steps=tuple(
                Step(str(step["name"]), StepState(step["state"]), int(step["time"]), str(step["text"]))
                for step in content["steps"]
            ),
            started=int(content["started"]),
            ended=None if content["ended"] is None else int(content["ended"]),
            text=str(content["text"]),
            measured={str(key): str(value) for key, value in content["measured"].items()},
            digest=str(content["digest"]),
            kept={str(key): str(value) for key, value in content["kept"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"a result of root's cannot be read: {error!r}") from None


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _parse(data: bytes, limit: int = LIMIT) -> dict[str, Any]:
    if len(data) > limit:
        raise Refused(f"more than {limit} bytes")
    try:
        content = json.loads(data.decode(), object_pairs_hook=_unrepeated, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(f"not JSON: {str(error)[:100]}") from None
    if not isinstance(content, dict):
        raise Refused("not a JSON object")
    return content


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _text(content: Mapping[str, Any], key: str, limit: int) -> str:
    value = content[key]
    if not isinstance(value, str) or len(value) > limit or _CONTROL.search(value):
        raise Refused(f"the request's {key} is no text of at most {limit} printable characters")
    return value


def _matching(content: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    value = _text(content, key, 300)
    if not pattern.fullmatch(value):
        raise Refused(f"the request's {key} has not the form {pattern.pattern}")
    return value


def _whole(content: Mapping[str, Any], key: str) -> int:
    value = content[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise Refused(f"the request's {key} is no whole number")
    return value


def _truth(content: Mapping[str, Any], key: str) -> bool:
    value = content[key]
    if not isinstance(value, bool):
        raise Refused(f"the request's {key} is neither true nor false")
    return value


def _edits(value: object) -> tuple[Edit, ...]:
    if not isinstance(value, list) or len(value) > _EDITS:
        raise Refused(f"the request's edits are no list of at most {_EDITS}")
    return tuple(_edit(item) for item in value)


def _edit(item: object) -> Edit:
    if not isinstance(item, dict) or set(item) | {"also", "takes"} != {
        field.name for field in dataclasses.fields(Edit)
    }:
        raise Refused("an edit of the request has other keys than an edit")
    value = item["value"]
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
        raise Refused("an edit's value is neither text nor number")
    if isinstance(value, int) and abs(value) >= 1 << 53:
        raise Refused("an edit's value is too large")
    also = item.get("also", [])  # results of older releases have no hints
    if (
        not isinstance(also, list)
        or len(also) > 8
        or not all(isinstance(name, str) and len(name) <= 100 for name in also)
    ):
        raise Refused("an edit's abbreviations are no short list")
    bounds = _bound(item["floor"]), _bound(item["ceiling"])
    takes = _text(item, "takes", 10) if "takes" in item else ""
    return Edit(_text(item, "op", 20), _text(item, "name", 100), value, *bounds, tuple(also), takes)


def _bound(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e15:
        raise Refused("a bound of an edit is no number")
    return value
