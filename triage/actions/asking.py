"""What the installed server says of itself: its release and its own --help, asked as the unit's own user.

Root's one-shot calls `take_asks` and `answer_all`: a file in the spool names a unit, nothing else in it is read. Root
reads the unit itself and starts the unit's own program with --help in a transient unit, under the unit's user and never
as root; what it prints is kept as text in root's folder. The unprivileged side calls `filed` and `load`. Standard
library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from triage.actionmodel import Owner, Unit
from triage.actions import durable
from triage.actions.described import flags_of, loaded_of, plain, said, state_of, unit_of
from triage.actions.spool import throw_out
from triage.actions.theirs import Session
from triage.frozen import frozen
from triage.model import Refused, TriageError
from triage.units.dropin import mask_argv, mask_value
from triage.units.launch import Launch, find, interpreter
from triage.units.owners import owner_of
from triage.units.servers import release, stamp
from triage.units.unitfile import UNIT_NAME, Effective, effective, expand

ASKS, ANSWERS = "asks", "answers"
SECONDS = 120  # an import of SGLang alone takes 25 s
AGAIN = 600  # seconds before a unit is asked again that gave no answer, or whose files cannot be looked at
OLDEST = 86_400  # a source tree may have changed below the same release
_LIMIT = 1 << 20
_WAITING = 32
_VIEWS = 256  # kept, of users' units
_VIEW = re.compile(r"([1-9][0-9]{0,9})~(.+)")
_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"
_ROOT = ("", "root", "0")


@frozen
class Answer:
    unit: str
    argv: tuple[str, ...]  # what was started, without --help; secrets masked
    stamp: str  # of the program and what is installed beside it
    release: str
    help: str
    error: str  # why there is no answer
    time: float

    def of(self, argv: tuple[str, ...]) -> bool:
        return self.argv == mask_argv(argv)

    def fresh(self, argv: tuple[str, ...], program: str, now: float) -> bool:
        """Does it speak of what the unit starts now?"""
        seen = stamp(program)
        age = now - self.time
        if not self.of(argv) or (seen and seen != self.stamp):
            return False
        return 0 <= age < (AGAIN if self.error or not seen else OLDEST)


# ---------------------------------------------------------------- the unprivileged side


def filed(spool: Path, unit: str) -> bool:
    """Ask for that unit; True where the question lies there already. Raises OSError where the spool is not ours."""
    with durable.opened(spool, ASKS) as folder:
        if unit in os.listdir(folder):
            return True
        durable.write(folder, unit, b"", 0o600)
        return False


def load(folder: Path, unit: str) -> Answer | None:
    """Root's newest answer."""
    with contextlib.suppress(OSError, ValueError, TypeError), durable.opened(folder, ANSWERS) as answers:
        data = durable.read(answers, unit, 4 * _LIMIT)
        if data is not None:
            content = json.loads(data)
            return Answer(**{**content, "argv": tuple(content["argv"])})
    return None


def asked(unit: Unit) -> tuple[tuple[str, ...], str]:
    """The words that would be started with --help, and the program beside which SGLang lies.

    Raises Refused where the server cannot be started by itself."""
    merged = effective(unit, with_drop_in=True)
    return _command(merged, find(merged.commands))


# ---------------------------------------------------------------- root's side


def take_asks(spool: Path) -> tuple[str, ...]:
    """The units that are asked about. Removed first: what cannot be answered must not come back for ever."""
    try:
        with durable.opened(spool.parent.parent, spool.parent.name, spool.name, ASKS) as asks:
            names = sorted(os.listdir(asks))[:_WAITING]
            for name in names:
                throw_out(asks, name)
    except OSError:
        return ()
    return tuple(name for name in names if UNIT_NAME.fullmatch(_asked_about(name)[1]) and ".." not in name)


def _asked_about(name: str) -> tuple[int | None, str]:
    """(the user whose unit it is, its name): `1000~sglang.service` asks how a user's unit is."""
    found = _VIEW.fullmatch(name)
    return (int(found[1]), found[2]) if found else (None, name)


def view_name(uid: int, unit: str) -> str:
    return f"{uid}~{unit}"


def answer_all(
    names: Iterable[str],
    folder: Path,
    read: Callable[[str], Unit],
    allowed: Callable[[str], None],
    allowed_user: Callable[[Owner], None] = lambda owner: None,
) -> None:
    """Answer what is asked. `allowed` and `allowed_user` raise Refused for what the policy does not name."""
    for name in names:
        uid, unit = _asked_about(name)
        with contextlib.suppress(TriageError, OSError):
            if uid is None:
                allowed(unit)
                _answer(folder, read(unit))
                continue
            owner, taken = owner_of(uid), time.time()  # before the look: an action may end meanwhile
            try:
                allowed(unit)
                allowed_user(owner)
                found = _look(owner, unit)
            except TriageError as reason:
                found = {"error": said(str(reason))}
            _keep(folder, name, json.dumps({**found, "time": taken}).encode())


def _look(owner: Owner, unit: str) -> dict[str, Any]:
    """How a user's unit is, for `views`: asked as that user, passed on as it was understood here."""
    session = Session(owner)
    try:
        found = session.call("view", unit)
    finally:
        session.close()
    if not isinstance(found, dict) or not {"unit", "loaded", "state", "release", "flags"} <= set(found):
        raise Refused("what acts for the user gave no view of the unit")
    return {
        "unit": plain(unit_of(found["unit"], owner)),
        "loaded": plain(loaded_of(found["loaded"])),
        "state": plain(state_of(found["state"])),
        "release": said(found["release"], 60),
        "flags": None if found["flags"] is None else flags_of(found["flags"]),
    }


def _keep(folder: Path, name: str, data: bytes) -> None:
    """The newest few: whoever may ask must not fill the disk."""
    (folder / ANSWERS).mkdir(mode=0o750, exist_ok=True)
    with durable.opened(folder, ANSWERS) as answers:
        views = [other for other in os.listdir(answers) if _VIEW.fullmatch(other) and other != name]
        for other in sorted(views, key=lambda one: os.stat(one, dir_fd=answers).st_mtime)[
            : max(0, len(views) - _VIEWS)
        ]:
            durable.remove(answers, other)
        durable.write(answers, name, data, 0o640)


def _answer(folder: Path, unit: Unit) -> None:
    known, now = load(folder, unit.name), time.time()
    try:
        argv, program = asked(unit)
    except Refused as reason:
        argv, program, said = (), "", ("", "", str(reason))
    else:
        if known and known.fresh(argv, program, now):
            return
        said = _ask(effective(unit, with_drop_in=True), argv, program)
    answer = Answer(unit.name, mask_argv(argv), stamp(program), *said, now)
    (folder / ANSWERS).mkdir(mode=0o750, exist_ok=True)
    with durable.opened(folder, ANSWERS) as answers:
        durable.write(answers, unit.name, json.dumps(asdict(answer)).encode(), 0o640)


def _ask(unit: Effective, argv: tuple[str, ...], program: str) -> tuple[str, str, str]:
    """(release, help, why there is none)."""
    python = os.path.basename(program).startswith("python")
    version = _started(unit, (program, "-c", _VERSION)).strip() if python else ""
    text = _started(unit, (*argv, "--help"))
    said = version if len(version) < 100 and "\n" not in version else ""
    if "--" not in text:
        return said, "", f"`{' '.join(mask_argv(argv))} --help` printed no flags within {SECONDS} s"
    return said or release(program) or "", text, ""


def _command(unit: Effective, launch: Launch) -> tuple[tuple[str, ...], str]:
    program = interpreter(launch)
    if launch.contained or launch.script is not None or launch.new_environment or not program:
        raise Refused("it is started through a script, a container or another user")
    words = [item.text for item in launch.words[: launch.start]]
    words[0] = launch.command.program
    if "@" in launch.command.prefix:
        del words[1]
    argv = expand(tuple(words), unit.variables)
    if any("%" in text for text in (*argv, program, unit.settings.get("Service.User", ""))):
        raise Refused("its command or user is filled in by systemd only when it starts")
    return argv, expand((program,), unit.variables)[0]


def transient(unit: Effective, argv: tuple[str, ...]) -> list[str]:
    """The command that starts it as the unit's own user; a unit of root's is asked as nobody."""
    user = unit.settings.get("Service.User", "")
    dynamic = unit.settings.get("Service.DynamicUser", "").lower() in ("yes", "true", "1", "on")
    run = ["systemd-run", "--quiet", "--pipe", "--collect", "--nice=10", f"--description=triage asks {unit.unit}"]
    run += ["--property=DynamicUser=yes"] if dynamic else [f"--uid={'nobody' if user in _ROOT else user}"]
    for name in ("Group", "SupplementaryGroups", "WorkingDirectory"):
        if value := unit.settings.get(f"Service.{name}"):
            run.append(f"--property={name}={value}")
    run += [f"--property={text}" for text in ("NoNewPrivileges=yes", "PrivateTmp=yes", f"RuntimeMaxSec={SECONDS}")]
    run += [f"--property=EnvironmentFile={path}" for path in unit.environment_files]
    for name, value in unit.variables.items():
        if mask_value(name, value) == value and "%" not in value:  # argv is for all to see; --help needs no secrets
            run.append(f"--setenv={name}={value}")
    return [*run, "--setenv=COLUMNS=2000", "--setenv=CUDA_VISIBLE_DEVICES=", "--", *argv]


def _started(unit: Effective, argv: tuple[str, ...]) -> str:
    """What it prints."""
    run = transient(unit, argv)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    with subprocess.Popen(
        run, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as child:
        assert child.stdout is not None
        data = child.stdout.read(_LIMIT)  # the rest is not taken: the pipe closes, and RuntimeMaxSec ends the unit
        child.stdout.close()
    return data.decode("utf-8", "replace")
