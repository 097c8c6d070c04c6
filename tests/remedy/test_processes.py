"""Left-overs are named where the journal says whose they were, and nothing else is."""

from pathlib import Path

import pytest

from tests.remedy.machine import Machine
from triage.actionmodel import ActionState
from triage.units import processes
from triage.units.processes import Leftover, left_over

LIVING = Leftover(4711, "sglang::schedul", "/user.slice", 77312)
DEAD = Leftover(999999, "", "", 77312)


class Journal:
    def __init__(self, *pids: int) -> None:
        self.pids = pids

    def wrote(self, name: str, pid: int, since: float) -> bool:
        return name == "sglang-a.service" and pid in self.pids


def process(proc: Path, pid: int, name: str, cgroup: str, command: str = "", state: str = "S") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode())
    (folder / "stat").write_text(f"{pid} ({name}) {state} 1 " + "0 " * 17 + "100 0 0\n")
    (folder / "cgroup").write_text(f"12:memory:/x\n1:name=systemd:{cgroup}\n0::{cgroup}\n")


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "_PATH", str(tmp_path / "bin"))


def smi(folder: Path, text: str, code: int = 0) -> None:
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n/bin/cat <<'E'\n{text}\nE\nexit {code}\n")
    program.chmod(0o755)


def test_what_left_the_unit_is_found_by_its_own_words(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    process(proc, 10, "sglang::schedul", "/user.slice/session-1.scope")
    process(proc, 11, "python3", "/", "python3 -m sglang.launch_server --port 1")
    process(proc, 12, "sglang::schedul", "/system.slice/sglang-a.service")  # the unit's own: systemd ends it
    process(proc, 13, "sglang::schedul", "/")  # a colleague's: the journal knows nothing of it
    process(proc, 14, "bash", "/")
    process(proc, 15, "sglang::schedul", "/", state="Z")
    found = left_over("sglang-a.service", Journal(10, 11, 12, 14, 15), proc)
    assert [one.pid for one in found] == [10, 11]
    assert "pid 10) of an earlier run is still there outside the unit" in str(found[0])
    assert left_over("sglang-b.service", Journal(10, 11), proc) == ()


def test_gpu_memory_is_told_of_the_living_and_the_dead(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    process(proc, 10, "sglang::schedul", "/")
    process(proc, 20, "another", "/")
    smi(tmp_path, "10, 500\n10, 700\n20, 9\n77, 77312\n[N/A], [N/A]")
    living, dead = left_over("sglang-a.service", Journal(10), proc)
    assert (living.pid, living.memory) == (10, 1200)
    assert str(dead) == "77312 MiB of GPU memory is held by pid 77, which is gone"


def test_a_driver_that_fails_tells_nothing(tmp_path: Path) -> None:
    smi(tmp_path, "77, 77312", code=9)
    assert left_over("sglang-a.service", Journal(), tmp_path / "proc") == ()


def test_a_left_over_process_is_named_and_nothing_is_touched(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    before = machine.files()
    machine.manager.left = (LIVING,)
    result = machine.carry(machine.apply_request()).result
    assert result.state is ActionState.REFUSED
    assert "sglang::schedul (pid 4711)" in result.text
    assert "sudo kill -9 4711" in result.text
    assert machine.files() == before
    assert machine.manager.facts()["starts"] == 0


def test_memory_of_the_dead_is_named_and_hinders_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.manager.left = (DEAD,)
    result = machine.carry(machine.apply_request()).result
    assert result.state is ActionState.VERIFIED
    [step] = [step for step in result.steps if step.name == "leftovers"]
    assert "held by pid 999999, which is gone" in step.text


def test_an_undoing_is_never_held_up(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.carry(machine.apply_request())
    machine.manager.left = (LIVING,)
    assert machine.carry(machine.rollback_request("i3-1", "i3-2")).result.state is ActionState.UNDONE
