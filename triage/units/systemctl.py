"""The manager: units as they lie on the disk, as they are loaded, how they run; reload, restart, verify.

In: a unit's name. Out: values; errors of the tree where systemd cannot be reached or says no. Called by `carry`,
`readiness` (as root), `request` and `triage units` (unprivileged: all reading works without rights). Everything goes
by argv lists; `busctl --json` gives words without loss where `systemctl show` joins them by blanks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Protocol

from triage.actionmodel import Owner, Unit
from triage.frozen import frozen
from triage.model import InputError, NotPermitted, Refused, Unreachable
from triage.units.directives import HELD, Value
from triage.units.processes import Leftover, left_over
from triage.units.unitfile import environment_file
from triage.units.unitsearch import read_files, search, unit_folders, with_environment_files

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SERVICE = "org.freedesktop.systemd1.Service"
_UNIT = "org.freedesktop.systemd1.Unit"
_STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"  # systemd's MESSAGE_ID of "Stopping UNIT": only a job says so


@frozen
class State:
    """How a unit runs now. `invocation` is '' before its first start."""

    active: str  # active activating deactivating inactive failed
    sub: str
    result: str
    invocation: str
    restarts: int
    pid: int
    job: bool = False  # a start or stop is queued or running
    cgroup: str = ""  # path of its control group; '' while it has none

    @property
    def up(self) -> bool:
        return self.active == "active"

    @property
    def stopping(self) -> bool:
        """By a job: somebody asked for it. A unit that fails takes its time to go down as well, without one."""
        return self.active == "deactivating" and self.job


@frozen
class Loaded:
    """What the manager holds: specifiers are expanded in it, variables are not."""

    commands: tuple[tuple[str, ...], ...]
    environment: tuple[str, ...]
    unset: tuple[str, ...]
    environment_files: tuple[tuple[str, bool], ...] = ()  # path, may be missing
    settings: Mapping[str, Value] = field(default_factory=dict)  # 'Service.LimitNOFILE' -> what is in force


class NotKnown(Refused):
    """The manager has no such unit."""


class Manager(Protocol):
    """What an action needs of a manager; tests put one of their own here."""

    live: bool  # False: files only, nothing runs (--root)

    def read_unit(self, name: str) -> Unit: ...
    def verify(self, before: Unit, after: Unit) -> tuple[str, ...]: ...
    def reload(self) -> None: ...
    def loaded(self, name: str) -> Loaded: ...
    def state(self, name: str) -> State: ...
    def restart(self, name: str) -> None: ...
    def asked_to_stop(self, name: str, invocation: str) -> bool: ...
    def leftovers(self, name: str) -> tuple[Leftover, ...]: ...


class Systemd:
    """The machine's own manager; with `owner` that user's, which nobody but the user can ask."""

    live = True

    def __init__(self, owner: Owner | None = None) -> None:
        self.owner = owner
        self._user = ("--user",) if owner else ()
        self._extra = (
            {
                "XDG_RUNTIME_DIR": owner.runtime,
                "DBUS_SESSION_BUS_ADDRESS": f"unix:path={owner.runtime}/bus",
                "HOME": owner.home,
                "USER": owner.name,
            }
            if owner
            else {}
        )

    def _run(self, program: str, *argv: str, check: bool = True, limit: float = 60) -> subprocess.CompletedProcess[str]:
        return _run([program, *self._user, *argv], check=check, limit=limit, **self._extra)

    def read_unit(self, name: str) -> Unit:
        """All files of the unit in systemd's order, from the disk. Raises Refused where there is nothing to edit."""
        facts = self._properties(
            name, _UNIT, "Id", "LoadState", "FragmentPath", "DropInPaths", "NeedDaemonReload", "Transient"
        )
        identity, load, fragment, drop_ins, stale, transient = facts
        if load == "not-found":
            whose = f" of user {self.owner.name}" if self.owner else ""
            listed = " ".join(("systemctl", *self._user, "list-unit-files 'sglang*'"))
            raise NotKnown(f"{name} is not known to systemd{whose}: see `{listed}`")
        if load == "masked" or fragment == "/dev/null":
            raise Refused(f"{identity} is masked: systemctl unmask it first")
        if transient or not fragment:
            raise Refused(f"{identity} has no unit file (it is transient): nothing to edit")
        if not stale:
            unit = Unit(identity, read_files((fragment, *drop_ins)), owner=self.owner)
            return with_environment_files(unit)
        found = search(identity, self._unit_path())
        note = "the loaded unit differs from the files on disk: the restart will bring in those changes too"
        return with_environment_files(replace(found, need_daemon_reload=True, notes=(note,), owner=self.owner))

    def loaded(self, name: str) -> Loaded:
        commands, environment, unset, files = self._properties(
            name, _SERVICE, "ExecStart", "Environment", "UnsetEnvironment", "EnvironmentFiles"
        )
        return Loaded(
            tuple(tuple(command[1]) for command in commands),
            tuple(environment),
            tuple(unset),
            tuple((path, bool(optional)) for path, optional in files),
            self._settings(name),
        )

    def _settings(self, name: str) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for section, interface in (("Service.", _SERVICE), ("Unit.", _UNIT)):
            asked = {key: held for key, (held, _) in HELD.items() if key.startswith(section)}
            found |= zip(asked, self._properties(name, interface, *asked.values()), strict=True)
        return found

    def state(self, name: str) -> State:
        names = "ActiveState,SubState,Result,InvocationID,NRestarts,MainPID,Job,ControlGroup"
        text = self._run("systemctl", "show", "-p", names, "--", name).stdout
        facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        return State(
            active=facts.get("ActiveState", ""),
            sub=facts.get("SubState", ""),
            result=facts.get("Result", ""),
            invocation=facts.get("InvocationID", ""),
            restarts=int(facts.get("NRestarts") or 0),
            pid=int(facts.get("MainPID") or 0),
            job=facts.get("Job", "") not in ("", "0"),
            cgroup=facts.get("ControlGroup", ""),
        )

    def reload(self) -> None:
        self._run("systemctl", "daemon-reload", limit=120)

    def restart(self, name: str) -> None:
        """Queue a restart; `state` shows how it goes. The start limit of earlier crashes is lifted first."""
        self._run("systemctl", "reset-failed", "--", name, check=False)
        self._run("systemctl", "restart", "--no-block", "--", name)

    def asked_to_stop(self, name: str, invocation: str) -> bool:
        """Whether a stop or restart job ended that run, by the manager's own entry; False where it may not be read.

        SGLang ends a clean stop by SIGKILL on itself: neither state nor result tell it from a crash."""
        of = (
            (f"_SYSTEMD_UNIT=user@{self.owner.uid}.service", f"USER_UNIT={name}", f"USER_INVOCATION_ID={invocation}")
            if self.owner
            else ("_PID=1", f"UNIT={name}", f"INVOCATION_ID={invocation}")
        )
        wanted = (*of, f"MESSAGE_ID={_STOPPING}")
        argv = ["journalctl", "--quiet", "--no-pager", "--output=json", "--lines=1", *wanted]
        return bool(_run(argv, check=False).stdout.strip())

    def wrote(self, name: str, pid: int, since: float) -> bool:
        """Whether that process wrote a line as that unit since then (seconds UTC), by the journal."""
        unit = (
            (f"_SYSTEMD_UNIT=user@{self.owner.uid}.service", f"_SYSTEMD_USER_UNIT={name}")
            if self.owner
            else (f"_SYSTEMD_UNIT={name}",)
        )
        wanted = (f"_PID={pid}", *unit)
        argv = [
            "journalctl",
            "--quiet",
            "--no-pager",
            "--output=json",
            "--lines=1",
            f"--since=@{since - 1:.0f}",
            *wanted,
        ]
        return bool(_run(argv, check=False).stdout.strip())

    def leftovers(self, name: str) -> tuple[Leftover, ...]:
        """What a restart of the unit would trip over; see `processes`."""
        return left_over(name, self)

    def verify(self, before: Unit, after: Unit) -> tuple[str, ...]:
        """What `systemd-analyze verify` says of `after` and did not say of `before`: both staged, neither installed."""
        said = Counter(self._verify(before))
        return tuple((Counter(self._verify(after)) - said).elements())

    def list_units(self, *globs: str) -> tuple[str, ...]:
        """Names of the services matching the globs, running or only installed."""
        found: set[str] = set()
        for verb in ("list-units", "list-unit-files"):
            argv = ["systemctl", verb, "--all", "--plain", "--no-legend", "--type=service", "--", *globs]
            lines = _run(argv if verb == "list-units" else [word for word in argv if word != "--all"]).stdout
            found |= {line.split()[0] for line in lines.splitlines() if line.strip()}
        return tuple(sorted(name for name in found if not name.endswith("@.service")))

    def _properties(self, name: str, interface: str, *names: str) -> list[Any]:
        argv = ("--json=short", "get-property", "org.freedesktop.systemd1", object_path(name), interface)
        lines = self._run("busctl", *argv, *names).stdout.splitlines()
        if len(lines) != len(names):
            raise Unreachable(f"systemd gave no answer about {name}")
        return [json.loads(line)["data"] for line in lines]

    def _unit_path(self) -> tuple[Path, ...]:
        argv = ("--json=short", "get-property", "org.freedesktop.systemd1", "/org/freedesktop/systemd1")
        answer = self._run("busctl", *argv, "org.freedesktop.systemd1.Manager", "UnitPath").stdout
        return tuple(Path(folder) for folder in json.loads(answer)["data"])

    def _verify(self, unit: Unit) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="triage-verify-") as stage:
            folder = Path(stage) / f"{unit.name}.d"
            folder.mkdir()
            for at, file in enumerate(unit.files):
                target = Path(stage) / unit.name if at == 0 else folder / file.path.rsplit("/", 1)[-1]
                target.write_bytes(file.text.encode("utf-8", "surrogateescape"))
            argv = ["systemd-analyze", *self._user, "verify", "--man=no", "--recursive-errors=no"]
            extra = {**self._extra, "SYSTEMD_UNIT_PATH": f"{stage}:"}
            done = _run([*argv, str(Path(stage) / unit.name)], check=False, limit=120, **extra)
            # Line numbers move with every comment of the drop-in; what is said counts.
            lines = [
                re.sub(r":\d+:", ":", line.replace(stage, "")) for line in done.stderr.splitlines() if line.strip()
            ]
            return [*lines, *([f"systemd-analyze verify ends with {done.returncode}"] if done.returncode else [])]


class Folder:
    """Unit files below a folder (--root): read and verified as far as can be, nothing is reloaded or restarted."""

    live = False

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InputError(f"{root} is not a folder")
        self.root = root

    def read_unit(self, name: str) -> Unit:
        found = search(name, unit_folders(self.root))
        prefix = str(self.root.resolve()).rstrip("/")
        for file in found.files:
            if not file.path.startswith(f"{prefix}/"):
                raise Refused(f"{file.path} is a link out of {self.root}: put the file itself there")
        files = tuple(replace(file, path=file.path.removeprefix(prefix)) for file in found.files)
        return with_environment_files(replace(found, files=files), self.root)

    def verify(self, before: Unit, after: Unit) -> tuple[str, ...]:
        """Where systemd-analyze is installed; a machine without systemd can still preview."""
        try:
            return Systemd().verify(before, after)
        except Unreachable:
            return ()

    def reload(self) -> None:
        return

    def loaded(self, name: str) -> Loaded:
        raise Unreachable(f"{name} lies below {self.root}: no manager has loaded it")

    def state(self, name: str) -> State:
        raise Unreachable(f"{name} lies below {self.root}: it does not run")

    def restart(self, name: str) -> None:
        return

    def asked_to_stop(self, name: str, invocation: str) -> bool:
        return False

    def leftovers(self, name: str) -> tuple[Leftover, ...]:
        return ()


def is_active(name: str) -> bool:
    """Whether that unit of the system runs; False too where there is no systemd."""
    try:
        return _run(["systemctl", "is-active", "--quiet", "--", name], check=False).returncode == 0
    except Unreachable:
        return False


def object_path(name: str) -> str:
    """The unit's place on the bus: every byte but letters and digits is escaped, a leading digit too."""
    escaped = re.sub(rb"[^A-Za-z0-9]|^[0-9]", lambda found: b"_%02x" % found[0][0], name.encode())
    return f"/org/freedesktop/systemd1/unit/{escaped.decode()}"


def environment(manager: Manager, name: str) -> dict[str, str]:
    """What the server gets from the unit, environment files included (root can read them all)."""
    held = manager.loaded(name)
    found = dict(item.partition("=")[::2] for item in held.environment)
    for path, _ in held.environment_files:
        try:
            found |= environment_file(Path(path).read_text("utf-8", "surrogateescape"))
        except OSError:
            continue
    return {key: value for key, value in found.items() if key not in held.unset}


def _run(argv: list[str], *, check: bool = True, limit: float = 60, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": _PATH, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "cat", **extra}
    bus = os.environ.get("DBUS_SYSTEM_BUS_ADDRESS")
    if bus and os.geteuid():
        environment["DBUS_SYSTEM_BUS_ADDRESS"] = bus
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=limit, env=environment, stdin=subprocess.DEVNULL, check=False
        )
    except FileNotFoundError:
        raise Unreachable(f"{argv[0]} is not installed: this machine has no systemd (use --root DIR)") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{' '.join(argv[:2])} gave no answer in {limit:.0f} s") from None
    if check and done.returncode:
        said = " ".join(done.stderr.split())[:300]
        if "ermission denied" in said or "uthentication" in said or "ccess denied" in said:
            raise NotPermitted(f"{' '.join(argv[:2])} needs root: {said}")
        raise Unreachable(f"{' '.join(argv[:2])} failed: {said}")
    return done
