"""Root's one-shot: `python -I -m triage.actions.apply`, started by triage-apply.path.

In: requests in the spool, unfinished claims of its own. Out: settled results in its own folder, units changed or as
they were. It runs until nothing is left and ends. Units are worked on side by side, since a proof takes minutes; the
actions of one unit follow one another. It and all it imports see the standard library only; it opens no database and
writes nothing below the folder of the unprivileged side. With `--root DIR` it edits unit files below DIR, restarts
nothing and needs no rights; with `--own` it works on the units of the user who runs it, by that user's manager.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import stat
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from triage.actionmodel import ActionState, Request
from triage.actions.asking import answer_all, take_asks
from triage.actions.carry import Carrier
from triage.actions.ledger import Ledger, Record
from triage.actions.place import Place
from triage.actions.policy import Policy
from triage.actions.readiness import Limits, Proof
from triage.actions.spool import Spool
from triage.actions.theirs import Session, TheirManager, TheirPlace, TheirProof
from triage.model import Damaged, NotPermitted, Refused, TriageError
from triage.units.owners import owner_of
from triage.units.systemctl import Folder, Manager, Systemd

SPOOL, LEDGER, POLICY = Path("/var/lib/triage/spool"), Path("/var/lib/triage-apply"), Path("/etc/triage/policy.toml")
_BREATH = 2.0  # seconds; see _breathe
_HANDS = 16  # units worked on at the same time
_LOOK = 0.25  # seconds between two looks for more while somebody is at work
_ASKS = ""  # at the place of a unit's name: the questions


def main(argv: list[str] | None = None) -> int:
    """Exit 0 when everything is settled, whatever the outcome of the actions was."""
    options = _options(argv)
    os.umask(0o022)  # a new folder of drop-ins is for all to read; everything else has its mode written out
    ledger = Ledger(options.dir)
    try:
        if not options.root and not options.own and os.geteuid():
            raise NotPermitted("only root changes the machine's units; --root DIR and --own work without rights")
        ledger.create()
        with open(options.dir / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            clean = _work(options, ledger)
        return 0 if clean else _breathe()
    except Damaged as error:  # of an action under way: it is taken up again when that file is mended
        _log(str(error))
        return _breathe()
    except TriageError as error:
        _log(str(error))
        return error.exit_code
    except OSError as error:
        _log(f"{error.filename or options.dir}: {error.strerror}")
        return 7 if isinstance(error, PermissionError) else 70


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="triage-apply", description="Carry out what lies in the spool.")
    parser.add_argument("--spool", type=Path, default=SPOOL)
    parser.add_argument("--dir", type=Path, default=LEDGER)
    parser.add_argument("--policy", type=Path, default=POLICY)
    parser.add_argument("--root", type=Path, help="edit unit files below this folder, restart nothing")
    parser.add_argument("--own", action="store_true", help="work on the user's own units (systemctl --user)")
    return parser.parse_args(argv)


def _work(options: argparse.Namespace, ledger: Ledger) -> bool:
    """Claim, carry, again until nothing is left. False where the spool could not be emptied."""
    spool = Spool(options.spool)
    root = str(options.root) if options.root else ""
    manager: Manager = Folder(options.root) if options.root else Systemd()
    place, proof = Place(options.root or Path("/")), Proof(manager, _limits(options.policy))

    def policy() -> Policy:
        return load_policy(options.policy)

    def allowed(name: str) -> None:
        policy().check(name, ())

    def carry(request: Request) -> None:
        if request.owner is None:
            _carry(Carrier(ledger, manager, place, proof, policy, now, root), request)
        else:
            _carry_theirs(ledger, _limits(options.policy), policy, request)

    clean, busy = True, dict[str, Future[None]]()
    with ThreadPoolExecutor(_HANDS) as hands:
        while True:
            for unit in [unit for unit, work in busy.items() if work.done()]:
                busy.pop(unit).result()  # what it raises ends this run, when the others are through
            asked = not root and not options.own and _ASKS not in busy
            if asked and (asks := take_asks(options.spool)):
                busy[_ASKS] = hands.submit(
                    answer_all, asks, options.dir, manager.read_unit, allowed, lambda owner: policy().check_user(owner)
                )
            clean = clean and spool.claim(ledger, _log, root)
            for request in ledger.claims():
                if request.root == root and request.unit not in busy:
                    busy[request.unit] = hands.submit(carry, request)
            if not busy:
                ledger.prune()
                return clean
            wait(busy.values(), timeout=_LOOK, return_when=FIRST_COMPLETED)


def _carry_theirs(ledger: Ledger, limits: Limits, policy: Callable[[], Policy], request: Request) -> None:
    """A user's unit: by the user's own process, or in this one where the user runs it."""
    assert request.owner is not None
    session = None
    try:
        owner = owner_of(request.owner)
        if os.geteuid() == owner.uid:
            own = Systemd(owner)
            parts: tuple[Manager, Place, Proof] = own, Place(owner=owner), Proof(own, limits)
        elif os.geteuid():
            raise NotPermitted(f"{request.unit} is a unit of user {owner.name}: only that user or root changes it")
        else:
            session = Session(owner, request.unit)
            parts = TheirManager(session), TheirPlace(session), TheirProof(session, limits)
        _carry(Carrier(ledger, *parts, policy, now, owner=owner), request)
    except TriageError as reason:
        record = Record.open(ledger, request, now)
        if record.result.ended is None:  # it did not come to a carrier; an earlier start of it may have
            begun = bool(record.kept.get("phase"))
            record.settle(ActionState.ROLLBACK_FAILED if begun else ActionState.REFUSED, str(reason), "")
        ledger.finish(request.action)
        _log(f"{request.action} on {request.unit}: {reason}")
    finally:
        if session is not None:
            session.close()


def _carry(carrier: Carrier, request: Request) -> None:
    record = carrier.carry(request)
    _log(f"{request.action} on {request.unit}: {record.result.state} - {record.result.text}")
    if record.result.state is ActionState.RUNNING:  # cannot be; but a loop here would never end
        raise TriageError(f"{request.action} came to no end")


def load_policy(path: Path) -> Policy:
    """Root's own file, and only if it is root's own: others' words are no policy. Raises Refused."""
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            data = file.read(1 << 20)
    except OSError as error:
        raise Refused(f"{path} cannot be read ({error.strerror}): without a policy nothing is applied") from None
    if facts.st_uid not in (0, os.geteuid()) or stat.S_IMODE(facts.st_mode) & 0o022:
        raise Refused(f"{path} can be written by others than root: chown root:root, chmod 644, then try again")
    return Policy.parse(data.decode("utf-8", "replace"), str(path))


def _limits(path: Path) -> Limits:
    try:
        policy = load_policy(path)
    except Refused:  # each request is refused by it in its own result
        return Limits()
    return Limits(ready=policy.ready_seconds, probe=policy.probe_seconds, steady=policy.steady_seconds)


def _breathe() -> int:
    """Files are left that cannot be removed: the path unit starts this again at once, and 200 starts in 2 s end it."""
    time.sleep(_BREATH)
    return 0


def now() -> int:
    return time.time_ns() // 1000


def _log(text: str) -> None:
    """One line to the journal, whatever a request had in its name."""
    print("".join(char if char.isprintable() else "?" for char in text)[:1000], file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
