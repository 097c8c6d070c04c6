"""What stands beside a failure goes into its evidence: lines around a cut traceback, py-spy's stacks."""

from tests.crashes.scanning import crashes_of

HEAD = "[2026-11-29 12:00:12 TP0] Scheduler hit an exception: Traceback (most recent call last):"
FRAME = '  File "/opt/sglang/srt/managers/scheduler.py", line 77, in __init__'


def crash_of(*lines):
    (crash,) = crashes_of("".join(f"{line}\n" for line in lines).encode())
    return crash


def texts(crash):
    return [line.text for line in crash.evidence]


def test_the_lines_before_and_behind_a_cut_traceback_are_evidence():
    before = "[2026-11-29 12:00:11 TP0] The moon graph failed with error: no cheese"
    crash = crash_of(before, HEAD, FRAME, "[2026-11-29 12:00:12 TP0] Not enough cheese. Buy some")
    assert crash.root.cause.exception == "CutTraceback"
    assert texts(crash) == [before, HEAD, FRAME, "[2026-11-29 12:00:12 TP0] Not enough cheese. Buy some"]


def test_only_near_lines_are_and_no_access_log():
    old = "[2026-11-29 11:00:00 TP0] The moon graph failed with error: no cheese"
    access = '[2026-11-29 12:00:12] INFO:     127.0.0.1:5 - "GET /x HTTP/1.1" 404 Not Found'
    assert texts(crash_of(old, access, HEAD, FRAME)) == [HEAD, FRAME]


def test_lines_of_the_server_before_a_start_are_none_of_its_failures():
    start = "[2026-11-29 12:00:11] server_args=ServerArgs(model_path='/m', tp_size=1)"
    before = "[2026-11-29 12:00:11 TP0] The moon graph failed with error: no cheese"
    assert texts(crash_of(start, *["", ""] * 9, before, start, HEAD, FRAME)) == [HEAD, FRAME]


def test_a_traceback_with_its_end_needs_no_neighbours():
    crash = crash_of("[2026-11-29 12:00:11 TP0] Something else failed", HEAD, FRAME, "ValueError: the moon is full")
    assert not any("Something else" in text for text in texts(crash))


def test_py_spys_main_threads_are_evidence_of_a_watchdog_before_and_behind_its_line():
    def dump(pid, *frames):
        return [
            f"[2026-11-29 12:05:00 TP{pid}] Pyspy dump for PID {pid}:",
            f"Process {pid}: sglang::scheduler_TP{pid}",
            "Python v3.12.3 (/usr/bin/python3.12)",
            "",
            f'Thread {pid} (idle): "MainThread"',
            "    0x7fa2d1487d71 (libc.so.6)",
            *[f"    {frame}" for frame in frames],
            f'Thread {pid}9 (idle): "Thread-2 (_watchdog_thread)"',
            "    communicate (subprocess.py:2115)",
        ]

    crash = crash_of(
        "[2026-11-29 12:00:00 TP0] Decode batch, #running-req: 3",
        *dump(1, "all_reduce (torch/distributed/distributed_c10d.py:2810)", "writing_check (hiradix_cache.py:157)"),
        "[2026-11-29 12:05:01 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        *dump(2, "recv_requests (sglang/srt/managers/scheduler.py:575)"),
    )
    assert crash.root.cause.exception == "WatchdogTimeout"
    shown = [text.strip() for text in texts(crash)]
    assert "writing_check (hiradix_cache.py:157)" in shown
    assert "recv_requests (sglang/srt/managers/scheduler.py:575)" in shown
    assert "Process 2: sglang::scheduler_TP2" in shown
    assert not any("subprocess.py" in text or "libc" in text for text in shown)
