"""Odd forms that real logs have: tags, cut and typed-down frames, the kernel's words, a message without a log."""

import json

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import Said
from triage.engine.lines import parse
from triage.model import Grade, Outcome, Role


def root_of(*lines):
    (crash,) = crashes_of("".join(f"{line}\n" for line in lines).encode())
    return crash.root


def test_a_rank_tag_with_an_underscore_is_a_tag():
    head = "[2026-11-29 12:00:12 ATTN_CP7 TP7 EP7] Scheduler hit an exception: Traceback (most recent call last):"
    assert root_of(head, *story.traceback_lines(story.FRAMES, story.NONE_TYPE)).rank == "ATTN_CP7 TP7 EP7"


@pytest.mark.parametrize(
    "frames",
    [
        ('pool_host.py", line 87, in __init__', 'pool_host.py", line 240, in grow', "RuntimeError: no room"),
        ("pool_host.py, line 240, in grow", "RuntimeError: no room"),
        ("srt/mem/pool_host.py line 240, in grow", "RuntimeError: no room"),
        ("RuntimeError: no room", "  pool_host.py, line 240, in grow", "  cache.py, line 9, in put"),
    ],
)
def test_frames_that_lost_their_head_or_were_typed_down_count(frames):
    root = root_of(*frames)
    assert (root.cause.exception, root.cause.message) == ("RuntimeError", "no room")
    assert root.cause.frame is not None
    assert (root.cause.frame.file, root.cause.frame.function, root.cause.frame.line) == ("pool_host.py", "grow", 240)


@pytest.mark.parametrize("form", ["{}:{} {}", "{}:{}: in {}()", "    {2} ({0}:{1})"])
def test_a_stack_below_a_librarys_line_tells_where_it_was(form):
    places = (("worker.py", 124, "forward"), ("runner.py", 17, "_raw"))
    root = root_of("CUDA error: an illegal memory access", *[form.format(*place) for place in places])
    assert root.cause.exception == "CudaError"
    assert root.cause.frame is not None
    assert (root.cause.frame.file, root.cause.frame.line, len(root.cause.frames)) == ("worker.py", 124, 2)


def test_a_record_of_another_thread_amid_the_frames_does_not_end_the_traceback():
    lines = story.traceback_lines(story.FRAMES, story.NONE_TYPE)
    for n in range(1, len(lines)):
        glog = "E0511 07:42:36.355509 10240 rdma_context.cpp:198] Failed to register memory"
        root = root_of("Traceback (most recent call last):", *lines[:n], glog, *lines[n:])
        assert (root.cause.exception, len(root.cause.frames)) == ("AttributeError", len(story.FRAMES))


@pytest.mark.parametrize(
    "name", ["torch._dynamo.exc.BackendCompilerFailed", "torch._dynamo.exc.Unsupported", "socket.gaierror"]
)
def test_an_exception_whose_name_does_not_end_like_one_is_read_without_a_traceback(name):
    cause = root_of(f"{name}: no way to the lake").cause
    assert (cause.exception, cause.message) == (name, "no way to the lake")


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/python3: No module named sglang",
        "ptxas fatal   : Value 'sm_999a' is not defined for option 'gpu-name'",
        'error: identifier "__nest" is undefined',
        "c++: error: unrecognized command line option '-std=c++99'",
    ],
)
def test_a_programs_one_line_of_failure_is_the_root_where_the_text_holds_nothing_else(line):
    assert (root_of(line).cause.exception, root_of(line).cause.message) == ("ErrorLine", line)


def test_a_log_that_ends_with_the_schedulers_lead_in_says_so():
    head = "[2026-11-29 12:00:12 TP0] Scheduler hit an exception: Traceback (most recent call last):"
    (crash,) = crashes_of(head.encode())
    assert (crash.root.cause.exception, crash.root.rank, crash.grade) == ("CutTraceback", "TP0", Grade.CUT)


def test_a_device_assert_on_a_line_of_its_own_counts_where_nothing_else_stands():
    lines = ("/x/IndexKernel.cu:111: operator(): block: [0,0,0], thread: [0,0,0]", "Assertion `i < n` failed.")
    assert root_of(*lines).cause.exception == "DeviceAssert"


def test_the_watchdog_thread_that_met_a_cuda_error_names_it():
    text = "[PG 3 Rank 7] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access"
    assert root_of(text).cause.exception == "CudaError"


@pytest.mark.parametrize(
    "text",
    [
        "Bootstrap plugin init failed for 'nvshmem_bootstrap_reed.so'",
        "/src/nvshmem/host/bootstrap/bootstrap_loader.cpp:45: NULL value Bootstrap unable to load 'nvshmem_reed.so'",
        "/src/host/init/init.cu:heron_init:45: non-zero status: 7 nvshmem register static heaps failed",
        "/src/host/mem/mem_heap.cpp:45: non-zero status: -1 add physical memory failed",
    ],
)
def test_what_nvshmem_says_before_its_process_dies_is_kept_with_the_death(text):
    (crash,) = crashes_of(f"{text}\n!!!!!!! Segfault encountered !!!!!!!\n".encode())
    assert [failure.cause.exception for failure in crash.failures] == ["SIGSEGV", "NvshmemError"]
    assert root_of(text).cause.exception == "NvshmemError"


@pytest.mark.parametrize("name", ["initscript.cpp", "/a/init.cpp", "bootstrap_db.cpp"])
def test_a_status_of_another_programs_start_is_none_of_nvshmem(name):
    lines = "".join(f"{said.text}\n" for said in story.starting())
    assert crashes_of(f"{lines}{name}:45: non-zero status: 1 retrying\n".encode()) == []


# ---------------------------------------------------------------- the kernel's words


def test_an_xid_caused_by_another_is_that_other():
    root = root_of("kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=77, name=python3, Ch 1 caused by previous Xid 149")
    assert [link.exception for link in root.chain] == ["Xid 149", "Xid 45"]


def test_a_link_that_was_retrained_is_no_crash():
    note = "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)"
    assert crashes_of(story.as_json([*story.starting(), Said(note, 0, 12_000), *story.serving(12_100, 500)])) == []
    assert crashes_of(f"kernel: {note}\n".encode()) == []


def test_a_link_that_was_retrained_near_a_crash_only_confirms():
    note = Said("NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x04)", 0, 11_990)
    (crash,) = crashes_of(story.as_json([*story.starting(), note, *story.rank_crash(12_000, 3)]))
    assert crash.root.cause.exception == "AttributeError"
    assert [f.role for f in crash.failures if f.cause.exception == "Xid 145"] == [Role.CONFIRMATION]


def test_a_link_that_was_retrained_does_not_hide_the_same_link_that_failed():
    note = "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE {} XC0 i0 Link 13 (0x04)"
    words = [Said(note.format("Nonfatal"), 0, 11_000), Said(note.format("Fatal"), 0, 12_000)]
    died = [*story.rank_crash(12_500, 3), *story.unit_failed(13_000)]
    (crash,) = crashes_of(story.as_json([*story.starting(), *words, *died]))
    assert (crash.root.cause.exception, crash.outcome) == ("Xid 145", Outcome.FATAL)
    assert root_of(*[f"kernel: {said.text}" for said in words]).cause.exception == "Xid 145"


def test_a_gpu_that_cannot_be_started_is_found_in_a_copy_of_the_kernels_log():
    lines = (
        "May 27 16:50:10 ash kernel: NVRM: osInitNvMapping: *** Cannot attach gpu",
        "May 27 16:50:10 ash kernel: NVRM: GPU 0000:09:00.0: RmInitAdapter failed! (0x22:0x56:894)",
    )
    assert root_of(*lines).cause.exception == "NVRM"


def test_a_gpu_that_the_journals_kernel_lines_only_hint_at_is_no_crash():
    gone = Said("NVRM: GPU 0000:09:00.0: RmInitAdapter failed! (0x22:0x56:894)", 0, 12_000)
    assert crashes_of(story.as_json([*story.starting(), gone, *story.serving(12_100, 500)])) == []


# ---------------------------------------------------------------- a message without a log


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("mat1 and mat2 shapes cannot be multiplied (37x10240 and 12800x2560)", "ErrorLine"),
        ("Failed to load the vocabulary: error downloading\n\nCaused by:\n    0: operation timed out", "ErrorLine"),
        ("XID 79, fallen off the bus", "Xid 79"),
        ("'NoneType' object has no attribute 'feathers'", "ErrorLine"),
        ("argument of type 'NoneType' is not iterable", "ErrorLine"),
        ("the memory capacity is unbalanced.", "ErrorLine"),
        ("Goose attention only supports even feathers.", "ErrorLine"),
        ("The nest backend can only be used with geese.", "ErrorLine"),
        ("Loaded weights leave no GPU memory for the pool under --mem-fraction-static=0.5. Raise it", "ErrorLine"),
        ("HeronForCausalLM does not support triton attention backend", "ErrorLine"),
        ("[Errno 37] No locks available", "ErrorLine"),
        ("reed_ep.cpp:1553 'x.size(0) <= reeds_per_rank'", "ErrorLine"),
    ],
)
def test_a_pasted_message_is_a_crash_of_unknown_outcome(text, word):
    (crash,) = crashes_of(text.encode())
    assert (crash.root.cause.exception, crash.outcome) == (word, Outcome.UNKNOWN)
    assert crash.root.cause.message == text.split("\n")[0]


@pytest.mark.parametrize(
    ("text", "word", "said"),
    [
        ("reeds/heron.py:27 NameError: name 'is_heron' is not defined", "NameError", "name 'is_heron' is not defined"),
        ("heron.py:27: in wade: torch.cuda.ReedError: too deep", "torch.cuda.ReedError", "too deep"),
    ],
)
def test_a_traceback_shortened_to_one_line_tells_its_exception(text, word, said):
    (crash,) = crashes_of(text.encode())
    assert (crash.root.cause.exception, crash.root.cause.message) == (word, said)


@pytest.mark.parametrize(
    "log",
    [
        "hello\nworld\n",
        "see heron.cpp:1553 for reeds\n",
        "[2026-11-29 12:00:12] Health check failed. Server is busy.\n",
        "nothing here\n" * 12 + "and this could not be done\n",
        'INFO:     10.1.0.9:5 - "POST /generate HTTP/1.1" 400 Bad Request\nthis failed\n',
        "engine-1  | the request failed\n",
    ],
)
def test_a_log_is_no_pasted_message(log):
    assert crashes_of(log.encode()) == []


# ---------------------------------------------------------------- a traceback as people and loggers write it

TRACEBACK = ("Traceback (most recent call last):", *story.traceback_lines(story.FRAMES, story.NONE_TYPE))
MARGINS = (
    "    ",
    "\t",
    "> ",
    "E   ",
    "3: ",
    "node01: ",
    "{n:4d}  ",
    "{n:2d}.  ",
    "{n}: ",
    "12:00:{n:02d} ",
    "2026-11-29T12:00:12Z ",
    "2026-11-29T12:00:12.481+01:00 ",
    "[2026-11-29T12:00:12.481Z] ",
    "[2026-11-29T12:00:12.481Z] [2026-11-29 12:00:12] ",
    "[12:00:12 TP3] ",
    "ERROR 2026-11-29T12:00:12.481006009Z ",
    "[2026-11-29 12:00:12] ",
    "[2026-11-29 12:00:12.481 TP3] ",
    "2026-11-29 12:00:12,481 - ERROR - ",
    "2026-11-29 12:00:12 | ERROR | stderr | ",
    "\x1b[31m",
)


@pytest.mark.parametrize("margin", MARGINS)
def test_a_margin_before_each_line_of_a_traceback_hides_nothing(margin):
    wrapped = (*TRACEBACK, "During handling of the above exception, another exception occurred:", *TRACEBACK[:-1])
    for lines in (TRACEBACK, (*wrapped, "RuntimeError: no 'hidden_states'")):
        root = root_of(*[margin.format(n=n) + line for n, line in enumerate(lines, 5)])
        cause = root.cause if lines is TRACEBACK else root.chain[-1]
        assert cause.frame is not None
        assert (cause.frame.file, cause.frame.line, len(cause.frames)) == ("dflash_worker.py", 715, len(story.FRAMES))
        assert f"{cause.exception}: {cause.message}" == lines[-1]


def test_what_stands_behind_a_traceback_with_a_margin_is_read_as_it_is():
    lines = [*[f"> {line}" for line in TRACEBACK], "and then, without one:", "Traceback (most recent call last):"]
    crashes = crashes_of("\n".join([*lines, '  File "/x/b.py", line 3, in g', "KeyError: 'k'"]).encode())
    assert {failure.cause.exception for crash in crashes for failure in crash.failures} == {
        "AttributeError",
        "KeyError",
    }


@pytest.mark.parametrize("name", ["log", "message", "msg"])
def test_a_loggers_records_as_json_are_read(name):
    records = [
        json.dumps({"level": "error", name: f"{line}\n", "time": "2026-11-29T12:00:12.1Z"}) for line in TRACEBACK
    ]
    (crash,) = crashes_of("\n".join(records).encode())
    assert (crash.root.cause.exception, crash.started) == ("AttributeError", 1_795_953_612_100_000)
    whole = json.dumps({name: "\n".join(TRACEBACK) + "\n"})
    assert [crash.root.cause.exception for crash in crashes_of(whole.encode())] == ["AttributeError"]


@pytest.mark.parametrize("quotes", [('\\"', '\\"'), ("“", "”")])
def test_quotes_that_were_escaped_or_made_pretty_still_name_a_frame(quotes):
    lines = [line.replace('"', quotes[0], 1).replace('",', f"{quotes[1]},") for line in TRACEBACK]
    root = root_of(*lines)
    assert (root.cause.exception, len(root.cause.frames)) == ("AttributeError", len(story.FRAMES))
    assert root.cause.frame is not None
    assert root.cause.frame.file == "dflash_worker.py"


def test_frames_written_below_their_exception_are_its_innermost_first():
    lines = [line for line in TRACEBACK[1:-1] if "File" in line]
    root = root_of(story.NONE_TYPE, *reversed(lines))
    assert root.cause.exception == "AttributeError"
    assert [frame.line for frame in root.cause.frames] == [line for _, line, _, _ in story.FRAMES]


def test_a_cloud_consoles_export_begins_with_the_newest_line_and_has_no_indents():
    lines = [
        f"ERROR 2026-11-29T12:00:12.{n:03d}006009Z {line.strip()}\n"
        for n, line in enumerate(TRACEBACK)
        if "^" not in line
    ]
    root = root_of("".join(reversed(lines)).rstrip())
    assert root.cause.frame is not None
    assert (root.cause.exception, root.cause.frame.file) == ("AttributeError", "dflash_worker.py")


# ---------------------------------------------------------------- a whole log that went through other hands

HEADED = (
    "[2026-11-29 12:00:10] The server is fired up and ready to roll!",
    "[2026-11-29 12:00:12 TP3] Scheduler hit an exception: Traceback (most recent call last):",
    *TRACEBACK[1:],
    "",
    "[2026-11-29 12:00:13] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
)
CRI = "2026-11-29T12:00:12.481006009+01:00 stderr F "


@pytest.mark.parametrize("before", [CRI, "> ", ">", ">> ", "> > "])
def test_a_log_out_of_containerd_or_quoted_in_a_mail_is_the_same_log(before):
    (plain,) = crashes_of("\n".join(HEADED).encode())
    (crash,) = crashes_of("\n".join((before + line).rstrip() for line in HEADED).encode())
    assert (crash.id, crash.outcome, crash.phase, crash.root.rank) == (plain.id, Outcome.FATAL, plain.phase, "TP3")
    assert [failure.cause.exception for failure in crash.failures] == ["AttributeError", "SIGQUIT"]


@pytest.mark.parametrize(
    "stamps", ["{head} {time} - sglang - ERROR - ", "{time} - root - INFO - {time} - sglang - ERROR - {head} "]
)
def test_a_record_that_two_loggers_stamped_has_neither_stamp_in_its_text(stamps):
    lines = [
        stamps.format(head=line[: line.index("] ") + 1], time="2026-11-29 12:00:12,481") + line[line.index("] ") + 2 :]
        if line.startswith("[2")
        else line
        for line in HEADED
    ]
    (crash,) = crashes_of("\n".join(lines).encode())
    assert (crash.outcome, crash.root.rank, crash.root.cause.exception) == (Outcome.FATAL, "TP3", "AttributeError")
    assert [failure.cause.exception for failure in crash.failures] == ["AttributeError", "SIGQUIT"]


@pytest.mark.parametrize("text", ["INFO:     Application startup complete.", ""])
def test_containerds_words_are_no_text(text):
    parsed = parse((CRI + text).rstrip())
    assert parsed.text in ("Application startup complete.", "")
    assert parsed.stamp == CRI.split(" ")[0]


# ---------------------------------------------------------------- one form each: what Python, C++ and tools print

FRAME = '  File "/opt/sglang/srt/a.py", line 3, in f'
OTHER = '  File "/opt/sglang/srt/b.py", line 9, in g'
HEAD = "Traceback (most recent call last):"
GROUP = (
    "  + Exception Group Traceback (most recent call last):",
    "  |" + FRAME,
    "  |     g()",
    "  | ExceptionGroup: unhandled errors (2 sub-exceptions)",
    "  +-+---------------- 1 ----------------",
    "    | Traceback (most recent call last):",
    "    | " + OTHER,
    "    | ValueError: the first of them",
    "    +---------------- 2 ----------------",
    "    | Traceback (most recent call last):",
    "    | " + FRAME,
    "    | KeyError: 'the second'",
    "    +------------------------------------",
)
NINJA = (
    "FAILED: a.cuda.o ",
    '/srv/a.cu(12): error: identifier "foo" is undefined',
    "ninja: build stopped: subcommand failed.",
    *(HEAD, FRAME, "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1."),
    "The above exception was the direct cause of the following exception:",
    *(HEAD, OTHER, "RuntimeError: Error building extension 'a'"),
)
THREADS = (
    "Fatal Python error: Segmentation fault",
    *("Thread 0x00007f (most recent call first):", '  File "/usr/lib/python3.12/threading.py", line 355 in wait'),
    *("Current thread 0x00007e (most recent call first):", '  File "/opt/sglang/srt/b.py", line 9 in g'),
    '  File "/opt/sglang/srt/a.py", line 3 in f',
)
FORMS = {
    "a group": (GROUP, "ValueError: the first of them", "b.py", 1),
    "notes": ((HEAD, FRAME, "RuntimeError: no room", "while loading layer 3"), "RuntimeError: no room", "a.py", 1),
    "repeated frames": (
        (HEAD, *(FRAME, "    f()") * 3, "  [Previous line repeated 993 more times]", OTHER, "RecursionError: deep"),
        "RecursionError: deep",
        "b.py",
        4,
    ),
    "no source": (
        (HEAD, FRAME, '  File "<string>", line 1, in <module>', OTHER, "ValueError: x"),
        "ValueError: x",
        "b.py",
        3,
    ),
    "marks of 3.13": (
        (
            HEAD,
            FRAME,
            "    a.b(c).d",
            "    ~~~^^^^^^",
            OTHER,
            "    x = (",
            "        ^",
            "    ...<3 lines>...",
            "TypeError: y",
        ),
        "TypeError: y",
        "b.py",
        2,
    ),
    "colours of 3.13": (
        (
            HEAD,
            '  File \x1b[35m"/opt/sglang/srt/a.py"\x1b[0m, line \x1b[35m3\x1b[0m, in f',
            "\x1b[1;35mKeyError\x1b[0m: 'k'",
        ),
        "KeyError: 'k'",
        "a.py",
        1,
    ),
    "no message": ((HEAD, FRAME, "AssertionError"), "AssertionError: ", "a.py", 1),
    "frames of C++": (
        (HEAD, FRAME, "RuntimeError: bad", "Exception raised from f at ../a.cpp:43", "frame #0: c10::Error + 0xb0"),
        "RuntimeError: bad",
        "a.py",
        1,
    ),
    "all threads": (THREADS, "SIGSEGV: Fatal Python error: Segmentation fault", "b.py", 2),
    "terminate called": (
        (
            "terminate called after throwing an instance of 'c10::Error'",
            "  what():  no peer",
            "Fatal Python error: Aborted",
        ),
        "c10::Error: no peer",
        None,
        0,
    ),
    "asserts of many threads": (
        (
            *(
                f"/x/Index.cu:111: op(): block: [{n},0,0], thread: [0,0,0] Assertion `i < n` failed."
                for n in range(300)
            ),
            *(HEAD, FRAME, "RuntimeError: CUDA error: device-side assert triggered"),
        ),
        "RuntimeError: CUDA error: device-side assert triggered",
        "a.py",
        1,
    ),
    "ninja": (NINJA, "subprocess.CalledProcessError: Command", "a.py", 1),
    "a box behind it": (
        (HEAD, FRAME, "KeyError: 'k'", f"+{'-' * 40}+", "| an old driver |"),
        "KeyError: 'k'",
        "a.py",
        1,
    ),
    "Rust": (("Error: no router", "", "Caused by:", "    0: in use"), "Error: no router\nCaused by:", None, 0),
    "argparse": (
        (
            "usage: launch_server.py [-h] --model-path M",
            "    [--tp-size N]",
            "launch_server.py: error: unrecognized arguments: --foo",
        ),
        "UsageError: unrecognized arguments: --foo",
        None,
        0,
    ),
    "a bar and CR": (
        (f"10%|#  | 1/8 [00:01<00:07]\r50%|## | 4/8 [00:01<00:07]\r{HEAD}", FRAME, "KeyError: 'k'"),
        "KeyError: 'k'",
        "a.py",
        1,
    ),
    "CR at each end": ((f"{HEAD}\r", f"{FRAME}\r", "KeyError: 'k'\r"), "KeyError: 'k'", "a.py", 1),
    "200 kB": (
        (f"[2026-11-29 12:00:12] server_args=ServerArgs(a='{'y' * 200_000}')", HEAD, FRAME, "KeyError: 'k'"),
        "KeyError: 'k'",
        "a.py",
        1,
    ),
    "200 kB of keys": (
        (HEAD, FRAME, f"KeyError: dict_keys([{'1, ' * 70_000}])"),
        "KeyError: dict_keys([1, ",
        "a.py",
        1,
    ),
    "a cut line": ((HEAD, FRAME, OTHER[:20]), "CutTraceback: ", "a.py", 1),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_that_logs_have_is_read(form):
    lines, said, file, frames = FORMS[form]
    cause = root_of(*lines).cause
    assert f"{cause.exception}: {cause.message}".startswith(said)
    assert "driver" not in cause.message
    assert (cause.frame and cause.frame.file, len(cause.frames)) == (file, frames)


def test_of_a_group_the_others_stand_between_its_first_member_and_itself():
    assert [link.exception for link in root_of(*GROUP).chain] == ["ValueError", "KeyError", "ExceptionGroup"]


@pytest.mark.parametrize(
    "text",
    [
        "free(): invalid pointer",
        "malloc(): unaligned tcache chunk detected",
        "free(): double free detected in tcache 2",
        "malloc(): corrupted top size",
        "corrupted size vs. prev_size",
        "double free or corruption (out)",
        "free(): invalid next size (fast)",
        "realloc(): invalid old size",
        "malloc_consolidate(): invalid chunk size",
        "malloc_consolidate(): unaligned fastbin chunk detected",
        "pure virtual method called",
        "tcache_thread_shutdown(): unaligned tcache chunk detected",
        "*** Error in `python3': double free or corruption (!prev): 0x00005581 ***",
        "*** stack smashing detected ***: terminated",
        "*** buffer overflow detected ***: python3 terminated",
        "*** longjmp causes uninitialized stack frame ***: terminated",
        "Fatal glibc error: malloc.c:4375 (_int_malloc): assertion failed: chunk_main_arena (fwd)",
        "The futex facility returned an unexpected error code.",
        "pthread_mutex_lock: Assertion `mutex->__data.__owner == 0' failed.",
        "malloc.c:2617: sysmalloc: Assertion `old_size == 0' failed.",
        "terminate called recursively",
    ],
)
def test_an_abort_of_the_c_library_is_one(text):
    head = "[2026-11-29 12:00:12 TP0] Load weight begin. avail mem=138.20 GB"
    assert root_of(head, text, "Aborted (core dumped)").cause.exception == "SIGABRT"
    assert root_of(head, text).cause.message == text
    raised = story.traceback_lines(story.FRAMES, story.NONE_TYPE)
    (crash,) = crashes_of("\n".join([head, "Traceback (most recent call last):", *raised, text]).encode())
    assert [failure.cause.exception for failure in crash.failures] == ["AttributeError", "SIGABRT"]


@pytest.mark.parametrize(
    "text", ["python3: it said Assertion `x' failed.", "free(): 3 GB", "*** detected ***", "calloc() is slow"]
)
def test_words_of_the_c_library_alone_are_no_abort(text):
    assert not crashes_of(f"[2026-11-29 12:00:12 TP0] Load weight begin.\n{text}\n".encode())


DIED = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."


def test_a_text_that_ends_with_a_childs_death_and_names_no_reason_says_so():
    head = "[2026-11-29 12:00:12 TP0] Load weight begin. avail mem=138.20 GB"
    (crash,) = crashes_of(f"{head}\n[2026-11-29 12:00:14] {DIED}\n".encode())
    assert (crash.root.cause.exception, crash.root.cause.message) == ("SIGQUIT", DIED)
    assert (crash.outcome, crash.grade) == (Outcome.UNKNOWN, Grade.CUT)


def test_a_childs_death_after_a_stop_that_was_asked_for_is_nothing():
    stop = "[2026-11-29 12:00:12] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    assert not crashes_of(f"{stop}\n[2026-11-29 12:00:14] {DIED}\n".encode())


@pytest.mark.parametrize(("said", "name"), [("Bus error", "SIGBUS"), ("Illegal instruction", "SIGILL")])
@pytest.mark.parametrize("shell", ["", "/opt/run.sh: line 14:  4242 "])
def test_the_shells_word_for_a_signal_is_the_root_where_nothing_else_is(said, name, shell):
    head = "[2026-11-29 12:00:12 TP0] Load weight begin. avail mem=138.20 GB"
    assert root_of(head, f"{shell}{said}              (core dumped) python3 -m x").cause.exception == name
    quoted = f"[2026-11-29 12:00:12] Receive: obj=GenerateReqInput(text='{said} (core dumped)')"
    assert not crashes_of(f"{head}\n{quoted}\n".encode())


NOON = 1_795_953_612_000_000
PREFIXES = (
    ("2026-11-29T12:00:12.000000000Z ", None, None, NOON),
    ("2026-11-29T17:30:12.0+05:30 ", None, None, NOON),
    ("2026-11-29T12:00:12.000000000Z stderr F ", None, None, NOON),
    ("engine-1  | ", None, None, None),
    ("[pod/sgl-0/engine] ", None, None, None),
    ("\x1b[36m(Scheduler pid=77, ip=10.0.0.3)\x1b[0m ", None, 77, None),
    ("[1,3]<stderr>:", "rank3", None, None),
    ("[default3]:", "rank3", None, None),
    ("[rank8]: ", "rank8", None, None),
    ("Nov 29 12:00:12 gpu-ash python3[4203]: ", None, 4203, None),
    ("2026-11-29T13:00:12+0100 gpu-ash python3[4203]: ", None, 4203, NOON),
    ("[  123.456789] gpu-ash python3[4203]: ", None, 4203, None),
    ("Sun 2026-11-29 12:00:12 UTC gpu-ash python3[4203]: ", None, 4203, NOON),
    ("1795953612.000000 gpu-ash python3[4203]: ", None, 4203, NOON),
    ("2026-11-29 12:00:12,000 ERROR sglang.srt: ", None, None, NOON),
    ("[2026-11-29 12:00:12.000 TP3] ", "TP3", None, NOON),
)


@pytest.mark.parametrize(("prefix", "rank", "pid", "time"), PREFIXES)
def test_what_a_supervisor_or_logger_puts_before_each_line_tells_and_hides_nothing(prefix, rank, pid, time):
    (crash,) = crashes_of("".join(f"{prefix}{line}\n" for line in TRACEBACK).encode())
    cause = crash.root.cause
    assert (f"{cause.exception}: {cause.message}", len(cause.frames)) == (story.NONE_TYPE, len(story.FRAMES))
    assert (crash.root.rank, crash.root.pid, crash.grade) == (rank, pid, Grade.COMPLETE)
    assert time is None or crash.started == time


def test_bytes_that_are_no_text_spoil_only_themselves():
    (crash,) = crashes_of(b"\n".join([*(line.encode() for line in TRACEBACK[:-1]), b"ValueError: \xff\xfe bad", b""]))
    assert (crash.root.cause.exception, crash.root.cause.message[-3:]) == ("ValueError", "bad")
