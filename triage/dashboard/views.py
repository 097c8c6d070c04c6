"""What the pages show, made out of the store's rows, the crash documents of contracts.md and the rules.

Pure: rows, documents and a time come in, small frozen values come out, ready for a template. Called by `pages`. It
decides what the operator reads first, never what is true: it reads the store's word and adds none of its own.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from triage.actionmodel import ActionState, Step, StepState
from triage.dashboard.logtext import Folded, flat, fold
from triage.engine.lines import parse
from triage.frozen import frozen
from triage.model import Edit
from triage.rulebase.rule import Rule
from triage.store import ActionRow, CrashRow, IncidentRow, IncidentState, ProofState, TimelineRow

MICRO = 1_000_000
Document = Mapping[str, Any]

GRADES = {
    "complete": "",
    "cut": "Some lines were cut short before triage saw them, so part of this may be missing.",
    "suppressed": "journald suppressed lines of a flood: what failed first may be among them.",
    "rotated": "The journal was rotated away under this crash: its beginning may be missing.",
    "mixed": "Several writers' bytes are mixed here beyond repair: whose line is whose is not certain.",
}


@frozen
class Item:
    """One incident as the list shows it."""

    n: int
    title: str
    severity: str
    state: str
    unit: str
    host: str
    place: str
    rule: str | None
    count: int
    first: int
    last: int
    muted: bool
    muted_until: int | None
    remedy: str | None  # the first rung that triage can carry out
    remedies: int


def item(row: IncidentRow, rules: Mapping[str, Rule], now: int) -> Item:
    rule = rules.get(row.rule or "")
    ladder = _fitting(rule, row) if rule else []
    where = [text for text in (row.exception, row.place) if text]
    return Item(
        n=row.number,
        title=row.title,
        severity=row.severity,
        state=row.state,
        unit=row.unit,
        host=row.host,
        place=" at ".join(where),
        rule=row.rule,
        count=row.crashes,
        first=row.first_seen,
        last=row.last_seen,
        muted=row.muted(now),
        muted_until=row.mute_until,
        remedy=ladder[0] if ladder else None,
        remedies=len(ladder),
    )


def _fitting(rule: Rule, row: IncidentRow) -> list[str]:
    """Titles of the rungs that may be applied, as far as the row tells; the incident's page knows the flags too."""
    if row.state is IncidentState.RESOLVED or not row.outcome.actionable:
        return []
    rungs = (
        rung
        for rung in rule.remedies
        if rung.edits
        and (not rung.phases or row.phase in rung.phases)
        and (not rung.outcomes or row.outcome in rung.outcomes)
    )
    # One whose title takes words from the log cannot be told here, nor whether the log has them.
    return [rung.title for rung in rungs if "{" not in rung.title]


@frozen
class EvidenceLine:
    n: int  # in its file; in a journal, which numbers none, counted here
    rank: str | None
    root: bool  # the exception line of what failed first
    text: Folded


def evidence(document: Document) -> tuple[EvidenceLine, ...]:
    """The evidence, each line with its rank: only the first line of a message names it, the rest belong to it."""
    root = document["root"]
    opening = f"{root['exception']}: {str(root['message'])[:60].splitlines()[0] if root['message'] else ''}"
    lines = []
    rank: str | None = None
    marked = False
    for place, line in enumerate(document["evidence"]["lines"], 1):
        text = str(line["text"])
        parsed = parse(text[:2000])
        if line.get("rank") or line.get("origin", "process") != "process":
            rank = line.get("rank")
        elif parsed.headed or parsed.rank:
            rank = parsed.rank
        is_root = not marked and opening.strip(": ") in parsed.text and (rank in (None, root["rank"]))
        marked = marked or is_root
        lines.append(EvidenceLine(line["n"] or place, rank, is_root, fold(text)))
    return tuple(lines)


@frozen
class FoldedFailure:
    role: str
    rank: str | None
    exception: str
    message: str
    frame: Mapping[str, Any] | None
    why: str


def failures(document: Document) -> tuple[FoldedFailure, ...]:
    """What was folded under the root, in the order seen."""
    return tuple(
        FoldedFailure(
            role=str(failure["role"]),
            rank=failure.get("rank"),
            exception=str(failure.get("exception", "")),
            message=str(failure.get("message", "")),
            frame=failure.get("frame"),
            why=str(failure.get("why", "")),
        )
        for failure in document.get("failures", ())
        if failure["role"] != "root"
    )


def root_why(document: Document) -> str:
    """Why this one is the root, in the assembler's words."""
    roots = [failure for failure in document.get("failures", ()) if failure["role"] == "root"]
    return str(roots[0].get("why", "")) if roots else ""


def end_words(document: Document) -> str:
    """How the manager says the unit ended."""
    end = document.get("end")
    if not end:
        return ""
    parts = [str(end["result"])]
    if end.get("code"):
        parts.append(f"{end['code']}, status {end.get('status') or '?'}")
    if end.get("requested"):
        parts.append("a stop was asked for")
    return " · ".join(parts)


@frozen
class Rung:
    """One remedy of the ladder on an incident's page."""

    id: str
    kind: str
    title: str
    cost: str
    confirmed: bool
    edits: Sequence[Mapping[str, Any]]
    versions: str | None
    fits: bool  # a preview makes sense
    first: bool  # the one to try
    in_force: bool
    why_not: str


def ladder(remedies: Sequence[Mapping[str, Any]], document: Document, actions: Iterable[ActionRow]) -> tuple[Rung, ...]:
    """The remedies of the best match. What is in force already is said, not offered again."""
    held = {action.remedy for action in actions if action.in_force}
    actionable = document["outcome"] in ("fatal", "degraded")
    sure = document["evidence"]["grade"] == "complete"  # else no remedy is put forward; a person may still pick one
    rungs: list[Rung] = []
    for remedy in remedies:
        in_force = remedy["id"] in held
        why = ""
        if remedy["blocked_by"]:
            why = f"Does not fit here: {remedy['blocked_by']}."
        elif not remedy["applicable"]:
            why = "It is no edit of the unit, so triage does not carry it out."
        elif not actionable:
            why = (
                f"Not now: the outcome is {document['outcome']}, and only a fatal or degraded crash leads to an action."
            )
        fits = bool(remedy["applicable"]) and not why and not in_force
        first = fits and sure and not any(rung.fits for rung in rungs) and not held
        rungs.append(
            Rung(
                id=remedy["id"],
                kind=remedy["kind"],
                title=remedy["title"],
                cost=remedy["cost"],
                confirmed=bool(remedy["confirmed"]),
                edits=remedy["edits"],
                versions=remedy["versions"],
                fits=fits,
                first=first,
                in_force=in_force,
                why_not="" if in_force else why,
            )
        )
    return tuple(rungs)


@frozen
class CrashItem:
    n: int
    time: int
    outcome: str
    phase: str
    ranks: int
    version: str | None
    grade: str
    current: bool


def crash_item(row: CrashRow, current: int) -> CrashItem:
    return CrashItem(
        n=row.number,
        time=row.started if row.started is not None else row.opened_at,
        outcome=row.outcome,
        phase=row.phase,
        ranks=len(row.document["ranks"]),
        version=row.document["sglang_version"],
        grade=row.grade,
        current=row.number == current,
    )


@frozen
class Moment:
    time: int
    text: str
    who: str


def moment(row: TimelineRow) -> Moment:
    return Moment(row.time, row.text, "" if row.who == "triage" else row.who)


_TONES = {
    ActionState.VERIFIED: "good",
    ActionState.UNDONE: "good",
    ActionState.UNVERIFIED: "warn",
    ActionState.REFUSED: "warn",
    ActionState.ROLLED_BACK: "bad",
    ActionState.ROLLBACK_FAILED: "bad",
}


_PROOF_TONES = {ProofState.PROVED: "good", ProofState.FAILED: "bad"}


@frozen
class ActionView:
    """One action, on its page and in the lists."""

    name: str
    kind: str
    title: str
    unit: str
    incident: int
    rule: str
    cost: str
    speeds: str  # measured, before and after
    state: str
    tone: str
    text: str
    who: str
    time: int
    ended: int | None
    took: float | None
    going: bool
    in_force: bool
    step: str
    steps: tuple[Step, ...]
    edits: tuple[Edit, ...]
    diff: str
    measured: tuple[tuple[str, str], ...]
    proof: str
    proof_tone: str
    target: str | None


def _still_told(row: ActionRow) -> bool:
    """Whether its longer proof is of interest yet: of what is in force or was retired, and of what failed."""
    return row.in_force or row.kind == "retire" or (row.proof is not None and row.proof.state == ProofState.FAILED)


def action_view(row: ActionRow, now: int) -> ActionView:
    end = row.ended if row.settled else now
    running = [step for step in row.steps if step.state is StepState.RUNNING]
    step = running[-1] if running else None
    return ActionView(
        name=row.name,
        kind=row.kind,
        title=row.title or row.remedy,
        unit=row.unit,
        incident=row.incident,
        rule=row.rule,
        cost=row.cost,
        speeds=row.speeds,
        state=row.state,
        tone=_TONES.get(row.state, ""),
        text=row.text,
        who=row.who + (f" ({row.reason})" if row.reason and row.reason != row.who else ""),
        time=row.requested_at,
        ended=row.ended,
        took=(end - row.requested_at) / MICRO if end is not None else None,
        going=not row.settled,
        in_force=row.in_force,
        step=f"{step.name} {step.text}".strip() if step else "",
        steps=row.steps,
        edits=row.edits,
        diff=row.diff,
        measured=tuple(sorted({**row.measured, **(row.proof.measured if row.proof else {})}.items())),
        proof=row.proof.words if row.proof and _still_told(row) else "",
        proof_tone=_PROOF_TONES.get(row.proof.state, "") if row.proof else "",
        target=row.target,
    )


@frozen
class Standing:
    """What an incident's page says at its top about actions: at most one of the three."""

    running: ActionView | None = None
    in_force: ActionView | None = None
    failed: ActionView | None = None


def standing(actions: Sequence[ActionRow], now: int) -> Standing:
    """`actions` newest first. What runs comes before what holds, and that before what failed last."""
    for row in actions:
        if not row.settled:
            return Standing(running=action_view(row, now))
    for row in actions:
        if row.in_force:
            held = action_view(row, now)
            return Standing(failed=held) if row.state is ActionState.ROLLBACK_FAILED else Standing(in_force=held)
    if actions and actions[0].state in (ActionState.ROLLED_BACK, ActionState.ROLLBACK_FAILED, ActionState.REFUSED):
        return Standing(failed=action_view(actions[0], now))
    return Standing()


@frozen
class UnitItem:
    name: str
    state: str
    version: str | None
    argv: tuple[str, ...]
    incidents: int  # open or regressed
    workarounds: int

    @property
    def command(self) -> str:
        return shlex.join(self.argv)

    @property
    def program(self) -> str:
        """The few words that tell servers apart: what is started, with which model."""
        words = list(self.argv)
        model = next((b for a, b in pairwise(words) if a in ("--model-path", "--model")), "")
        return " ".join(filter(None, (words[0].rsplit("/", 1)[-1] if words else "", model)))


def apply_command(incident: int, remedy: str) -> str:
    """What to type where there is no button."""
    return f"sudo triage apply {incident} --remedy {flat(remedy)}"


def rollback_command(action: str) -> str:
    return f"sudo triage rollback {flat(action)}"
