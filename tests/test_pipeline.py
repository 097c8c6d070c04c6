"""The pipeline: one record per batch, the cursor only while nothing is open, nothing lost at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from triage.model import (
    Batch,
    Change,
    Context,
    Crash,
    CrashEvent,
    Failure,
    Finding,
    FindingEvent,
    Line,
    Link,
    Outcome,
    Phase,
    Role,
    Severity,
    Signature,
)
from triage.pipeline import merge, run


def crash(position: str, ranks: tuple[str, ...] = ("TP0",)) -> Crash:
    root = Failure(Role.ROOT, (Link("ValueError", "x"),), ())
    return Crash("id", position, Phase.SERVING, Outcome.FATAL, root, (root,), ranks, ())


def diagnose(crash: Crash) -> Finding:
    return Finding(crash, Signature(1, "k", "t", ()), Severity.ERROR)


@dataclass
class FakeSource:
    script: list[Batch]
    name: str = "fake"

    def batches(self) -> Iterator[Batch]:
        yield from self.script

    def close(self) -> None: ...


@dataclass
class FakeAssembler:
    """'open N' opens a crash at N, 'rank N' amends it, 'close N' closes it."""

    open: dict[str, Crash] = field(default_factory=dict)
    more: list[CrashEvent] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        return not self.open

    def feed(self, line: Line) -> list[CrashEvent]:
        verb, _, position = line.text.partition(" ")
        if verb == "open":
            self.open[position] = crash(position)
            return [CrashEvent(Change.OPENED, self.open[position])]
        if verb == "rank":
            before, self.open[position] = self.open[position], crash(position, ("TP0", "TP1"))
            self.more = [CrashEvent(Change.AMENDED, self.open[position])]
            return [CrashEvent(Change.AMENDED, before)]
        if verb == "close":
            return [CrashEvent(Change.CLOSED, self.open.pop(position))]
        return []

    def grown(self) -> list[CrashEvent]:
        more, self.more = [event for event in self.more if event.crash.position in self.open], []
        return more

    def pass_over(self, passed: Mapping[str | None, int], time: int | None) -> None:
        pass

    def tick(self, time: int) -> list[CrashEvent]:
        return []

    def finish(self) -> list[CrashEvent]:
        return [CrashEvent(Change.CLOSED, self.open.pop(p)) for p in list(self.open)]

    def contexts(self) -> Mapping[str, Context]:
        return {}


@dataclass
class Recording:
    calls: list[tuple[tuple[FindingEvent, ...], str | None, bool]] = field(default_factory=list)

    def record(
        self,
        source: str,
        events: tuple[FindingEvent, ...],
        *,
        cursor: str | None,
        contexts: Mapping[str, Context] | None,
        now: int,
    ) -> None:
        self.calls.append((events, cursor, contexts is not None))


def batch(cursor: str, *texts: str) -> Batch:
    return Batch(tuple(Line(t) for t in texts), cursor)


def drive(*script: Batch, now: int = 10_000_000) -> Recording:
    recording = Recording()
    run(FakeSource(list(script)), FakeAssembler(), diagnose, recording, clock=lambda: now)
    return recording


def test_the_cursor_stands_still_while_a_crash_is_open() -> None:
    recording = drive(batch("c1", "open 1"), batch("c2", "rank 1"), batch("c3", "close 1"))
    assert [(e[0].change, cursor, contexts) for e, cursor, contexts in recording.calls if e] == [
        (Change.OPENED, None, False),
        (Change.AMENDED, None, False),
        (Change.CLOSED, "c3", True),
    ]


def test_quiet_batches_save_the_cursor_every_few_seconds_only() -> None:
    recording = drive(batch("c1"), batch("c2"), batch("c3"))
    assert [cursor for _, cursor, _ in recording.calls] == ["c1", "c3"]


def test_a_crash_still_open_at_the_end_of_a_bounded_source_is_recorded_closed() -> None:
    recording = drive(batch("c1", "open 1"))
    events, cursor, _ = recording.calls[-1]
    assert [e.change for e in events] == [Change.CLOSED]
    assert cursor == "c1"


def test_eight_ranks_in_one_batch_are_one_event() -> None:
    recording = drive(batch("c1", "open 1", "rank 1", "open 2"))
    events = recording.calls[0][0]
    assert [(e.change, e.finding.crash.position, len(e.finding.crash.ranks)) for e in events] == [
        (Change.OPENED, "1", 2),
        (Change.OPENED, "2", 1),
    ]


def test_closed_wins_over_what_came_before_it() -> None:
    events = [CrashEvent(c, crash("1")) for c in (Change.OPENED, Change.AMENDED, Change.CLOSED)]
    assert [e.change for e in merge(events)] == [Change.CLOSED]


def test_a_round_that_says_stop_ends_the_reading() -> None:
    recording = Recording()
    source = FakeSource([batch("c1", "open 1"), batch("c2", "close 1")])
    run(source, FakeAssembler(), diagnose, recording, clock=lambda: 0, each_round=lambda batch: False)
    assert len(recording.calls) == 1
