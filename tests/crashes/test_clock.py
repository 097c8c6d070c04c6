"""A clock that was set back in the middle: the crash stays one, and closes in time."""

from __future__ import annotations

import io

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import Said
from triage.engine.assemble import Assembler
from triage.model import Change, CrashEvent, Line, Outcome
from triage.sources.stream import StreamSource

HOUR = 3_600_000  # milliseconds
WAIT = 12_000_000
DYING = [*story.interleaved([story.rank_crash(12_000, rank) for rank in range(8)]), *story.parent_gives_up(12_200)]


def back(said: list[Said]) -> list[Said]:
    return [Said(each.text, each.pid, each.ms - HOUR, each.fields) for each in said]


def lines_of(said: list[Said]) -> list[Line]:
    source = StreamSource("journal", io.BytesIO(story.as_json(said)), units=("*",))
    return [line for batch in source.batches() for line in batch.lines]


def fed(assembler: Assembler, said: list[Said]) -> list[CrashEvent]:
    return [event for line in lines_of(said) for event in assembler.feed(line)]


@pytest.mark.parametrize("at", [1, 19, 60, 153, 160])
def test_a_clock_set_back_in_mid_crash_leaves_one_crash_that_ends_after_it_began(at: int) -> None:
    said = [*story.starting(), *DYING[:at], *back(DYING[at:]), *back(story.unit_failed(12_400))]
    (crash,) = crashes_of(story.as_json(said))
    assert (crash.outcome, crash.root.cause.exception, len(crash.ranks)) == (Outcome.FATAL, "AttributeError", 8)
    assert crash.started is not None
    assert crash.ended is not None
    assert crash.ended >= crash.started


@pytest.mark.parametrize(("at", "crashes"), [(5, 0), (100, 0), (155, 1), (len(DYING), 1)])
def test_what_is_open_when_the_clock_is_set_back_closes_in_time(at: int, crashes: int) -> None:
    """By the present alone, with nothing written any more; and at the cursor nothing stays open."""
    assembler = Assembler()
    events = fed(assembler, [*story.starting(), *DYING[:at]])
    present = story.START + (12_500 - HOUR) * 1000
    for turn in range(3):  # a traceback that broke off is told first, then its crash has to be quiet
        events += assembler.tick(present + turn * WAIT)
    assert assembler.idle
    changes = [event.change for event in events]
    assert changes.count(Change.OPENED) == changes.count(Change.CLOSED) == crashes


def test_lines_after_the_clock_was_set_back_close_it_too() -> None:
    assembler = Assembler()
    events = fed(assembler, [*story.starting(), *DYING, *back(story.serving(12_500, 600))])
    assert [event.change for event in events][-1] is Change.CLOSED
    assert assembler.idle


def test_an_end_and_a_kernels_line_do_not_wait_for_the_old_time() -> None:
    assembler = Assembler()
    kernel = Said("NVRM: Xid (PCI:0000:dc:00): 79, GPU has fallen off the bus.", 0, 11_900)
    assert fed(assembler, [*story.starting(), kernel]) == []
    events = assembler.tick(story.START + (12_000 - HOUR) * 1000)
    events += assembler.tick(story.START + (15_000 - HOUR) * 1000)
    assert [event.crash.root.cause.exception for event in events if event.change is Change.OPENED] == ["Xid 79"]
    ended = Assembler()
    events = fed(ended, [*story.starting(), *DYING, *story.unit_failed(12_400)])
    ended.tick(story.START + (12_500 - HOUR) * 1000)
    assert [event.change for event in ended.tick(story.START + (14_000 - HOUR) * 1000)] == [Change.CLOSED]
    assert ended.idle
