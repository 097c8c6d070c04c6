"""The one way for the data: source -> assemble -> diagnose -> record.

In: a source of batches, an assembler, a way to name a crash, a recorder. Out: one transaction whenever there is
something to store, and every few seconds in quiet. Called by `watch`, `run` and the demo; `scan` uses `findings`
alone. It must not know which library is behind any of its parts.

The cursor and the contexts are handed to the recorder only while the assembler is idle, so that a process that dies in
the middle of a crash reads that crash again from its beginning (docs/architecture.md, The cursor).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from triage.model import Batch, Change, Context, Crash, CrashEvent, Finding, FindingEvent, Line, Recorder, Source

SAVE_EVERY = 3_000_000  # microseconds between two saves of the cursor while nothing happens


class Assembling(Protocol):
    """What the pipeline needs of `triage.engine.assemble.Assembler`."""

    @property
    def idle(self) -> bool: ...
    def feed(self, line: Line) -> list[CrashEvent]: ...
    def pass_over(self, passed: Mapping[str | None, int], time: int | None) -> None: ...
    def tick(self, time: int) -> list[CrashEvent]: ...
    def grown(self) -> list[CrashEvent]: ...
    def finish(self) -> list[CrashEvent]: ...
    def contexts(self) -> Mapping[str, Context]: ...


Diagnose = Callable[[Crash], Finding]


def merge(events: Iterable[CrashEvent]) -> list[CrashEvent]:
    """The last word on each crash of a batch, so that eight ranks in one batch cost one diagnosis.

    Opened and amended in the same batch is opened; whatever ends in closed is closed.
    """
    latest: dict[tuple[str, ...], CrashEvent] = {}
    for event in events:
        before = latest.get(event.crash.key)
        if before is not None and before.change is Change.OPENED and event.change is Change.AMENDED:
            event = replace(event, change=Change.OPENED)
        if before is not None and before.change is Change.CLOSED:
            event = replace(event, change=Change.CLOSED)
        latest[event.crash.key] = event
    return list(latest.values())


def findings(lines: Iterable[Line], assembler: Assembling, diagnose: Diagnose) -> Iterator[Finding]:
    """Every crash of a bounded input, named, in the order they closed."""
    closed: dict[tuple[object, ...], Crash] = {}

    def take(events: Iterable[CrashEvent]) -> None:
        for event in events:
            if event.change in (Change.CLOSED, Change.CORRECTED):
                closed[event.crash.owner, *event.crash.key] = event.crash

    for line in lines:
        take(assembler.feed(line))
    take(assembler.finish())
    yield from map(diagnose, closed.values())


def run(
    source: Source,
    assembler: Assembling,
    diagnose: Diagnose,
    recorder: Recorder,
    *,
    clock: Callable[[], int],
    each_round: Callable[[Batch], bool] = lambda batch: True,
    notice: Callable[[str], None] = lambda text: None,
) -> None:
    """Read until the source ends or `each_round(batch)`, asked after its transaction, answers False.

    `clock` gives the present in microseconds UTC; `notice` takes what the source has to tell the operator.
    """
    saved_at = 0
    cursor: str | None = None

    def record(events: Iterable[CrashEvent], now: int) -> None:
        nonlocal saved_at
        named = tuple(FindingEvent(event.change, diagnose(event.crash)) for event in merge(events))
        due = assembler.idle and cursor is not None and (bool(named) or now - saved_at >= SAVE_EVERY)
        if not named and not due:
            return
        recorder.record(
            source.name,
            named,
            cursor=cursor if due else None,
            contexts=assembler.contexts() if due else None,
            now=now,
        )
        if due:
            saved_at = now

    for batch in source.batches():
        for text in batch.notices:
            notice(text)
        events: list[CrashEvent] = []
        assembler.pass_over(batch.passed, batch.time)
        for line in batch.lines:
            events += assembler.feed(line)
        if batch.time is not None:
            events += assembler.tick(batch.time)
        events += assembler.grown()
        cursor = batch.cursor or cursor
        record(events, clock())
        if not each_round(batch):
            return
    saved_at = 0  # the end of a bounded source is worth a save of its own
    record(assembler.finish(), clock())
