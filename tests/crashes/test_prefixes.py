"""Whatever stands before each line: the same crash, and no line of another is taken into its message."""

import json

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of

LINES = [*story.starting(1), *story.rank_crash(12_000, 0), *story.parent_gives_up(12_300)]
ENDED = [*LINES, *story.unit_failed(12_500)]


def told(crash):
    return crash.id, crash.outcome.value, crash.grade.value, crash.phase.value, crash.root.chain


def writer(said, unit="python3"):
    ident = {0: "kernel", 1: "systemd[1]" if unit == "python3" else "init.scope[1]"}.get(said.pid)
    return f"{ident or f'{unit}[{said.pid}]'}:"


FULL = "Sun 2026-11-29 12:00:{:02d} {} gpu-ash"
JOURNALCTL = {
    "short-full": lambda said: f"{FULL.format(said.ms // 1000, 'UTC')} {writer(said)}",
    "short-full of another zone": lambda said: f"{FULL.format(said.ms // 1000, '+00')} {writer(said)}",
    "with-unit": lambda said: f"{FULL.format(said.ms // 1000, 'UTC')} {writer(said, story.UNIT)}",
    "short-unix": lambda said: f"{(story.START + said.ms * 1000) / 1e6:.6f} gpu-ash {writer(said)}",
    "short-monotonic": lambda said: f"[{20_000 + said.ms / 1000:12.6f}] gpu-ash {writer(said)}",
    "short-delta": lambda said: f"[{said.ms / 1000:12.6f} <    0.000113 >] gpu-ash {writer(said)}",
    "short-delta's first": lambda said: f"[{said.ms / 1000:12.6f}{' ' * 16}] gpu-ash {writer(said)}",
    "no-hostname": lambda said: f"Nov 29 12:00:{said.ms // 1000:02d} {writer(said)}",
}


@pytest.mark.parametrize("form", JOURNALCTL)
def test_all_short_forms_of_journalctl_are_read_the_same(form):
    (crash,) = crashes_of("".join(f"{JOURNALCTL[form](said)} {said.text}\n" for said in ENDED).encode())
    (plain,) = crashes_of(story.as_short(ENDED))
    assert told(crash) == told(plain)
    assert (crash.unit, crash.root.pid, crash.end.result) == (story.UNIT, story.RANKS[0], "signal")
    if "short-" not in form or form in ("short-full", "short-unix"):
        assert crash.started == plain.started


def test_a_process_that_writes_like_the_manager_is_not_the_manager():
    """Only the outermost prefix is journalctl's; where it left out the host too."""
    faked = [
        *LINES,
        *[story.Said(f"systemd[1]: {said.text}", story.MAIN, 12_500) for said in story.unit_failed(12_500)],
    ]
    for form in ("no-hostname", "short-full"):
        (crash,) = crashes_of("".join(f"{JOURNALCTL[form](said)} {said.text}\n" for said in faked).encode())
        assert crash.end is None


CTIME = "Sun Nov 29 12:00:12 2026"
BEFORE = {
    "OpenMPI 5": "[prterun-gpu-ash-4100@1,0]<stdout>:",
    "OpenMPI 5 in detail": "[prterun-gpu-ash-4100@1,0][gpu-ash:4100]<stdout>: ",
    "OpenMPI's time": f"{CTIME}<stdout>:",
    "OpenMPI's time and tag": f"{CTIME}[1,0]<stderr>:",
    "OpenMPI 5's time and a named job": "Sun Nov 29 12:00:12 UTC 2026 [job7,0]<stdout>: ",
    "a named job": "[job7,0]<stderr>: ",
    "MPICH": "[0@gpu-ash] ",
    "srun -l": "0: ",
    "stern": "engine-0 main ",
    "stern with times": "engine-0 main 2026-11-29T12:00:12.123456789Z ",
    "a host": "gpu-ash: ",
    "NULs": "\0\0\0",
    "podman logs --names": "engine-1 ",
    "podman logs of several": "3f2a9c0d1b7e ",
    "Docker Swarm": "llm_engine.1.k2hq0v8wz1x3y@gpu-ash    | ",
    "Docker Swarm with times": "2026-11-29T12:00:12.123456789Z llm_engine.1.k2hq0v8wz1x3y@gpu-ash    | ",
    "kubectl with times": "[pod/engine-0/main] 2026-11-29T12:00:12.123456789Z ",
    "logcli": '2026-11-29T12:00:12Z {app="engine", pod="engine-0"} ',
    "pm2": "0|engine  | ",
    "foreman": "12:00:12 engine.1  | ",
    "ts": "Nov 29 12:00:12 ",
    "syslog's newer form": "<14>1 2026-11-29T12:00:12.345Z gpu-ash engine 4100 - - ",
    "a CI's job": "serve\tRun server\t2026-11-29T12:00:12.1234567Z ",
    "a bracketed level": "[2026-11-29 12:00:12][INFO] ",
    "a bracketed level and place": "[2026-11-29 12:00:12,345] [ERROR][run.py:77] ",
    "loguru": "2026-11-29 12:00:12.345 | INFO     | launcher.pump:<module>:77 - ",
    "loguru with bars": "2026-11-29 12:00:12.345 | ERROR    | launcher.pump:run:77 | ",
    "structlog": "2026-11-29T12:00:12Z [error    ] ",
}


@pytest.mark.parametrize("name", BEFORE)
def test_what_another_program_puts_before_each_line_changes_neither_the_message_nor_the_outcome(name):
    (plain,) = crashes_of(story.as_text(LINES))
    (crash,) = crashes_of("".join(f"{BEFORE[name]}{said.text}\n" for said in LINES).encode())
    assert told(crash)[1:] == told(plain)[1:]
    assert (crash.ranks, crash.root.rank) == (plain.ranks, plain.root.rank) == (("TP0",), "TP0")
    assert plain.outcome.value == "fatal"


ENDS = (
    "Received sigquit from a child process. It usually means the child failed.",
    "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    "Subprocess scheduler_0 (pid=4200) crashed with exit code -3. Triggering SIGQUIT for cleanup...",
)


@pytest.mark.parametrize("end", ENDS)
def test_without_times_a_parents_word_is_no_part_of_the_message(end):
    bare = [said.text.split("] ", 1)[-1] for said in story.rank_crash(12_000, 0)]
    (crash,) = crashes_of("\n".join([*bare, "", end, ""]).encode())
    assert (crash.root.cause.message, crash.outcome.value) == (story.NONE_TYPE.split(": ", 1)[1], "fatal")


@pytest.mark.parametrize("prefix", ["(pid=88) ", "(sglang, pid=88) ", "(task, rank=0, pid=88) ", "(Actor(0) pid=88) "])
def test_the_words_of_ray_and_skypilot(prefix):
    (plain,) = crashes_of(story.as_text(LINES))
    (crash,) = crashes_of("".join(f"{prefix}{said.text}\n" for said in LINES).encode())
    assert (told(crash), crash.root.pid) == (told(plain), 88)


@pytest.mark.parametrize(
    "stamp", ["2026-11-29T12:00:12.123456789Z ", "2026-11-29T12:00:12Z ", "2026-11-29T14:00:12.123456789+02:00 "]
)
def test_two_words_behind_a_container_engines_time_are_the_programs(stamp):
    lines = ("usage: sglang serve [-h]", "sglang serve: error: unrecognized arguments: --no-such-flag")
    (plain,) = crashes_of("".join(f"{line}\n" for line in lines).encode())
    (crash,) = crashes_of("".join(f"{stamp}{line}\n" for line in lines).encode())
    assert (crash.id, crash.root.chain) == (plain.id, plain.root.chain)


def test_a_warning_long_before_the_end_is_the_root_by_no_road():
    warning = story.Said("gpu1:4200:4311 [0] NCCL WARN Failed to open libibverbs.so[.1]", story.RANKS[0], 1_500)
    for end, name in ((9_000, "NcclError"), (65_000, "SIGKILL")):
        lines = [*story.starting(1)[:2], warning, *story.starting(1)[2:4], *story.unit_failed(end)]
        roots = [
            crash.root.cause.exception for road in (story.as_short, story.as_json) for crash in crashes_of(road(lines))
        ]
        assert roots == [name, name]


@pytest.mark.parametrize("name", BEFORE)
def test_behind_any_prefix_the_ranks_of_a_crash_are_known_and_kept_apart(name):
    lines = [*story.starting(2), *story.rank_crash(12_000, 1), *story.rank_crash(12_000, 0)]
    (crash,) = crashes_of("".join(f"{BEFORE[name]}{said.text}\n" for said in lines).encode())
    assert crash.ranks == ("TP1", "TP0")
    assert [len(failure.cause.frames) for failure in crash.failures] == [len(story.FRAMES)] * 2


@pytest.mark.parametrize(
    "before",
    [
        f"[{story.stamp(11_000)}] The input is odd: hello ",
        'INFO:     10.1.0.9:52114 - "GET /',
        "INFO:     Invalid request: ",
        f"[{story.stamp(11_000)}] Receive: text='",
    ],
)
def test_a_ranks_head_within_a_record_is_its_text(before):
    """Whoever sends a request can have it logged."""
    head, *rest = story.rank_crash(12_000, 0)
    lines = [*story.starting(1), story.Said(before + head.text, story.MAIN, 11_000)]
    (crash,) = crashes_of(story.as_text([*lines, *rest]))
    assert (crash.root.rank, crash.outcome.value) == (None, "unknown")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Loki", lambda said: {"labels": {"app": "x"}, "line": said.text, "timestamp": "2026-11-29T12:00:12Z"}),
        ("stern", lambda said: {"message": said.text, "podName": "engine-0", "containerName": "main"}),
        ("a cloud", lambda said: {"textPayload": said.text, "timestamp": "2026-11-29T12:00:12Z", "severity": "INFO"}),
        ("structlog", lambda said: {"event": said.text, "level": "info", "timestamp": "2026-11-29T12:00:12Z"}),
        ("loguru", lambda said: {"text": said.text + "\n", "record": {"level": {"name": "INFO"}}}),
    ],
)
def test_collectors_and_loggers_json_is_read(name, text):
    (plain,) = crashes_of(story.as_text(LINES))
    (crash,) = crashes_of("".join(json.dumps(text(said)) + "\n" for said in LINES).encode())
    assert told(crash) == told(plain)


EXITED = "2026-11-29 12:00:20,123 INFO exited: {} ({}; not expected)"
GONE = [
    "2026-11-29 12:00:00,001 INFO spawned: 'sglang' with pid 77",
    EXITED,
    "2026-11-29 12:00:21,0 INFO gave up: sglang",
]


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ("exit status 3", "ExitStatus 3"),
        ("terminated by SIGKILL", "SIGKILL"),
        ("terminated by SIGSEGV (core dumped)", "SIGSEGV"),
    ],
)
def test_supervisords_word_of_an_end_is_the_root_where_the_server_said_nothing(how, word):
    (crash,) = crashes_of("\n".join(GONE).format("sglang", how).encode())
    assert (crash.root.cause.exception, crash.outcome.value) == (word, "fatal")
    assert crashes_of("\n".join(GONE).format("nginx", how).encode()) == []
    assert crashes_of("\n".join(GONE).replace("not expected", "expected").format("sglang", how).encode()) == []
    amid = [*(said.text for said in LINES), EXITED.format("sglang", how), ""]
    (crash,) = crashes_of("\n".join(amid).encode())
    assert (crash.root.cause.exception, crash.root.rank, crash.outcome.value) == ("AttributeError", "TP0", "fatal")
