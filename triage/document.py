"""Finding -> the JSON document of `triage scan --json`, which is also what the store keeps and the pages show.

In comes a finding, out goes a dict of plain JSON values, as `contracts.md` words it; fields beyond the contract are
what the pages need. The crash and its remedies come back out of it. Called by `scan`,
the store, the dashboard and planning. Secrets never come out: every text that a log wrote goes through the mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from triage.general import advice
from triage.masking import mask
from triage.model import (
    Context,
    Crash,
    Edit,
    Failure,
    Finding,
    Frame,
    InputError,
    Line,
    Link,
    Match,
    Near,
    Origin,
    Outcome,
    Phase,
    Remedy,
    Role,
    UnitEnd,
)

SCHEMA = 1
MAX_TEXT = 4_000
MAX_FAILURES = 80
MAX_FRAMES = 40

Json = dict[str, Any]


def scan_document(lines: int, findings: list[Finding], notices: list[str]) -> Json:
    """The whole document of one scan."""
    return {
        "schema": SCHEMA,
        "lines": lines,
        "crashes": [finding_document(finding) for finding in findings],
        "notices": notices,
    }


def finding_document(finding: Finding) -> Json:
    """CRASH of the contract."""
    crash = finding.crash
    signature = finding.signature
    ranks = {id(line): failure.rank for failure in crash.failures for line in failure.lines}
    return {
        "id": crash.id,
        "position": crash.position,
        "host": crash.host,
        "unit": crash.unit,
        **({} if crash.owner is None else {"owner": crash.owner}),  # of a unit of systemctl --user: its user's uid
        "invocation": crash.invocation,
        "started": iso(crash.started),
        "ended": iso(crash.ended),
        "phase": crash.phase.value,
        "outcome": crash.outcome.value,
        "severity": finding.severity.value,
        "title": mask(finding.title),
        "sglang_version": crash.context.sglang_version,
        "signature": {
            "version": signature.version,
            "key": signature.key,
            "title": mask(signature.title),
            "parts": {name: mask(value) for name, value in signature.parts},
        },
        "root": _root(crash),
        "ranks": list(crash.ranks),
        "cascades": crash.cascades,
        "suspects": list(crash.suspects),
        "follows": crash.follows or None,
        "failures": [_failure(failure) for failure in crash.failures[:MAX_FAILURES]],
        "evidence": {"grade": crash.grade.value, "lines": [_evidence(line, ranks) for line in crash.evidence]},
        "matches": [_match(match) for match in finding.matches],
        "nearest": [_near(near) for near in finding.nearest],
        "general": [] if finding.matches else list(advice(crash.phase)),
        "end": _end(crash),
        "context": {
            "flags": {name: mask(value) for name, value in crash.context.flags.items()},
            "milestones": [{"name": name, "time": iso(time)} for name, time in crash.context.milestones],
            "warnings": [_line(line) for line in crash.context.warnings],
            "answered": crash.context.answered,
            "pace": [
                {"running": one.running, "samples": one.samples, "speed": one.speed, "accepted": one.accepted}
                for one in crash.context.pace
            ],
            "changed": _changed(crash.context),
        },
    }


def _changed(context: Context) -> list[Json] | None:
    """What differs from the unit's last good run; null where that is not known."""
    if context.changes is None:
        return None
    shown = [(name, *(value and mask(value) for value in values)) for name, *values in context.changes]
    return [{"name": name, "before": before, "now": now} for name, before, now in shown]


def iso(time: int | None) -> str | None:
    """Microseconds UTC as ISO 8601."""
    if time is None:
        return None
    try:
        seconds, micros = divmod(time, 1_000_000)
        when = datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
    except (ValueError, OverflowError, OSError):
        return None
    return when.isoformat(timespec="microseconds" if micros else "seconds").replace("+00:00", "Z")


def _root(crash: Crash) -> Json:
    root, cause = crash.root, crash.root.cause
    return {
        "rank": root.rank,
        "pid": root.pid,
        **_link(cause),
        "why": root.why,
        "frames": [_frame(frame) for frame in cause.frames[-MAX_FRAMES:]],
        "chain": [_link(link) for link in root.chain],
    }


def _link(link: Link) -> Json:
    return {"exception": link.exception, "message": _text(link.message), "frame": _frame(link.frame)}


def _frame(frame: Frame | None) -> Json | None:
    if frame is None:
        return None
    return {"file": frame.file, "function": frame.function, "line": frame.line, "path": frame.path}


def _failure(failure: Failure) -> Json:
    return {
        "role": failure.role.value,
        "why": failure.why,
        "rank": failure.rank,
        "pid": failure.pid,
        "time": iso(failure.time),
        **_link(failure.cause),
    }


def _line(line: Line) -> Json:
    return {"n": line.n, "text": _text(line.text)}


def _evidence(line: Line, ranks: dict[int, str | None]) -> Json:
    """A line with its writer's rank: only the first line of a message names it."""
    return {**_line(line), "rank": ranks.get(id(line)), "origin": line.origin.value}


def _text(text: str) -> str:
    masked = mask(text)
    return masked if len(masked) <= MAX_TEXT else masked[:MAX_TEXT] + " ..."


def _end(crash: Crash) -> Json | None:
    end = crash.end
    if end is None:
        return None
    return {
        "result": end.result,
        "code": end.code,
        "status": end.status,
        "time": iso(end.time),
        "requested": end.requested,
    }


def _match(match: Match) -> Json:
    return {
        "rule": match.rule,
        "rule_digest": match.rule_digest,
        "title": mask(match.title),
        "confidence": match.confidence,
        "cause": mask(match.cause),
        "severity": match.severity.value,
        "captures": {name: mask(value) for name, value in match.captures.items()},
        "references": list(match.references),
        "verify": {name: value for name, value in asdict(match.verify).items() if value is not None},
        "remedies": [remedy_document(remedy) for remedy in match.remedies],
    }


def _near(near: Near) -> Json:
    return {"rule": near.rule, "title": near.title, "holds": list(near.holds), "why": [mask(why) for why in near.why]}


def remedy_document(remedy: Remedy) -> Json:
    """REMEDY of the contract."""
    return {
        "id": remedy.id,
        "kind": remedy.kind,
        "title": mask(remedy.title),
        "cost": mask(remedy.cost),
        "confirmed": remedy.confirmed,
        "applicable": remedy.applicable,
        "edits": [_edit(edit) for edit in remedy.edits],
        "versions": remedy.versions,
        "blocked_by": remedy.blocked_by,
        "speed": remedy.speed,
        "known_bad": [{"release": where, "why": why} for where, why in remedy.known_bad],
    }


def _edit(edit: Edit) -> Json:
    return {"op": edit.op, "name": edit.name, "value": edit.value, "floor": edit.floor, "ceiling": edit.ceiling}


# ---------------------------------------------------------------- and back


def crash_of(document: Mapping[str, Any]) -> Crash:
    """The crash of a document that was kept, as far as rules look at it: for trying rules on what was seen before."""
    lines = tuple(_kept_line(line) for line in document["evidence"]["lines"])
    root = document["root"]
    chain = tuple(_kept_link(link) for link in root["chain"])
    frames = tuple(frame for kept in root["frames"] if (frame := _kept_frame(kept)))
    chain = (replace(chain[0], frames=frames), *chain[1:])
    first = Failure(Role.ROOT, chain, lines, rank=root["rank"], pid=root["pid"])
    others = (
        Failure(Role(failure["role"]), (_kept_link(failure),), (), rank=failure["rank"], pid=failure["pid"])
        for failure in document["failures"][1:]
    )
    context, end = document["context"], document["end"]
    return Crash(
        id=document["id"],
        position=document["position"],
        phase=Phase(document["phase"]),
        outcome=Outcome(document["outcome"]),
        root=first,
        failures=(first, *others),
        ranks=tuple(document["ranks"]),
        evidence=lines,
        host=document["host"],
        unit=document["unit"],
        owner=document.get("owner"),
        context=Context(
            phase=Phase(document["phase"]),
            sglang_version=document["sglang_version"],
            flags=dict(context["flags"]),
            warnings=tuple(Line(warning["text"]) for warning in context["warnings"]),
        ),
        end=UnitEnd(end["result"], end["code"], end["status"], requested=end["requested"]) if end else None,
    )


def _kept_line(line: Mapping[str, Any]) -> Line:
    return Line(line["text"], n=line["n"], origin=Origin(line["origin"]))


def _kept_link(link: Mapping[str, Any]) -> Link:
    frame = _kept_frame(link["frame"])
    return Link(link["exception"], link["message"], frame, (frame,) if frame else ())


def _kept_frame(frame: Mapping[str, Any] | None) -> Frame | None:
    return Frame(frame["path"], frame["function"], frame["line"]) if frame else None


def find_remedy(document: Mapping[str, Any], remedy: str) -> tuple[str, Remedy]:
    """(rule, remedy) of that id; the best match that has it. Raises InputError where none has."""
    known: dict[str, None] = {}  # several matches may have one of the same id
    for match in document.get("matches") or ():
        for rung in match["remedies"]:
            known[rung["id"]] = None
            if rung["id"] == remedy:
                return match["rule"], _kept_remedy(rung)
    raise InputError(f"there is no remedy {remedy!r} here; there are: {', '.join(known) or 'none, it is undiagnosed'}")


def _kept_remedy(rung: Mapping[str, Any]) -> Remedy:
    fields = ("op", "name", "value", "floor", "ceiling")
    edits = tuple(Edit(*(edit.get(field) for field in fields)) for edit in rung["edits"])
    return Remedy(
        id=rung["id"],
        kind=rung["kind"],
        title=rung["title"],
        cost=rung["cost"],
        confirmed=rung["confirmed"],
        edits=edits,
        versions=rung["versions"],
        applicable=rung["applicable"],
        blocked_by=rung["blocked_by"],
        speed=rung.get("speed"),
        known_bad=tuple((one["release"], one["why"]) for one in rung.get("known_bad") or ()),
    )
