"""Forms that strangers' logs had: other engines' heads, Ray's repetitions, frames without a header, other languages."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from triage.model import Grade, Outcome, Role

TRACEBACK = ("Traceback (most recent call last):", *story.traceback_lines(story.FRAMES, story.NONE_TYPE))
FRAMES = TRACEBACK[1:-1]


def crash_of(*lines):
    (crash,) = crashes_of("".join(f"{line}\n" for line in lines).encode())
    return crash


HEADS = (
    "(Core pid=77) ERROR 11-29 12:00:12 [core.py:844] ",
    "(Worker rank=0 pid=78) ERROR 11-29 12:00:12 [multiproc_executor.py:470] ",
    "(Core pid=77) (Worker_TP0 pid=78) ERROR 11-29 12:00:12 [v1/executor/multiproc_executor.py:671] ",
    "ERROR 11-29 12:00:12 async_engine.py:56] ",
    "2026-11-29T12:00:12.6371779Z [rank0]: ",
)


@pytest.mark.parametrize("head", HEADS)
def test_frames_with_a_head_and_no_header_are_a_cut_traceback(head):
    for first in range(6):
        cause = crash_of(*[head + line for line in FRAMES[first:]]).root.cause
        assert cause.frame is not None
        assert (cause.exception, cause.frame.file, cause.frame.line) == ("CutTraceback", "dflash_worker.py", 715)
        whole = crash_of(*[head + line for line in TRACEBACK[1 + first :]]).root.cause
        assert f"{whole.exception}: {whole.message}" == story.NONE_TYPE


def test_a_request_that_quotes_a_frame_is_none():
    quoted = [f"ERROR 11-29 12:00:12 [core.py:8] text='see {line}" for line in FRAMES]
    assert crashes_of("\n".join(quoted).encode()) == []


@pytest.mark.parametrize(
    "note", [" [repeated 2x across cluster]", " [repeated 7x across cluster] (Ray deduplicates logs. See x.)"]
)
def test_rays_note_that_a_line_was_repeated_is_no_part_of_it(note):
    lines = [f"(SGLangEngine pid=77) {line}{note}" for line in TRACEBACK]
    lines[0] = f"(SGLangEngine pid=77) [2026-11-29 12:00:12 TP1] Scheduler hit an exception: {TRACEBACK[0]}{note}"
    crash = crash_of(*lines)
    cause = crash.root.cause
    assert cause.frame is not None
    assert (cause.frame.line, len(cause.frames), crash.root.rank) == (715, len(story.FRAMES), "TP1")
    assert f"{cause.exception}: {cause.message}" == story.NONE_TYPE


def test_a_single_frame_that_was_pasted_counts_and_in_a_log_it_does_not():
    lines = ("    kernel.run(grid)", "    ^^^^^^^^^^", '  File "/x/compiler.py", line 395, in __getattribute__')
    cause = crash_of(*lines).root.cause
    assert cause.frame is not None
    assert (cause.exception, cause.frame.file) == ("CutTraceback", "compiler.py")
    assert crashes_of("\n".join(["[2026-11-29 12:00:12] a log", *lines]).encode()) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (
            "[E1129 12:00:12.795 socket.cpp:1011] [c10d] The client socket has timed out after 600000ms",
            "DistNetworkError",
        ),
        (
            "(WorkerDict pid=77) [memory_saver.cpp] CUresult error  result=1 file=x.cpp func=resume line=206",
            "CudaError",
        ),
        ("Can not import the kernels. Please check your installation.", "ErrorLine"),
        ("Exception raised from c10_cuda_check_implementation at /x/c10/cuda/CUDAException.cpp:43", "ErrorLine"),
    ],
)
def test_torchs_own_lines_count_where_nothing_else_stands(line, word):
    frame = "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f in /x/torch/lib/libc10.so)"
    assert crash_of(line, frame).root.cause.exception == word
    assert crash_of(*TRACEBACK, line, frame).root.cause.exception == "AttributeError"


def test_an_assertion_of_a_native_library_is_an_abort():
    text = 'python: /src/lib/Allocation.cpp:40: int f(Attribute): Assertion `!(a && b) && "no"\' failed.'
    assert crash_of("[2026-11-29 12:00:12 TP0] Load weight begin.", text).root.cause.exception == "SIGABRT"
    kernels = "/x/Index.cu:111: op(): block: [1,0,0], thread: [0,0,0] Assertion `i < n` failed."
    assert crash_of(kernels).root.cause.exception == "DeviceAssert"


@pytest.mark.parametrize(
    "text",
    [
        'docker: Error response from daemon: Conflict. The container name "/heron" is already in use.',
        "Error response from daemon: manifest unknown",
        "docker: Cannot connect to the Docker daemon at unix:///run/docker.sock. Is the docker daemon running?.",
        "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.",
    ],
)
def test_a_container_engine_that_does_not_start_the_server_is_the_root(text):
    assert crash_of(text).root.cause.exception == "ContainerError"


def test_a_container_engines_words_amid_a_servers_log_are_somebody_elses():
    quoted = story.Said(
        'docker: Error response from daemon: Conflict. The name "/x" is already in use', story.RANKS[0], 20_000
    )
    crash = [*story.rank_crash(30_000, 3), *story.parent_gives_up(30_400), *story.unit_failed(31_000)]
    (told,) = crashes_of(story.as_export([*story.starting(), *story.serving(10_000, 30), quoted, *crash]))
    assert told.root.cause.exception == "AttributeError"


def test_glogs_fatal_record_is_the_abort():
    fatal = "F1129 12:00:12.123456  4211 transfer_engine.cpp:77] Check failed: rc == 0 (-1 vs. 0) "
    crash = crash_of("[2026-11-29 12:00:10 TP0] Load weight begin.", fatal, "*** Check failure stack trace: ***")
    assert (crash.root.cause.exception, crash.root.cause.message.strip()) == (
        "SIGABRT",
        "Check failed: rc == 0 (-1 vs. 0)",
    )
    head = "[2026-11-29 12:00:10 TP0] Load weight begin."
    assert crashes_of(f"{head}\n{fatal.replace('F1129', 'W1129')}\n".encode()) == []


@pytest.mark.parametrize("where", ["src/worker.rs:105:38:", "'called `Result::unwrap()` on an `Err`', src/m.rs:1:2"])
def test_a_rust_programs_panic_counts_where_nothing_else_stands(where):
    crash = crash_of("[2026-11-29 12:00:12] router is up", f"thread '<unnamed>' (78) panicked at {where}")
    assert (crash.root.cause.exception, crash.outcome) == ("RustPanic", Outcome.UNKNOWN)


@pytest.mark.parametrize(
    "last",
    [
        "vllm.v1.engine.exceptions.EngineDeadError: it met an issue. See stack trace (above) for the root cause.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    ],
)
def test_whoever_points_to_the_cause_is_not_it(last):
    pointing = ("Traceback (most recent call last):", '  File "/x/front.py", line 3, in wait', last)
    crash = crash_of(*pointing, "", *TRACEBACK)
    assert crash.root.cause.exception == "AttributeError"
    assert [f.role for f in crash.failures if f.cause.frame and f.cause.frame.file == "front.py"] == [Role.CASCADE]
    assert crash_of(*pointing).root.cause.exception == last.split(":")[0]


TASK = "ray::Engine.run() (pid=77, ip=10.0.0.1, actor_id=af0c, repr=<eng.Engine object at 0x7f0c>)"
CREATED = "raised in its creation task"
DRIVER = ("Traceback (most recent call last):", '  File "/app/launch.py", line 40, in <module>', "    ray.get(refs)")
INNER = ('  File "/opt/sglang/srt/a.py", line 3, in f', "    g()", "ValueError: the first")
OUTER = ('  File "/x/main.py", line 9, in wait', "    raise Wrapped(text)")


@pytest.mark.parametrize(
    "lines",
    [
        (
            "concurrent.futures.process._RemoteTraceback: ",
            *('"""', TRACEBACK[0], *INNER, '"""', ""),
            "The above exception was the direct cause of the following exception:",
            *("", TRACEBACK[0], *OUTER, "ValueError: the first"),
        ),
        (
            *(TRACEBACK[0], *OUTER, "torch.multiprocessing.spawn.ProcessRaisedException: ", ""),
            *("-- Process 0 terminated with the following error:", TRACEBACK[0], *INNER),
        ),
        ("ray.exceptions.RayTaskError(ValueError): ray::Engine.run() (pid=77, ip=10.0.0.1)", *INNER),
        (*DRIVER, f"ray.exceptions.ActorDiedError: The actor died because of an error {CREATED}, {TASK}", *INNER),
        (*DRIVER, f"ray.exceptions.RayActorError: The actor died because of an error {CREATED}, {TASK}", *INNER),
    ],
)
def test_what_another_process_raised_is_the_root_where_its_traceback_is_quoted(lines):
    root = crash_of(*lines).root
    assert root.cause.frame is not None
    assert (root.cause.exception, root.cause.message, root.cause.frame.file) == ("ValueError", "the first", "a.py")
    assert len(root.chain) == 2 or '"""' in lines


@pytest.mark.parametrize(
    ("lines", "chain"),
    [
        (
            (
                *(*DRIVER, f"ray.exceptions.RayTaskError(RuntimeError): {TASK}", *INNER, ""),
                "The above exception was the direct cause of the following exception:",
                *("", TASK, '  File "/opt/sglang/srt/b.py", line 9, in h', "    raise it from e", "RuntimeError: so"),
            ),
            ["ValueError", "RayTaskError", "RuntimeError"],
        ),
        (
            (
                *(*DRIVER, "ray.exceptions.RayTaskError(ValueError): ray::outer() (pid=1, ip=10.0.0.1)"),
                "  At least one of the input arguments for this task could not be computed:",
                *("ray.exceptions.RayTaskError: ray::inner() (pid=2, ip=10.0.0.1)", *INNER),
            ),
            ["ValueError", "RayTaskError", "RayTaskError"],
        ),
        (
            (
                "2026-11-29 12:00:12,123\tERROR worker.py:409 -- Unhandled error (suppress with "
                f"'RAY_IGNORE_UNHANDLED_ERRORS=1'): {TASK}",
                *INNER,
            ),
            ["ValueError"],
        ),
        (
            (*DRIVER, f"ray.exceptions.RayTaskError(ValueError): {TASK}", "ValueError: the first"),
            ["ValueError", "RayTaskError"],
        ),
    ],
)
def test_what_ray_passes_on_is_read_whole(lines, chain):
    """Its text has no header of Python's before the frames: each link begins with the task's name."""
    crash = crash_of("[2026-11-29 12:00:10] Load weight begin.", *lines)
    assert [link.exception.rsplit(".", 1)[-1] for link in crash.root.chain] == chain
    assert (crash.root.cause.message, crash.grade, len(crash.failures)) == ("the first", Grade.COMPLETE, 1)


def child(n, traceback):
    return (
        *(f"[{n}]:", "  time      : 2026-11-29_12:00:12", "  host      : gpu-ash"),
        *(f"  rank      : {n} (local_rank: {n})", f"  exitcode  : 1 (pid: {4200 + n})", "  error_file: /tmp/e.json"),
        *(f"  traceback : {traceback[0]}", *(f"  {text}" for text in traceback[1:])),
    )


def torchrun(*children):
    rule = "-" * 60
    others = [line for each in children[1:] for line in each] or ["  <NO_OTHER_FAILURES>"]
    return (
        *("Traceback (most recent call last):", '  File "/opt/e/bin/torchrun", line 8, in <module>', "    main()"),
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        *("=" * 60, "serve.py FAILED", rule, "Failures:", *others),
        *(rule, "Root Cause (first observed failure):", *children[0], "=" * 60),
    )


FIRST = ("Traceback (most recent call last):", *INNER, "and on a second line", "  ")
LATER = (FIRST[0], '  File "/opt/sglang/srt/b.py", line 9, in h', "RuntimeError: later", "  ")
KILLED = ("Signal 9 (SIGKILL) received by PID 4200",)
NOTHING = ("To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",)


@pytest.mark.parametrize(
    ("children", "root"),
    [
        ([FIRST], ("ValueError", "the first\nand on a second line", "a.py")),
        ([FIRST, LATER, LATER], ("ValueError", "the first\nand on a second line", "a.py")),
        ([KILLED], ("SIGKILL", KILLED[0], None)),
        ([KILLED, LATER], ("SIGKILL", KILLED[0], None)),
        ([NOTHING, FIRST], ("ValueError", "the first\nand on a second line", "a.py")),
    ],
)
def test_of_torchruns_list_the_first_that_failed_is_the_root(children, root):
    lines = torchrun(*(child(n, traceback) for n, traceback in enumerate(children)))
    crash = crash_of("[2026-11-29 12:00:10] Load weight begin.", *lines)
    cause = crash.root.cause
    assert (cause.exception, cause.message, cause.frame and cause.frame.file) == root
    assert crash.root.chain[-1].exception.endswith("ChildFailedError")
    assert (crash.outcome, crash.grade, len(crash.failures)) == (Outcome.FATAL, Grade.COMPLETE, 1)


def test_torchruns_list_without_a_word_of_its_processes_leaves_its_own():
    crash = crash_of("[2026-11-29 12:00:10] Load weight begin.", *torchrun(child(0, NOTHING)))
    assert crash.root.cause.exception.endswith("ChildFailedError")


def test_the_signal_that_torch_names_of_a_process_is_the_root():
    word = "torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with "
    crash = crash_of(*DRIVER, f"{word}signal SIGKILL")
    assert [link.exception for link in crash.root.chain] == ["SIGKILL", word.split(":")[0]]
    assert len(crash_of(*DRIVER, f"{word}exit code 1").root.chain) == 1


QUOTED = ("concurrent.futures.process._RemoteTraceback: ", '"""', TRACEBACK[0], *INNER, '"""')


@pytest.mark.parametrize("lines", [QUOTED, TRACEBACK])
def test_a_traceback_below_the_ranks_own_word_is_that_ranks(lines):
    lead = f"[{story.stamp(12_000)} TP3] Scheduler hit an exception: "
    said = [story.Said(text, story.MAIN, 12_000) for text in (lead, *lines)]
    (crash,) = crashes_of(story.as_text([*story.starting(), *said, *story.parent_gives_up(12_100)]))
    assert (crash.root.rank, crash.ranks) == ("TP3", ("TP3",))


def test_of_two_ranks_that_speak_at_once_neither_is_named():
    leads = [f"[{story.stamp(12_000)} TP{rank}] Scheduler hit an exception: " for rank in (3, 5)]
    said = [story.Said(text, story.MAIN, 12_000) for text in (*leads, *TRACEBACK)]
    (crash,) = crashes_of(story.as_text([*story.starting(), *said, *story.parent_gives_up(12_100)]))
    assert crash.root.rank is None


def test_a_traceback_some_lines_below_need_not_be_that_ranks():
    between = [f"[{story.stamp(12_000)}] a line of another process"] * 4
    lead = f"[{story.stamp(12_000)} TP3] Scheduler hit an exception: "
    said = [story.Said(text, story.MAIN, 12_000) for text in (lead, *between, *TRACEBACK)]
    (crash,) = crashes_of(story.as_text([*story.starting(), *said, *story.parent_gives_up(12_100)]))
    assert crash.root.rank is None
