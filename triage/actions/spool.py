"""The privilege line as files: requests go in here, and root takes them out.

The unprivileged side calls `Spool.file`; root's one-shot calls `Spool.claim` with its own `Ledger`. Root believes
nothing that lies here: it opens by descriptor without following links, takes only regular files with one link, the
right owner and at most 64 kB, and removes whatever it finds, bad or good, so that a poison file cannot keep the path
unit busy.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from triage.actionmodel import Request
from triage.actions import durable, wire
from triage.actions.ledger import Ledger
from triage.model import NotPermitted, Refused

REQUESTS = "requests"
_ROUND, _ROUNDS = 256, 40  # names looked at in one go, and how often in one run
_CLAIMS = 32  # actions taken but not finished: people file one at a time


class Spool:
    """One folder of requests, `<state>/spool/requests`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # ------------------------------------------------------------ the unprivileged side

    def create(self) -> None:
        """For a private spool (a checkout); an installed triage gets its folders from tmpfiles.d."""
        (self.folder / REQUESTS).mkdir(parents=True, exist_ok=True, mode=0o700)

    def file(self, request: Request) -> None:
        """Put a request where root finds it. Raises Refused where its name is taken: somebody else was faster."""
        data = wire.dump_request(request)
        wire.load_request(data)  # what root would refuse is refused here
        try:
            with durable.opened(self.folder, REQUESTS) as folder:
                # One writer at a time: a rename replaces silently, and a link would make two names for a moment.
                fcntl.flock(folder, fcntl.LOCK_EX)
                if request.action in os.listdir(folder):
                    raise Refused(f"another request for {request.unit} was filed meanwhile: look at it, then try again")
                durable.write(folder, request.action, data, 0o600)
        except (PermissionError, FileNotFoundError) as error:
            raise NotPermitted(
                f"cannot file a request in {self.folder} ({error.strerror}): run `sudo triage apply ...`"
            ) from None

    def waiting(self) -> tuple[str, ...]:
        """Names of requests that root has not taken yet."""
        try:
            names = os.listdir(self.folder / REQUESTS)
        except FileNotFoundError:
            return ()
        except PermissionError:
            raise NotPermitted(f"{self.folder} belongs to user triage: run this as that user or with sudo") from None
        return tuple(sorted(name for name in names if not name.startswith(".")))

    def withdraw(self, action: str) -> bool:
        """Take a request back that root has not claimed; False where it has."""
        try:
            (self.folder / REQUESTS / action).unlink()
        except FileNotFoundError:
            return False
        return True

    def waiting_requests(self) -> tuple[Request, ...]:
        """Those of them that can be read."""
        found = []
        for name in self.waiting():
            with contextlib.suppress(OSError, Refused):
                found.append(wire.load_request((self.folder / REQUESTS / name).read_bytes()))
        return tuple(found)

    # ------------------------------------------------------------ root's side

    def claim(self, ledger: Ledger, log: Callable[[str], None], root: str = "") -> bool:
        """Move every request into the ledger, throw out what is none. False where something could not be removed."""
        trusted = self.folder.parent.parent
        try:
            with durable.opened(trusted, self.folder.parent.name, self.folder.name, REQUESTS) as folder:
                return self._claim_all(folder, ledger, log, root)
        except FileNotFoundError:
            return True
        except OSError as error:
            log(f"{self.folder / REQUESTS} is not a folder of its own ({error.strerror}): nothing taken from it")
            return False

    def _claim_all(self, folder: int, ledger: Ledger, log: Callable[[str], None], root: str) -> bool:
        owner = os.fstat(folder).st_uid
        refused = 0
        for _ in range(_ROUNDS):  # whoever files without end is served again after the actions taken so far
            names = _some_names(folder)
            for name in names:
                try:
                    self._claim_one(folder, name, owner, ledger, root)
                except (Refused, OSError) as reason:
                    refused += 1
                    if refused <= 20:  # a flood must not fill the journal too
                        log(f"request {name[:64]!r} thrown out: {reason}")
                throw_out(folder, name)
            if any(_present(folder, name) for name in names):
                return False
            if len(names) < _ROUND:
                break
        if refused > 20:
            log(f"{refused - 20} more requests thrown out")
        return True

    def _claim_one(self, folder: int, name: str, owner: int, ledger: Ledger, root: str) -> None:
        if not wire.NAME.fullmatch(name):
            raise Refused("its name is none")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
                raise Refused("it is no regular file with one name")
            if facts.st_uid not in (owner, 0):
                raise Refused(f"it belongs to uid {facts.st_uid}")
            data = file.read(wire.LIMIT + 1)
        request = wire.load_request(data)
        if request.action != name:
            raise Refused("it lies under another name than its own")
        if request.root != root:
            raise Refused(f"it is for {request.root or 'the machine itself'}, this is {root or 'the machine itself'}")
        if ledger.knows(name):
            raise Refused("an action of that name is known already")
        if len(ledger.claims()) >= _CLAIMS:
            raise Refused(f"{_CLAIMS} actions are waiting already")
        ledger.claim(request)


def _some_names(folder: int) -> list[str]:
    """Up to a round of names; hidden ones are half-written requests and not counted by the path unit either."""
    found = []
    with os.scandir(folder) as listing:
        for entry in listing:
            if not entry.name.startswith("."):
                found.append(entry.name)
            if len(found) >= _ROUND:
                break
    return sorted(found)


def throw_out(folder: int, name: str) -> None:
    """Remove whatever it is. A folder with something in it is moved aside: root deletes no trees of others."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.rename(name, f"../.refused-{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=folder)


def _present(folder: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True
