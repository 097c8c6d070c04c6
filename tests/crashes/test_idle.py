"""The cursor may be saved only while nothing is open; contexts carry over what was known."""

import io
from dataclasses import replace

import pytest

from tests.crashes import story
from tests.crashes.story import Said
from triage.engine.assemble import Assembler
from triage.model import Change, Phase
from triage.sources.stream import StreamSource


def lines_of(said):
    source = StreamSource("journal", io.BytesIO(story.as_json(said)), units=("*",))
    return [line for batch in source.batches() for line in batch.lines]


def test_it_is_not_idle_from_a_tracebacks_head_to_the_crashs_end():
    assembler = Assembler()
    idle = []
    for line in lines_of(story.story()):
        assembler.feed(line)
        idle.append((line.text, assembler.idle))
    first = next(n for n, (text, _) in enumerate(idle) if "Traceback" in text)
    assert all(quiet for _, quiet in idle[:first])
    assert not any(quiet for _, quiet in idle[first:])
    events = assembler.tick(story.START + 14_000_000)
    assert [event.change for event in events] == [Change.CLOSED]
    assert assembler.idle


@pytest.mark.parametrize("end", [story.stop_asked(95_000), story.unit_failed(95_000)])
def test_checks_that_failed_keep_the_cursor_no_longer_than_the_server_is_there(end):
    text = "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 0"
    failed = [Said(f"[{story.stamp(ms)}] {text}", story.MAIN, ms) for ms in (60_000, 90_000)]
    assembler = Assembler()
    for line in lines_of([*story.starting(), *story.serving(11_000, 1), *failed]):
        assembler.feed(line)
    assert not assembler.idle
    for line in lines_of(end):
        assembler.feed(line)
    assembler.tick(story.START + 9_000_000_000)
    assert assembler.idle


def of_a_failed_check():
    failed = Said('INFO:     10.1.2.3:4711 - "GET /health HTTP/1.1" 503 Service Unavailable', story.MAIN, 12_000)
    assembler = Assembler()
    for line in lines_of([*story.starting(), *story.serving(11_000, 1), failed]):
        assembler.feed(line)
    return assembler


def test_a_check_that_failed_and_was_not_repeated_keeps_the_cursor_no_longer():
    """The night in which nobody asks, a machine that lost its power, a container that was replaced."""
    assembler = of_a_failed_check()
    assembler.tick(story.START + 300_000_000)
    assert not assembler.idle
    assembler.tick(story.START + 900_000_000)
    assert assembler.idle


def test_the_checks_of_the_run_before_are_over():
    assembler = of_a_failed_check()
    assert not assembler.idle
    for line in lines_of([replace(said, ms=said.ms + 20_000, run="beef" * 8) for said in story.starting()]):
        assembler.feed(line)
    assert assembler.idle


def test_a_crash_without_an_end_is_closed_by_quiet_in_log_time():
    assembler = Assembler()
    for line in lines_of([*story.starting(), *story.rank_crash(12_000, 0)]):
        assembler.feed(line)
    assert assembler.tick(story.START + 15_000_000) == []
    assert [event.change for event in assembler.tick(story.START + 23_000_000)] == [Change.CLOSED]


def test_the_next_assembler_knows_what_this_one_knew():
    before = Assembler()
    for line in lines_of([*story.starting(), *story.serving(10_000, 20)]):
        before.feed(line)
    after = Assembler(before.contexts())
    events = [
        event
        for line in lines_of([*story.rank_crash(12_000, 0), *story.unit_failed(12_100)])
        for event in after.feed(line)
    ]
    assert events[0].crash.phase is Phase.SERVING
    assert events[0].crash.context.flags["speculative_dflash_block_size"] == "8"


def test_a_traceback_that_nobody_goes_on_writing_does_not_block_the_cursor_for_ever():
    assembler = Assembler()
    for line in lines_of([*story.starting(), *story.rank_crash(12_000, 0)[:5]]):
        assembler.feed(line)
    assert not assembler.idle
    assembler.tick(story.START + 23_000_000)
    assembler.tick(story.START + 34_000_000)
    assert assembler.idle
