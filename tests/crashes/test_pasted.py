"""Tracebacks as people paste them and as supervisors log them: indented, the exception first, with lines in between."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of

FRAMES = story.traceback_lines(story.FRAMES, story.NONE_TYPE)[:-1]
END = [said.text for said in story.parent_gives_up(12_300)]


@pytest.mark.parametrize("blanks", [1, 2, 4, 8])
@pytest.mark.parametrize("start", [0, 1])
def test_an_indented_paste_is_the_same_traceback(blanks, start):
    lines = [said.text for said in [*story.starting(1)[1:], *story.rank_crash(12_000, 0)]][-len(FRAMES) - 2 - start :]
    (plain,) = crashes_of("\n".join([*lines, *END, ""]).encode())
    (crash,) = crashes_of("".join(f"{' ' * blanks}{line}\n" for line in [*lines, *END]).encode())
    assert (crash.root.chain, crash.root.rank, crash.grade) == (plain.root.chain, "TP0", plain.grade)
    assert (crash.root.cause.exception, crash.outcome.value) == ("AttributeError", "fatal")


@pytest.mark.parametrize(
    "before", ["ERROR ", "CRITICAL ", f"[{story.stamp(12_000)} TP3] ", "2026-11-29 12:00:12 ERROR "]
)
def test_an_exception_right_above_its_frames_is_theirs(before):
    (crash,) = crashes_of("\n".join([f"{before}ValueError: an odd page", *FRAMES, ""]).encode())
    cause = crash.root.cause
    assert (cause.exception, cause.message, len(cause.frames)) == ("ValueError", "an odd page", len(story.FRAMES))
    assert (cause.frame.function, crash.grade.value) == ("_take_draft_hidden", "cut")


def test_where_the_frames_have_an_exception_below_the_one_above_is_none_of_them():
    lines = ["ERROR RuntimeError: the request failed", *FRAMES, story.NONE_TYPE, ""]
    (crash,) = crashes_of("\n".join(lines).encode())
    assert [link.exception for link in crash.root.chain] == ["AttributeError"]
    apart = ["ERROR RuntimeError: the request failed", "Something else.", *FRAMES, ""]
    assert "RuntimeError" not in {crash.root.cause.exception for crash in crashes_of("\n".join(apart).encode())}


@pytest.mark.parametrize(
    "form",
    [
        "  {}.py:{} {}",
        "{}.py:{} {}",
        "at sglang/srt/managers/{}.py:{} ({})",
        "    at {}.py:{} in {}",
        "{2} ({0}.py:{1})",
    ],
)
def test_places_that_a_person_wrote_below_an_exception_are_its_frames(form):
    places = [form.format(*place) for place in (("worker", 612, "forward"), ("scheduler", 99, "run_batch"))]
    (crash,) = crashes_of("\n".join(["AssertionError: an odd page", *places, ""]).encode())
    cause = crash.root.cause
    assert (cause.message, cause.frame.function, cause.frame.line) == ("an odd page", "forward", 612)
    assert [frame.function for frame in cause.frames] == ["run_batch", "forward"]


def test_a_message_that_also_names_places_keeps_them():
    below = ["see worker.py:612 forward", "and the other"]
    (crash,) = crashes_of("\n".join(["AssertionError: an odd page", *below, ""]).encode())
    assert (crash.root.cause.message, crash.root.cause.frames) == ("\n".join(["an odd page", *below]), ())


def test_supervisords_line_before_each_piece_is_no_part_of_what_it_logs():
    last = "ValueError: the first line\nand the second"
    lines = [said.text for said in [*story.starting(1)[1:], *story.rank_crash(12_000, 0, last)]]
    (plain,) = crashes_of("\n".join([*lines, *END, ""]).encode())
    between = "2026-11-29 12:00:12,345 DEBG 'sglang' stderr output:"
    (crash,) = crashes_of("".join(f"{between}\n{line}\n" for line in [*lines, *END]).encode())
    assert (crash.root.chain, crash.grade, crash.outcome) == (plain.root.chain, plain.grade, plain.outcome)


def test_the_end_of_a_block_in_a_page_is_no_message():
    (crash,) = crashes_of(
        "\n".join(["```", "T" + "raceback (most recent call last):", *FRAMES, story.NONE_TYPE, "```", ""]).encode()
    )
    assert crash.root.cause.message == story.NONE_TYPE.split(": ", 1)[1]


def test_a_paste_that_lost_its_blanks_has_its_frames():
    frames = [line.strip().replace('File "', 'File"').replace('", line', '",line') for line in FRAMES]
    (crash,) = crashes_of(
        "\n".join(
            [f"[{story.stamp(12_000)} TP3] Traceback (most recent call last):", *frames[1:], story.NONE_TYPE, ""]
        ).encode()
    )
    assert (crash.root.cause.frame.function, crash.root.rank) == ("_take_draft_hidden", "TP3")
