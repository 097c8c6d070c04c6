"""Plain texts where nothing tells the time between two lines, or where a long time says that one has no part in the
other."""

import re

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import MAIN, RANKS, Said, stamp
from triage.model import Outcome

HEADER = "Traceback (most recent call last):"
OPTIONAL = story.traceback_lines(
    (("sglang/srt/layers/moe/parts.py", 12, "<module>", "import fast_parts"),),
    "ModuleNotFoundError: No module named 'fast_parts'",
)
CACHE = story.traceback_lines(
    (("sglang/srt/mem_cache/writer.py", 88, "write_back", "self.put(page)"),), "TypeError: no page to be put"
)
STEP = "[TP0] Decode batch, #running-req: 3, #token: 40"


def timeless(lines):
    text = re.sub(rb"(?m)^\[[\d-]+ [\d:]+( )?(TP\d)?\] ", lambda m: b"[" + m[2] + b"] " if m[2] else b"", lines)
    assert b"2026" not in text
    return text


def dying(rank=5, ms=12_000):
    return [*story.rank_crash(ms, rank), Said("", MAIN, ms), *story.parent_gives_up(ms + 100)]


@pytest.mark.parametrize("until", ["Load weight begin", "Load weight end", "Memory pool end", "Capture cuda graph end"])
@pytest.mark.parametrize("lead", ["", "Optional parts are missing"])
def test_what_a_start_went_on_after_is_no_cause_of_its_failure_two_milestones_on(until, lead):
    start = story.starting()[1:]
    last = max(n for n, said in enumerate(start) if until in said.text)
    optional = [Said(text, MAIN, 1_000) for text in [*([lead] if lead else []), HEADER, *OPTIONAL]]
    text = story.as_text([start[0], *optional, *start[1 : last + 1], *dying()])
    first, crash = crashes_of(timeless(text))
    assert (first.root.cause.exception, first.outcome) == ("ModuleNotFoundError", Outcome.UNKNOWN)
    assert (crash.root.cause.exception, crash.root.rank, crash.outcome) == ("AttributeError", "TP5", Outcome.FATAL)


def test_one_milestone_on_the_others_may_not_yet_miss_the_rank_that_failed():
    start = story.starting()[1:]
    begun = [said for said in start if said.ms <= 3_000]
    loaded = [said for said in start if "Load weight end" in said.text and "TP5" not in said.text]
    failed = [Said(text, RANKS[5], 3_500) for text in [HEADER, *CACHE]]
    (crash,) = crashes_of(timeless(story.as_text([*begun, *failed, *loaded, *dying(5)])))
    assert crash.root.cause.exception == "TypeError"


@pytest.mark.parametrize("count", [3, 60])
def test_many_steps_show_that_a_thread_was_not_missed(count):
    thread = [Said(text, RANKS[3], 11_000) for text in ["Exception in thread Thread-5 (writer):", HEADER, *CACHE]]
    steps = [Said(STEP, RANKS[0], 11_500)] * count
    found = crashes_of(timeless(story.as_text([*story.starting()[1:], *thread, *steps, *dying()])))
    if count == 3:
        assert [crash.root.cause.exception for crash in found] == ["TypeError"]
    else:
        assert [(crash.root.cause.exception, crash.outcome) for crash in found] == [
            ("TypeError", Outcome.DEGRADED),
            ("AttributeError", Outcome.FATAL),
        ]


@pytest.mark.parametrize(("after", "alone"), [(3_600_000, True), (320_000, False), (290_000, False)])
def test_a_watchdog_waited_for_nothing_that_was_over_long_before_it_began_to(after, alone):
    bad = [Said(text, MAIN, 12_000) for text in [HEADER, *OPTIONAL]]
    health = [
        Said(f'[{stamp(ms)}] INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK', MAIN, ms)
        for ms in range(20_000, 12_000 + after, 60_000)
    ]
    end = 12_000 + after
    fired = Said(f"[{stamp(end)} TP1] Watchdog timeout (self.watchdog_timeout=300)", RANKS[1], end)
    lines = [*story.starting()[1:], *story.serving(10_000, 9), *bad, *health, fired, *story.parent_gives_up(end + 100)]
    *before, crash = crashes_of(story.as_text(lines))
    assert crash.root.cause.exception == ("WatchdogTimeout" if alone else "ModuleNotFoundError")
    assert [first.root.cause.exception for first in before] == ["ModuleNotFoundError"] * alone
    assert crash.outcome is Outcome.FATAL
    assert crash.follows == ""
