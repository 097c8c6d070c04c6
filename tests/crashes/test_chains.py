"""Which of two exceptions is the root where one came while the other was being handled."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of

CONTEXT = ["", "During handling of the above exception, another exception occurred:", ""]
LEAD = f"[{story.stamp(12_000)} TP0] Scheduler hit an exception: Traceback (most recent call last):"
END = f"[{story.stamp(12_500)}] SIGQUIT received. signum=None, frame=None. It usually means one child failed."


def frames(*places):
    return [f'  File "{path}", line {line}, in {function}' for path, line, function in places]


GRAPH = f"{story.SITE}/sglang/srt/graph_runner.py"
LOOP = f"{story.SITE}/sglang/srt/managers/scheduler.py"
TRIED = [*frames((GRAPH, 668, "capture_one"), (GRAPH, 640, "run_once"), (GRAPH, 12, "forward")), "ValueError: 96 heads"]


def crash_of(*parts):
    lines = [LEAD, *parts[0]]
    for part in parts[1:]:
        lines += [*CONTEXT, "Traceback (most recent call last):", *part]
    (crash,) = crashes_of("\n".join([*lines, "", END]).encode())
    return crash


def names(*parts):
    return [link.exception for link in crash_of(*parts).root.chain]


def test_a_capture_that_could_not_end_after_a_failure_is_not_the_root():
    left = frames((LOOP, 90, "start"), (GRAPH, 480, "capture"), (GRAPH, 660, "capture_one"))
    left += frames(("/usr/lib/torch/cuda/graphs.py", 185, "__exit__"), ("/usr/lib/torch/cuda/graphs.py", 72, "end"))
    told = [*frames((LOOP, 90, "start"), (GRAPH, 373, "build")), "Exception: Capture cuda graph failed: not ended"]
    assert names(TRIED, [*left, "torch.AcceleratorError: not ended"], told) == [
        "ValueError",
        "torch.AcceleratorError",
        "Exception",
    ]


def test_the_end_of_a_with_block_that_belongs_to_a_generator_is_a_clean_up_too():
    raised = ["ValueError: 96 heads"]
    tried = [*frames(("/srv/profile.py", 31, "profiled"), (LOOP, 70, "step"), (LOOP, 9, "run")), *raised]
    left = frames((LOOP, 70, "step"), ("/usr/lib/contextlib.py", 158, "__exit__"), ("/srv/profile.py", 40, "profiled"))
    left += frames(("/usr/lib/torch/profiler.py", 210, "stop_trace"))
    assert names(tried, [*left, "AssertionError: not started"])[0] == "ValueError"


@pytest.mark.parametrize("function", ["close", "destroy_process_group", "_shutdown", "cleanup", "release_memory"])
@pytest.mark.parametrize("between", [(), (("/usr/lib/torch/utils.py", 3, "wrapper"),)])
def test_a_clean_up_that_failed_is_not_the_root(function, between):
    left = frames(
        (GRAPH, 700, "capture_one"), *between, ("/usr/lib/net.py", 30, function), ("/usr/lib/net.py", 4, "io")
    )
    assert names(TRIED, [*left, "OSError: bad handle"])[0] == "ValueError"


def test_it_says_itself_that_something_failed_before_it():
    left = [*frames((GRAPH, 700, "other"), (GRAPH, 4, "sync")), "RuntimeError: it failed due to a previous error"]
    assert names(TRIED, left)[0] == "ValueError"


def test_a_clean_up_that_met_a_peer_that_was_gone_does_not_hide_the_failure():
    left = frames((GRAPH, 700, "capture_one"), ("/usr/lib/torch/dist.py", 30, "destroy_process_group"))
    crash = crash_of(TRIED, [*left, "RuntimeError: NCCL communicator was aborted on rank 3."])
    assert (crash.root.cause.exception, crash.root.why) == ("ValueError", "the exception that ended the process")


@pytest.mark.parametrize("function", ["download", "closest_match", "stopgap", "load_other"])
def test_a_fallback_that_failed_is_the_root(function):
    then = [*frames((GRAPH, 700, "capture_one"), (GRAPH, 30, function)), "PermissionError: no way in"]
    assert names(TRIED, then) == ["PermissionError"]


def test_a_with_block_within_a_fallback_makes_it_no_clean_up():
    then = frames((GRAPH, 700, "capture_one"), (GRAPH, 30, "download"), ("/usr/lib/lock.py", 3, "__exit__"))
    assert names(TRIED, [*then, "PermissionError: no way in"]) == ["PermissionError"]


@pytest.mark.parametrize("gone", ["asyncio.exceptions.CancelledError", "ConnectionResetError: [Errno 104] by peer"])
def test_what_only_tells_that_somebody_is_gone_stays_out_of_the_chain(gone):
    then = [*frames((GRAPH, 700, "capture_one"), ("/usr/lib/net.py", 30, "close")), "RuntimeError: the pool is broken"]
    assert names([*TRIED[:-1], gone], then) == ["RuntimeError"]


def test_what_was_being_handled_is_told_though_it_is_no_cause():
    then = [*frames((GRAPH, 700, "capture_one"), (GRAPH, 30, "download")), "PermissionError: no way in"]
    crash = crash_of(TRIED, then)
    assert crash.root.why.endswith("raised while ValueError was being handled (96 heads)")
    gone = crash_of([*TRIED[:-1], "ConnectionResetError: [Errno 104] by peer"], then)
    assert "being handled" not in gone.root.why
