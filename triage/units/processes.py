"""What is left of a unit outside its cgroup, and GPU memory that nobody alive holds: what a restart would trip over.

In: a unit's name and the manager. Out: `Leftover`s with a sentence each. Called by `carry` as root, before a unit is
touched. Nothing is ended here or anywhere: systemd ends what is in the unit's cgroup, the rest is named for people.
A process counts as the unit's only if the journal holds a line that it wrote as this unit: a colleague's own server
of the same kind is none of ours.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from triage.frozen import frozen

_SMI = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SMI_SECONDS = 20  # a driver that hangs must not hang the action


class Journal(Protocol):
    def wrote(self, name: str, pid: int, since: float) -> bool:
        """Whether that process wrote a line as that unit since then (seconds UTC)."""
        ...


@frozen
class Leftover:
    pid: int
    name: str  # '' where the process is gone and only its memory is left
    cgroup: str
    memory: int  # MiB of GPU memory

    def __str__(self) -> str:
        memory = f"{self.memory} MiB of GPU memory" if self.memory else ""
        if not self.name:
            return f"{memory} is held by pid {self.pid}, which is gone"
        holds = f" and holds {memory}" if memory else ""
        return (
            f"{self.name} (pid {self.pid}) of an earlier run is still there outside the unit, in {self.cgroup}{holds}"
        )


def left_over(unit: str, journal: Journal, proc: Path = Path("/proc")) -> tuple[Leftover, ...]:
    """Living ones first. What cannot be looked at is not there: this only ever says more than nothing."""
    memory = gpu_memory()
    found = []
    for folder in proc.iterdir() if proc.is_dir() else ():
        if not folder.name.isdecimal():
            continue
        pid = int(folder.name)
        name, cgroup = _server(folder), _cgroup(folder)
        if name and not _in_a_service(cgroup) and journal.wrote(unit, pid, _started(folder)):
            found.append(Leftover(pid, name, cgroup, memory.get(pid, 0)))
    gone = [pid for pid in memory if not (proc / str(pid)).is_dir()]
    return (*sorted(found, key=lambda one: one.pid), *(Leftover(pid, "", "", memory[pid]) for pid in sorted(gone)))


def gpu_memory() -> Mapping[int, int]:
    """MiB by pid, as nvidia-smi tells; empty where there is no such GPU."""
    try:
        done = subprocess.run(
            _SMI,
            capture_output=True,
            text=True,
            timeout=_SMI_SECONDS,
            env={"PATH": _PATH, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[int, int] = {}
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        pid, _, used = (word.strip() for word in line.partition(","))
        if pid.isdecimal() and used.isdecimal():  # "[N/A]" in containers
            found[int(pid)] = found.get(int(pid), 0) + int(used)
    return found


def _server(folder: Path) -> str:
    """The process's short name where it is a part of SGLang, else ''."""
    try:
        name = (folder / "comm").read_text("utf-8", "replace").strip()
        words = (folder / "cmdline").read_bytes()[:4096]
        state = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return name if state != "Z" and ("sglang" in name or b"sglang" in words) else ""


def _cgroup(folder: Path) -> str:
    """Where systemd has it: the unified hierarchy's path, else that of its own."""
    try:
        lines = (folder / "cgroup").read_text().splitlines()
    except OSError:
        return ""
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines if line.count(":") >= 2}
    return paths.get("name=systemd") or paths.get("", "")


def _in_a_service(cgroup: str) -> bool:
    """A service's processes are its manager's business; '' is a process that has just ended."""
    services = (part for part in cgroup.split("/") if part.endswith(".service"))
    # Below user@1000.service lie that user's services, and sessions, which are none.
    return not cgroup or any(not part.startswith("user@") for part in services)


def _started(folder: Path) -> float:
    """When the process began, seconds UTC: pids are given again."""
    try:
        ticks = int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return time.time()
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
