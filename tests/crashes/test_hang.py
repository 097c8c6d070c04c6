"""A server that answers no health check any more and makes no step."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import MAIN, RANKS, Said, stamp
from triage.engine.signature import sign
from triage.model import Outcome

UP = [*story.starting(), *story.serving(10_000, 40)]
BEGAN = 60_000


def failing(count, *, every=25_000, began=BEGAN, kinds=("said", "refused"), between=()):
    lines = []
    for n in range(count):
        ms = began + n * every
        said = (
            f"[{stamp(ms)}] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
        )
        refused = f'[{stamp(ms)}] INFO:     10.1.0.9:521 - "GET /health HTTP/1.1" 503 Service Unavailable'
        lines += [Said(f"{said}tic start time: {stamp(ms)}", MAIN, ms)] if "said" in kinds else []
        lines += [Said(refused, MAIN, ms)] if "refused" in kinds else []
        lines += [Said(text.format(t=stamp(ms)), pid, ms + 1) for text, pid in between]
    return lines


@pytest.mark.parametrize("kinds", [("said", "refused"), ("said",), ("refused",)])
@pytest.mark.parametrize("render", [story.as_json, story.as_export, story.as_short, story.as_text])
def test_a_server_that_answers_no_check_for_minutes_hangs(render, kinds):
    (crash,) = crashes_of(render([*UP, *failing(12, kinds=kinds)]))
    assert (crash.root.cause.exception, crash.outcome) == ("NoAnswer", Outcome.UNKNOWN)


@pytest.mark.parametrize("page", ["metrics", "v1/models", "get_server_info"])
@pytest.mark.parametrize("render", [story.as_json, story.as_text])
def test_pages_that_the_front_end_gives_alone_hide_no_hang(render, page):
    """A scrape of the numbers is answered while nothing works any more."""
    scraped = failing(30, between=[(f'[{{t}}] INFO:     10.1.0.9:521 - "GET /{page} HTTP/1.1" 200 OK', MAIN)])
    (crash,) = crashes_of(render([*UP, *scraped]))
    assert (crash.root.cause.exception, crash.outcome) == ("NoAnswer", Outcome.UNKNOWN)


def test_one_hang_is_one_crash_and_the_next_one_alike():
    hang = failing(30)
    stop = [*story.stop_asked(900_000), *story.unit_failed(990_000)]
    (first,) = crashes_of(story.as_json([*UP, *hang, *stop]))
    again = [*hang, *story.serving(900_000, 40), *failing(30, began=1_000_000)]
    crashes = crashes_of(story.as_json([*UP, *again]))
    assert [sign(crash).key for crash in crashes] == [sign(first).key] * 2


STEP = "[{t} TP0] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, token usage: 0.11, #queue-req: 0"


@pytest.mark.parametrize(
    "healthy",
    [
        failing(2),
        failing(7),
        failing(30, every=2_000),  # of a minute
        failing(30, between=[(STEP, RANKS[0])]),
        failing(30, between=[('[{t}] INFO:     10.1.0.9:521 - "POST /generate HTTP/1.1" 200 OK', MAIN)]),
        failing(30, between=[("[{t} TP0] JIT compiling kernel batch_prefill, this may take minutes", RANKS[0])]),
    ],
    ids=["two", "seven", "a minute", "steps", "answers", "a rank at work"],
)
@pytest.mark.parametrize("render", [story.as_json, story.as_text])
def test_checks_that_fail_while_somebody_works_are_no_hang(render, healthy):
    assert crashes_of(render([*UP, *healthy, *story.serving(900_000, 4)])) == []
    assert crashes_of(render([*UP, *healthy])) == []


def test_a_server_that_is_starting_or_stopping_answers_nobody():
    loading = story.starting()[:4]
    assert crashes_of(story.as_json([*loading, *failing(30)])) == []
    assert crashes_of(story.as_text([*loading, *failing(30)])) == []
    assert crashes_of(story.as_json([*UP, *story.stop_asked(50_000), *failing(30)])) == []


def test_what_made_it_hang_is_the_root():
    late = story.rank_crash(400_000, 3)
    (crash,) = crashes_of(story.as_text([*UP, *failing(10), *late, *story.parent_gives_up(401_000)]))
    assert (crash.root.cause.exception, crash.root.rank, crash.outcome) == ("AttributeError", "TP3", Outcome.FATAL)
    (last,) = crashes_of(story.as_json([*UP, *failing(10), *late, *story.parent_gives_up(401_000)]))
    assert (last.root.cause.exception, last.follows) == ("AttributeError", "")


def test_one_that_goes_on_after_all_has_recovered_by_each_road():
    for render in (story.as_text, story.as_json):
        (crash,) = crashes_of(render([*UP, *failing(10), *story.serving(500_000, 60)]))
        assert (crash.root.cause.exception, crash.outcome) == ("NoAnswer", Outcome.RECOVERED)


def checked(path, count, began=500_000):
    line = '[{t}] INFO:     10.1.0.9:521 - "GET /{path} HTTP/1.1" 200 OK'
    times = [began + n * 10_000 for n in range(count)]
    return [Said(line.format(t=stamp(ms), path=path), MAIN, ms) for ms in times]


@pytest.mark.parametrize("path", ["health", "health_generate"])
@pytest.mark.parametrize("render", [story.as_text, story.as_json, story.as_export])
def test_one_whose_health_checks_are_answered_again_has_recovered(render, path):
    (crash,) = crashes_of(render([*UP, *failing(10), *checked(path, 10)]))
    assert (crash.root.cause.exception, crash.outcome) == ("NoAnswer", Outcome.RECOVERED)
    again = [*UP, *failing(10), *checked(path, 10), *failing(10, began=700_000)]
    assert [crash.outcome for crash in crashes_of(render(again))] == [Outcome.RECOVERED, Outcome.UNKNOWN]


@pytest.mark.parametrize("path", ["v1/models", "metrics"])
@pytest.mark.parametrize("render", [story.as_text, story.as_json])
def test_a_page_that_the_front_end_answers_alone_tells_nothing_of_the_ranks(render, path):
    (crash,) = crashes_of(render([*UP, *failing(10), *checked(path, 10)]))
    assert (crash.root.cause.exception, crash.outcome) == ("NoAnswer", Outcome.UNKNOWN)


def asked(path, ms):
    return Said(f'[{stamp(ms)}] INFO:     10.1.0.9:521 - "POST /{path} HTTP/1.1" 200 OK', MAIN, ms)


def test_what_only_looks_like_a_trainers_call_is_none():
    for path in ("generate?then=/pause_generation", "v1/pause_generations"):
        (crash,) = crashes_of(story.as_text([*UP, asked(path, 50_000), *failing(30)]))
        assert crash.root.cause.exception == "NoAnswer"


WEIGHTS = Said(f"[{stamp(50_000)} TP0] Update engine online from disk begin. avail mem=11.2 GB", RANKS[0], 50_000)


@pytest.mark.parametrize(
    ("sleep", "wake"),
    [
        (asked("release_memory_occupation", 50_000), "resume_memory_occupation"),
        (asked("pause_generation", 50_000), "continue_generation"),
        (asked("release_memory_occupation?tags=kv_cache", 50_000), "resume_memory_occupation?tags=kv_cache"),
        (asked("api/v1/pause_generation", 50_000), "api/v1/continue_generation"),
        (WEIGHTS, None),
    ],
)
@pytest.mark.parametrize("render", [story.as_json, story.as_text])
def test_one_that_was_told_to_answer_nobody_does_not_hang_until_it_is_woken(render, sleep, wake):
    lines = [*UP, sleep, *failing(30)]
    assert crashes_of(render(lines)) == []
    woken = [asked(wake, 900_000)] if wake else story.serving(900_000, 4)
    (crash,) = crashes_of(render([*lines, *woken, *failing(30, began=1_000_000)]))
    assert crash.root.cause.exception == "NoAnswer"


@pytest.mark.parametrize("render", [story.as_json, story.as_text])
def test_new_weights_that_never_come_are_a_hang(render):
    (crash,) = crashes_of(render([*UP, WEIGHTS, *failing(60)]))
    assert crash.root.cause.exception == "NoAnswer"
    for pause in ("release_memory_occupation", "pause_generation"):
        assert crashes_of(render([*UP, asked(pause, 45_000), WEIGHTS, *failing(120)])) == []
        assert crashes_of(render([*UP, WEIGHTS, asked(pause, 55_000), *failing(120)])) == []


def test_refusals_of_another_program_are_nobodys():
    lines = [said for said in failing(30) if " 503 " in said.text]
    assert lines
    assert crashes_of(story.as_text(lines)) == []


def test_without_times_it_takes_more_of_them():
    lines = [line.partition(b"] ")[2] or line for line in story.as_text([*UP, *failing(30)]).splitlines()]
    assert [crash.root.cause.exception for crash in crashes_of(b"\n".join(lines) + b"\n")] == ["NoAnswer"]
    lines = [line.partition(b"] ")[2] or line for line in story.as_text([*UP, *failing(9)]).splitlines()]
    assert crashes_of(b"\n".join(lines) + b"\n") == []
