"""Root's side of a user's unit: the user's manager, place and proof, through a process that runs as that user.

In: an `Owner`, by the machine's own list of users. Out: what `carry` takes for manager, place and proof. Called by
`apply` and `asking`, as root. Root opens nothing below a home, asks the user's manager nothing itself and sends the
user's server nothing: each call goes to `deputy`, started under the user's uid by the system's manager. What comes back
is that user's word: bounded, read strictly (`described`), and good for nothing but that user's own unit. The journal is
root's own to read: there journald says who wrote what.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from triage.actionmodel import Owner, Unit
from triage.actions.address import Endpoint, Kind
from triage.actions.deputy import ERRORS
from triage.actions.described import loaded_of, number, plain, said, state_of, text_of, unit_of
from triage.actions.place import Place
from triage.actions.probe import Answer
from triage.actions.readiness import Limits, Proof
from triage.model import Refused, Unreachable
from triage.units.dropin import own_text
from triage.units.processes import Leftover
from triage.units.systemctl import Loaded, State, Systemd, is_active

_LIMIT = 4 << 20  # bytes of an answer
_SECONDS = 180.0  # for an answer; a reload of many units takes long
_FIRST = 420.0  # the first waits for the deputy that a killed root left behind, which may be in the middle of a probe
_LONGEST = 6 * 3600  # seconds that one deputy lives
_LOOKS = frozenset(("read_unit", "verify", "loaded", "state", "read", "mode", "has_folder", "endpoint", "healthy"))
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


class Gone(Unreachable):
    """The deputy has ended before it answered."""


def check_running(owner: Owner) -> None:
    """Raise Refused where the user's manager does not run."""
    if not is_active(f"user@{owner.uid}.service"):
        raise Refused(f"the manager of user {owner.name} does not run: loginctl enable-linger {owner.name}")


def command(owner: Owner, unit: str = "") -> list[str]:
    """What starts the deputy. `unit`: the one it acts on; '' to look alone."""
    package = str(Path(__file__).resolve().parent.parent.parent)
    code = (
        f"import sys; sys.path.insert(0, {package!r}); from triage.actions.deputy import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    about = f"on {unit}" if unit else "and looks"
    run = ["systemd-run", "--quiet", "--pipe", "--collect", "--service-type=exec", f"--uid={owner.uid}"]
    run += [f"--description=triage acts for user {owner.name} {about}", "--property=NoNewPrivileges=yes"]
    run += ["--property=CapabilityBoundingSet=", "--property=PrivateTmp=yes", "--property=TasksMax=64"]
    run += ["--property=MemoryMax=512M", f"--property=RuntimeMaxSec={_LONGEST}", "--setenv=LC_ALL=C.UTF-8"]
    return [*run, "--", sys.executable, "-I", "-c", code, *([unit] if unit else [])]


class Session:
    """One deputy, started with the first call and again where it has ended. One call at a time."""

    def __init__(self, owner: Owner, unit: str = "", start: Callable[[Owner, str], list[str]] = command) -> None:
        self.owner = owner
        self.unit = unit
        self._start = start
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._lock = threading.Lock()

    def call(self, do: str, *args: Any, limit: float = _SECONDS) -> Any:
        """The value. Raises what the call raised there, Unreachable where nobody answers, Refused on too much."""
        try:
            return self._call(do, args, limit)
        except Gone:
            if do not in _LOOKS:
                raise
            return self._call(do, args, limit)  # a look changes nothing, and a change is not to fail by it

    def _call(self, do: str, args: tuple[Any, ...], limit: float) -> Any:
        with self._lock:
            if self._child is not None and self._child.poll() is not None:
                self._end()
            if self._child is None:
                check_running(self.owner)
                self._child = subprocess.Popen(
                    self._start(self.owner, self.unit),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=_ENVIRONMENT,
                )
                limit = max(limit, _FIRST if self.unit else 0)
            try:
                line = self._exchange(json.dumps({"do": do, "with": plain(args)}).encode() + b"\n", limit)
            except BaseException:
                self._end()
                raise
        return _value(line)

    def _exchange(self, call: bytes, limit: float) -> bytes:
        assert self._child is not None
        calls, answers = self._child.stdin, self._child.stdout
        assert calls is not None
        assert answers is not None
        try:
            calls.write(call)
            calls.flush()
        except OSError:
            raise self._silent() from None
        handle, until = answers.fileno(), time.monotonic() + limit
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([handle], [], [], left)[0]:
                raise Unreachable(f"what acts for user {self.owner.name} gave no answer in {limit:.0f} s")
            data = os.read(handle, 1 << 16)
            if not data:
                raise self._silent()
            self._rest += data
            if len(self._rest) > _LIMIT:
                raise Refused(f"what acts for user {self.owner.name} said more than {_LIMIT} bytes")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _silent(self) -> Gone:
        return Gone(f"what acts for user {self.owner.name} has ended: journalctl -u 'run-u*.service' may say why")

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        """Its input ends, and so does it; systemd-run is not waited for without end."""
        child, self._child, self._rest = self._child, None, b""
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _value(line: bytes) -> Any:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not ({"value", "error"} & set(content)):
        raise Refused("what acts for the user gave no answer that can be read")
    if "error" in content:
        kind = next((kind for kind in ERRORS if kind.__name__ == content["error"]), Refused)
        raise kind(said(content.get("text")) or "the user's side gave no reason")
    return content["value"]


class TheirManager:
    """The user's manager; what the journal tells is read here."""

    live = True

    def __init__(self, session: Session) -> None:
        self.session = session
        self._own = Systemd(session.owner)  # for the journal alone

    def read_unit(self, name: str) -> Unit:
        return unit_of(self.session.call("read_unit", name), self.session.owner)

    def verify(self, before: Unit, after: Unit) -> tuple[str, ...]:
        found = self.session.call("verify", before.name, own_text(after))
        if not isinstance(found, list):
            raise Refused("systemd-analyze's words cannot be read")
        return tuple(said(line) for line in found[:20])

    def reload(self) -> None:
        self.session.call("reload")

    def loaded(self, name: str) -> Loaded:
        return loaded_of(self.session.call("loaded", name))

    def state(self, name: str) -> State:
        return state_of(self.session.call("state", name))

    def restart(self, name: str) -> None:
        self.session.call("restart", name)

    def asked_to_stop(self, name: str, invocation: str) -> bool:
        return self._own.asked_to_stop(name, invocation)

    def leftovers(self, name: str) -> tuple[Leftover, ...]:
        return self._own.leftovers(name)


class TheirPlace(Place):
    """The user's `~/.config/systemd/user`."""

    def __init__(self, session: Session) -> None:
        super().__init__(owner=session.owner)
        self.session = session

    def read(self, unit: str) -> bytes | None:
        found = self.session.call("read", unit)
        return None if found is None else text_of(found, 1 << 20).encode("utf-8", "surrogateescape")

    def mode(self, unit: str) -> int:
        return int(number(self.session.call("mode", unit))) & 0o777

    def has_folder(self, unit: str) -> bool:
        return self.session.call("has_folder", unit) is True

    def make_folder(self, unit: str) -> bool:
        return self.session.call("make_folder", unit) is True

    def write(self, unit: str, data: bytes, mode: int, readers: tuple[str, ...] = ()) -> None:
        self.session.call("write", unit, data.decode("utf-8", "surrogateescape"), mode)

    def remove(self, unit: str, *, folder_too: bool) -> None:
        self.session.call("remove", unit, folder_too)


class TheirProof(Proof):
    """The user's server is asked by the user: root connects to no address that a user wrote down."""

    def __init__(self, session: Session, limits: Limits) -> None:
        super().__init__(TheirManager(session), limits)
        self.session = session

    def endpoint(self, unit: str, asked: str = "") -> Endpoint:
        found = self.session.call("endpoint", unit)
        try:
            return Endpoint(Kind(found["kind"]), note=said(found["note"]))
        except (KeyError, TypeError, ValueError):
            raise Refused("where the server listens cannot be read") from None

    def healthy(self, unit: str, at: Endpoint) -> tuple[bool, str]:
        found = self.session.call("healthy", unit)
        if not isinstance(found, list) or len(found) != 2:
            raise Refused("whether the server is healthy cannot be read")
        return found[0] is True, said(found[1])

    def speed(self, unit: str) -> float:
        seconds = min(self.limits.baseline, self.limits.probe)
        return number(self.session.call("speed", unit, seconds, limit=seconds + _SECONDS))

    def _put(self, unit: str, invocation: str) -> Answer:
        seconds = self.limits.probe
        found = self.session.call("put", unit, invocation, seconds, limit=seconds + _SECONDS)
        try:
            return Answer(
                found["ok"] is True,
                said(found["text"]),
                number(found["seconds"]),
                proved=found["proved"] is True,
                status=int(number(found["status"])),
                hung=found["hung"] is True,
                unknown=found["unknown"] is True,
                speed=number(found["speed"]),
            )
        except (KeyError, TypeError):
            raise Refused("the answer of the user's server cannot be read") from None
