"""`watch` against a journald that people and disks interfere with: rotated, vacuumed, flushed, restarted, limited,
flooded. What journald kept is read once and graded truly; the reader catches up and stays small."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import Server

WATCH = "triage-watch.service"
STAGGERED = "stagger=0.5"  # eight ranks, four seconds: long enough to do something in the middle
FLOOD_SECONDS = 30
WRITERS = 8

# Numbered healthy lines from several processes on one stdout, as fast as they go; then one process's traceback.
FLOOD = """
import os, sys, time
seconds, writers = float(sys.argv[1]), int(sys.argv[2])
end = time.monotonic() + seconds
children = []
for rank in range(writers):
    pid = os.fork()
    if pid:
        children.append(pid)
        continue
    n = 0
    while time.monotonic() < end:
        n += 1
        head = time.strftime(f"[%Y-%m-%d %H:%M:%S TP{rank}] ")
        os.write(1, f"{head}Decode batch. #running-req: 31, #token: {n}, token usage: 0.41\\n".encode())
    os._exit(0)
for pid in children:
    os.waitpid(pid, 0)
print("flood over", flush=True)
time.sleep(float(sys.argv[3]))
print(f'''{time.strftime("[%Y-%m-%d %H:%M:%S TP0] ")}Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/sglang/srt/managers/scheduler.py", line 3012, in run_scheduler_process
    scheduler.event_loop_overlap()
  File "/opt/sglang/sglang/srt/managers/schedule_batch.py", line 1200, in filter_batch
    self.reqs = [self.reqs[i] for i in keep]
IndexError: list index out of range
''', flush=True)
sys.exit(1)
"""


def outcome_of(triage: Installed, server: Server) -> dict[str, Any]:
    """What a reader of the incident sees, without what depends on when it happened."""
    number = triage.incident(server, 30)
    crashes = triage.crashes(server)
    text = json.dumps(triage.json("incidents", "show", str(number)))
    return {
        "crashes": len(crashes),
        "ranks": [n for n in range(8) if f"TP{n}" in text],
        **{key: crashes[0][key] for key in ("crash_id", "signature", "rule", "outcome", "phase", "grade")},
    }


@pytest.fixture(scope="module")
def undisturbed(triage: Installed) -> dict[str, Any]:
    server = Server(triage.box, "left-alone", 31709, behaviour=STAGGERED)
    server.crash()
    expected = outcome_of(triage, server)
    assert (expected["crashes"], expected["ranks"], expected["grade"]) == (1, list(range(8)), "complete")
    return expected


def crash_with(triage: Installed, name: str, port: int, meddle: Callable[[], None]) -> dict[str, Any]:
    """The same crash, with something done to journald after the first and before the last rank's lines."""
    server = Server(triage.box, name, port, behaviour=STAGGERED)
    server.start()
    server.generate(1)  # gives up waiting: the crash goes on
    assert server.state()["ActiveState"] == "active"
    meddle()
    wait_for("the unit to fail", lambda: server.state()["ActiveState"] == "failed")
    return outcome_of(triage, server)


def rotated(triage: Installed, files: int) -> None:
    """Three rotations, each with a vacuum down to so many archived files."""
    for _ in range(3):
        triage.box.run(["journalctl", "--rotate", f"--vacuum-files={files}", "--quiet"])
        time.sleep(0.5)


def test_rotation_and_vacuum_in_the_middle_of_a_crash(triage: Installed, undisturbed: dict[str, Any]) -> None:
    """One archived file stays each time: the vacuum takes none that was written just now."""
    assert crash_with(triage, "rotated", 31701, lambda: rotated(triage, 2)) == undisturbed


def test_a_flush_in_the_middle_of_a_crash(triage: Installed, undisturbed: dict[str, Any]) -> None:
    triage.box.run(["journalctl", "--relinquish-var"])

    def meddle() -> None:
        triage.box.run(["journalctl", "--flush"])

    try:
        assert crash_with(triage, "flushed", 31702, meddle) == undisturbed
    finally:
        triage.box.run(["journalctl", "--flush"])


def test_journald_restarted_in_the_middle_of_a_crash(triage: Installed, undisturbed: dict[str, Any]) -> None:
    def meddle() -> None:
        triage.box.systemctl("restart", "systemd-journald.service")

    assert crash_with(triage, "journald-anew", 31703, meddle) == undisturbed


def test_what_the_rate_limit_dropped_is_said(triage: Installed, undisturbed: dict[str, Any]) -> None:
    limit = "LogRateLimitIntervalSec=2s\nLogRateLimitBurst=20"
    server = Server(triage.box, "limited", 31704, behaviour="chatty=40,stagger=0.5", service=limit)
    server.start()
    server.generate(1)
    wait_for("the unit to fail", lambda: server.state()["ActiveState"] == "failed")
    number = triage.incident(server, 30)
    shown = triage.json("incidents", "show", str(number))
    assert [crash["grade"] for crash in triage.crashes(server)] == ["suppressed"]
    refused = triage.apply(number)
    assert refused.code == 3, refused
    assert "suppressed" in refused.err + json.dumps(shown)


# Lines that journald breaks into pieces of 48K: the arguments, and an exception's own message.
LONG = """
import sys, time
head = time.strftime("[%Y-%m-%d %H:%M:%S TP0] ")
template = "{% for m in messages %}" * 6000
print(f"{head}server_args=ServerArgs(model_path='/models/k', tp_size=1, chat_template='{template}', "
      "api_key='sk-hidden-0123456789', mem_fraction_static=0.85)", flush=True)
names = ", ".join(f"'model.layers.{n}.mlp.experts.w13_weight'" for n in range(3000))
print(f'''{head}Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/sglang/srt/managers/scheduler.py", line 3012, in run_scheduler_process
    scheduler = Scheduler(server_args)
  File "/opt/sglang/sglang/srt/model_loader/loader.py", line 512, in load_weights_and_postprocess
    raise KeyError(f"lm_head not in {names}")
KeyError: "lm_head not in dict_keys([{names}])"
''', flush=True)
sys.exit(1)
"""


def test_lines_over_48k_are_put_together_or_said_to_be_cut(triage: Installed) -> None:
    name = "sglang-long.service"
    triage.box.push(LONG, "/opt/long.py")
    triage.box.run(["systemd-run", "-q", f"--unit={name}", "/usr/bin/python3", "/opt/long.py"])
    wait_for("its crash", lambda: triage.query(f"select id from crash where unit = '{name}' and closed_at > 0"))
    told = "incident.id, incident.exception, incident.place, crash.grade, crash.outcome from crash"
    [row] = triage.query(f"select {told} join incident on incident.id = crash.incident where crash.unit = '{name}'")
    assert (row["exception"], row["outcome"]) == ("KeyError", "fatal")
    assert "loader.py:512" in row["place"]
    assert row["grade"] in ("complete", "cut")
    shown = triage.json("incidents", "show", str(row["id"]))
    text = json.dumps(shown)
    assert "sk-hidden" not in text
    whole = "experts.w13_weight' ... " in text or "model.layers.2999." in text
    assert whole or row["grade"] == "cut"


# Requests whose text comes to stand at the head of an entry: behind 48K, behind a NUL.
QUOTING = """
import sys, time
head = time.strftime("[%Y-%m-%d %H:%M:%S TP0] ")
asked = time.strftime("[%Y-%m-%d %H:%M:%S] ") + "Receive: obj=GenerateReqInput(rid='7', text='"
fake = f"{head}Scheduler hit an exception: Traceback (most recent call last):"
native = "Fatal Python error: Segmentation fault"
end = "', sampling_params={'n': 1}, stream=True)\\n"
out = sys.stdout.buffer
for text in (native, fake):
    out.write((asked + "x" * (48 * 1024 - len(asked)) + text + end).encode())
    out.write((asked + "a" + chr(0) + text + chr(0) + "b" + end).encode())
out.flush()
print("asked for all", flush=True)
time.sleep(3)
"""


def test_a_request_whose_text_heads_an_entry_of_its_own_opens_no_crash(triage: Installed) -> None:
    name = "sglang-quoting.service"
    triage.box.push(QUOTING, "/opt/quoting.py")
    triage.box.run(["systemd-run", "-q", "--wait", f"--unit={name}", "/usr/bin/python3", "/opt/quoting.py"])
    read = triage.box.run(["journalctl", "-q", "-u", name, "-o", "json", "--all"]).out
    entries = [json.loads(line) for line in read.splitlines()]
    assert {"line-max", "nul"} <= {entry.get("_LINE_BREAK") for entry in entries}
    assert sum(str(entry["MESSAGE"]).startswith("Fatal Python error") for entry in entries) == 2
    later = "sglang-long-after.service"  # its crash comes behind them in the journal: when it is known, they were read
    triage.box.run(["systemd-run", "-q", f"--unit={later}", "/usr/bin/python3", "/opt/long.py"])
    wait_for("a later crash", lambda: triage.query(f"select id from crash where unit = '{later}'"))
    assert triage.query(f"select id from crash where unit = '{name}'") == []


def test_watch_killed_in_healthy_hours_knows_what_it_knew(triage: Installed, undisturbed: dict[str, Any]) -> None:
    """Phase, release and flags of the run come from lines that were read before the kill."""
    server = Server(triage.box, "healthy-hours", 31705, behaviour=STAGGERED)
    server.start()
    time.sleep(4)  # the place in the journal and the context are stored
    triage.box.systemctl("kill", "--signal=KILL", WATCH)
    wait_for("watch to read again", lambda: triage.box.show(WATCH, "SubState")["SubState"] == "running")
    server.generate()
    wait_for("the unit to fail", lambda: server.state()["ActiveState"] == "failed")
    assert outcome_of(triage, server) == undisturbed


@contextmanager
def journald(triage: Installed, settings: str) -> Iterator[None]:
    """journald with settings of its own for a while."""
    path = "/etc/systemd/journald.conf.d/test.conf"
    triage.box.run(["mkdir", "-p", "/etc/systemd/journald.conf.d"])
    triage.box.push(f"[Journal]\n{settings}\n", path)
    triage.box.systemctl("restart", "systemd-journald.service")
    try:
        yield
    finally:
        triage.box.run(["rm", path])
        triage.box.systemctl("restart", "systemd-journald.service")


def memory(triage: Installed) -> int:
    """The most that watch ever held, in MB."""
    status = triage.box.pull(f"/proc/{triage.box.show(WATCH, 'MainPID')['MainPID']}/status").decode()
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.M)
    assert found
    return int(found[1]) // 1024


def counted(triage: Installed, unit: str, name: str) -> float:
    rows = triage.query(f"select value from counter where name = '{name}' and labels like '%{unit}%'")
    return float(rows[0]["value"]) if rows else 0.0


def test_a_vacuum_of_what_was_written_just_now_is_survived_and_said(
    triage: Installed, undisturbed: dict[str, Any]
) -> None:
    """journald frees what it unlinks: what nobody had read by then is gone. `watch` lives on, and says so."""
    before = triage.box.show(WATCH, "MainPID")["MainPID"]
    found = crash_with(triage, "vacuumed", 31710, lambda: rotated(triage, 1))
    assert triage.box.show(WATCH, "MainPID")["MainPID"] == before
    if found["grade"] == "rotated":
        assert set(found["ranks"]) <= set(undisturbed["ranks"])
        found |= {key: undisturbed[key] for key in ("grade", "ranks")}
    assert found == undisturbed


@pytest.mark.parametrize("limited", [False, True], ids=["no-limit", "limit"])
def test_a_flood_is_read_whole_and_caught_up_with(triage: Installed, limited: bool) -> None:
    """With a limit the crash comes when the unit may speak again: what it said is told, and that some is missing."""
    name = f"sglang-flood-{'limited' if limited else 'free'}.service"
    seconds, pause = (5, 6) if limited else (FLOOD_SECONDS, 1)
    limit = "RateLimitIntervalSec=5s\nRateLimitBurst=2000" if limited else "RateLimitIntervalSec=0"
    triage.box.push(FLOOD, "/opt/flood.py")
    with journald(triage, f"SystemMaxUse=4G\n{limit}"):
        flood = ["/usr/bin/python3", "/opt/flood.py", str(seconds), str(WRITERS), str(pause)]
        triage.box.run(["systemd-run", "-q", f"--unit={name}", *flood])
        most = 0

        def over() -> bool:
            nonlocal most
            most = max(most, memory(triage))
            return triage.box.show(name, "ActiveState")["ActiveState"] != "active"

        wait_for("the flood to be over", over, seconds + 60, every=0.5)
        ended = time.monotonic()
        triage.box.run(["journalctl", "--sync"])
        kept = int(triage.box.run(f"journalctl -q -o cat -u {name} _TRANSPORT=stdout | wc -l").out)
        wait_for(f"all {kept} lines to be read", lambda: counted(triage, name, "lines_total") >= kept, 60, every=0.5)
        wait_for("the lag to be under a second", lambda: counted(triage, name, "lag_seconds") < 1, 60, every=0.5)
        behind = time.monotonic() - ended
        most = max(most, memory(triage))
        closed = f"select id from crash where unit = '{name}' and closed_at is not null"
        wait_for("the crash to be closed", lambda: triage.query(closed))
        told = "incident.exception, crash.outcome, crash.grade from crash join incident on incident.id = crash.incident"
        rows = triage.query(f"select {told} where crash.unit = '{name}'")
    print(f"flood: {kept} lines kept in {seconds} s, {behind:.0f} s behind, {most} MB")
    grade = "suppressed" if limited else "complete"
    assert rows == [{"exception": "IndexError", "outcome": "fatal", "grade": grade}]
    assert behind < 60
    assert most < 150
