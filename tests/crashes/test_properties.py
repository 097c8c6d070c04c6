"""Whatever the order, the cut or the bytes: the same crash, or a lower grade, and never an error."""

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crashes import story
from tests.crashes.scanning import ALARMING, crashes_of
from triage.engine.assemble import Assembler
from triage.engine.signature import sign
from triage.model import Change, Grade, InputError
from triage.sources.stream import StreamSource

ERRORS = (
    story.NONE_TYPE,
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.31 GiB.",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\nFor debugging consider a flag",
)

ROADS = ("as_text", "as_json", "as_export")
PIECES = [said.text.encode() for said in story.story()]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9), error=st.sampled_from(ERRORS))
def test_any_interleaving_by_pid_gives_the_same_crash(seed, error):
    mixed = story.shuffled([story.rank_crash(12_000, rank, error) for rank in range(8)], seed)
    (crash,) = crashes_of(story.as_json([*mixed, *story.unit_failed(12_500)]))
    (alone,) = crashes_of(story.as_json([*story.rank_crash(12_000, 0, error), *story.unit_failed(12_500)]))
    assert sorted(crash.ranks) == [f"TP{n}" for n in range(8)]
    assert (crash.id, sign(crash).key) == (alone.id, sign(alone).key)
    assert all(failure.cause == alone.root.cause for failure in crash.failures if failure.rank)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9), error=st.sampled_from(ERRORS))
def test_any_interleaving_in_a_plain_log_with_rank_tags_gives_the_same_root(seed, error):
    mixed = story.shuffled([story.rank_crash(12_000, rank, error) for rank in range(8)], seed)
    (crash,) = crashes_of(story.as_text([*mixed, *story.parent_gives_up(12_500)]))
    (alone,) = crashes_of(story.as_text([*story.rank_crash(12_000, 0, error), *story.parent_gives_up(12_500)]))
    assert (crash.id, sign(crash).key) == (alone.id, sign(alone).key)
    assert all(failure.cause == alone.root.cause for failure in crash.failures if failure.rank)
    assert sorted(crash.ranks) == [f"TP{n}" for n in range(8)]


@settings(max_examples=60, deadline=None)
@given(
    chunks=st.lists(st.integers(1, 4000), min_size=1, max_size=30),
    road=st.sampled_from(["as_text", "as_json", "as_export"]),
)
def test_any_chunking_of_the_input_gives_the_same_crashes(chunks, road):
    data = getattr(story, road)(story.story())

    class Slow(io.RawIOBase):
        at, turn = 0, 0

        def readable(self):
            return True

        def readinto(self, buffer):
            size = min(chunks[self.turn % len(chunks)], len(buffer), len(data) - self.at)
            buffer[:size] = data[self.at : self.at + size]
            self.at, self.turn = self.at + size, self.turn + 1
            return size

    lines = [line for batch in StreamSource("slow", Slow(), tz="UTC").batches() for line in batch.lines]
    assembler = Assembler()
    events = [event for line in lines for event in assembler.feed(line)] + assembler.finish()
    assert [e.crash.id for e in events if e.change is Change.CLOSED] == [c.id for c in crashes_of(data)]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=80), st.sampled_from([s.text.encode() for s in story.story()])), max_size=60)
)
def test_no_bytes_raise_anything_but_that_they_cannot_be_read(pieces):
    with contextlib.suppress(InputError):  # two bytes are enough to look like gzip
        crashes_of(b"\n".join(pieces))


@settings(max_examples=80, deadline=None)
@given(cut=st.integers(0, 40_000), road=st.sampled_from(ROADS))
def test_an_input_that_breaks_off_anywhere_does_not_raise(cut, road):
    crashes_of(getattr(story, road)(story.story())[:cut])


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 40_000), every=st.integers(1, 40), road=st.sampled_from(ROADS))
def test_a_look_at_what_is_open_changes_nothing_and_tells_how_it_has_grown(cut, every, road):
    data = getattr(story, road)(story.story())[:cut]
    lines = [line for batch in StreamSource("looked", io.BytesIO(data), tz="UTC").batches() for line in batch.lines]
    assembler, closed = Assembler(), []
    known = {}  # failures of the open crash
    for n, line in enumerate(lines):
        events = assembler.feed(line)
        looked = assembler.grown() if n % every == 0 else []
        assert {e.crash.key for e in looked} <= {e.crash.key for e in known.values()} | {e.crash.key for e in events}
        for event in events + looked:
            before = known.get(event.crash.key)
            if event in looked and before is not None:
                assert len(event.crash.failures) >= len(before.crash.failures)
            known[event.crash.key] = event
        closed += [e.crash for e in events if e.change is Change.CLOSED]
    closed += [e.crash for e in assembler.finish() if e.change is Change.CLOSED]
    assert [crash.id for crash in closed] == [crash.id for crash in crashes_of(data)]


CHAIN = [said.text for said in story.chained(12_000, 0)]
SECOND = next(n for n, text in enumerate(CHAIN) if n and text.startswith("Traceback"))
CUT_STORY = [
    *story.starting(1)[-3:],
    *story.chained(12_000, 0),
    *story.parent_gives_up(12_300),
    *story.unit_failed(12_500),
]
WHOLE = {road: getattr(story, road)(CUT_STORY) for road in ROADS}
PLACES = {road: [len(getattr(story, road)(CUT_STORY[:n])) for n in range(len(CUT_STORY) + 1)] for road in ROADS}
SEEN_FROM_OUTSIDE = ("SIGKILL", "SIGQUIT", "ExitStatus ?", "ErrorLine", "CudaError")  # one line says it
CHAIN_AT = 3  # so many entries stand before the chain


def fits(links, whole):
    """Whether a chain is what is left where a log ends between two lines: nobody can know whether more was to come."""
    *first, last = links
    head, at = whole[: len(first)], whole[len(first)]
    lines, all_lines = last.message.split("\n"), at.message.split("\n")
    same = (last.exception, last.frames) == (at.exception, at.frames)
    return list(head) == first and same and lines == all_lines[: len(lines)]


def cut_grade_holds(road, head, tail):
    data = WHOLE[road]
    (whole,) = crashes_of(data)
    assert (whole.grade, len(whole.root.chain)) == (Grade.COMPLETE, 2)
    joint, header = PLACES[road][CHAIN_AT + SECOND - 1 : CHAIN_AT + SECOND + 1]
    for crash in crashes_of(data[head : len(data) - tail]):
        if crash.grade is Grade.COMPLETE and crash.root.cause.exception not in SEEN_FROM_OUTSIDE:
            # A window that begins with the second header, or within the line before it, shows nothing of the first.
            left = whole.root.chain[1:] if joint < head <= data.index(b"raceback", header) else whole.root.chain
            assert fits(crash.root.chain, left), (road, head, tail)


@settings(max_examples=200, deadline=None)
@given(head=st.integers(0, 12_000), tail=st.integers(0, 12_000), road=st.sampled_from(ROADS))
def test_what_is_left_of_a_cut_log_is_the_crash_or_said_to_be_less(head, tail, road):
    cut_grade_holds(road, min(head, len(WHOLE[road])), tail)


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("beside", [-1, 0, 4])
def test_a_log_cut_at_or_near_the_end_of_any_line_is_the_crash_or_said_to_be_less(road, beside):
    for at in PLACES[road][:-1]:
        cut_grade_holds(road, max(0, at + beside), 0)
        cut_grade_holds(road, 0, len(WHOLE[road]) - max(0, at + beside))


@pytest.mark.parametrize("render", [story.as_text, story.as_json, story.as_export])
def test_a_healthy_log_of_100_000_lines_gives_nothing(render):
    lines = [*story.starting(), *story.serving(10_000, 100_000)]
    assert [c for c in crashes_of(render(lines)) if c.outcome.value in ALARMING] == []


def test_reading_again_gives_the_same_keys():
    data = story.as_export(story.story())
    assert [c.key for c in crashes_of(data)] == [c.key for c in crashes_of(data)]


def test_what_is_kept_is_bounded_whatever_comes():
    assembler = Assembler()
    frames = "".join(f'  File "/x/{n}.py", line {n}, in f\n' for n in range(5_000))
    flood = "Traceback (most recent call last):\n" + frames + "ValueError: " + "x" * 3_000_000 + "\n" + "more\n" * 5_000
    source = StreamSource("flood", io.BytesIO(flood.encode() * 2 + b"ValueError: y\n" * 3_000))
    events = [
        e for batch in source.batches() for line in batch.lines for e in assembler.feed(line)
    ] + assembler.finish()
    crash = events[-1].crash
    assert len(crash.failures) <= 300
    assert sum(len(line.text) for failure in crash.failures for line in failure.lines) < 3_000_000
    assert all(len(line.text) <= 8_192 for failure in crash.failures for line in failure.lines)
