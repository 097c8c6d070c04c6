"""Evidence that is visibly not whole is never graded complete."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from triage.model import Grade

RECORD = "[2026-11-29 12:00:10 TP0] Load weight begin."
HEADER = "Traceback (most recent call last):"
FRAME = '  File "/opt/sglang/srt/a.py", line 3, in f'
OTHER = '  File "/opt/sglang/srt/b.py", line 9, in g'
JOINT = "During handling of the above exception, another exception occurred:"
NATIVE = "Fatal Python error: Segmentation fault"
THREAD = "Thread 0x00007f (most recent call first):"
CURRENT = "Current thread 0x00007e (most recent call first):"
STACK = '  File "/opt/sglang/srt/b.py", line 9 in g'
MODULES = "Extension modules: numpy.core, torch._C (total: 2)"


def graded(lines, end="\n"):
    (crash,) = crashes_of(("\n".join(lines) + end).encode())
    return [link.exception for link in crash.root.chain], crash.grade.value


def test_a_last_line_without_its_end_may_go_on():
    lines = (RECORD, HEADER, FRAME, "ValueError")
    assert graded(lines, end="") == (["ValueError"], "cut")
    assert graded(lines) == (["ValueError"], "complete")
    assert graded((*lines, "", RECORD), end="") == (["ValueError"], "complete")


@pytest.mark.parametrize("name", ["AssertionEr", "FileNotFoundErro", "torch.Accelerato", "zmq.error.ZMQEx"])
def test_a_line_that_breaks_off_within_the_class(name):
    assert graded((RECORD, HEADER, FRAME, name, RECORD)) == ([name], "cut")


@pytest.mark.parametrize("name", ["AssertionError", "queue.Empty", "StopIteration", "zmq.error.Again", "x.Timeout"])
def test_a_class_alone_is_whole_where_it_ends_as_classes_do(name):
    assert graded((RECORD, HEADER, FRAME, name, RECORD)) == ([name], "complete")
    assert graded((RECORD, HEADER, FRAME, "x.Customary: no", RECORD)) == (["x.Customary"], "complete")


BEGINNINGS = {
    "at a frame": (FRAME, "    g()", "ValueError: x"),
    "at a source line": ("    g()", OTHER, "    h()", "ValueError: x"),
    "at the last source line": ("    g()", "    ^^^", "ValueError: x"),
    "at the exception": ("ValueError: x", "Received sigquit from a child process. It usually means the child failed."),
    "in the message": ("with the rest", "", JOINT, "", HEADER, FRAME, "ValueError: x"),
    "at the joint": ("", JOINT, "", HEADER, FRAME, "ValueError: x"),
}


@pytest.mark.parametrize("lines", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_window_that_begins_within_a_traceback(lines):
    assert graded((*lines, RECORD)) == (["ValueError"], "cut")
    whole = (HEADER, FRAME, "ValueError: x", RECORD)
    assert graded(whole) == (["ValueError"], "complete")


def test_what_was_caught_where_the_outer_frames_are_missing_is_not_guessed():
    """Its first frame is not the one that caught it, so nothing proves that it was but a fallback."""
    inner = (OTHER, "KeyError: 'k'", "", JOINT, "", HEADER, FRAME, "OSError: no config", RECORD)
    assert graded(inner) == (["KeyError", "OSError"], "cut")
    assert graded((HEADER, *inner)) == (["OSError"], "complete")


def test_an_earlier_failure_that_was_not_read_whole_may_be_the_root():
    first = [f"engine-0  | {text}" for text in (FRAME, "    g()")]
    second = [f"engine-1  | {text}" for text in (RECORD, HEADER, OTHER, "OSError: no config")]
    assert graded([*first, *second]) == (["OSError"], "cut")
    assert graded(second) == (["OSError"], "complete")


@pytest.mark.parametrize("tail", [(), (JOINT,), (JOINT, HEADER), (JOINT, HEADER, OTHER)])
def test_a_chain_that_breaks_off(tail):
    _, grade = graded((RECORD, HEADER, FRAME, "ValueError: x", *tail))
    assert grade == ("cut" if tail else "complete")


def test_the_parsers_own_error_has_no_header_and_is_whole():
    lines = ('  File "/opt/sglang/srt/a.py", line 3', "    def f(", "         ^", "SyntaxError: '(' was never closed")
    assert graded((RECORD, *lines)) == (["SyntaxError"], "complete")


@pytest.mark.parametrize(
    ("lines", "grade"),
    [
        ((), "cut"),
        ((THREAD, STACK), "cut"),
        ((THREAD, STACK, CURRENT), "cut"),
        ((CURRENT, STACK), "cut"),
        ((CURRENT, STACK, THREAD, STACK, MODULES), "complete"),
        ((THREAD, STACK, CURRENT, "  <no Python frame>", MODULES), "complete"),
    ],
)
def test_a_fault_handlers_dump_tells_the_thread_that_died_and_goes_on_behind_it(lines, grade):
    (crash,) = crashes_of("\n".join([RECORD, NATIVE, "", *lines, ""]).encode())
    assert crash.grade is Grade(grade)


def test_a_log_that_breaks_off_within_lines_that_repeat():
    asserts = [f"/x/Index.cu:111: op(): block: [{n},0,0], thread: [0,0,0] Assertion `i < n` failed." for n in range(9)]
    assert graded((RECORD, *asserts), end="") == (["DeviceAssert"], "cut")
    assert graded((RECORD, *asserts)) == (["DeviceAssert"], "complete")


@pytest.mark.parametrize(
    "warning", ["gpu1:4200:4311 [0] NCCL WARN Failed to open libx.so", "x.py:3: UserWarning: CUDA initialization: odd"]
)
@pytest.mark.parametrize("seconds", [2, 450])
def test_a_warning_long_before_a_sigquit_is_not_its_reason(warning, seconds):
    lines = [*story.starting(1)[:4], story.Said(warning, story.RANKS[0], 3_500)]
    end = story.parent_gives_up(3_500 + seconds * 1000)
    (crash,) = crashes_of(story.as_text([*lines, *end]))
    near = (
        crash.root.cause.exception in warning.replace("NCCL WARN", "NcclError"),
        crash.outcome.value,
        crash.grade.value,
    )
    assert near == ((True, "fatal", "complete") if seconds == 2 else (False, "unknown", "cut"))
    if seconds == 2:
        return
    assert crash.root.cause.exception == "SIGQUIT"
    assert warning in crash.root.why
    assert warning in [line.text for line in crash.evidence]
    # an error that no process survives is its reason however long it took; and the manager's word is a better one
    (crash,) = crashes_of(story.as_text([*lines, story.Said("CUDA error: odd", story.RANKS[0], 3_600), *end]))
    assert (crash.root.cause.exception, crash.outcome.value) == ("CudaError", "fatal")
    (crash,) = crashes_of(story.as_json([*lines, *end, *story.unit_failed(4_000 + seconds * 1000)]))
    assert (crash.root.cause.exception, crash.outcome.value) == ("SIGKILL", "fatal")


LOST = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4021"
GAVE_UP = "RuntimeError: Rank 2 scheduler died during initialization (exit code: {}). See the lines above"


@pytest.mark.parametrize(
    ("last", "grade"),
    [
        (LOST, "cut"),
        ("torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error", "cut"),
        ("ValueError: no such mode", "complete"),
        (GAVE_UP.format(1), "cut"),
        (GAVE_UP.format(-3), "cut"),
        (GAVE_UP.format(-9), "complete"),
        ("RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv", "complete"),
    ],
)
@pytest.mark.parametrize("render", [story.as_text, story.as_json])
def test_where_only_a_peer_is_lost_the_reason_is_missing(last, grade, render):
    lines = [*story.starting(), *story.rank_crash(12_000, 0, last), *story.parent_gives_up(12_050)]
    (crash,) = crashes_of(render([*lines, *story.unit_failed(12_100)]))
    assert (crash.root.cause.exception, crash.grade.value) == (last.partition(":")[0], grade)


@pytest.mark.parametrize(
    "path", ["huggingface_hub/file_download.py", "redis/connection.py", "sglang/srt/connector/s3.py"]
)
def test_a_connection_to_another_service_is_no_lost_rank(path):
    message = "ConnectionResetError: [Errno 104] Connection reset by peer"
    failed = story.traceback_lines(((path, 31, "get", "sock.recv(n)"),), message)
    lead = f"[{story.stamp(12_000)} TP3] Scheduler hit an exception: Traceback (most recent call last):"
    said = [story.Said(text, story.RANKS[3], 12_000) for text in (lead, *failed)]
    (crash,) = crashes_of(story.as_text([*story.starting(), *said, *story.parent_gives_up(12_050)]))
    assert (crash.root.cause.exception, crash.grade.value) == ("ConnectionResetError", "complete")


@pytest.mark.parametrize(("ranks", "grade"), [(1, "complete"), (2, "cut")])
def test_a_server_of_one_rank_has_none_to_lose(ranks, grade):
    failed = story.traceback_lines(story.FRAMES, "ConnectionResetError: [Errno 104] Connection reset by peer")
    up = f"[{story.stamp(1_000)}] server_args=ServerArgs(tp_size={ranks}, pp_size=1, dp_size=1)"
    lead = f"[{story.stamp(12_000)}] Scheduler hit an exception: Traceback (most recent call last):"
    end = f"[{story.stamp(12_050)}] SIGQUIT received. signum=None, frame=None. It usually means one child failed."
    (crash,) = crashes_of("\n".join([up, lead, *failed, end, ""]).encode())
    assert (crash.root.cause.exception, crash.grade.value) == ("ConnectionResetError", grade)


def test_a_native_exception_without_its_words_is_cut():
    thrown, words = "terminate called after throwing an instance of 'c10::Error'", "  what():  no room"
    for lines, grade in (
        ([thrown, words, RECORD], "complete"),
        ([thrown, RECORD.replace(" TP0", ""), words], "cut"),
        ([thrown], "cut"),
    ):
        assert graded([RECORD, *lines]) == (["c10::Error", "SIGABRT"], grade)
    assert graded([RECORD, thrown.replace("c10::Error", "int"), RECORD]) == (["int", "SIGABRT"], "complete")
