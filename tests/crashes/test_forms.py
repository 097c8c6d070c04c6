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
    assert root_of(*lines).cause.exception == "Xid 79"


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
    ],
)
def test_a_pasted_message_is_a_crash_of_unknown_outcome(text, word):
    (crash,) = crashes_of(text.encode())
    assert (crash.root.cause.exception, crash.outcome) == (word, Outcome.UNKNOWN)
    assert crash.root.cause.message == text.split("\n")[0]


@pytest.mark.parametrize(
    "log",
    [
        "hello\nworld\n",
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
