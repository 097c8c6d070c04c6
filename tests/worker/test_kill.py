"""kill -9 of a delivering worker: every alert arrives, each under one id, whatever was in the air."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.store.made import closed, made_finding, made_store, record
from tests.worker.receiver import receiver
from triage.channels import Webhook
from triage.settings import Webhook as WebhookSettings
from triage.worker import Worker

ROOT = Path(__file__).resolve().parents[2]
ALERTS = 60


def work(folder: str, url: str) -> None:
    """What the child does: rounds by the real clock until it is killed or nothing waits."""
    store = made_store(Path(folder))
    worker = Worker(store, (Webhook(WebhookSettings(name="ops", url=url)),))
    print("at work", flush=True)
    while store.health().outbox.waiting:
        worker.run_once(time.time_ns() // 1000)
    worker.close()
    store.close()


def test_every_alert_arrives_under_one_id_when_the_worker_is_killed_again_and_again(tmp_path: Path) -> None:
    store = made_store(tmp_path)
    for number in range(1, ALERTS + 1):
        record(store, closed(made_finding(number, signature=f"s{number}")))
    chance = random.Random(11)
    with receiver() as ops:
        for round_ in range(8):
            command = [sys.executable, "-m", "tests.worker.test_kill", str(tmp_path), ops.url]
            child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.readline()
            if round_ < 7:
                time.sleep(chance.uniform(0.0, 0.15))
                os.kill(child.pid, signal.SIGKILL)
            child.wait()
            child.stdout.close()
        assert child.returncode == 0
        told = {}
        for got in ops.got:
            assert told.setdefault(got.id, got.body) == got.body
        assert len(told) == ALERTS
    assert store.health().outbox.waiting == 0
    store.close()


if __name__ == "__main__":
    work(*sys.argv[1:])
