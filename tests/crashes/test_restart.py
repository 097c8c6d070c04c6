"""`watch` dies and starts again, at each moment: what it wrote down by then and what it reads after are one account."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace

import pytest

from tests.crashes import story
from tests.crashes.story import RANKS, Said
from tests.store.made import made_store
from triage.diagnose import NoRules, diagnose
from triage.engine.assemble import Assembler
from triage.model import Batch, Context, Line
from triage.pipeline import run
from triage.sources.stream import StreamSource
from triage.store import Store
from triage.store.codec import context_text, context_value

NEXT = "e" * 32
START = story.starting()[0]


def late(result, code="killed", status="9", *, ms=500, told=4_000_000):
    """The main process is gone, and more than an hour later, with the last of its children, the result is told."""
    exited, failed = story.unit_failed(ms, code, status, result)
    return [exited, Said("rank 3 still writes", RANKS[3], ms + 5_000), replace(failed, ms=told)]


def again(lines, ms):
    return [replace(said, ms=said.ms + ms, run=NEXT) for said in lines]


def hanging(count):
    text = "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 0"
    times = range(60_000, 60_000 + count * 30_000, 30_000)
    return [*story.serving(11_000, 1), *(Said(f"[{story.stamp(ms)}] {text}", story.MAIN, ms) for ms in times)]


LIMIT = Said(f"{story.UNIT}: Start request repeated too quickly.", 1, 30_000)
STORIES = {
    "nothing but the end": [START, *late("timeout")],
    "the same result": [START, *late("signal")],
    "it had looked like no failure": [START, *late("timeout", "exited", "0")],
    "out of memory": [START, *late("oom-kill", "killed", "15")],
    "a root of its own": [START, *story.rank_crash(12_000, 3), *late("timeout", ms=12_400)],
    "a stop that was asked for": [START, *story.stop_asked(20_000), *late("timeout", ms=20_500)],
    "and started again": [
        *[START, *late("timeout")],
        *again([*story.starting(1), *story.rank_crash(12_000, 3), *story.unit_failed(12_400)], 4_010_000),
    ],
    "a hang": [*story.starting(1), *hanging(9), *story.unit_failed(400_000)],
    "a rank that the unit outlives": [*story.starting(2), *story.rank_crash(12_000, 1), *hanging(1)],
    "a start limit": [START, *story.unit_failed(20_000), LIMIT, replace(story.unit_failed(30_000)[1])],
}


def lines_of(said):
    source = StreamSource("test", io.BytesIO(story.as_json(said)), units=("sglang*.service",), tz="UTC")
    return [replace(line, n=None) for batch in source.batches() for line in batch.lines]


class Journal:
    """A batch for each line, and one more after each a few seconds later; the cursor is how many lines were read."""

    name = "journal:"

    def __init__(self, lines: list[Line], cursor: str | None) -> None:
        self.lines, self.begin = lines, int(cursor or 0)

    def batches(self):
        for n, line in enumerate(self.lines[self.begin :], self.begin + 1):
            yield Batch((line,), str(n), line.time)
            yield Batch((), str(n), line.time + 3_000_000)

    def close(self) -> None: ...


class Dies:
    """The process is killed after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def __call__(self, batch: Batch) -> bool:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return True


def watch(store: Store, lines: list[Line], rounds: int = 0) -> None:
    """One life of `watch`; killed after so many rounds, or else it lives on behind the last line."""
    cursor, contexts = store.resume("journal:")
    clock = iter(range(10**15, 2 * 10**15, 10**9)).__next__  # each round may save
    with contextlib.suppress(KeyboardInterrupt):
        run(
            Journal(lines, cursor),
            Assembler(contexts),
            lambda crash: diagnose(crash, NoRules()),
            store,
            clock=clock,
            each_round=Dies(rounds),
        )


def told(store: Store):
    """Each incident and crash as they are kept."""
    rows = store.incidents(alarming=False).rows
    kept = [crash.id for row in rows for crash in store.crashes(row.number).rows]
    return sorted((row.signature, row.crashes, row.alarms, row.exception, row.outcome) for row in rows), sorted(kept)


@pytest.mark.parametrize("name", STORIES)
def test_wherever_watch_dies_each_crash_is_stored_once_and_with_its_result(name, tmp_path):
    lines = lines_of(STORIES[name])
    whole = made_store(tmp_path / "whole")
    watch(whole, lines)
    expected = told(whole)
    for rounds in range(1, 2 * len(lines) + 1):
        store = made_store(tmp_path / str(rounds))
        watch(store, lines, rounds)
        watch(store, lines, 1)  # and once more, before anything was said
        watch(store, lines)
        assert told(store) == expected, f"killed after {rounds} rounds"
        store.close()
    whole.close()


def test_what_is_written_down_of_an_end_is_read_back_as_it_was_but_for_secrets():
    assembler = Assembler()
    for line in lines_of(STORIES["nothing but the end"][:2]):
        assembler.feed(line)
    assembler.tick(story.START + 4_000_000)
    ((key, context),) = assembler.contexts().items()
    assert context.ended is not None
    assert context.ended.crash is not None
    assert context_value(context_text(context)) == context
    crash = context.ended.crash
    root = replace(crash.root, why="it was given --api-key sk-not-to-be-seen-anywhere")
    leaky = replace(context, ended=replace(context.ended, crash=replace(crash, root=root)))
    assert "not-to-be-seen" not in context_text(leaky)
    assert isinstance(key, str)


def test_what_is_known_of_a_unit_that_says_nothing_outlives_two_restarts():
    assembler = Assembler()
    for line in lines_of(story.starting()):
        assembler.feed(line)
    known = assembler.contexts()
    (context,) = known.values()
    assert isinstance(context, Context)
    other = [replace(said, unit="sglang-other.service", run=NEXT) for said in story.starting()]
    after = Assembler(known)
    for line in lines_of(other):
        after.feed(line)
    assert after.contexts().items() >= known.items()
    assert len(after.contexts()) == 2


def test_after_a_restart_the_next_run_is_compared_with_the_one_before_it_which_is_forgotten():
    assembler = Assembler()
    for line in lines_of(story.starting()):
        assembler.feed(line)
    after = Assembler(assembler.contexts())
    for line in lines_of(again(story.starting(), 60_000)):
        after.feed(line)
    (context,) = after.contexts().values()
    assert context.good is not None
    assert context.changes == ()


def test_the_same_crash_at_the_same_line_of_another_days_file_counts_again(tmp_path):
    def read(data):
        source = StreamSource("file", io.BytesIO(data), tz="UTC")
        run(source, Assembler(), lambda crash: diagnose(crash, NoRules()), store, clock=lambda: 10**15)

    store = made_store(tmp_path)
    today = story.as_text([*story.starting(2), *story.rank_crash(12_000, 1), *story.parent_gives_up(12_300)])
    for data in (today, today.replace(b"2026-11-29", b"2026-11-30"), today):  # the last one is read again
        read(data)
    (incident,) = store.incidents(alarming=False).rows
    assert (incident.crashes, len(store.crashes(incident.number).rows)) == (2, 2)
