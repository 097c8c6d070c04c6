"""`watch` on a real systemd: how soon a crash is a row, what an idle watch costs, what it holds.

    python -m benchmarks.live [--crashes 60] [--seconds 20]        (root: it boots a box, as tests/e2e does)

Printed as JSON: the time from the journal's stamp on the exception line to the crash's row as another process sees it
(milliseconds, p50, p99), the share of one core that `watch` takes while a unit writes 200 healthy lines a second, and
the private memory of `watch` after both (MB).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time

from tests.e2e.box import Box, wait_for
from tests.e2e.installed import Installed

WATCH = "triage-watch.service"
LINES_A_SECOND = 200
TICKS = 100  # a second, of the clock in /proc/PID/stat

# A unit that crashes, and what a second process sees of it: the row's time on the same clock as the journal's.
CRASH = """
import sys, time
print(time.strftime('[%Y-%m-%d %H:%M:%S TP0] ') + '''Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/sglang/srt/managers/scheduler.py", line 3012, in run_scheduler_process
    scheduler.event_loop_overlap()
  File "/opt/sglang/sglang/srt/managers/schedule_batch.py", line 1200, in filter_batch
    self.reqs = [self.reqs[i] for i in keep]
IndexError: list index out of range''', flush=True)
time.sleep(0.5)
sys.exit(1)
"""
LOOK = """
import json, sqlite3, sys, time
base = sqlite3.connect("file:/var/lib/triage/triage.db?mode=ro", uri=True, timeout=5)
seen, end = {}, time.time() + float(sys.argv[1])
while time.time() < end and len(seen) < int(sys.argv[2]):
    for unit, in base.execute("select unit from crash where unit like 'sglang-timed%'"):
        seen.setdefault(unit, time.time_ns() // 1000)
    time.sleep(0.001)
print(json.dumps(seen))
"""
HEALTHY = """
import sys, time
end, n = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    n += 1
    head = time.strftime(f"[%Y-%m-%d %H:%M:%S TP{n % 8}] ")
    print(f"{head}Decode batch, #running-req: 31, #token: {n}, token usage: 0.41, queue: 0", flush=True)
    time.sleep(1 / float(sys.argv[2]))
"""


def latency(triage: Installed, crashes: int) -> dict[str, float]:
    """Milliseconds from the exception line's entry to the row, over `crashes` units that crash one after the other."""
    box = triage.box
    box.push(CRASH, "/opt/crash.py")
    limit = crashes * 2 + 30
    box.push(LOOK, "/opt/look.py")
    box.run(["systemd-run", "-q", "--unit=look", "--uid=triage", "-p", "StandardOutput=file:/run/seen", "--",
             "/usr/bin/python3", "/opt/look.py", str(limit), str(crashes)])  # fmt: skip
    one = "systemd-run -q --collect --unit=sglang-timed$n /usr/bin/python3 /opt/crash.py"
    box.run(f"for n in $(seq {crashes}); do {one}; sleep 0.4; done", timeout=limit)
    wait_for("all rows", lambda: box.run("systemctl is-active look", check=False).code != 0, limit)
    seen = json.loads(box.pull("/run/seen"))
    entries = box.journal("-o", "json", "--output-fields=_SYSTEMD_UNIT,MESSAGE", "-u", "sglang-timed*")
    said = {}
    for line in entries.splitlines():
        entry = json.loads(line)
        if str(entry.get("MESSAGE", "")).startswith("IndexError"):
            said[entry["_SYSTEMD_UNIT"]] = int(entry["__REALTIME_TIMESTAMP"])
    spans = sorted((seen[unit] - at) / 1000 for unit, at in said.items() if unit in seen)
    assert len(spans) == crashes, f"{len(spans)} of {crashes} crashes became rows"
    cuts = statistics.quantiles(spans, n=100, method="inclusive")
    return {
        "crashes": crashes,
        "p50_ms": round(cuts[49], 1),
        "p99_ms": round(cuts[98], 1),
        "max_ms": round(spans[-1], 1),
    }


def idle(triage: Installed, seconds: int) -> dict[str, float]:
    """The share of a core while a unit writes healthy lines; nothing else is in the box."""
    box = triage.box
    box.push(HEALTHY, "/opt/healthy.py")
    box.run(["systemd-run", "-q", "--unit=sglang-healthy", "/usr/bin/python3", "/opt/healthy.py", str(seconds + 5),
             str(LINES_A_SECOND)])  # fmt: skip
    time.sleep(2)
    before, at = _spent(box), time.monotonic()
    time.sleep(seconds)
    spent, wall = _spent(box) - before, time.monotonic() - at
    return {"lines_a_second": LINES_A_SECOND, "core_percent": round(100 * spent / wall, 2)}


def private_memory(triage: Installed) -> float:
    """MB that `watch` shares with nobody: its heap, and the pages of its own."""
    rollup = triage.box.pull(f"/proc/{_pid(triage.box)}/smaps_rollup").decode()
    return round(sum(int(kb) for kb in re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+) kB", rollup, re.M)) / 1024, 1)


def _pid(box: Box) -> str:
    return box.show(WATCH, "MainPID")["MainPID"]


def _spent(box: Box) -> float:
    fields = box.pull(f"/proc/{_pid(box)}/stat").decode().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(crashes: int, seconds: int) -> dict[str, object]:
    with Box("live") as box:
        triage = Installed(box)
        triage.install()
        return {
            "row": latency(triage, crashes),
            "idle": idle(triage, seconds),
            "private_mb": private_memory(triage),
        }


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--crashes", type=int, default=60)
    options.add_argument("--seconds", type=int, default=20)
    given = options.parse_args()
    print(json.dumps(measure(given.crashes, given.seconds)))
