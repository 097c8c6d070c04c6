"""Exceptions whose line or message is an odd one: a stack within it, a class that names nothing, others' words."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from triage.model import Grade

LEAD = f"[{story.stamp(12_000)} TP0] Scheduler hit an exception: Traceback (most recent call last):"
END = f"[{story.stamp(12_500)}] SIGQUIT received. signum=None, frame=None. It usually means one child failed."
FRAMES = story.traceback_lines(story.FRAMES, "")[:-1]


def crash_of(*lines):
    (crash,) = crashes_of("\n".join([LEAD, *FRAMES, *lines, "", END]).encode())
    return crash


def test_an_exception_whose_message_is_a_traceback_keeps_its_name_and_is_one_failure():
    crash = crash_of(
        "tvm.error.InternalError: Traceback (most recent call last):",
        '  File "/build/csrc/decode.cu", line 71, in tvm::ffi::Launch()',
        "    ICHECK(fits)",
        '  File "<unknown>", line 0, in __tvm_ffi_launch',
        "RuntimeError: Check failed: fits is false: no kernel for head size 96",
    )
    cause = crash.root.cause
    assert (cause.exception, crash.grade) == ("tvm.error.InternalError", Grade.COMPLETE)
    assert cause.message == "RuntimeError: Check failed: fits is false: no kernel for head size 96"
    assert cause.frame is not None
    assert cause.frame.file == story.FRAMES[-1][0].rsplit("/", 1)[-1]
    assert sum(bool(failure.cause.frames) for failure in crash.failures) == 1


def test_another_writers_header_behind_a_name_is_said_to_be_mixed():
    crash = crash_of("tvm.error.InternalError: Traceback (most recent call last):", *FRAMES, "RuntimeError: no")
    assert crash.grade is Grade.MIXED


def test_the_frames_that_torchs_compiler_quotes_are_the_innermost_of_its_failure():
    crash = crash_of(
        "torch._dynamo.exc.Unsupported: no such call",
        "",
        "from user code:",
        f'   File "{story.SITE}/sglang/srt/layers/rope.py", line 40, in forward_native',
        "    if key in self.seen:",
        f'   File "{story.SITE}/sglang/srt/layers/rope.py", line 12, in seen',
        "    return self._seen",
        "",
        "Set TORCHDYNAMO_VERBOSE=1 for more",
    )
    cause = crash.root.cause
    assert [link.exception for link in crash.root.chain] == ["torch._dynamo.exc.Unsupported"]
    assert (cause.frame and cause.frame.line, crash.grade) == (12, Grade.COMPLETE)
    assert cause.message == "no such call\nfrom user code:\nSet TORCHDYNAMO_VERBOSE=1 for more"


def test_a_class_within_a_function_is_named():
    cause = crash_of("sglang.srt.pool.make.<locals>.PoolGone: no slot").root.cause
    assert (cause.exception, cause.message) == ("sglang.srt.pool.make.<locals>.PoolGone", "no slot")


@pytest.mark.parametrize(
    ("line", "name", "message"), [("Overload: too many", "Overload", "too many"), ("Bad", "Bad", "")]
)
def test_a_class_whose_name_says_nothing_is_taken_where_no_frame_follows(line, name, message):
    crash = crash_of(line)
    assert (crash.root.cause.exception, crash.root.cause.message) == (name, message)
    assert (crash.grade, crash.root.why) == (Grade.CUT, "the exception that ended the process")


@pytest.mark.parametrize("line", ["Killed", "Note: a slow day", "INFO: started", "Loading: 4 of 9", "two words"])
def test_other_words_behind_frames_name_no_exception(line):
    assert crash_of(line).root.cause.exception == "CutTraceback"


def test_such_a_word_amid_frames_names_no_exception():
    lines = [LEAD, *FRAMES[:2], "Overload: of another", *FRAMES[2:], "ValueError: 7", "", END]
    (crash,) = crashes_of("\n".join(lines).encode())
    assert (crash.root.cause.exception, len(crash.root.cause.frames)) == ("ValueError", len(story.FRAMES))


def test_what_was_ignored_below_an_exception_is_no_part_of_its_message():
    crash = crash_of(
        "RuntimeError: 31 is no shape",
        "Exception ignored in: <function Pool.__del__ at 0x7f00aa>",
        "Traceback (most recent call last):",
        '  File "/srv/pool.py", line 7, in __del__',
        "BufferError: still in use",
    )
    assert crash.root.cause.message == "31 is no shape"


def test_the_way_into_a_signals_handler_is_not_where_it_failed():
    lines = [
        "!!!!!!! Segfault encountered !!!!!!!",
        '  File "./signal/../sysdeps/libc_sigaction.c", line 0, in __restore_rt',
        '  File "<unknown>", line 0, in cuMemcpyAsync',
        '  File "<unknown>", line 0, in at::native::copy_()',
    ]
    (crash,) = crashes_of("\n".join([f"[{story.stamp(9_000)} TP0] Load weight begin.", *lines, END]).encode())
    assert crash.root.cause.frame is not None
    assert (crash.root.cause.frame.function, len(crash.root.cause.frames)) == ("cuMemcpyAsync", 2)


@pytest.mark.parametrize("head", [[], ["Process sglang::scheduler_TP0:"], ["Process SpawnProcess-3:"]])
def test_what_was_ignored_before_it_does_not_hide_a_failure(head):
    ignored = ["Exception ignored in: <function Pool.__del__ at 0x7f00aa>", LEAD[-34:]]
    ignored += ['  File "/srv/pool.py", line 7, in __del__', "BufferError: still in use"]
    lines = [
        f"[{story.stamp(9_000)} TP0] Load weight begin.",
        *ignored,
        *head,
        LEAD[-34:],
        *FRAMES,
        "ValueError: 31",
        END,
    ]
    (crash,) = crashes_of("\n".join(lines).encode())
    assert (crash.root.cause.exception, crash.root.cause.message) == ("ValueError", "31")


def test_what_logging_met_with_a_record_is_no_root():
    log = f'''--- Logging error ---
Traceback (most recent call last):
  File "/usr/lib/python3.12/logging/__init__.py", line 1160, in emit
    msg = self.format(record)
TypeError: not all arguments converted during string formatting
Call stack:
  File "{story.SITE}/sglang/srt/managers/scheduler.py", line 1588, in event_loop_overlap
    logger.info("batch", size)
Message: 'batch'
Arguments: (4,)'''
    crash = crash_of("ValueError: tokens are gone")
    (again,) = crashes_of("\n".join([log, LEAD, *FRAMES, "ValueError: tokens are gone", "", END]).encode())
    assert (again.root.cause, again.outcome, again.ranks) == (crash.root.cause, crash.outcome, ("TP0",))
    assert again.grade is Grade.COMPLETE
    assert crashes_of(log.encode()) == []


def test_two_headers_on_one_line_are_two_tracebacks_and_mixed():
    lead = LEAD + LEAD.replace("TP0", "TP1")
    lines = [
        lead,
        *FRAMES,
        "ValueError: tokens are gone",
        "",
        *FRAMES,
        "torch.distributed.DistBackendError: NCCL aborted",
    ]
    (crash,) = crashes_of("\n".join([*lines, "", END]).encode())
    assert [link.exception for link in crash.root.chain] == ["ValueError"]
    assert [failure.cause.exception for failure in crash.failures] == [
        "ValueError",
        "torch.distributed.DistBackendError",
        "SIGQUIT",
    ]
    assert crash.grade is Grade.MIXED
