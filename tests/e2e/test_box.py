"""The box itself: what every other test of this folder stands on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.e2e.box import PREFIX, Box, wait_for


def test_the_box_has_its_own_manager_network_and_files(box: Box) -> None:
    assert box.run("cat /proc/1/comm").out == "systemd\n"
    assert box.run("ls /sys/class/net").out.split() == ["lo"]
    box.push("text", "/etc/only-in-the-box", mode=0o600, owner="nobody")
    assert box.pull("/etc/only-in-the-box") == b"text"
    assert not Path("/etc/only-in-the-box").exists()
    assert box.tree("/etc/systemd/system")


def test_the_journal_of_the_box_is_real(box: Box) -> None:
    box.run(["systemd-run", "--wait", "--unit=say.service", "echo", "a word"])
    assert "a word" in box.journal("-u", "say.service", "-o", "cat")
    assert list(box.journal_folder.glob("*/system.journal"))


def test_a_box_dies_with_its_runner_and_the_next_one_sweeps_up() -> None:
    script = (
        "import time; from tests.e2e.box import Box; b = Box('dies'); b.start()\n"
        "print(b.leader, flush=True); time.sleep(60)"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert runner.stdout is not None
    with runner.stdout:
        leader = int(runner.stdout.readline())
    assert Path(f"/proc/{leader}").exists()
    runner.send_signal(signal.SIGKILL)
    runner.wait(10)
    wait_for("the box's first process to be gone", lambda: _state(leader) in ("", "Z"))
    with Box("sweeps"):
        pass
    left = [
        p for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/tmp") for p in Path(base).glob(f"{PREFIX}dies-*")
    ]
    assert [p for p in left if f"-{runner.pid}" in p.name] == []


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""
