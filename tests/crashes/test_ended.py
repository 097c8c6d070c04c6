"""What the kernel and systemd-coredump say of a process of the server that ended in silence."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import MAIN, RANKS, Said
from triage.engine.signature import sign
from triage.model import Grade, Outcome

RANK = RANKS[2]
FAULTS = {
    f"sglang::schedul[{RANK}]: segfault at 18 ip 00007f11 sp 00007ffd error 4 in libx.so[7f10+1000]": "SIGSEGV",
    f"traps: sglang::schedul[{RANK}] general protection fault ip:7f11 sp:7ffd error:0 in libx.so[7f10+1000]": "SIGSEGV",
    f"traps: python3[{RANK}] trap invalid opcode ip:7f11 sp:7ffd error:0 in libx.so[7f10+1000]": "SIGILL",
    f"traps: python3[{RANK}] trap divide error ip:7f11 sp:7ffd error:0 in libx.so[7f10+1000]": "SIGFPE",
}
CORE = {"MESSAGE_ID": "fc2e22bc6ee647b6b90729ab34a250b1", "COREDUMP_UNIT": story.UNIT, "COREDUMP_SIGNAL": "11"}


def dumped(pid, ms, **fields):
    about = {**CORE, "COREDUMP_PID": str(pid), "_SYSTEMD_UNIT": "systemd-coredump@1.service", "UNIT": "", **fields}
    return Said(f"Process {pid} (python3) of user 0 dumped core.\n\nStack trace of thread {pid}:", 1, ms, about)


def crash_of(*said):
    (crash,) = crashes_of(story.as_json([*story.starting(), *said, *story.unit_failed(13_400)]))
    return crash


QUIT = story.parent_gives_up(13_200)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_kernel_says_of_a_rank_is_the_root_where_the_rank_said_nothing(fault):
    crash = crash_of(Said(fault, 0, 13_000), *QUIT)
    assert (crash.root.cause.exception, crash.root.rank, crash.root.pid) == (FAULTS[fault], "TP2", RANK)
    assert crash.outcome is Outcome.FATAL


@pytest.mark.parametrize("fault", FAULTS)
def test_addresses_make_no_other_fault(fault):
    other = (
        fault.replace("7f11", "7facc4e0").replace("7ffd", "7ff3b2d0").replace("7f10", "7fc2a").replace("at 18", "at 0")
    )
    crashes = [crash_of(Said(text, 0, 13_000), *QUIT) for text in (fault, other)]
    assert len({sign(crash).key for crash in crashes}) == 1
    assert crashes[0].root.cause.message.endswith(" in libx.so")
    assert fault in [line.text for line in crashes[0].evidence]


def test_what_the_rank_said_itself_says_more():
    crash = crash_of(*story.rank_crash(12_900, 2), Said(next(iter(FAULTS)), 0, 13_000), dumped(RANK, 13_100), *QUIT)
    assert crash.root.cause.exception == "AttributeError"
    crash = crash_of(Said(next(iter(FAULTS)), 0, 12_900), *story.rank_crash(13_000, 2), *QUIT)
    assert crash.root.cause.exception == "AttributeError"


@pytest.mark.parametrize("name", ["sglang::schedul", "python3", "nvcc"])
def test_a_fault_of_another_process_is_none_of_the_servers(name):
    crash = crash_of(Said(f"{name}[77777]: segfault at 0 ip 7f11 sp 7ffd error 4 in libx.so[7f10+1]", 0, 13_000), *QUIT)
    assert (crash.root.cause.exception, crash.root.rank) == ("SIGKILL", None)


@pytest.mark.parametrize("run", [{}, {"OBJECT_SYSTEMD_INVOCATION_ID": story.RUN}])
def test_a_core_of_a_rank_names_it(run):
    crash = crash_of(dumped(RANK, 13_000, **run), *QUIT)
    assert (crash.root.cause.exception, crash.root.rank, crash.outcome) == ("SIGSEGV", "TP2", Outcome.FATAL)
    assert crash.root.cause.message == f"Process {RANK} (python3) of user 0 dumped core."


@pytest.mark.parametrize("said", [Said(next(iter(FAULTS)), 0, 13_000), dumped(RANK, 13_000)])
def test_a_rank_that_faulted_is_one_that_is_gone_though_the_server_does_not_end(said):
    (crash,) = crashes_of(story.as_json([*story.starting(), said, *story.serving(40_000, 3)]))
    assert (crash.root.cause.exception, crash.root.rank, crash.outcome) == ("SIGSEGV", "TP2", Outcome.DEGRADED)


def test_a_core_of_a_helper_is_no_crash():
    healthy = [*story.starting(), dumped(77_777, 13_000), *story.serving(14_000, 20)]
    assert not crashes_of(story.as_json(healthy))


def test_a_core_in_a_stop_that_was_asked_for_is_no_crash():
    stop = Said(f"Stopping {story.UNIT}...", 1, 12_000, {"MESSAGE_ID": story.STOPPING, "JOB_TYPE": "stop"})
    lines = [*story.starting(), stop, Said(next(iter(FAULTS)), 0, 12_500), dumped(RANK, 13_000)]
    assert not crashes_of(story.as_json([*lines, Said("Bye", MAIN, 13_500)]))


def test_a_fatal_error_of_the_switch_between_the_gpus_is_the_root():
    said = "nvidia-nvswitch2: SXid (PCI:0000:87:00.0): 20034, {}, Link 30 LTSSM Fault Up"
    crash = crash_of(Said(said.format("Fatal"), 0, 13_000), *story.rank_crash(13_100, 2), *QUIT)
    assert crash.root.cause.exception == "SXid"
    crash = crash_of(Said(said.format("Non-fatal"), 0, 13_000), *story.rank_crash(13_100, 2), *QUIT)
    assert crash.root.cause.exception == "AttributeError"


UP = story.as_text([*story.starting(), *story.serving(10_000, 4)])


@pytest.mark.parametrize(
    ("last", "word"),
    [
        ("Killed", "SIGKILL"),
        ("bash: line 1:  4711 Killed                  python -m sglang.launch_server --model-path /m", "SIGKILL"),
        ("[1]+  Killed                  sglang serve --model-path /m", "SIGKILL"),
        ("[1]+  Killed                  CUDA_VISIBLE_DEVICES=0,1 nohup sglang serve --tp 2 > log 2>&1", "SIGKILL"),
        ('run.sh: line 3:  4711 Killed                  "$PY" -m sglang.launch_server --model-path "$M"', "SIGKILL"),
        ("run.sh: line 3:  4711 Killed                  numactl -N=0 ${V}/python -m sglang.launch_server", "SIGKILL"),
        ("run.sh: line 3:  4711 Killed                  nohup docker run --gpus all lmsysorg/sglang:x", "SIGKILL"),
        ("run.sh: line 3:  4711 Killed                  python -m sglang_router.launch_server --dp 2", "SIGKILL"),
        ("[1]    4711 killed     python -m sglang.launch_server --model-path /m", "SIGKILL"),
        ("sglang-1 exited with code 137", "SIGKILL"),
        ("open-webui-sglang-1 exited with code 137", "SIGKILL"),
        ("llm-proxy-sglang-1 exited with code 137", "SIGKILL"),
        ("PM2      | App [web-sglang:0] exited with code [0] via signal [SIGKILL]", "SIGKILL"),
        ("sglang-1 exited with code 139", "SIGSEGV"),
        ("sglang-1 exited with code 1", "ExitStatus 1"),
        ("OOMKilled", "HostOutOfMemory"),
        ("run.sh: line 3:  4711 Segmentation fault      python3 -m sglang.launch_server", "SIGSEGV"),
        ("run.sh: 行 3:  4711 已杀死               python3 -m sglang.launch_server", "SIGKILL"),
        ("./run.sh: Zeile 3:  4711 Getötet                 python3 -m sglang.launch_server", "SIGKILL"),
        ("./run.sh : ligne 3 :  4711 Erreur de segmentation  (core dumped) sglang serve --tp 8", "SIGSEGV"),
        (
            "slurmstepd: error: Detected 2 oom_kill events in StepId=71.0. Some of the step tasks were",
            "HostOutOfMemory",
        ),
        ("srun: error: gpu-ash: task 0: Killed", "SIGKILL"),
        ("srun: error: gpu-[04-07]: tasks 0-3: Exited with exit code 139", "SIGSEGV"),
        ("srun: error: gpu-ash: task 0: Out Of Memory", "HostOutOfMemory"),
        (
            "slurmstepd: error: *** STEP 71.0 ON gpu-ash CANCELLED AT 2026-11-29T12:09 DUE TO TIME LIMIT ***",
            "RuntimeLimit",
        ),
        ("mpirun noticed that process rank 3 with PID 0 on node gpu-ash exited on signal 9 (Killed).", "SIGKILL"),
        ("prterun detected that one or more processes exited with non-zero status, thus causing", "ChildDied"),
        ("YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)", "SIGKILL"),
        ("PM2      | App [sglang:0] exited with code [0] via signal [SIGKILL]", "SIGKILL"),
        ("(raylet) A worker died or was killed while executing a task by an unexpected system error.", "ChildDied"),
        (
            "(raylet) node_manager.cc:3041: 1 Workers (tasks / actors) killed due to memory pressure (OOM)",
            "HostOutOfMemory",
        ),
        ("Command terminated by signal 11", "SIGSEGV"),
        ("      Reason:       OOMKilled", "HostOutOfMemory"),
        ("Normal   Killing    5m  kubelet  Container sglang failed liveness probe, will be restarted", "ChildDied"),
        ("Warning  BackOff    2m  kubelet  Back-off restarting failed container sglang in pod llm-0", "ChildDied"),
        ("The node was low on resource: memory. Container sglang was using 900Gi, request is 10Gi.", "ChildDied"),
    ],
)
def test_a_process_of_which_only_its_starter_tells_the_end(last, word):
    (crash,) = crashes_of(UP + f"{last}\n".encode())
    assert (crash.root.cause.exception, crash.outcome) == (word, Outcome.UNKNOWN)
    assert crash.grade is (Grade.COMPLETE if "Segmentation" in last else Grade.CUT)


@pytest.mark.parametrize("level", ["INFO", "WARN", "CRIT"])
def test_supervisord_has_levels_of_its_own(level):
    (crash,) = crashes_of(
        UP + f"2026-11-29 12:09:00,123 {level} exited: sglang (exit status 1; not expected)\n".encode()
    )
    assert (crash.root.cause.exception, crash.outcome) == ("ExitStatus 1", Outcome.FATAL)


@pytest.mark.parametrize(
    "last",
    [
        "sglang-1 exited with code 0",
        "redis-1 exited with code 137",
        "sglang-1 exited with code 143",
        "sglang-exporter-1 exited with code 137",
        "web-sglang-redis-1 exited with code 137",
        "sglang-bench-1 exited with code 1",
        "PM2 log: App [redis-sgl-cache:0] exited with code [1] via signal [SIGKILL]",
        "build.sh: line 9:  4711 Killed                  rsync -a /srv/models /mnt/sglang",
        "run.sh: line 9:  4711 Hangup                  sglang serve --tp 8",
        *(
            f"run.sh: line 9:  4711 Killed                  {command}"
            for command in (
                "python -m sglang.bench_serving --backend sglang",
                "python -m sglang_router.launch_router",
                "python eval.py --engine sglang",
                "docker logs -f sglang",
                "docker compose logs sglang",
                "kubectl logs -f sglang-0",
                "journalctl -fu sglang",
                "watch -n1 pgrep -fa sglang",
                "ssh gpu-ash tail -f sglang.log",
                "sudo -n /usr/bin/vim sglang.yaml",
                "nohup tail -f /var/log/sglang.log",
            )
        ),
        "sglang-prom-1 exited with code 137",
        "sgl-monitoring-1 exited with code 1",
        "sglang-router-1 exited with code 1",
        "Aborting on container exit...\nsglang-1 exited with code 137",
        "slurmstepd: error: *** JOB 71 ON gpu-ash CANCELLED AT 2026-11-29T12:09 DUE TO PREEMPTION ***\n"
        "srun: error: gpu-ash: task 0: Killed",
        "2026-11-29 12:09:00,123 INFO exited: sglang (terminated by SIGTERM; not expected)",
        "Gracefully stopping... (press Ctrl+C again to force)\nsglang-1 exited with code 137",
        " Container llm-sglang-1  Stopping\nsglang-1 exited with code 137",
        " Container llm-sglang-1 Stopping \nsglang-1 exited with code 137",
        "PM2      | Stopping app:sglang id:0\nPM2      | App [sglang:0] exited with code [0] via signal [SIGKILL]",
        "srun: forcing job termination\nsrun: error: gpu-ash: task 0: Killed",
        "slurmstepd: error: *** STEP 71.0 ON gpu-ash CANCELLED AT 2026-11-29T12:09 ***\n"
        "srun: error: gpu-ash: task 0: Killed\nsrun: error: gpu-ash: task 0: Exited with exit code 137",
        "    State:          Running\n    Last State:     Terminated\n      Reason:       OOMKilled",
        "build.sh: line 9:  4711 Killed                  nvcc -c a.cu",
        "build.sh: Zeile 9:  4711 Getötet                 nvcc -c a.cu",
        "run.sh: Zeile 9:  4711 Beendet                 sglang serve --tp 8",
        "srun: error: gpu-ash: task 0: Exited with exit code 143",
        "slurmstepd: error: *** STEP 71.0 ON gpu-ash CANCELLED AT 2026-11-29T12:09 ***",
        "PM2      | App [sglang:0] exited with code [0] via signal [SIGINT]",
        "PM2      | App [redis:0] exited with code [0] via signal [SIGKILL]",
        "(raylet) node_manager.cc:3041: 0 Workers (tasks / actors) killed due to memory pressure (OOM)",
        "Warning  Unhealthy  5m  kubelet  Liveness probe failed: HTTP probe failed with statuscode: 503",
        "      Exit Code:    137",
        "./run.sh: rivi 3:  4711 Valmis                  sglang serve --tp 8",
        "./run.sh: line 3:  4711 Done                    sglang serve --tp 8",
        "The node was low on resource: memory. Container prometheus was using 900Gi, request is 10Gi.",
        f"[{story.stamp(12_000)}] SIGTERM received. signum=15 frame=None. Draining requests and shutting\nKilled",
        f"[{story.stamp(12_000)}] INFO:     Waiting for application shutdown.\nKilled",
    ],
)
def test_other_ends_are_no_crash(last):
    assert crashes_of(UP + f"{last}\n".encode()) == []


def test_what_stops_beside_it_is_no_stop_of_it():
    (crash,) = crashes_of(UP + b" Container llm-redis-1  Stopping\nsglang-1 exited with code 137\n")
    assert crash.root.cause.exception == "SIGKILL"


@pytest.mark.parametrize(
    "word",
    [
        "srun: error: gpu-ash: task 3: Exited with exit code 1",
        "slurmstepd: error: *** STEP 7.0 ON ash CANCELLED AT 2026-11-29T12:09 ***",
        "run.sh: line 3:  4711 Killed                  sglang serve --tp 8",
        "sglang-1 exited with code 1",
        "Killed",
        "    Last State:     Terminated",
        "Command terminated by signal 9",
        "PM2      | App [sglang:0] exited with code [1] via signal [SIGINT]",
        "Gracefully stopping... (press Ctrl+C again to force)",
        "Aborting on container exit...",
        " Container sglang-1  Stopping",
        "make: *** [Makefile:7: serve] Error 1",
    ],
)
def test_the_starters_word_is_no_more_of_the_last_message(word):
    died = story.as_text([*story.starting(), *story.rank_crash(12_000, 3), *story.parent_gives_up(12_100)])
    (plain,) = crashes_of(died)
    *lines, _ = (said.text for said in story.rank_crash(12_000, 3))
    head = story.as_text(story.starting()) + "\n".join([*lines, story.NONE_TYPE, word, ""]).encode()
    (crash,) = crashes_of(head + story.as_text(story.parent_gives_up(12_100)))
    assert (crash.root.cause, crash.outcome) == (plain.root.cause, Outcome.FATAL)


@pytest.mark.parametrize("between", ["", "\n"])
def test_loose_words_below_the_parents_are_no_more_of_the_message(between):
    """Where the server goes down nobody but its shell writes, and what that does is not known."""
    died = story.as_text([*story.starting(), *story.rank_crash(12_000, 3)]) + between.encode()
    died += story.as_text(story.parent_gives_up(12_100)) + b"  warning: some loose words\nof a shell\n"
    (crash,) = crashes_of(died)
    assert crash.root.cause.message == story.NONE_TYPE.partition(": ")[2]
    assert crash.outcome is Outcome.FATAL


def test_a_stop_that_was_asked_for_after_it_died_excuses_nothing():
    late = (
        "srun: error: gpu-ash: task 0: Killed\nslurmstepd: error: *** STEP 7.0 ON ash CANCELLED AT 2026-11-29T12 ***\n"
    )
    (crash,) = crashes_of(UP + late.encode())
    assert crash.root.cause.exception == "SIGKILL"


@pytest.mark.parametrize(
    "word",
    ["slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some", "srun: error: gpu-ash: task 3: Out Of Memory"],
)
def test_a_stop_is_no_reason_for_want_of_memory(word):
    """slurm ends a step by itself, in the same words as for scancel, where one of its tasks died."""
    stop = "slurmstepd: error: *** STEP 7.0 ON ash CANCELLED AT 2026-11-29T12:09 ***"
    killed = "srun: error: gpu-ash: task 0: Killed"
    (crash,) = crashes_of(UP + f"{stop}\n{killed}\n{word}\n".encode())
    assert crash.root.cause.exception == "HostOutOfMemory"


def test_a_stop_long_ago_excuses_nothing():
    again = story.as_text(story.serving(600_000, 4))
    (crash,) = crashes_of(UP + b"Gracefully stopping...\n" + again + b"sglang-1 exited with code 137\n")
    assert crash.root.cause.exception == "SIGKILL"


def test_what_was_killed_has_nothing_to_tell_if_the_server_goes_on():
    later = story.as_text([*story.serving(40_000, 4)])
    assert crashes_of(UP + b"Killed\n" + later) == []


@pytest.mark.parametrize("word", ["Killed", "sglang-1 exited with code 137"])
@pytest.mark.parametrize("life", [UP, story.as_text(story.starting()[:9])], ids=["up", "loading"])
def test_what_was_killed_and_starts_again_was_killed_each_time(life, word):
    found = crashes_of((life + word.encode() + b"\n") * 3)
    assert [crash.root.cause.exception for crash in found] == ["SIGKILL"] * 3


def test_what_worked_on_and_is_started_anew_later_was_not_killed():
    later = story.as_text([*story.serving(40_000, 4)])
    assert crashes_of(UP + b"Killed\n" + later + UP) == []


@pytest.mark.parametrize(("code", "word"), [(-9, "SIGKILL"), (-11, "SIGSEGV")])
def test_an_older_release_tells_the_exit_code_in_a_record_of_its_own(code, word):
    said = [
        f"[{story.stamp(12_000)}] Rank 3 scheduler is dead. Please check if there are relevant logs.",
        f"[{story.stamp(12_001)}] Exit code: {code}",
        *["Traceback (most recent call last):", *story.traceback_lines(story.FRAMES[:2], "EOFError")],
    ]
    data = story.as_text(story.starting()) + "\n".join(said).encode() + b"\n"
    (crash,) = crashes_of(data)
    assert (crash.root.cause.exception, crash.root.rank, crash.outcome) == (word, "TP3", Outcome.FATAL)


def test_an_exit_code_of_nobody_is_none():
    assert crashes_of(UP + f"[{story.stamp(12_000)}] Exit code: -9\n".encode()) == []


def test_the_parent_tells_which_rank_by_its_number():
    text = (
        f"[{story.stamp(12_000)}] Subprocess scheduler_3 (pid=5203) crashed with exit code -9. Triggering SIGQUIT for"
    )
    (crash,) = crashes_of(UP + text.encode() + b"\n")
    assert crash.root.rank == "TP3"
    (crash,) = crashes_of(UP.replace(b"tp_size=8", b"tp_size=8, nnodes=2") + text.encode() + b"\n")
    assert crash.root.rank is None  # each node counts its own


def loop_ends(function="handle_loop"):
    return [
        f"[{story.stamp(12_000)}] Task exception was never retrieved",
        "future: <Task finished name='Task-9' coro=<TokenizerManager.handle_loop() done> exception=KeyError('a1')>",
        "Traceback (most recent call last):",
        f'  File "/opt/llm/lib/site-packages/sglang/srt/managers/tokenizer_manager.py", line 9, in {function}',
        "    self.dispatch(o)",
        "KeyError: 'a1'",
    ]


def test_the_loop_that_takes_the_answers_is_more_than_a_request():
    for function, outcome in (("handle_loop", Outcome.UNKNOWN), ("stream", Outcome.REQUEST_ERROR)):
        (crash,) = crashes_of(UP + "\n".join(loop_ends(function)).encode() + b"\n")
        assert crash.outcome is outcome
    said = [Said(text, MAIN, 12_000) for text in loop_ends()]
    after = story.serving(20_000, 4)
    (crash,) = crashes_of(story.as_json([*story.starting(), *story.serving(10_000, 4), *said, *after]))
    assert crash.outcome is Outcome.RECOVERED  # its own process answers: that was not the loop


def test_a_native_death_without_a_name_is_the_ranks_that_the_parent_names():
    dump = ["Fatal Python error: Segmentation fault", "", "Current thread 0x00007f (most recent call first):"]
    dump += ['  File "/opt/llm/lib/site-packages/sglang/srt/layers/fa.py", line 46 in run', ""]
    word = f"[{story.stamp(12_000)}] Subprocess scheduler_{{}} (pid={{}}) crashed with exit code {{}}. Triggering"
    for ends, rank in ([(6, -11)], "TP6"), ([(6, -9)], None), ([(6, -11), (7, -11)], None):
        told = [word.format(n, 5200 + n, code) for n, code in ends]
        (crash,) = crashes_of(UP + "\n".join([*dump, *told, ""]).encode())
        assert (crash.root.cause.exception, crash.root.rank) == ("SIGSEGV", rank)


@pytest.mark.parametrize(("nodes", "rank"), [(1, "TP2"), (2, None)])
def test_a_parents_exception_names_the_rank_by_its_number(nodes, rank):
    last = "RuntimeError: Rank 2 scheduler died during initialization (exit code: -9). If exit code is -9, see dmesg"
    head = story.as_text(story.starting()).replace(b"tp_size=8", f"tp_size=8, nnodes={nodes}".encode())
    lines = ["Traceback (most recent call last):", '  File "/opt/llm/bin/sglang", line 8, in <module>', last]
    (crash,) = crashes_of(head + "\n".join([*lines, ""]).encode())
    assert (crash.root.cause.exception, crash.root.rank) == ("RuntimeError", rank)
    assert crash.ranks == ((rank,) if rank else ())


def test_the_loop_below_the_wrapper_that_logs_is_the_same():
    frame = f'  File "{story.SITE}/sglang/srt/managers/tokenizer_manager.py", line 5, in print_exception_wrapper'
    lines = [*loop_ends()[:3], frame, "    await func()", *loop_ends()[3:]]
    (crash,) = crashes_of(UP + "\n".join(lines).encode() + b"\n")
    assert crash.outcome is Outcome.UNKNOWN
    (crash,) = crashes_of(UP + "\n".join([*lines[:5], *loop_ends("stream")[3:]]).encode() + b"\n")
    assert crash.outcome is Outcome.REQUEST_ERROR


@pytest.mark.parametrize(("who", "outcome"), [("TokenizerManager", Outcome.FATAL), ("Detokenizer", Outcome.UNKNOWN)])
def test_the_front_end_ends_the_server_itself_with_what_it_meets(who, outcome):
    """The others tell the parent, which says so; where it does not, the log may go on."""
    lines = [f"[{story.stamp(12_000)}] {who} hit an exception: {loop_ends()[2]}", *loop_ends()[3:], ""]
    (crash,) = crashes_of(UP + "\n".join(lines).encode())
    assert (crash.root.cause.exception, crash.outcome) == ("KeyError", outcome)


FAULT = ["Fatal Python error: Segmentation fault", "", "Current thread 0x00007e (most recent call first):"]
FAULT += [f'  File "{story.SITE}/sglang/srt/layers/attention/fa.py", line 46 in run', ""]
PARENT = (
    f"[{story.stamp(12_100)}] Subprocess scheduler_{{}} (pid={{}}) crashed with exit code {{}}. Triggering SIGQUIT for"
)


def test_of_two_native_deaths_without_a_rank_nobody_can_tell_which_is_the_parents():
    glibc = ["", "[2026-11-29 12:00:12] INFO: a record between", "double free or corruption (!prev)", ""]
    lines = [*FAULT, *glibc, PARENT.format(6, 5206, -11), ""]
    (crash,) = crashes_of(UP + "\n".join(lines).encode())
    assert crash.root.rank is None
