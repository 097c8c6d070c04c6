"""kill -9 at any moment of recording: after a restart and a second reading all is there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.store.made import T0, made_store, record
from tests.store.story import CRASHES, story
from triage.settings import EVENTS

ROOT = Path(__file__).resolve().parents[2]


def reader(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "tests.store.story", str(folder)], cwd=ROOT, stdout=subprocess.PIPE)


def test_nothing_is_lost_or_doubled_when_the_reader_is_killed_again_and_again(tmp_path: Path) -> None:
    made_store(tmp_path).close()
    chance = random.Random(7)
    kills = 0
    for _ in range(12):
        child = reader(tmp_path)
        assert child.stdout is not None
        child.stdout.readline()  # it has begun to write
        time.sleep(chance.uniform(0.0, 0.25))
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
            kills += 1
        child.wait()
        child.stdout.close()
    assert kills > 0, "the reader was always done before it could be killed: the story is too short"
    last = reader(tmp_path)
    last.communicate()
    assert last.returncode == 0

    whole = made_store(tmp_path / "undisturbed")
    for events, cursor in story():
        record(whole, *events, cursor=cursor)
    killed = made_store(tmp_path)
    assert killed.faults() == ()
    assert told(killed) == told(whole)
    assert killed.incident(1).incident.crashes + killed.incident(2).incident.crashes == CRASHES
    whole.close()
    killed.close()


def told(store: object) -> object:
    """All that a reader of pages, alerts and counters would see."""
    from triage.store import Store

    assert isinstance(store, Store)
    store.fan_out({"ops": frozenset(EVENTS)}, T0 + 10**12)
    alerts = sorted((due.id, due.type, due.payload) for due in store.due("ops", T0 + 10**12, 10_000))
    rows = store.incidents(alarming=False).rows
    crashes = [store.crashes(row.number, limit=10_000).rows for row in rows]
    lines = [[(line.kind, line.text) for line in store.incident(row.number).timeline] for row in rows]
    return rows, crashes, lines, alerts, store.counters(), store.resume("journal:")
