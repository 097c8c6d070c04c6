"""In a text without its writers: what was raised long before is no cause, and who works on may be another server."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import MAIN, RANKS, Said, stamp
from triage.model import Grade, Outcome, Phase

HEADER = "Traceback (most recent call last):"
FLAGS = "server_args=ServerArgs(model_path='/srv/models/k26', tp_size=8)"


def raised(path, error, ms, pid=MAIN):
    return [Said(text, pid, ms) for text in (HEADER, *story.traceback_lines(((path, 7, "f", "g()"),), error))]


def ended(ms, rank=3, message=story.NONE_TYPE):
    return [*story.rank_crash(ms, rank, message), *story.parent_gives_up(ms + 100)]


@pytest.mark.parametrize("gap", [11, 3600])
@pytest.mark.parametrize("lead", [[], ["Exception in thread Thread-4 (watch):"]])
def test_a_traceback_long_before_is_no_cause(lead, gap):
    before = [
        *[Said(text, RANKS[0], 12_000) for text in lead],
        *raised("sglang/srt/mem_cache/a.py", "KeyError: 1", 12_000),
    ]
    lines = [*story.starting(), *before, *ended(12_000 + 1000 * gap)]
    first, last = crashes_of(story.as_text(lines))
    assert (first.outcome, first.root.cause.exception) == (Outcome.UNKNOWN, "KeyError")
    assert (last.outcome, last.root.cause.exception, last.root.rank) == (Outcome.FATAL, "AttributeError", "TP3")
    assert (last.follows, last.phase) == ("", Phase.SERVING)


def test_a_traceback_right_before_may_be_the_cause_also_of_what_fails_later():
    before = raised("sglang/srt/mem_cache/a.py", "KeyError: 1", 12_000)
    later = ended(30_000, 5, "ValueError: late")
    (crash,) = crashes_of(story.as_text([*story.starting(), *before, *ended(14_000), *later]))
    assert (crash.outcome, crash.root.cause.exception) == (Outcome.FATAL, "KeyError")


def test_what_an_import_raised_leaves_no_start_without_memory():
    before = raised("sglang/srt/layers/moe/a.py", "ModuleNotFoundError: No module named 'x'", 2_000)
    lines = [*story.starting()[:-4], *ended(90_000, 3, "torch.OutOfMemoryError: CUDA out of memory. Tried")]
    lines = [*lines[:2], *before, *lines[2:]]
    *_, last = crashes_of(story.as_text(lines))
    assert (last.root.cause.exception, last.follows) == ("torch.OutOfMemoryError", "")


def test_what_the_front_end_raised_is_no_ranks_cause_where_its_frames_tell_it():
    for path, count in (("sglang/srt/entrypoints/openai/a.py", 2), ("sglang/srt/managers/a.py", 1)):
        lines = [*story.starting(), *raised(path, "ValueError: bad", 12_000), *ended(13_000)]
        crashes = crashes_of(story.as_text(lines))
        assert len(crashes) == count
        assert crashes[-1].root.cause.exception == ("AttributeError" if count == 2 else "ValueError")


def test_what_told_its_end_and_is_followed_by_work_did_not_recover():
    (crash,) = crashes_of(story.as_text([*story.starting(), *ended(12_000), *story.serving(12_500, 300)]))
    assert (crash.outcome, crash.grade) == (Outcome.UNKNOWN, Grade.MIXED)
    alone = story.rank_crash(12_000, 3)
    (crash,) = crashes_of(story.as_text([*story.starting(), *alone, *story.serving(12_500, 300)]))
    assert crash.outcome is Outcome.UNKNOWN
    steps = [
        Said(f"[{stamp(ms)} TP3] Decode batch, #running-req: 1, #token: 4", RANKS[3], ms) for ms in (15_500, 16_000)
    ]
    (crash,) = crashes_of(story.as_text([*story.starting(), *alone, *steps]))  # that rank itself works on
    assert crash.outcome is Outcome.RECOVERED


@pytest.mark.parametrize("again", [True, False])
def test_flags_under_two_pids_are_two_servers_if_the_first_writes_on(again):
    other = [Said(f"[{stamp(3_000)}] {FLAGS}", 900, 3_000)]
    between = [Said(f"[{stamp(4_000)}] Uvicorn running on http://0.0.0.0:1", MAIN, 4_000)] if again else []
    end = [Said(said.text, 900, said.ms) for said in ended(12_000)]
    crash = crashes_of(story.as_short([Said(f"[{stamp(0)}] {FLAGS}", MAIN, 0), *other, *between, *end]))[-1]
    assert crash.grade is (Grade.MIXED if again else Grade.COMPLETE)
