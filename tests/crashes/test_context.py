"""What stands around a failure decides what it means: how far the server was, its warnings, what failed before."""

from functools import cache

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import RANKS, Said, stamp
from triage.diagnose import diagnose
from triage.model import Phase, Role
from triage.rulebase.rulebook import Rulebook
from triage.shipped import rule_folders

MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB "
    "of which 1.20 GiB is free."
)
ILLEGAL = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


@cache
def book():
    return Rulebook.load(rule_folders())


@pytest.mark.parametrize(
    ("ms", "phase", "rule"),
    [
        (3_500, Phase.LOAD, "weights-out-of-memory"),
        (4_500, Phase.MEMORY, "pool-out-of-memory"),
        (6_500, Phase.CAPTURE, "capture-out-of-memory"),
        (12_000, Phase.SERVING, "serving-out-of-memory"),
    ],
)
def test_the_same_want_of_memory_means_something_else_in_each_phase(ms, phase, rule):
    before = [said for said in story.starting() if said.ms <= ms]
    crash = story.rank_crash(ms, 0, MEMORY, story.FRAMES[:2])
    (found,) = crashes_of(story.as_json([*before, *crash, *story.unit_failed(ms + 300)]))
    assert found.phase is phase
    assert diagnose(found, book()).matches[0].rule == rule


def test_what_was_warned_of_at_start_is_kept_for_the_failure_that_it_causes():
    warned = f"[{stamp(2_500)} TP0] Ignore import error when loading sglang.srt.models.made_up: No module named 'made'"
    before = [said for said in story.starting() if said.ms <= 2_000]
    crash = story.rank_crash(
        60_000, 0, "ValueError: Model architectures ['MadeUpForCausalLM'] are not supported for now."
    )
    (found,) = crashes_of(story.as_json([*before, Said(warned, RANKS[0], 2_500), *crash, *story.unit_failed(60_300)]))
    assert [line.text for line in found.context.warnings] == [warned]
    assert diagnose(found, book()).matches[0].rule == "model-class-import-failed"
    (other,) = crashes_of(story.as_json([*before, *crash, *story.unit_failed(60_300)]))
    assert diagnose(other, book()).matches[0].rule != "model-class-import-failed"


def test_what_a_broken_device_goes_on_to_say_is_folded_under_the_first():
    """A CUDA error sticks: each later call of the process fails with it, wherever that is."""
    first = story.rank_crash(12_000, 3, ILLEGAL)
    again = story.rank_crash(12_001, 3, ILLEGAL, (*story.FRAMES[:2], ("sglang/srt/utils.py", 9, "clear", "empty()")))
    other = story.rank_crash(12_400, 5, ILLEGAL, (*story.FRAMES[:3], ("torch/cuda/streams.py", 231, "wait", "x()")))
    watch = "[PG ID 2 PG GUID 3 Rank 3] Process group watchdog thread terminated with exception: CUDA error: illegal"
    lines = [*first, *again, *other, Said(watch, RANKS[3], 12_500), *story.parent_gives_up(12_600)]
    (crash,) = crashes_of(story.as_json([*story.starting(), *lines, *story.unit_failed(12_700)]))
    assert crash.root.cause.frame is not None
    assert (crash.root.rank, crash.root.cause.frame.line) == ("TP3", 715)
    assert {failure.role for failure in crash.failures[1:]} == {Role.CASCADE}
    assert crash.ranks == ("TP3", "TP5")
