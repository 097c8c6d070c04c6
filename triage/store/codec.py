"""Values of the model <-> what a column holds. JSON has sorted keys, so that equal values are equal text.

Called by the other modules of the store. Reading is tolerant of keys it does not know: an older triage may look at rows
of the same schema that a newer one wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import zstandard

from triage.model import (
    ActionResult,
    Context,
    Edit,
    Line,
    Origin,
    Pace,
    Phase,
    Request,
    Step,
    StepState,
)


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
            "good": None if context.good is None else dict(context.good),
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
        good=document.get("good"),  # written by an older release it has none
    )


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
