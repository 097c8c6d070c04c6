"""What became of the server: the manager's entries decide, a plain log's own end otherwise."""

import io
from dataclasses import replace

import pytest

from tests.crashes import story
from tests.crashes.scanning import ALARMING, crashes_of, documents_of, events_of
from tests.crashes.story import MAIN, RANKS, Said, stamp
from triage.engine.assemble import Assembler
from triage.model import Change, Grade, Outcome, Phase
from triage.sources.entry import gap_line
from triage.sources.stream import StreamSource

SIGKILL_ENTRY = story.unit_failed(20_400)


def quiet_hours(ms):
    return story.serving(ms, 40)


def test_a_clean_stop_that_ends_in_sigkill_is_no_crash():
    lines = [
        *story.starting(),
        *quiet_hours(10_000),
        *story.stop_asked(20_000),
        Said(
            f"[{stamp(20_100)}] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
            MAIN,
            20_100,
        ),
        *SIGKILL_ENTRY,
    ]
    for render in (story.as_json, story.as_export, story.as_short, story.as_text):
        assert crashes_of(render(lines)) == []


def test_an_operators_restart_is_no_crash():
    lines = [*story.starting(), *quiet_hours(10_000), *story.stop_asked(20_000, "restart"), *SIGKILL_ENTRY]
    again = [Said(s.text, s.pid, s.ms + 30_000, s.fields, "e" * 32) for s in story.starting()]
    assert crashes_of(story.as_export([*lines, *again])) == []


def test_teardown_noise_after_a_requested_stop_alarms_nobody():
    noise = [
        f"[{stamp(20_200)}] Traceback (most recent call last):",
        *story.traceback_lines(story.FRAMES[:1], "KeyboardInterrupt"),
    ]
    lines = [*story.starting(), *story.stop_asked(20_000), *[Said(t, MAIN, 20_200) for t in noise], *SIGKILL_ENTRY]
    assert [c for c in crashes_of(story.as_json(lines)) if c.outcome.value in ALARMING] == []


TRACKER = [
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3.12/multiprocessing/resource_tracker.py", line 239, in main',
    "    cache[rtype].remove(name)",
    "KeyError: '/psm_12ab'",
]


@pytest.mark.parametrize("render", [story.as_text, story.as_json, story.as_short])
def test_what_pythons_cleaner_of_shared_memory_tells_is_no_crash(render):
    asked = Said(f"[{stamp(20_000)}] SIGTERM received. signum=15 frame=None. Draining requests", MAIN, 20_001)
    told = [Said(text, MAIN + 9, 20_200) for text in TRACKER]
    lines = [*story.starting(), *quiet_hours(10_000), *story.stop_asked(20_000), asked, *told, *SIGKILL_ENTRY]
    assert crashes_of(render(lines)) == []


def test_the_same_exception_elsewhere_in_the_server_is_one():
    body = [text.replace("/usr/lib/python3.12/multiprocessing/resource_tracker", "/srv/x/cache") for text in TRACKER]
    (crash,) = crashes_of(story.as_json([*story.starting(), *[Said(text, RANKS[1], 12_000) for text in body]]))
    assert crash.root.cause.exception == "KeyError"


def interrupted(lead):
    return [
        f"{lead}Traceback (most recent call last):",
        *story.traceback_lines(story.FRAMES[:1], "KeyboardInterrupt"),
        "",
    ]


def test_ctrl_c_while_it_loads_is_no_crash():
    ranks = [(f"[{stamp(5_000)} TP{rank}] Scheduler hit an exception: ", RANKS[rank]) for rank in range(2)]
    told = [Said(text, pid, 5_000) for lead, pid in [*ranks, ("^C", MAIN)] for text in interrupted(lead)]
    loading = [said for said in story.starting() if said.ms < 3_000]
    lines = [*loading, *told, *story.parent_gives_up(5_100)]
    for render in (story.as_text, story.as_json):
        assert [c for c in crashes_of(render(lines)) if c.outcome.value in ALARMING] == []


def test_ctrl_c_after_a_failure_leaves_the_failure():
    crash = story.rank_crash(12_000, 3)
    told = [Said(text, MAIN, 14_000) for text in interrupted("^C")]
    (crash,) = crashes_of(story.as_text([*story.starting(), *crash, *told]))
    assert crash.root.cause.exception == "AttributeError"


@pytest.mark.parametrize("mark", ["", "^C"])
@pytest.mark.parametrize("render", [story.as_text, story.as_json])
def test_ctrl_c_on_a_server_that_serves_is_no_crash(mark, render):
    """uvicorn's own shutdown comes first; a terminal echoes the key."""
    teardown = [
        Said(f"{mark}INFO:     Shutting down", MAIN, 12_000),
        Said("INFO:     Waiting for application shutdown.", MAIN, 12_000),
    ]
    lead = Said("Process SpawnProcess-1:", RANKS[0], 12_100)
    told = [lead, *[Said(text, RANKS[0], 12_100) for text in interrupted("")]]
    assert crashes_of(render([*story.starting(), *story.serving(10_000, 9), *teardown, *told])) == []


def test_a_server_that_somebody_told_to_end_did_not_fail_though_the_manager_saw_it_killed():
    word = Said(
        f"[{stamp(20_000)}] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
        MAIN,
        20_000,
    )
    end = story.unit_failed(22_000)
    (crash,) = crashes_of(story.as_json([*story.starting(), *quiet_hours(10_000), word, *end]))
    assert (crash.root.cause.exception, crash.outcome) == ("SIGKILL", Outcome.UNKNOWN)
    long_after = story.unit_failed(400_000)
    (crash,) = crashes_of(story.as_json([*story.starting(), *quiet_hours(10_000), word, *long_after]))
    assert crash.outcome is Outcome.FATAL
    (crash,) = crashes_of(story.as_json([*story.starting(), word, *story.rank_crash(21_000, 3), *end]))
    assert (crash.root.cause.exception, crash.outcome) == ("AttributeError", Outcome.FATAL)


@pytest.mark.parametrize("late", [300, 40_000])
@pytest.mark.parametrize("render", [story.as_json, story.as_short])
def test_who_ended_it_is_told_by_the_manager_though_the_server_says_only_that_it_was_told(render, late):
    lines = [*story.starting(), *quiet_hours(10_000)]
    told = Said(f"[{stamp(20_000)}] SIGTERM received. signum=15 frame=None. Draining requests", MAIN, 20_000)
    exited, failed = story.unit_failed(21_000, "killed", "15", "timeout")
    rest = [told, exited, Said("rank 3 still writes", RANKS[3], 21_200), replace(failed, ms=21_000 + late)]
    for text, word, outcome in (
        ("start operation timed out. Terminating.", "StartTimeout", Outcome.FATAL),
        ("Service reached runtime time limit. Stopping.", "RuntimeLimit", Outcome.UNKNOWN),
    ):
        manager = Said(f"{story.UNIT}: {text}", 1, 20_000)
        (crash,) = crashes_of(render([*lines, manager, *rest]))
        assert (crash.root.cause.exception, crash.outcome) == (word, outcome)
        (crash,) = crashes_of(render([*lines, manager, *story.rank_crash(20_500, 3), *rest]))
        assert (crash.root.cause.exception, crash.outcome) == ("AttributeError", Outcome.FATAL)


def test_a_sigkill_from_nowhere_is_fatal_though_the_log_says_nothing():
    (crash,) = crashes_of(story.as_json([*story.starting(), *quiet_hours(10_000), *SIGKILL_ENTRY]))
    assert (crash.root.cause.exception, crash.outcome, crash.phase) == ("SIGKILL", Outcome.FATAL, Phase.SERVING)


@pytest.mark.parametrize(
    ("code", "status", "result", "word"),
    [
        ("exited", "203", "exit-code", "ExitStatus 203"),
        ("exited", "1", "exit-code", "ExitStatus 1"),
        ("killed", "11", "signal", "SIGSEGV"),
        ("dumped", "6", "core-dump", "SIGABRT"),
        ("killed", "9", "oom-kill", "HostOutOfMemory"),
        ("killed", "15", "timeout", "StartTimeout"),
    ],
)
def test_an_end_without_a_word_of_the_server_gets_the_managers(code, status, result, word):
    start = Said(f"Starting {story.UNIT}...", 1, 0, {"MESSAGE_ID": "7d4958e842da4a758f6c1cdc7b36dcc5"})
    (crash,) = crashes_of(story.as_export([start, *story.unit_failed(500, code, status, result)]))
    assert (crash.root.cause.exception, crash.outcome) == (word, Outcome.FATAL)
    assert crash.phase is Phase.ARGUMENTS


START = Said(f"Starting {story.UNIT}...", 1, 0, {"MESSAGE_ID": "7d4958e842da4a758f6c1cdc7b36dcc5"})


def taking_long(result, code="killed", status="9", *, late=40_000):
    """The main process goes at once, its children are gone long after: only then the manager says why."""
    exited, failed = story.unit_failed(500, code, status, result)
    return [exited, Said("rank 3 still writes", RANKS[3], 5_000), Said(failed.text, 1, late, failed.fields)]


@pytest.mark.parametrize("render", [story.as_json, story.as_export, story.as_short])
@pytest.mark.parametrize(
    ("result", "code", "status", "word"),
    [
        ("timeout", "killed", "9", "StartTimeout"),
        ("timeout", "exited", "0", "StartTimeout"),  # it had looked like an end that is none
        ("watchdog", "dumped", "6", "WatchdogTimeout"),
        ("oom-kill", "killed", "15", "HostOutOfMemory"),
    ],
)
def test_a_result_that_the_manager_tells_late_is_the_result(render, result, code, status, word):
    (crash,) = crashes_of(render([START, *taking_long(result, code, status)]))
    assert (crash.root.cause.exception, crash.outcome) == (word, Outcome.FATAL)
    assert crash.end is not None
    assert crash.end.result == result
    if status != "0":  # read at once or bit by bit, it is one crash
        (at_once,) = crashes_of(render([START, *story.unit_failed(500, code, status, result)]))
        assert (crash.id, crash.key) == (at_once.id, at_once.key)


@pytest.mark.parametrize(
    "late",
    [
        [Said(f"{story.UNIT}: Failed with result 'signal'.", 1, 40_000)],  # nothing new
        [Said(f"{story.UNIT}: Failed with result 'success'.", 1, 40_000)],
        [START, Said(f"{story.UNIT}: Failed with result 'timeout'.", 1, 90_000, {}, "e" * 32)],  # the next start's
    ],
)
def test_a_late_word_that_says_nothing_new_or_is_of_another_start_corrects_nothing(late):
    exited = story.unit_failed(500, "killed", "9")[0]
    data = story.as_json([START, exited, Said("rank 3 still writes", RANKS[3], 5_000), *late])
    assert [event for event in events_of(data) if event.change is Change.CORRECTED] == []
    assert crashes_of(data)[0].root.cause.exception == "SIGKILL"


def test_the_end_of_a_stop_that_took_too_long_is_no_crash():
    exited, failed = story.unit_failed(20_500, "killed", "9", "timeout")
    late = Said(failed.text, 1, 60_000, failed.fields)
    lines = [*story.starting(), *story.stop_asked(20_000), exited, Said("x", RANKS[3], 22_000), late]
    for render in (story.as_json, story.as_export, story.as_short):
        assert crashes_of(render(lines)) == []


def test_a_crash_with_a_root_keeps_it_when_the_result_is_told_late():
    exited, failed = story.unit_failed(12_400, "killed", "9", "timeout")
    later = [Said("x", RANKS[3], 15_000), Said(failed.text, 1, 50_000, failed.fields)]
    (crash,) = crashes_of(story.as_json([*story.starting(), *story.rank_crash(12_000, 3), exited, *later]))
    assert (crash.root.cause.exception, crash.end.result) == ("AttributeError", "timeout")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("start operation timed out. Terminating.", "StartTimeout"),
        ("Start-pre operation timed out. Terminating.", "StartTimeout"),
        ("Watchdog timeout (limit 3min)!", "WatchdogTimeout"),
        ("Service reached runtime time limit. Stopping.", "RuntimeLimit"),
        ("State 'stop-sigterm' timed out. Killing.", "SIGKILL"),
        ("Reload operation timed out. Killing reload process.", "SIGKILL"),
    ],
)
def test_the_manager_foretells_why_it_ends_the_unit(text, word):
    """So the first alert is right already, however long the children take."""
    exited = story.unit_failed(500, "killed", "9")[0]
    lines = [START, Said(f"{story.UNIT}: {text}", 1, 400), exited, Said("rank 3 still writes", RANKS[3], 5_000)]
    for render in (story.as_json, story.as_short):
        (event,) = [event for event in events_of(render(lines)) if event.change is Change.CLOSED]
        assert event.crash.root.cause.exception == word


def test_what_a_process_writes_that_its_units_watchdog_ends_is_not_the_cause():
    dump = [
        "Fatal Python error: Aborted",
        "Current thread 0x00007f22 (most recent call first):",
        '  File "/usr/lib/python3.12/selectors.py", line 468 in select',
        "Extension modules: numpy",
    ]
    lines = [
        *story.starting(),
        Said(f"{story.UNIT}: Watchdog timeout (limit 5min)!", 1, 400_000),
        *[Said(text, MAIN, 400_010) for text in dump],
        *story.unit_failed(400_300, "dumped", "6", "watchdog"),
    ]
    for render in (story.as_json, story.as_short):
        (crash,) = crashes_of(render(lines))
        assert (crash.root.cause.exception, crash.outcome) == ("WatchdogTimeout", Outcome.FATAL)
        assert [each.cause.exception for each in crash.failures[1:]] == ["SIGABRT"]


def test_lines_that_come_after_the_managers_word_still_belong_to_the_crash():
    crash_lines = story.rank_crash(12_000, 3)
    lines = [*story.starting(), *story.unit_failed(12_001), *[Said(s.text, s.pid, 12_300) for s in crash_lines]]
    (crash,) = crashes_of(story.as_json(lines))
    assert (crash.root.cause.exception, crash.root.rank, crash.outcome) == ("AttributeError", "TP3", Outcome.FATAL)


def test_of_two_units_in_one_text_none_is_named():
    other = [
        replace(each, text=each.text.replace(story.UNIT, "sglang-b.service")) for each in story.unit_failed(13_000)
    ]
    crash = [*story.starting(), *story.rank_crash(11_000, 0), *story.unit_failed(12_500)]
    (found,) = crashes_of(story.as_short(crash))
    assert (found.unit, found.grade) == (story.UNIT, Grade.COMPLETE)
    started = replace(story.starting()[0], text="Started sglang-b.service.", pid=1)
    (found, *_) = crashes_of(story.as_short([started, *crash, *other]))
    assert (found.unit, found.grade) == (None, Grade.MIXED)


def test_a_start_limit_is_a_crash_of_its_own():
    limit = Said(f"{story.UNIT}: Start request repeated too quickly.", 1, 30_000)
    failed = story.unit_failed(30_001)[1]
    one, two = crashes_of(story.as_json([*story.story(), limit, failed]))
    assert one.root.cause.exception == "AttributeError"
    assert (two.root.cause.exception, two.outcome) == ("StartLimit", Outcome.FATAL)


def test_a_unit_whose_start_could_not_be_prepared_says_why():
    """The manager's last word names no reason; the first line of those before does."""
    why = f"{story.UNIT}: Failed to load environment files: No such file or directory"
    lines = [
        Said(why, 1, 100),
        Said(f"{story.UNIT}: Failed to run 'start' task: No such file or directory", 1, 101),
        Said(f"{story.UNIT}: Failed with result 'resources'.", 1, 102),
    ]
    for text in (story.as_json(lines), story.as_short(lines)):
        (found,) = crashes_of(text)
        cause = found.root.cause
        assert (cause.exception, cause.message, found.outcome) == ("UnitResources", why, Outcome.FATAL)


def test_a_failed_request_is_a_request_error():
    head = [Said("ERROR:    Exception in ASGI application", MAIN, 11_000)]
    body = [
        "Traceback (most recent call last):",
        *story.traceback_lines(story.FRAMES[:2], "ValueError: tool call parser"),
    ]
    lines = [*story.starting(), *head, *[Said(t, MAIN, 11_000) for t in body], *story.serving(12_000, 800)]
    for render in (story.as_text, story.as_json):
        (crash,) = crashes_of(render(lines))
        assert crash.outcome is Outcome.REQUEST_ERROR


def test_a_traceback_that_nobody_finished_does_not_make_the_failure_later():
    """It is given up ten seconds after; the work that was done meanwhile still shows that the server lives."""
    half = [
        Said(text, MAIN, 10_500) for text in ("Traceback (most recent call last):", '  File "/x/a.py", line 1, in f')
    ]
    died = [Said("Fatal Python error: Aborted", MAIN, 10_500), *story.parent_gives_up(10_500)]
    (crash,) = crashes_of(story.as_text([*story.starting(), *died[:1], *half, *story.serving(10_600, 300)]))
    assert crash.outcome is Outcome.RECOVERED


def test_a_server_that_seldom_works_outlived_it_too():
    body = ["Traceback (most recent call last):", *story.traceback_lines(story.FRAMES[3:5], "OSError: disk cache")]
    work = [said for minute in range(1, 4) for said in story.serving(11_000 + 60_000 * minute, 1)]
    lines = [*story.starting(), *[Said(t, RANKS[0], 11_000) for t in body], *work]
    (crash,) = crashes_of(story.as_text(lines))
    assert crash.outcome is Outcome.RECOVERED
    assert crash.ended - crash.started < 1_000_000


def test_a_server_that_goes_on_working_was_not_killed():
    body = ["Traceback (most recent call last):", *story.traceback_lines(story.FRAMES[3:5], "OSError: disk cache")]
    lines = [*story.starting(), *[Said(t, RANKS[0], 11_000) for t in body], *story.serving(12_000, 800)]
    for render in (story.as_text, story.as_json):
        (crash,) = crashes_of(render(lines))
        assert crash.outcome is Outcome.RECOVERED


def test_a_process_that_is_said_to_have_died_and_works_on_did_not():
    stray = Said("terminate called after throwing an instance of 'std::bad_alloc'", RANKS[0], 11_000)
    steps = [
        Said(f"[{stamp(11_000 + n * 500)} TP0] Decode batch, #running-req: 2, #token: {n}", RANKS[0], 11_000 + n * 500)
        for n in range(60)
    ]
    (crash,) = crashes_of(story.as_json([*story.starting(), stray, *steps]))
    assert crash.outcome is Outcome.RECOVERED
    others = [replace(step, pid=RANKS[1]) for step in steps]
    (crash,) = crashes_of(story.as_json([*story.starting(), stray, *others]))
    assert crash.outcome is Outcome.DEGRADED


def test_a_scheduler_lost_while_the_unit_serves_on_is_degraded():
    lines = [*story.starting(), *story.rank_crash(11_000, 5), *story.serving(12_000, 800)]
    (crash,) = crashes_of(story.as_json(lines))
    assert crash.outcome is Outcome.DEGRADED


def test_sigquit_without_a_root_is_never_fatal_in_a_plain_log():
    (crash,) = crashes_of(story.as_text([*story.starting(), *story.parent_gives_up(12_000)]))
    assert (crash.root.cause.exception, crash.outcome) == ("SIGQUIT", Outcome.UNKNOWN)


def test_an_exception_without_an_end_is_unknown_in_a_plain_log():
    (crash,) = crashes_of(story.as_text([*story.starting(), *story.rank_crash(12_000, 0)]))
    assert crash.outcome is Outcome.UNKNOWN


def test_a_usage_error_ends_the_log_and_is_fatal():
    text = b"usage: sglang serve [-h] [--tp N]\nsglang serve: error: unrecognized arguments: --turbo\n"
    (crash,) = documents_of(text)
    assert (crash["root"]["exception"], crash["outcome"], crash["phase"]) == ("UsageError", "fatal", "arguments")
    assert crash["root"]["message"] == "unrecognized arguments: --turbo"


def test_arguments_that_are_refused_at_the_start_after_a_clean_stop_are_fatal():
    stop = Said(f"[{stamp(20_000)}] Gracefully exiting... Remaining number of requests 0.", MAIN, 20_000)
    usage = ["usage: sglang serve [-h] --model-path MODEL_PATH", "sglang serve: error: unrecognized arguments: --turbo"]
    lines = [*story.starting(), *story.serving(10_000, 9), stop, *[Said(text, MAIN, 30_000) for text in usage]]
    (crash,) = crashes_of(story.as_text(lines))
    assert (crash.root.cause.exception, crash.outcome, crash.phase) == ("UsageError", Outcome.FATAL, Phase.ARGUMENTS)


def test_the_main_programs_own_exception_is_fatal():
    frames = (
        ("<frozen runpy>", 198, "_run_module_as_main", "x"),
        ("sglang/srt/server_args.py", 812, "__post_init__", "raise"),
    )
    body = ["Traceback (most recent call last):", *story.traceback_lines(frames, "ValueError: SSL key file not found")]
    text = "\n".join(body).replace(f"{story.SITE}/<frozen", "<frozen").encode()
    (crash,) = crashes_of(text)
    assert (crash.outcome, crash.phase) == (Outcome.FATAL, Phase.ARGUMENTS)


@pytest.mark.parametrize(
    "path",
    [
        "/opt/sglang/bin/sglang",
        "/usr/local/bin/sglang",
        "/sgl-workspace/sglang/python/sglang/launch_server.py",
        f"{story.SITE}/sglang/__main__.py",
    ],
)
def test_the_main_program_is_one_wherever_it_lies(path):
    head = ["Traceback (most recent call last):", f'  File "{path}", line 8, in <module>', "    sys.exit(main())"]
    body = story.traceback_lines((("sglang/srt/server_args.py", 812, "__post_init__", "raise"),), "ValueError: no")
    (crash,) = crashes_of("\n".join([*head, *body]).encode())
    assert (crash.outcome, crash.phase) == (Outcome.FATAL, Phase.ARGUMENTS)


def test_a_module_of_the_engine_that_tells_of_a_failed_import_is_no_main_program():
    frames = (("sglang/srt/layers/quant.py", 8, "<module>", "import x"),)
    text = "\n".join(["Traceback (most recent call last):", *story.traceback_lines(frames, "ImportError: no x")])
    (crash,) = crashes_of(text.encode())
    assert crash.outcome is Outcome.UNKNOWN


def test_a_http_server_that_does_not_come_up_ends_the_server():
    frames = (("sglang/srt/entrypoints/http_server.py", 188, "lifespan", "await warmup(app)"),)
    body = [
        "ERROR:    Traceback (most recent call last):",
        *story.traceback_lines(frames, "ValueError: no such warm-up"),
    ]
    body += ["", "ERROR:    Application startup failed. Exiting."]
    up = [said for said in story.starting() if "Application" not in said.text and "ready to roll" not in said.text]
    (crash,) = crashes_of(story.as_text([*up, *[Said(text, MAIN, 9_600) for text in body]]))
    assert (crash.root.cause.exception, crash.outcome) == ("ValueError", Outcome.FATAL)


CHILD = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + "=" * 40 + "\nsglang.launch_server FAILED"
)


@pytest.mark.parametrize(
    "head",
    [
        "E1129 12:00:12.001000 4100 torch/distributed/elastic/multiprocessing/api.py:882] ",
        "E1129 12:00:12.001000 4100 torch/distributed/elastic/multiprocessing/api.py:882] [default0] ",
        "ERROR:torch.distributed.elastic.multiprocessing.api:",
    ],
)
def test_torchruns_word_of_a_dead_rank_is_the_parents(head):
    frames = (("torch/distributed/launcher/api.py", 270, "launch_agent", "raise ChildFailedError("),)
    told = ["Traceback (most recent call last):", *story.traceback_lines(frames, CHILD)]
    died = f"{head}failed (exitcode: -6) local_rank: 2 (pid: 4202) of binary: /usr/bin/python3"
    lines = [Said(text, MAIN, 12_000) for text in (died, *told)]
    for render in (story.as_text, story.as_json):
        (crash,) = crashes_of(render([*story.starting(), *lines]))
        assert (crash.root.cause.exception, crash.root.pid) == ("SIGABRT", 4202)
    (crash,) = crashes_of(story.as_json([*story.starting(), *story.rank_crash(11_900, 2), *lines]))
    assert crash.root.cause.exception == "AttributeError"


def test_a_record_that_quotes_torchrun_tells_of_no_rank():
    told = "failed (exitcode: -6) local_rank: 2 (pid: 4202) of binary: /usr/bin/python3"
    text = f"[{stamp(12_000)}] Error: torch/distributed/elastic/multiprocessing/api.py:882] {told}"
    assert crashes_of(story.as_text([*story.starting(), Said(text, MAIN, 12_000)])) == []


def test_a_killed_scheduler_is_known_from_its_parent():
    gone = Said(
        f"[{stamp(12_000)}] Subprocess scheduler_0 (pid=4203) crashed with exit code -9. Triggering SIGQUIT for",
        MAIN,
        12_000,
    )
    for render in (story.as_text, story.as_json):
        (crash,) = crashes_of(
            render([*story.starting(), gone, *story.parent_gives_up(12_001), *story.unit_failed(12_100)])
        )
        assert (crash.root.cause.exception, crash.outcome) == ("SIGKILL", Outcome.FATAL)


def test_the_exit_code_of_the_sigquit_itself_is_no_cause():
    gone = Said(
        f"[{stamp(12_000)}] Subprocess scheduler_0 (pid=4203) crashed with exit code -3. Triggering SIGQUIT for",
        MAIN,
        12_000,
    )
    (crash,) = crashes_of(story.as_text([*story.starting(), gone]))
    assert (crash.root.cause.exception, crash.grade) == ("ExitStatus -3", Grade.CUT)


def test_an_oom_kill_by_the_kernel_is_the_root_of_what_the_parent_saw():
    kill = "Memory cgroup out of memory: Killed process 4203 (python3) total-vm:90000kB, anon-rss:80000kB, UID:0"
    gone = Said(
        f"[{stamp(12_050)}] Subprocess scheduler_3 (pid=4203) crashed with exit code -9. Triggering SIGQUIT for",
        MAIN,
        12_050,
    )
    for order in ((12_000, 0), (12_300, 1)):
        lines = [Said(kill, 0, order[0]), gone] if order[1] == 0 else [gone, Said(kill, 0, order[0])]
        (crash,) = crashes_of(story.as_json([*story.starting(), *lines, *story.unit_failed(12_500)]))
        assert (crash.root.cause.exception, crash.unit, crash.root.rank) == ("HostOutOfMemory", story.UNIT, "TP3")


def test_a_foreign_oom_kill_is_nobodys_crash():
    kill = Said("Out of memory: Killed process 77 (chrome) total-vm:1kB", 0, 12_000)
    assert crashes_of(story.as_json([*story.starting(), kill])) == []


def test_an_xid_that_takes_the_device_away_is_the_root():
    xid = Said("NVRM: Xid (PCI:0000:9b:00): 79, pid=4203, name=python3, GPU has fallen off the bus.", 0, 11_900)
    crash_lines = story.rank_crash(12_000, 3, "torch.AcceleratorError: CUDA error: unspecified launch failure")
    (crash,) = crashes_of(story.as_json([*story.starting(), xid, *crash_lines, *story.unit_failed(12_500)]))
    assert (crash.root.cause.exception, crash.unit) == ("Xid 79", story.UNIT)


def test_an_xid_of_the_application_only_confirms():
    xid = Said("NVRM: Xid (PCI:0000:9b:00): 31, pid=4203, name=python3, MMU Fault: ENGINE GRAPHICS", 0, 11_900)
    crash_lines = story.rank_crash(
        12_000, 3, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    )
    (crash,) = documents_of(story.as_json([*story.starting(), xid, *crash_lines, *story.unit_failed(12_500)]))
    assert crash["root"]["exception"] == "torch.AcceleratorError"
    assert [f["exception"] for f in crash["failures"] if f["role"] == "confirmation"] == ["Xid 31"]


def test_an_xid_with_no_unit_near_is_a_crash_without_unit():
    xid = Said("NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", 0, 11_900)
    (crash,) = crashes_of(story.as_json([xid]))
    assert (crash.root.cause.exception, crash.unit) == ("Xid 79", None)


def test_suppressed_lines_lower_the_grade():
    notice = Said(
        "Suppressed 2350 messages", -1, 11_990, {"MESSAGE_ID": "a596d6fe7bfa4994828e72309e95d61e", "N_DROPPED": "2350"}
    )
    lines = [*story.starting(), *story.rank_crash(12_000, 3), notice, *story.unit_failed(12_500)]
    (crash,) = documents_of(story.as_export(lines))
    assert crash["evidence"]["grade"] == "suppressed"


def test_a_traceback_that_journald_dropped_the_end_of_is_suppressed_and_not_only_cut():
    notice = Said(
        "Suppressed 2350 messages", -1, 12_090, {"MESSAGE_ID": "a596d6fe7bfa4994828e72309e95d61e", "N_DROPPED": "2350"}
    )
    lines = [*story.starting(), *story.rank_crash(12_000, 3)[:3], notice, *story.unit_failed(12_500)]
    (crash,) = documents_of(story.as_export(lines))
    assert crash["evidence"]["grade"] == "suppressed"


def test_a_message_the_exporter_left_out_lowers_the_grade():
    lines = story.rank_crash(12_000, 3)
    data = story.as_json([*story.starting(), *lines, *story.unit_failed(12_500)])
    marked = data.replace(b'"MESSAGE": "    ' + story.FRAMES[0][3].encode() + b'"', b'"MESSAGE": null', 1)
    assert marked != data
    (crash,) = documents_of(marked)
    assert crash["evidence"]["grade"] == "cut"


def graded(lines, gap_at, gap_ms):
    """Grades of the crashes where the source says that entries are missing before line `gap_at`."""
    source = StreamSource("journal", io.BytesIO(story.as_json(lines)), units=("*",))
    read = [line for batch in source.batches() for line in batch.lines]
    read.insert(gap_at, gap_line(-1, story.START + gap_ms * 1000))
    assembler = Assembler()
    events = [event for line in read for event in assembler.feed(line)] + assembler.finish()
    return [event.crash.grade for event in events if event.change is Change.CLOSED]


def test_entries_lost_in_a_crash_or_shortly_before_lower_the_grade():
    before = story.starting()
    lines = [*before, *story.rank_crash(12_000, 3), *story.unit_failed(12_500)]
    assert graded(lines, len(before) + 8, 12_000) == [Grade.ROTATED]
    assert graded(lines, len(lines) - 2, 12_400) == [Grade.ROTATED]
    assert graded(lines, len(before), 11_900) == [Grade.ROTATED]
    assert graded(lines, 0, 11_900) == [Grade.ROTATED]


def test_entries_lost_long_before_a_crash_do_not_lower_its_grade():
    lines = [*story.starting(), *story.serving(10_000, 1_500), *story.rank_crash(80_000, 3), *story.unit_failed(80_500)]
    assert graded(lines, 3, 1_000) == [Grade.COMPLETE]


def test_a_server_that_only_logs_its_answers_is_known_to_serve():
    starting = [Said(f"Starting {story.UNIT}...", 1, 0, {"MESSAGE_ID": "7d4958e842da4a758f6c1cdc7b36dcc5"})]
    answer = Said('INFO:     10.1.0.9:5 - "POST /generate HTTP/1.1" 200 OK', story.MAIN, 9_000)
    health = Said('INFO:     10.1.0.9:5 - "GET /health HTTP/1.1" 200 OK', story.MAIN, 8_000)
    died = [*story.rank_crash(12_000, 3), *story.unit_failed(12_500)]
    for before, phase in (([], Phase.ARGUMENTS), ([health], Phase.WARMUP), ([health, answer], Phase.SERVING)):
        (crash,) = crashes_of(story.as_json([*starting, *before, *died]))
        assert crash.phase is phase
    (crash,) = crashes_of(story.as_text([answer, *died]))
    assert crash.phase is Phase.SERVING


@pytest.mark.parametrize("crashed", [True, False])
@pytest.mark.parametrize("asked", [True, False])
def test_a_unit_that_ended_well_after_a_failure_that_ends_a_process_has_failed(crashed, asked):
    """Some exit with 0 after a crash; a traceback that ended nothing is no reason for such an end."""
    lines = [*story.starting(), *story.serving(10_000, 10), *(story.stop_asked(12_000) if asked else [])]
    failed = story.rank_crash(12_000, 5)
    failed = failed if crashed else [replace(failed[0], text="Traceback (most recent call last):"), *failed[1:]]
    done = Said(
        f"{story.UNIT}: Deactivated successfully.", 1, 12_500, {"MESSAGE_ID": "7ad2d189f7e94e70a38c781354912448"}
    )
    (crash,) = crashes_of(story.as_json([*lines, *failed, done]))
    assert crash.outcome is (Outcome.FATAL if crashed and not asked else Outcome.UNKNOWN)
