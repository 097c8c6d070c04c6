"""Findings made up for the tests of the store and the worker: one place to say what a crash looks like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from triage.actionmodel import ActionResult, ActionState, Request, Step, StepState
from triage.model import (
    Change,
    Context,
    Crash,
    Edit,
    Failure,
    Finding,
    FindingEvent,
    Frame,
    Line,
    Link,
    Match,
    Outcome,
    Phase,
    Remedy,
    Role,
    Severity,
    Signature,
)
from triage.store import Store

T0 = 1_790_000_000_000_000
SECOND = 1_000_000
UNIT = "sglang-larch.service"
HOST = "gpu-a"
REMEDY = Remedy(
    id="no-graph",
    kind="flag",
    title="Turn CUDA graphs off",
    cost="a third of the speed",
    confirmed=True,
    edits=(Edit("set-flag", "--disable-cuda-graph"),),
    applicable=True,
)


def made_store(folder: Path, **settings: Any) -> Store:
    url = f"sqlite:///{folder / 'state' / 'triage.db'}"
    store = Store(url, base_url="http://127.0.0.1:8475", host=HOST, document=brief_document, **settings)
    store.upgrade()
    return store


def brief_document(finding: Finding) -> Mapping[str, Any]:
    return {"schema": 1, "id": finding.crash.id, "outcome": finding.crash.outcome, "ranks": list(finding.crash.ranks)}


def made_finding(
    number: int = 1,
    *,
    signature: str = "aa11",
    outcome: Outcome = Outcome.FATAL,
    unit: str = UNIT,
    ranks: int = 8,
    role: Role = Role.ROOT,
    message: str = "'NoneType' object has no attribute 'seq_lens'",
    started: int | None = None,
    known: bool = True,
) -> Finding:
    """Crash `number` began that many seconds after T0; two numbers are two crashes."""
    started = T0 + number * SECOND if started is None else started
    frame = Frame("/srv/venv/sglang/srt/speculative/dflash_worker.py", "forward", 715)
    link = Link("AttributeError", message, frame, (frame,))
    line = Line(f"AttributeError: {message}", time=started, host=HOST, unit=unit)
    failures = tuple(
        Failure(role if n == 0 else Role.CASCADE, (link,), (line,), rank=f"TP{n}", pid=100 + n, time=started)
        for n in range(ranks)
    )
    crash = Crash(
        id=f"id{number}",
        position=f"t{started}",
        phase=Phase.SERVING,
        outcome=outcome,
        root=failures[0],
        failures=failures,
        ranks=tuple(f"TP{n}" for n in range(ranks)),
        evidence=(line,),
        host=HOST,
        unit=unit,
        invocation="inv1",
        started=started,
        context=Context(sglang_version="0.5.12"),
    )
    match = Match(
        rule="dflash-none",
        rule_digest="d1",
        title="DFlash meets a batch without lengths",
        confidence=0.9,
        cause="why",
        severity=Severity.CRITICAL,
        captures={},
        references=(),
        remedies=(REMEDY,),
    )
    sign = Signature(1, signature, f"AttributeError in forward ({signature})", ())
    return Finding(crash, sign, Severity.CRITICAL, (match,) if known else ())


def opened(finding: Finding) -> FindingEvent:
    """As it was at its first root: one rank, and nobody knows yet what becomes of it."""
    first = replace(finding.crash, failures=finding.crash.failures[:1], ranks=finding.crash.ranks[:1])
    return FindingEvent(Change.OPENED, replace(finding, crash=replace(first, outcome=Outcome.UNKNOWN)))


def amended(finding: Finding) -> FindingEvent:
    return FindingEvent(Change.AMENDED, finding)


def closed(finding: Finding) -> FindingEvent:
    return FindingEvent(Change.CLOSED, finding)


def record(store: Store, *events: FindingEvent, now: int = T0, cursor: str | None = None) -> None:
    store.record("journal:", events, cursor=cursor, contexts=None, now=now)


def made_result(
    name: str = "a1",
    state: ActionState = ActionState.VERIFIED,
    *,
    incident: int = 1,
    kind: str = "apply",
    target: str | None = None,
    started: int = T0,
    restarted: int | None = T0 + 10 * SECOND,
    ended: int | None = T0 + 60 * SECOND,
    text: str = "",
) -> ActionResult:
    steps = [Step("claim", StepState.DONE, started)]
    if restarted is not None:
        steps.append(Step("restart", StepState.DONE, restarted))
        if ended is not None:
            steps.append(Step("probe", StepState.DONE, ended))
    request = Request(
        action=name,
        kind=kind,
        unit=UNIT,
        incident=incident,
        rule="dflash-none",
        remedy="no-graph",
        edits=REMEDY.edits,
        seen_digest="s",
        result_digest="r",
        uid=1000,
        sudo_uid=None,
        time=started - SECOND,
        target=target,
    )
    return ActionResult(request, state, tuple(steps), started, ended, text, {"ready_seconds": "12"})
