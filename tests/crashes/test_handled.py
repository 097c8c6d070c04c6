"""A traceback that the server outlived is not the cause of what ends it a few seconds later."""

import re

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import MAIN, RANKS, Said, stamp
from triage.model import Grade, Outcome, Phase, Role

HEADER = "Traceback (most recent call last):"
IMAGE = story.traceback_lines(
    (("sglang/srt/managers/mm_input.py", 88, "open_image", "im = Image.open(b)"),),
    "PIL.UnidentifiedImageError: no image",
)
GRAMMAR = story.traceback_lines(
    (("sglang/srt/constrained/grammar.py", 31, "compile", "c = ctx(s)"),), "RuntimeError: Invalid schema"
)
RENDER = [story.as_text, story.as_json, story.as_short]
ALONE = "of which only the last line is printed"
HANDLED = {
    "by the front end": (MAIN, [f"[{stamp(12_000)}] An image could not be read", HEADER, *IMAGE]),
    "in one record": (MAIN, [f"[{stamp(12_000)}] An image could not be read: {HEADER}", *IMAGE]),
    "by a rank": (RANKS[0], [f"[{stamp(12_000)} TP0] A schema was refused", HEADER, *GRAMMAR]),
    "by a rank, in one record": (RANKS[0], [f"[{stamp(12_000)} TP0] A schema was refused: {HEADER}", *GRAMMAR]),
    ALONE: (MAIN, ["PIL.UnidentifiedImageError: no image"]),
}


def said(pid, texts, ms=12_000):
    return [Said(text, pid, ms) for text in texts]


def steps(ms, count=3):
    """What TP0 and the front end write of their work, a second apart."""
    lines = []
    for at in range(ms, ms + 1000 * count, 1000):
        lines.append(Said(f"[{stamp(at)} TP0] Decode batch, #running-req: 3, #token: 40", RANKS[0], at))
        lines.append(Said('INFO:     10.1.0.9:52114 - "POST /v1/chat/completions HTTP/1.1" 200 OK', MAIN, at))
    return lines


def ended(ms, rank=3):
    return [*story.rank_crash(ms, rank), *story.parent_gives_up(ms + 100), *story.unit_failed(ms + 200)]


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("gap", [1, 4, 9])
@pytest.mark.parametrize("kind", HANDLED)
@pytest.mark.parametrize("render", RENDER)
def test_what_ends_the_server_is_the_root_whatever_was_handled_before(kind, gap, rank, render):
    before = said(*HANDLED[kind])
    lines = [*story.starting(), *before, *steps(12_000, gap), *ended(12_000 + 1000 * gap, rank)]
    first, last = crashes_of(render(lines))
    assert (first.outcome, first.root.cause.exception) == (Outcome.RECOVERED, IMAGE_OR_GRAMMAR[kind])
    assert (last.outcome, last.root.cause.exception, last.root.rank) == (Outcome.FATAL, "AttributeError", f"TP{rank}")
    (alone,) = crashes_of(render([*story.starting(), *steps(12_000, gap), *ended(12_000 + 1000 * gap, rank)]))
    assert (last.id, last.phase, last.started) == (alone.id, Phase.SERVING, alone.started)


IMAGE_OR_GRAMMAR = {kind: "RuntimeError" if "rank" in kind else "PIL.UnidentifiedImageError" for kind in HANDLED}


@pytest.mark.parametrize("kind", [kind for kind in HANDLED if kind not in ("in one record", ALONE)])
def test_what_nothing_was_done_after_may_be_the_cause(kind):
    before = said(*HANDLED[kind])
    (crash,) = crashes_of(story.as_text([*story.starting(), *before, *ended(13_000)]))
    assert crash.root.cause.exception == IMAGE_OR_GRAMMAR[kind]
    *_, last = crashes_of(story.as_json([*story.starting(), *before, *ended(13_000)]))  # this tells the processes apart
    assert last.root.cause.exception == ("RuntimeError" if "rank" in kind else "AttributeError")
    loading = story.starting()[:-4]  # there the front end may fail first, of what the ranks fail of then
    (crash,) = crashes_of(story.as_json([*loading, *before, *ended(13_000)]))
    assert crash.root.cause.exception == IMAGE_OR_GRAMMAR[kind]


READY = "The server is fired up and ready to roll!"
REPORT = [
    "Exception in thread Thread-3 (report):",
    HEADER,
    *story.traceback_lines((("sglang/srt/utils/usage.py", 20, "report", "send(u)"),), "OSError: no route"),
]
PROBE = [
    "WARNING:  Invalid HTTP request received.",
    HEADER,
    *story.traceback_lines((("h11/_connection.py", 487, "next_event", "raise e"),), "RemoteProtocolError: bad line"),
]
CALL = story.traceback_lines((("sglang/srt/function_call/json.py", 9, "parse", "loads(x)"),), "ValueError: a tool")


@pytest.mark.parametrize(
    ("texts", "outcome"),
    [
        (HANDLED["in one record"][1], Outcome.RECOVERED),
        ([HEADER, *CALL], Outcome.RECOVERED),
        (REPORT, Outcome.RECOVERED),  # nobody misses that thread
        (PROBE, Outcome.REQUEST_ERROR),
    ],
)
def test_what_the_front_end_met_is_no_cause_of_a_ranks_end_a_second_later(texts, outcome):
    for render in RENDER:
        lines = [*story.starting(), *said(MAIN, texts), *ended(13_000)]
        first, last = crashes_of(render(lines))
        assert (first.outcome, last.outcome) == (outcome, Outcome.FATAL)
        assert (last.root.cause.exception, last.root.rank) == ("AttributeError", "TP3")


def test_a_server_of_one_rank_bears_no_name_and_is_told_apart_by_its_lead():
    up = [f"[{stamp(ms)}] {text}" for ms, text in ((1_000, "server_args=ServerArgs(tp_size=1)"), (5_000, READY))]
    died = [
        f"[{stamp(13_000)}] Scheduler hit an exception: {HEADER}",
        *story.traceback_lines(story.FRAMES, "KeyError: 7"),
    ]
    end = [f"[{stamp(13_000)}] SIGQUIT received. signum=None, frame=None. It usually means one child failed."]
    lines = [*up, HEADER, *CALL, *died, *end]
    first, last = crashes_of(("\n".join(lines) + "\n").encode())
    assert (first.outcome, last.outcome, last.root.cause.exception) == (Outcome.RECOVERED, Outcome.FATAL, "KeyError")


IMPORT = story.traceback_lines((("sglang/srt/layers/deepep.py", 12, "<module>", "import ep"),), "ImportError: libx.so")


@pytest.mark.parametrize("tag", [" TP3", ""])
def test_of_a_traceback_without_a_name_nobody_can_tell_whether_it_began_a_ranks_end(tag):
    died = f"[{stamp(13_000)}{tag}] Scheduler hit an exception: {HEADER}"
    lines = [f"[{stamp(12_000)}{tag}] Decode batch, #running-req: 2, #token: 9", HEADER, *IMPORT, died]
    lines += story.traceback_lines(story.FRAMES, "KeyError: 7")
    lines += [f"[{stamp(13_000)}] SIGQUIT received. signum=None, frame=None. It usually means one child failed."]
    (crash,) = crashes_of(("\n".join(lines) + "\n").encode())
    assert (crash.root.cause.exception, crash.grade) == ("ImportError", Grade.MIXED)


@pytest.mark.parametrize("ranks", [(0, 1, 2, 3), (0, 1)])
@pytest.mark.parametrize("clock", [True, False])
def test_a_rank_that_went_on_with_its_start_did_not_end_of_what_has_no_name(ranks, clock):
    begin, end = (
        [f"[{stamp(ms)} TP{n}] Load weight {what}." for n in ranks] for ms, what in ((9_000, "begin"), (12_000, "end"))
    )
    died = f"[{stamp(13_000)} TP3] Scheduler hit an exception: {HEADER}"
    lines = [*begin, HEADER, *IMPORT, *end, died, *story.traceback_lines(story.FRAMES, "KeyError: 7")]
    lines += [f"[{stamp(13_000)}] SIGQUIT received. signum=None, frame=None. It usually means one child failed."]
    if not clock:
        lines = [
            re.sub(r"^\[2026\S+ \S+?( TP\d)?\] ", lambda m: f"[{m[1].strip()}] " if m[1] else "", line)
            for line in lines
        ]
    crashes = crashes_of(("\n".join(lines) + "\n").encode())
    roots = ["ImportError", "KeyError"] if 3 in ranks else ["ImportError"]
    assert [crash.root.cause.exception for crash in crashes] == roots
    assert crashes[-1].grade is (Grade.COMPLETE if 3 in ranks else Grade.MIXED)


def test_without_times_many_checks_of_its_health_are_a_long_while():
    fetch = story.traceback_lines((("sglang/srt/managers/cache_controller.py", 9, "fetch", "get()"),), "ValueError: 3")
    thread = ["Exception in thread Thread-5 (fetch):", HEADER, *fetch]
    died = [f"[TP3] Scheduler hit an exception: {HEADER}", *story.traceback_lines(story.FRAMES, "KeyError: 7")]
    end = ["SIGQUIT received. signum=None, frame=None. It usually means one child failed."]
    for checks, roots in ((1, ["ValueError"]), (5, ["ValueError", "KeyError"])):
        health = ['INFO:     10.0.0.1:5 - "GET /health HTTP/1.1" 200 OK'] * checks
        lines = ["[TP3] Load weight begin.", READY, *thread, *health, *died, *end]
        crashes = crashes_of(("\n".join(lines) + "\n").encode())
        assert [crash.root.cause.exception for crash in crashes] == roots


def test_a_check_of_its_health_shows_that_the_front_end_goes_on():
    """Of a client who is no client nothing is told, and an idle server answers nobody else."""
    checks = [
        Said(f'[{stamp(ms)}] INFO:     10.0.0.1:5 - "GET /health HTTP/1.1" 200 OK', MAIN, ms) for ms in (14_000, 16_000)
    ]
    kinds = {"in one record": Outcome.RECOVERED, "by a rank, in one record": Outcome.UNKNOWN}
    for kind, outcome in kinds.items():
        (crash,) = crashes_of(story.as_text([*story.starting(), *said(*HANDLED[kind]), *checks]))
        assert crash.outcome is outcome


def health(*times):
    return [Said(f'[{stamp(ms)}] INFO:     10.0.0.1:5 - "GET /health HTTP/1.1" 200 OK', MAIN, ms) for ms in times]


@pytest.mark.parametrize("texts", [HANDLED["in one record"][1], REPORT], ids=["a request", "a spare thread"])
@pytest.mark.parametrize("render", [story.as_json, story.as_text])
def test_an_idle_server_shows_by_its_next_check_that_it_goes_on(render, texts):
    met = [*story.starting(), *said(MAIN, texts)]
    for checks, outcome in (((60_000, 90_000), Outcome.RECOVERED), ((), Outcome.UNKNOWN)):
        (crash,) = crashes_of(render([*met, *health(*checks)]))
        assert crash.outcome is outcome
    first, last = crashes_of(render([*met, *ended(40_000)]))  # while that is waited for
    assert (first.outcome is not Outcome.FATAL, last.root.cause.exception) == (True, "AttributeError")


def test_an_idle_server_is_not_waited_for_without_end():
    met = [*story.starting(), *said(MAIN, REPORT)]
    (crash,) = crashes_of(story.as_json([*met, *health(400_000)]))
    assert (crash.outcome, crash.ended) == (Outcome.UNKNOWN, crash.started)


def test_a_thread_that_nobody_misses_is_nothing_while_the_server_goes_down():
    down = Said(f"[{stamp(11_000)}] SIGTERM received. signum=15 frame=None. Draining requests", MAIN, 11_000)
    assert crashes_of(story.as_text([*story.starting(), down, *said(MAIN, REPORT)])) == []


def test_spans_that_could_not_be_sent_are_no_crash():
    trace = story.traceback_lines((("opentelemetry/export.py", 3, "export", "send(x)"),), "RpcError: unavailable")
    lines = [*story.starting(), *said(MAIN, ["Exception while exporting Span batch.", HEADER, *trace])]
    assert crashes_of(story.as_text(lines)) == []
    (crash,) = crashes_of(story.as_text([*lines, *ended(13_000)]))
    assert crash.root.rank == "TP3"


def test_a_thread_that_died_is_missed_only_by_the_next_step():
    thread = said(RANKS[3], ["Exception in thread Thread-5 (forward):", HEADER, *GRAMMAR])
    (crash,) = crashes_of(story.as_json([*story.starting(), *thread, *steps(12_100, 1), *ended(14_000)]))
    assert crash.root.cause.exception == "RuntimeError"
    first, last = crashes_of(story.as_json([*story.starting(), *thread, *steps(12_100, 5), *ended(17_200)]))
    assert (first.outcome, last.root.cause.exception) == (Outcome.DEGRADED, "AttributeError")


@pytest.mark.parametrize("pid", [MAIN, RANKS[3]])
@pytest.mark.parametrize("lead", ["Exception in thread Thread-5 (forward):", "Process SpawnProcess-2:"])
@pytest.mark.parametrize("render", RENDER)
def test_a_thread_that_died_does_not_come_back_though_the_server_goes_on(render, lead, pid):
    other = pid if "thread" in lead else 4_900  # a process that a rank or the front end started
    died = said(other, [lead, HEADER, *GRAMMAR])
    (crash,) = crashes_of(render([*story.starting(), *died, *steps(12_100, 30)]))
    assert (crash.outcome, crash.root.cause.exception) == (Outcome.DEGRADED, "RuntimeError")
    quoted = [Said(f"[{stamp(12_000)}] Receive: obj=GenerateReqInput(text='{lead}", MAIN, 12_000), *died[1:]]
    closing = Said("', sampling_params={})", MAIN, 12_000)
    found = crashes_of(render([*story.starting(), *quoted, closing, *steps(12_100, 30)]))
    assert all(crash.outcome is not Outcome.DEGRADED for crash in found)


def test_another_rank_may_make_a_step_before_it_misses_the_one_that_failed():
    before = said(RANKS[3], [f"[{stamp(12_000)} TP3] The transfer failed: {HEADER}", *GRAMMAR])
    (crash,) = crashes_of(story.as_text([*story.starting(), *before, *steps(12_000, 2)[:3], *ended(14_000, 5)]))
    assert (crash.outcome, crash.root.rank) == (Outcome.FATAL, "TP3")


def test_one_failure_that_is_told_twice_is_one_crash():
    again = story.traceback_lines(story.FRAMES, story.NONE_TYPE)
    before = said(RANKS[3], [f"[{stamp(12_000)} TP3] The step failed", HEADER, *again])
    (crash,) = crashes_of(story.as_text([*story.starting(), *before, *steps(12_000, 1), *ended(12_900)]))
    assert (crash.outcome, crash.root.cause.exception) == (Outcome.FATAL, "AttributeError")


def test_a_parent_that_is_heard_before_its_child_tells_of_the_same_end():
    before = said(*HANDLED["by the front end"])
    parent, child = story.parent_gives_up(16_000), story.rank_crash(16_000, 3)
    first, last = crashes_of(story.as_text([*story.starting(), *before, *steps(12_000, 4), *parent, *child]))
    assert (first.outcome, last.outcome, last.root.rank) == (Outcome.RECOVERED, Outcome.FATAL, "TP3")
    assert {failure.role for failure in last.failures} == {Role.ROOT, Role.CASCADE}


@pytest.mark.parametrize("gap", [0, 2])
@pytest.mark.parametrize(
    "lead",
    [
        [
            "Task exception was never retrieved",
            "future: <Task finished name='T-7' coro=<X.f()> exception=KeyError('q')>",
        ],
        ["Exception in callback X.f()", "handle: <Handle X.f()>"],
        [f"[{stamp(12_000)}] Exception in callback X.f()", "handle: <Handle X.f()>", "protocol: <P>", "transport: <T>"],
        [f"[{stamp(12_000)}] Exception in ASGI application"],
    ],
)
@pytest.mark.parametrize("render", RENDER)
def test_what_asyncio_tells_is_one_requests_and_hides_no_crash(lead, gap, render):
    request = said(MAIN, [*lead, HEADER, *IMAGE])
    (crash,) = crashes_of(render([*story.starting(), *request, *steps(12_000, 9)]))
    assert crash.outcome is Outcome.REQUEST_ERROR
    first, last = crashes_of(render([*story.starting(), *request, *steps(12_000, gap), *ended(12_000 + 1000 * gap)]))
    assert (first.outcome, last.outcome) == (Outcome.REQUEST_ERROR, Outcome.FATAL)
    assert last.root.cause.exception == "AttributeError"


def test_a_request_that_failed_hides_no_crash_where_no_line_has_a_rank():
    request = said(MAIN, [f"[{stamp(12_000)}] Exception in ASGI application: {HEADER}", *IMAGE])
    lines = [Said(each.text.replace(" TP3]", "]"), each.pid, each.ms) for each in ended(12_500)]
    first, last = crashes_of(story.as_text([*story.starting(0), *request, *lines]))
    assert (first.outcome, last.outcome) == (Outcome.REQUEST_ERROR, Outcome.FATAL)


@pytest.mark.parametrize(
    "lead", ["Exception ignored in: <function Shm.__del__ at 0x7f>", "Exception ignored while calling deallocator <f>:"]
)
@pytest.mark.parametrize("render", RENDER)
def test_what_python_ignores_is_nothing(lead, render):
    ignored = said(RANKS[3], [lead, HEADER, *story.traceback_lines(story.FRAMES[:1], "BufferError: still in use")])
    assert crashes_of(render([*story.starting(), *ignored, *steps(12_000, 9), *ignored])) == []
    (crash,) = crashes_of(render([*story.starting(), *ignored, *ended(12_100)]))
    assert (crash.outcome, crash.root.cause.exception) == (Outcome.FATAL, "AttributeError")


@pytest.mark.parametrize("count", [1, 400])
def test_what_was_raised_since_the_last_step_may_be_the_cause_unless_it_was_handled_before(count):
    images = [said(*HANDLED["by the front end"]), *([*steps(12_000, 1), *said(*HANDLED["by the front end"])],) * count]
    lines = [*story.starting(), *(line for image in images for line in image)]
    _, last = crashes_of(story.as_json([*lines, *ended(13_500)]))
    assert (last.outcome, last.root.cause.exception) == (Outcome.FATAL, "AttributeError")
    cause = [Said(text, RANKS[3], 13_400) for text in HANDLED["by a rank"][1]]
    if count < 300:  # a crash keeps no more
        _, last = crashes_of(story.as_json([*lines, *cause, *ended(13_500)]))
        assert (last.outcome, last.root.cause.exception) == (Outcome.FATAL, "RuntimeError")


@pytest.mark.parametrize(
    "lead", ["Exception ignored in: <function Shm.__del__ at 0x7f>", "Task exception was never retrieved"]
)
@pytest.mark.parametrize("render", RENDER)
def test_an_announcement_excuses_one_traceback(lead, render):
    lines = said(RANKS[3], [lead, HEADER, *IMAGE, HEADER, *GRAMMAR])
    *_, last = crashes_of(render([*story.starting(), *lines, *story.parent_gives_up(12_100)]))
    assert last.root.cause.exception == "RuntimeError"
