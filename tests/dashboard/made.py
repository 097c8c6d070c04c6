"""A store with a night's worth of incidents, and hands that plan without a unit: for the tests and for the eye.

Hosts, people, models and prompts are invented.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triage.actionmodel import ActionResult, ActionState, Plan, Request, Step, StepState
from triage.dashboard.desk import UnitState
from triage.model import (
    Change,
    Context,
    Crash,
    Edit,
    Failure,
    Finding,
    FindingEvent,
    Frame,
    Grade,
    Line,
    Link,
    Match,
    Near,
    Outcome,
    Phase,
    Refused,
    Remedy,
    Role,
    Severity,
    Signature,
    UnitEnd,
)
from triage.settings import Guards
from triage.store import ActionRow, IncidentRow, Store

T0 = 1_795_916_047_000_000
SECOND = 1_000_000
UNIT = "sglang-k26-dflash.service"
HOST = "gpu-larch"
MESSAGE = "'NoneType' object has no attribute 'seq_lens_cpu'"
HOSTILE = '<script>alert("x")</script>\u202egpj.exe\x1b[31mred\x1b[0m\x07 & <b>bold</b>'

NO_GRAPH = Remedy(
    id="disable-cuda-graph",
    kind="flag",
    title="Run without CUDA graphs",
    cost="about a third of the tokens per second",
    confirmed=True,
    edits=(Edit("set-flag", "--disable-cuda-graph"),),
    applicable=True,
)
SMALLER = Remedy(
    id="smaller-block",
    kind="flag",
    title="Draft shorter blocks",
    cost="some of the speculative speed-up",
    confirmed=False,
    edits=(Edit("cap-flag", "--speculative-dflash-block-size", 4, 1.0),),
    blocked_by="the server does not run with --speculative-dflash-block-size above 4",
)
UPGRADE = Remedy(
    id="upgrade",
    kind="upgrade",
    title="Install a release that keeps the lengths during replay",
    cost="a maintenance window",
    confirmed=False,
    versions="sglang>=0.5.13",
)
DFLASH = Match(
    rule="dflash-graph-replay-none",
    rule_digest="9f3c",
    title="DFlash loses the batch's lengths during CUDA-graph replay",
    confidence=0.95,
    cause="The draft worker reads the sequence lengths of a batch that graph replay never filled in. The server loads "
    "and looks healthy; the first real request ends every rank.",
    severity=Severity.CRITICAL,
    captures={"attribute": "seq_lens_cpu"},
    references=("https://github.com/sgl-project/sglang/issues/1", "docs: speculative decoding"),
    remedies=(NO_GRAPH, SMALLER, UPGRADE),
)


def lines(rank: str, pid: int, message: str, start: int) -> tuple[Line, ...]:
    """One rank's traceback, as the journal holds it."""
    head = f"[2026-11-29 02:14:07 {rank}]"
    texts = (
        f"{head} Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 2871, in run_scheduler_process',
        "    scheduler.event_loop_overlap()",
        '  File "/opt/sglang/python/sglang/srt/speculative/dflash_worker.py", line 715, in forward_batch_generation',
        "    lens = batch.spec_info.seq_lens_cpu",
        f"AttributeError: {message}",
    )
    return tuple(
        Line(text, n=start + k, time=T0, host=HOST, unit=UNIT, invocation="a1b2c3", pid=pid)
        for k, text in enumerate(texts)
    )


def finding(
    number: int = 1,
    *,
    signature: str = "5e0c19ab77d2",
    unit: str = UNIT,
    message: str = MESSAGE,
    started: int = T0,
    match: Match | None = DFLASH,
    outcome: Outcome = Outcome.FATAL,
    severity: Severity = Severity.CRITICAL,
    exception: str = "AttributeError",
    phase: Phase = Phase.SERVING,
    ranks: int = 8,
    grade: Grade = Grade.COMPLETE,
    more: tuple[Line, ...] = (),
) -> Finding:
    frame = Frame("/opt/sglang/python/sglang/srt/speculative/dflash_worker.py", "forward_batch_generation", 715)
    chain = (Link(exception, message, frame, (frame,)),)
    failed = [
        Failure(
            Role.ROOT if k == 0 else Role.CASCADE,
            chain,
            lines(f"TP{k}", 4100 + k, message, 1 + 6 * k),
            rank=f"TP{k}",
            pid=4100 + k,
            time=started + k * 900,
            why="the earliest traceback of a rank; nothing of the kernel or the hardware came before it"
            if k == 0
            else "the same exception, 0.9 ms and more after the root",
        )
        for k in range(ranks)
    ]
    text = "[2026-11-29 02:14:07] Received sigquit from a child process. It usually means the child failed."
    parent = Line(text, n=1 + 6 * ranks, time=started + 20_000, pid=4000)
    failed.append(
        Failure(Role.CASCADE, (Link("SIGQUIT", text),), (parent,), pid=4000, why="the parent follows its ranks")
    )
    evidence = (*(line for one in failed[:2] for line in one.lines), parent, *more)
    crash = Crash(
        id=f"{number:012x}",
        position=f"t{started}",
        phase=phase,
        outcome=outcome,
        root=failed[0],
        failures=tuple(failed),
        ranks=tuple(f"TP{k}" for k in range(ranks)),
        evidence=evidence,
        grade=grade,
        host=HOST,
        unit=unit,
        invocation=f"a1b2c3d4{number:024x}",
        started=started,
        ended=started + 2 * SECOND,
        context=Context(phase=phase, sglang_version="0.5.12"),
        end=UnitEnd("signal", "killed", "9", started + 2 * SECOND),
    )
    sign = Signature(1, signature, f"{exception} in forward_batch_generation: {message}", (("exception", exception),))
    near = Near("embed-nan", "NaN in the embeddings", ("exception",), ("message wants NaN: nothing of it is there",))
    return Finding(crash, sign, severity, (match,) if match else (), () if match else (near,))


def document(found: Finding) -> Mapping[str, Any]:
    """CRASH of contracts.md, with what an incident's page shows besides."""
    from triage.document import finding_document

    return finding_document(found)


def record(store: Store, found: Finding, now: int) -> None:
    store.record("journal:", (FindingEvent(Change.CLOSED, found),), cursor="s=1", contexts=None, now=now)


def made_store(folder: Path) -> Store:
    store = Store(f"sqlite:///{folder / 'triage.db'}", base_url="http://127.0.0.1:8475", host=HOST)
    store.upgrade()
    return store


def seed(store: Store, now: int) -> None:
    """1: the story, seen three times. 2: undiagnosed and hostile. 3: resolved. 4: long lines, suppressed evidence."""
    for number in range(3):
        started = now - (3 - number) * 700 * SECOND
        record(store, finding(number + 1, started=started), started + 3 * SECOND)
    record(
        store,
        finding(
            10,
            signature="0badc0ffee12",
            unit="sglang-embed@2.service",
            message=HOSTILE,
            exception="RuntimeError",
            match=None,
            started=now - 5 * 3600 * SECOND,
            severity=Severity.ERROR,
            phase=Phase.LOAD,
            ranks=1,
            grade=Grade.MIXED,
            more=(
                Line(HOSTILE, n=99),
                Line("server_args=ServerArgs(" + "model_path='/srv/models/pine', " * 6500, n=100),
            ),
        ),
        now - 5 * 3600 * SECOND,
    )
    started = now - 40 * 3600 * SECOND
    record(
        store,
        finding(
            20,
            signature="77aa77aa77aa",
            unit="sglang-birch.service",
            exception="torch.OutOfMemoryError",
            message="CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 139.81 GiB",
            match=None,
            outcome=Outcome.DEGRADED,
            severity=Severity.WARNING,
            phase=Phase.CAPTURE,
            started=started,
            ranks=2,
        ),
        started,
    )
    store.resolve(3, "uid 1000", now - 30 * 3600 * SECOND)


def result(
    name: str, state: ActionState, now: int, *, kind: str = "apply", target: str | None = None, going: bool = False
) -> ActionResult:
    """Root's account of one action on incident 1."""
    names = ["claim", "policy", "read", "render", "verify", "write", "reload", "restart", "ready", "probe"]
    texts = {
        "policy": "--disable-cuda-graph is allowed for sglang*.service",
        "write": "/etc/systemd/system/sglang-k26-dflash.service.d/zzz-triage.conf",
        "ready": "serving on 127.0.0.1:30000 after 204 s",
        "probe": "one request answered in 1.8 s: 8 tokens",
    }
    if going:
        names = names[:9]
        texts["ready"] = "loading weights, 96 s"
    steps = [
        Step(
            step,
            StepState.RUNNING if going and step == "ready" else StepState.DONE,
            now + k * SECOND,
            texts.get(step, ""),
        )
        for k, step in enumerate(names)
    ]
    request = Request(
        action=name,
        kind=kind,
        unit=UNIT,
        incident=1,
        rule=DFLASH.rule,
        remedy=NO_GRAPH.id,
        edits=NO_GRAPH.edits,
        seen_digest="5" * 64,
        result_digest="6" * 64,
        uid=1000,
        sudo_uid=None,
        time=now - SECOND,
        target=target,
    )
    ended = None if going else now + 210 * SECOND
    text = "" if going else "the unit serves again and one request was answered"
    return ActionResult(
        request, state, tuple(steps), now, ended, text, {"ready_seconds": "204", "probe_seconds": "1.8"}
    )


class MadeHands:
    """Plans for a unit that lies in memory; what is filed is only recorded."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.unit_text = "[Service]\nExecStart=/opt/venv/bin/python -m sglang.launch_server --tp 8\n"
        self.active = True
        self.installed: str | None = "0.5.12"
        self.root: Path | None = None
        self.filed: list[Request] = []

    def listening(self) -> bool:
        return self.active

    def rungs(
        self, ladder: Sequence[Mapping[str, Any]], incident: IncidentRow, document: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        return ladder

    def plan(self, incident: IncidentRow, document: Mapping[str, Any], remedy: str, name: str, time: int) -> Plan:
        if incident.unit != UNIT:
            raise Refused(f"there is no unit {incident.unit} on this host")
        before = (
            "/opt/venv/bin/python",
            "-m",
            "sglang.launch_server",
            "--model-path",
            "/srv/models/kimi k2.6",
            "--tp",
            "8",
        )
        path = f"/etc/systemd/system/{UNIT}.d/zzz-triage.conf"
        text = (
            "# Written by triage; do not edit.\n"
            f"# {name}: incident {incident.number}, rule {incident.rule}, {time}\n"
            f"# Undo: triage rollback {name}\n[Service]\nExecStart=\n"
            'ExecStart=/opt/venv/bin/python -m sglang.launch_server --model-path "/srv/models/kimi k2.6" --tp 8 '
            "--disable-cuda-graph\n"
        )
        diff = f"--- /dev/null\n+++ {path}\n@@ -0,0 +1,6 @@\n" + "".join(f"+{line}\n" for line in text.splitlines())
        return Plan(
            unit=incident.unit,
            incident=incident.number,
            rule=incident.rule or "",
            remedy=remedy,
            title=NO_GRAPH.title,
            cost=NO_GRAPH.cost,
            edits=NO_GRAPH.edits,
            drop_in_path=path,
            drop_in_text=text,
            diff=diff,
            seen_digest=hashlib.sha256(self.unit_text.encode()).hexdigest(),
            result_digest=hashlib.sha256(text.encode()).hexdigest(),
            argv_before=before,
            argv_after=(*before, "--disable-cuda-graph"),
            env_changes=(),
            notes=("the unit that is loaded differs from the files on disk: a daemon-reload is part of the apply",),
            action=name,
            time=time,
        )

    def _file(self, request: Request, title: str, cost: str, diff: str, who: str) -> None:
        self.store.reserve(
            request, title=title, cost=cost, diff=diff, who=who, now=request.time, limits=Guards(host_per_day=1000)
        )
        self.filed.append(request)

    def apply(self, plan: Plan, name: str, time: int, who: str) -> None:
        request = Request(
            action=name,
            kind="apply",
            unit=plan.unit,
            incident=plan.incident,
            rule=plan.rule,
            remedy=plan.remedy,
            edits=plan.edits,
            seen_digest=plan.seen_digest,
            result_digest=plan.result_digest,
            uid=0,
            sudo_uid=None,
            time=time,
        )
        self._file(request, plan.title, plan.cost, plan.diff, who)

    def plan_rollback(self, action: ActionRow, name: str, time: int) -> Plan:
        path = f"/etc/systemd/system/{UNIT}.d/zzz-triage.conf"
        return Plan(
            unit=action.unit,
            incident=action.incident,
            rule=action.rule,
            remedy=action.remedy,
            title=f"undo {action.name}",
            cost="",
            edits=(),
            drop_in_path=path,
            drop_in_text="",
            diff=f"--- {path}\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-[Service]\n-ExecStart=/x --disable-cuda-graph\n",
            seen_digest=hashlib.sha256(self.unit_text.encode()).hexdigest(),
            result_digest="",
            argv_before=(),
            argv_after=(),
        )

    def release(self, unit: str) -> str | None:
        return self.installed

    def removed_by_hand(self, action: ActionRow) -> bool:
        return False

    def rollback(self, action: ActionRow, name: str, who: str, *, reason: str = "", retire: bool = False) -> None:
        request = Request(
            action=name,
            kind="retire" if retire else "rollback",
            unit=action.unit,
            incident=action.incident,
            rule=action.rule,
            remedy=action.remedy,
            edits=(),
            seen_digest="5" * 64,
            result_digest="7" * 64,
            uid=0,
            sudo_uid=None,
            time=action.requested_at + 1,
            target=action.name,
        )
        self._file(request, action.title, "", "", who)


def units() -> tuple[UnitState, ...]:
    argv = ("/opt/venv/bin/python", "-m", "sglang.launch_server", "--model-path", "/srv/models/kimi-k2.6", "--tp", "8")
    return (UnitState(UNIT, "active", "0.5.12", argv), UnitState("sglang-birch.service", "failed", None, argv[:3]))
