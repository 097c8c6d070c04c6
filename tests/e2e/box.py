"""A box: a real systemd with journald and D-Bus, booted over this machine's own root in about half a second.

In: nothing but root rights and systemd-nspawn. Out: `Box`, a context with `run`, `systemctl`, `journal`, `push`,
`pull`. The root file system is the machine's, under a volatile overlay: what the box writes is gone with it. Its
network is private, its journal lies in a real folder, and it dies with the process that started it, kill -9 included.

Why it is started as it is:
- killing nspawn leaves its leader running, so everything sits in a pid namespace that dies with `unshare`
  (`--kill-child`), and `unshare` dies with the test run (`--pdeathsig`, which follows the thread that forked: start
  boxes from the main thread only);
- without a cgroup of its own the box would build its slices in the machine's root cgroup, beside those of other boxes;
- journal files on the volatile overlay kill readers by SIGBUS when they rotate, hence the bound folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOT_SECONDS = 30.0
RUN_SECONDS = 60.0
PREFIX = "triagebox-"

# Services of the machine that would slow the boot, fail without hardware, or touch the network.
MASKED = (
    "postgresql.service fail2ban.service exim4.service exim4-base.timer apt-daily.timer apt-daily-upgrade.timer "
    "man-db.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer dpkg-db-backup.timer logrotate.timer "
    "getty.target systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-timesyncd.service "
    "systemd-networkd.service systemd-resolved.service nginx.service apache2.service docker.service "
    "containerd.service snapd.service unattended-upgrades.service ssh.service cron.service"
)

# Bind the root, enter the box's cgroups (`echo 0`: $$ would be the wrong number in a new pid namespace), boot.
BOOT = r"""
set -e
root=$1 journal=$2 name=$3; shift 3
mount --bind / "$root"; mount -t proc proc "$root/proc"
for folder in $BOX_CGROUPS; do echo 0 > "$folder/cgroup.procs"; done
exec systemd-nspawn -q -D "$root" --volatile=overlay --boot --register=no --keep-unit --private-network \
  --machine="$name" --bind="$journal:/var/log/journal" -- systemd.unit=multi-user.target "$@"
"""


LOOK = r"""
import json, os, stat, sys
out = []
for folder in sys.argv[1:]:
    for base, dirs, files in os.walk(folder):
        for name in [""] + dirs + files:
            path = os.path.join(base, name); s = os.lstat(path); body = ""
            if stat.S_ISLNK(s.st_mode): body = os.readlink(path)
            if stat.S_ISREG(s.st_mode) and s.st_size > 100_000: body = f"{s.st_size} bytes of {s.st_mtime_ns}"
            elif stat.S_ISREG(s.st_mode): body = open(path, errors="surrogateescape").read()
            out.append((path, f"{stat.filemode(s.st_mode)} {s.st_uid}:{s.st_gid}", body))
print(json.dumps(out))
"""


class BoxError(Exception):
    """The box, or what was run in it, did not do what the test needs."""


@dataclass(frozen=True, slots=True)
class Result:
    argv: tuple[str, ...]
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{shlex.join(self.argv)[:300]} -> {self.code}\nstdout: {self.out[-3000:]}\nstderr: {self.err[-3000:]}"


def why_not() -> str | None:
    """Why a box cannot run here, with the mend, or None."""
    if os.geteuid() != 0:
        return "the systemd tests need root: run them as root, or set TRIAGE_E2E=skip"
    for program, package in (
        ("systemd-nspawn", "systemd-container"),
        ("nsenter", "util-linux"),
        ("unshare", "util-linux"),
        ("setpriv", "util-linux"),
    ):
        if shutil.which(program, path=PATH) is None:
            return f"{program} is missing: apt-get install {package}, or set TRIAGE_E2E=skip"
    if not Path("/sys/fs/cgroup").is_dir():
        return "/sys/fs/cgroup is not mounted: mount it, or set TRIAGE_E2E=skip"
    return None


PATIENCE = 60.0  # seconds: below it a limit is no claim about speed, and a busy machine takes longer than one at rest


def wait_for(what: str, look: Callable[[], T | None], seconds: float = PATIENCE, every: float = 0.15) -> T:
    """`look` again and again until it gives something true; raises BoxError when the time is up (PATIENCE or more)."""
    seconds = max(seconds, PATIENCE)
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise BoxError(f"not within {seconds:g} s: {what} (last seen: {found!r})")
        time.sleep(every)


class Box:
    """One booted machine. Use it as a context; `start` may be called once."""

    def __init__(self, name: str) -> None:
        _sweep()
        self.name = f"{PREFIX}{name}-{os.getpid()}"
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.root = self.folder / "root"
        self.journal_folder = self.folder / "journal"
        self.console = self.folder / "console"
        self._cgroups = [base / self.name for base in _cgroup_bases()]
        self._outer: subprocess.Popen[bytes] | None = None
        self.leader = 0

    def __enter__(self) -> Box:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Boot until the manager says it runs. Raises BoxError with the console's last words."""
        if reason := why_not():
            raise BoxError(reason)
        self.root.mkdir()
        self.journal_folder.mkdir()
        for folder in self._cgroups:
            folder.mkdir(exist_ok=True)
        argv = ["setsid", "setpriv", "--pdeathsig", "KILL"]
        argv += ["unshare", "-m", "-p", "--fork", "--kill-child=KILL", "--mount-proc", "--propagation", "private"]
        argv += ["bash", "-c", BOOT, "-", str(self.root), str(self.journal_folder), self.name]
        argv += [f"systemd.mask={unit}" for unit in MASKED.split()]
        with self.console.open("wb") as console:
            self._outer = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={"PATH": PATH, "BOX_CGROUPS": " ".join(map(str, self._cgroups))},
            )
        try:
            self.leader = wait_for("the box's first process", self._find_leader, BOOT_SECONDS, 0.02)
            wait_for("the box to be up", self._is_up, BOOT_SECONDS, 0.02)
        except BoxError as error:
            words = self.console.read_text(errors="replace")[-3000:]
            self.stop()
            raise BoxError(
                f"the box does not boot here ({error}); TRIAGE_E2E=skip leaves these tests out\n{words}"
            ) from None

    def stop(self) -> None:
        """Everything in it dies at once; nothing stays behind."""
        if self._outer is not None:
            self._outer.kill()
            self._outer.wait(10)
            self._outer = None
        for folder in self._cgroups:
            _remove_cgroup(folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _find_leader(self) -> int | None:
        assert self._outer is not None
        if self._outer.poll() is not None:
            raise BoxError(f"systemd-nspawn ended with {self._outer.returncode}")
        # unshare -> nspawn -> the leader, whose name is systemd once it has executed init
        for nspawn in _children(self._outer.pid):
            for leader in _children(nspawn):
                if _comm(leader) == "systemd":
                    return leader
        return None

    def _is_up(self) -> str | None:
        state = self.run(["systemctl", "is-system-running"], check=False, timeout=10).out.strip()
        return state if state in ("running", "degraded") else None

    # ---------------------------------------------------------------- use

    def run(
        self,
        command: str | Sequence[str],
        *,
        user: str | None = None,
        check: bool = True,
        timeout: float = RUN_SECONDS,
        data: bytes | None = None,
        unit: bool = False,
        env: dict[str, str] | None = None,
    ) -> Result:
        """Run an argv, or a text as a bash script, as root or `user`. `unit`: in a service of its own, inside the
        box's cgroups (a process that is merely brought in has no unit in the journal)."""
        argv = ["bash", "-euo", "pipefail", "-c", command] if isinstance(command, str) else list(command)
        if unit:
            run = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect"]
            argv = [*run, *([f"--uid={user}"] if user else []), "--", *argv]
        elif user:
            argv = ["runuser", "-u", user, "--", *argv]
        try:
            done = subprocess.run(
                self.enter(argv, env), input=data or b"", capture_output=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            out = (error.stdout or b"").decode(errors="replace")
            err = (error.stderr or b"").decode(errors="replace")
            raise BoxError(f"over {timeout:g} s: {Result(tuple(argv), -1, out, err)}") from None
        result = Result(
            tuple(argv), done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        if check and result.code != 0:
            raise BoxError(str(result))
        return result

    def enter(self, argv: Sequence[str], env: dict[str, str] | None = None) -> list[str]:
        """The argv that runs `argv` inside, for a test that wants to start the process itself."""
        clean = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", "TZ": "UTC", **(env or {})}
        inside = ["env", "-i", *(f"{k}={v}" for k, v in clean.items()), *argv]
        return ["nsenter", "-t", str(self.leader), "-a", "-r", "-w", "--", *inside]

    def systemctl(self, *args: str, check: bool = True, timeout: float = RUN_SECONDS) -> str:
        return self.run(["systemctl", *args], check=check, timeout=timeout).out

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit."""
        out = self.systemctl("show", unit, *(f"--property={n}" for n in names))
        return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)

    def journal(self, *args: str) -> str:
        """journalctl's words, after a sync so that everything written before is in it."""
        self.run(["journalctl", "--sync"])
        return self.run(["journalctl", "--no-pager", "--quiet", *args]).out

    def push(self, what: str | bytes | Path, to: str, *, mode: int | None = None, owner: str | None = None) -> None:
        """Put a text, bytes, a file or a folder's content at the absolute path `to`."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            if isinstance(what, Path):
                tar.add(what, to.lstrip("/"), filter=_as_root)
            else:
                raw = what.encode() if isinstance(what, str) else what
                info = tarfile.TarInfo(to.lstrip("/"))
                info.size, info.mode, info.mtime = len(raw), 0o644, int(time.time())
                tar.addfile(info, io.BytesIO(raw))
        self.run(["tar", "-x", "-C", "/", "--no-same-owner"], data=packed.getvalue())
        if mode is not None:
            self.run(["chmod", f"{mode:o}", to])
        if owner is not None:
            self.run(["chown", "-R", owner, to])

    def pull(self, path: str) -> bytes:
        """A file's bytes."""
        done = subprocess.run(self.enter(["cat", path]), capture_output=True, timeout=RUN_SECONDS, check=False)
        if done.returncode != 0:
            raise BoxError(done.stderr.decode(errors="replace"))
        return done.stdout

    def tree(self, *folders: str) -> dict[str, tuple[str, str]]:
        """Everything below the folders, to compare later: path -> (mode and owner, content or link target)."""
        out = self.run(["/usr/bin/python3", "-I", "-c", LOOK, *folders]).out
        return {name: (mode, body) for name, mode, body in json.loads(out)}


# ---------------------------------------------------------------- the machine below


def _as_root(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if "__pycache__" in info.name:
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def _cgroup_bases() -> list[Path]:
    base = Path("/sys/fs/cgroup")
    if (base / "cgroup.controllers").exists():  # one hierarchy
        return [base]
    return [base / h for h in ("unified", "systemd", "memory", "pids") if (base / h).is_dir()]


def _sweep() -> None:
    """Take away the empty folders of boxes whose runner was killed: NAME-PID, and that process is gone."""
    for base in (*_cgroup_bases(), Path(tempfile.gettempdir())):
        for folder in base.glob(f"{PREFIX}*"):
            pid = re.match(rf"{PREFIX}.*?-(\d+)(-|$)", folder.name)
            if pid is None or Path(f"/proc/{pid[1]}").exists():
                continue
            if base == Path(tempfile.gettempdir()):
                shutil.rmtree(folder, ignore_errors=True)
            else:
                _remove_cgroup(folder)


def _remove_cgroup(folder: Path) -> None:
    if not folder.is_dir():
        return
    end = time.monotonic() + 5
    while True:
        for base, _dirs, _files in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):  # a zombie is still counted for a moment
                os.rmdir(base)
        if not folder.is_dir() or time.monotonic() > end:
            return
        time.sleep(0.02)


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
