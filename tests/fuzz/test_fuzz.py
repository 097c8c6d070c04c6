"""What the fuzzer once found stays mended, and a little chance is tried anew on every run of the tests."""

import random
from pathlib import Path

import pytest

from tests.fuzz.mutation import mutated, seeds
from tests.fuzz.targets import TARGETS

FOUND = Path(__file__).parent / "found"
ROUNDS = {"line": 150, "traceback": 150, "log": 60, "entries": 60}


@pytest.mark.parametrize("path", sorted(FOUND.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_stays_mended(path):
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_changed_logs_break_no_promise(target):
    pick = random.Random(20261129)
    logs = seeds(target)
    for log in logs:
        TARGETS[target](log)
    for _ in range(ROUNDS[target]):
        log = mutated(pick.choice(logs), pick, target)[:8_000]
        logs.append(log)
        TARGETS[target](log)


def test_a_broken_promise_is_seen(monkeypatch):
    monkeypatch.setattr("triage.engine.lanes.header_lead", lambda text: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        TARGETS["log"](seeds("log")[0])
