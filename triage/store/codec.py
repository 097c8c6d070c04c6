"""Values of the model <-> what a column holds. JSON has sorted keys, so that equal values are equal text.

Called by the other modules of the store. Reading is tolerant of keys it does not know: an older triage may look at rows
of the same schema that a newer one wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import EnumMeta
from typing import Any, get_args, get_origin, get_type_hints

import zstandard

from triage.actionmodel import ActionResult, Request, Step, StepState
from triage.masking import mask
from triage.model import Context, Edit, Ended, Line, Origin, Pace, Phase


def plain(text: str) -> str:
    """Text a database takes: half characters, as broken logs have them, become '?'; NULs go."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def dump(value: Any) -> str:
    return (
        json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8", "replace").decode()
    )


def pack(document: Mapping[str, Any]) -> bytes:
    """A crash's document: tens of kilobytes of repetitive text, an eighth of that when packed."""
    return zstandard.ZstdCompressor(level=3).compress(dump(document).encode())


def unpack(data: bytes) -> dict[str, Any]:
    document = json.loads(zstandard.ZstdDecompressor().decompress(data))
    assert isinstance(document, dict)
    return document


def context_text(context: Context) -> str:
    return dump(
        {
            "phase": context.phase,
            "sglang_version": context.sglang_version,
            "flags": dict(context.flags),
            "milestones": context.milestones,
            "warnings": [_line(line) for line in context.warnings],
            "answered": context.answered,
            "pace": [[one.running, one.samples, one.speed, one.accepted] for one in context.pace],
            "stopping": context.stopping,
            "front": context.front,
            "good": None if context.good is None else dict(context.good),
            **({} if context.ended is None else {"ended": _told(context.ended)}),
        }
    )


def context_value(text: str) -> Context:
    document = json.loads(text)
    return Context(
        phase=Phase(document["phase"]),
        sglang_version=document["sglang_version"],
        flags=document["flags"],
        milestones=tuple((name, time) for name, time in document["milestones"]),
        warnings=tuple(_line_value(line) for line in document["warnings"]),
        answered=document.get("answered", 0),
        pace=tuple(Pace(*values) for values in document.get("pace", ())),
        stopping=document["stopping"],
        front=document.get("front"),
        good=document.get("good"),  # written by an older release it has none
        ended=_read(Ended, document["ended"]) if "ended" in document else None,
    )


def _told(value: Any) -> Any:
    """A value of the model as JSON has it, all of it but what the log gave away."""
    if isinstance(value, str):
        return mask(value)
    if is_dataclass(value):
        return {each.name: _told(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: _told(each) for name, each in value.items()}
    return [_told(each) for each in value] if isinstance(value, tuple) else value


def _read(kind: Any, value: Any) -> Any:
    """`_told`, back: the model's own annotations say what it was."""
    of = get_args(kind)
    if value is None:
        return None
    if type(None) in of:
        return _read(of[0], value)
    if is_dataclass(kind):
        kinds = get_type_hints(kind)
        return kind(**{name: _read(kinds[name], each) for name, each in value.items() if name in kinds})  # type: ignore[operator]
    if get_origin(kind) is tuple:
        kinds_of = of[:1] * len(value) if of[-1] is ... else of
        return tuple(_read(one, each) for one, each in zip(kinds_of, value, strict=True))
    return kind(value) if isinstance(kind, EnumMeta) else value


def request_text(request: Request) -> str:
    return dump(
        {
            "edits": [_edit(edit) for edit in request.edits],
            "seen_digest": request.seen_digest,
            "result_digest": request.result_digest,
            "uid": request.uid,
            "sudo_uid": request.sudo_uid,
            "verify": request.verify,
            "reason": request.reason,
            "root": request.root,
            "ready_timeout": request.ready_timeout,
            **({} if request.owner is None else {"owner": request.owner}),
        }
    )


def edits_value(document: Mapping[str, Any]) -> tuple[Edit, ...]:
    known = ("op", "name", "value", "floor", "ceiling")
    return tuple(Edit(**{key: edit[key] for key in known if key in edit}) for edit in document.get("edits", ()))


def steps_text(steps: tuple[Step, ...]) -> str:
    return dump([{"name": s.name, "state": s.state, "time": s.time, "text": s.text} for s in steps])


def steps_value(text: str) -> tuple[Step, ...]:
    return tuple(
        Step(name=s["name"], state=StepState(s["state"]), time=s["time"], text=s["text"]) for s in json.loads(text)
    )


def result_text(result: ActionResult) -> str:
    """All of an account in one text: two equal texts say the same, so that importing twice changes nothing."""
    request = result.request
    facts = (request.action, request.kind, request.unit, request.incident, request.rule, request.remedy, request.target)
    ends = (result.state, result.started, result.ended, result.text, dict(result.measured))
    return dump([facts, request_text(request), steps_text(result.steps), ends])


def _edit(edit: Edit) -> dict[str, Any]:
    return {"op": edit.op, "name": edit.name, "value": edit.value, "floor": edit.floor, "ceiling": edit.ceiling}


def _line(line: Line) -> dict[str, Any]:
    values = {name: getattr(line, name) for name in Line.__dataclass_fields__}
    values["fields"] = dict(line.fields)
    return {name: value for name, value in values.items() if value not in (None, {}, False, Origin.PROCESS)}


def _line_value(document: Mapping[str, Any]) -> Line:
    known = {name: value for name, value in document.items() if name in Line.__dataclass_fields__}
    return Line(**{**known, "text": known.get("text", ""), "origin": Origin(known.get("origin", Origin.PROCESS))})
