"""What is asked of root: a remedy of an incident planned for its unit, shown, filed, followed to its end.

In: the store, the units as they are, what root's ledger says is in force. Out: plans, requests in the spool, results
in the store. Called by the command line, the dashboard (as its hands) and the worker (as what files rollbacks). It
runs without rights: everything that needs them happens in root's one-shot, behind the spool. Where triage is not
installed, the one-shot is started here as a child process on a private spool.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from triage.actions import durable
from triage.actions.ledger import Ledger
from triage.actions.policy import Policy
from triage.actions.spool import Spool
from triage.configured import configured, logged_beside, noted
from triage.debt import UNKNOWN
from triage.inquiry import PATIENCE, Inquiry
from triage.ladder import failed_before, known_bad, opposed
from triage.model import (
    EMPTY,
    ActionResult,
    ActionState,
    Edit,
    InputError,
    NotPermitted,
    Plan,
    Refused,
    Remedy,
    Request,
    TriageError,
    Unit,
    Unreachable,
    Verify,
)
from triage.remedy import as_it_stands, plan, plan_rollback
from triage.rulebase.hints import hinted
from triage.rulebase.offer import respelled
from triage.search import searched
from triage.settings import Settings
from triage.shipped import shipped
from triage.store import ActionRow, Busy, IncidentRow, IncidentView, Store, WantedRollback
from triage.units import flagfile
from triage.units.directives import Value
from triage.units.dropin import outdated, standing
from triage.units.flags import spelled
from triage.units.servers import installed
from triage.units.systemctl import Folder, Manager, NotKnown, Systemd, is_active
from triage.units.unitfile import effective, own_drop_in
from triage.units.userunits import find_user_unit, instruct

PATH_UNIT = "triage-apply.path"
ABANDONED = 60 * 1_000_000  # microseconds after which what was reserved and lies nowhere will never be filed
PICKED_UP = 30.0  # seconds in which root's side takes a request; after that it is withdrawn


class Requester:
    """Plans and files for this machine, or for the unit files below `root`. `uid` and `sudo_uid`: who asked."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        root: Path | None = None,
        uid: int | None = None,
        sudo_uid: int | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
        patience: float = PATIENCE,
    ) -> None:
        self.settings = settings
        self.store = store
        self.limits = settings.guards
        self.root = root.resolve() if root else None
        self.uid = os.getuid() if uid is None else uid
        self.sudo_uid = sudo_uid
        self.clock = clock
        self.manager: Manager = Folder(self.root) if self.root else Systemd()
        # With --root nothing needs root: spool and ledger are the caller's own, even where triage is installed.
        self.private = self.root is not None or not settings.installed
        aside = settings.state_dir / "folders"
        own = self.private and settings.installed
        self.spool = Spool(aside / "spool" if own else settings.spool)
        self.ledger = Ledger(aside / "apply" if own else settings.apply_dir)
        self.others = (Ledger(settings.apply_dir), Ledger(aside / "apply"))
        self._spools = (Spool(settings.spool), Spool(aside / "spool"))
        take_shipped = self.private and not settings.policy.exists()
        self.policy = shipped("packaging") / "policy.toml" if take_shipped else settings.policy
        self.inquiry = Inquiry(self.spool, self.ledger.folder, patience)
        self._child: subprocess.Popen[bytes] | None = None

    # ------------------------------------------------------------ planning

    def listening(self) -> bool:
        """Whether a request that is filed here will be taken."""
        if self.private:
            return self.root is not None or os.geteuid() == 0
        return is_active(PATH_UNIT)

    def action_name(self, incident: int) -> str:
        """`i3-1`: short to type, the same until it is used."""
        used = self._used()
        return next(name for number in range(1, 100_000) if (name := f"i{incident}-{number}") not in used)

    def rungs(
        self, ladder: Sequence[Mapping[str, Any]], incident: IncidentRow, document: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """The ladder with what failed on this unit, under the release of this crash, blocked."""
        if self.root or not incident.unit:
            return ladder
        tried = self.store.tried(incident.unit, incident.host)
        return known_bad(ladder, tried, incident.number, document.get("sglang_version"))

    def plan(self, incident: IncidentRow, document: Mapping[str, Any], remedy: str, name: str, time: int) -> Plan:
        """The remedy of that id, worked out for the unit as it is now. Raises Refused with the reason."""
        if not incident.unit:
            raise Refused("the crash names no unit (it was read from a plain log): nothing to edit")
        if self.root is None and incident.host not in ("", self.store.host):
            raise Refused(f"{incident.unit} runs on {incident.host}, this is {self.store.host}: apply it there")
        rule, found = find_remedy(document, remedy)
        result = self._work_out(incident.unit, incident.number, rule, found, document, name, time)
        return replace(result, verify=self._profile(document, rule, found))

    def _work_out(
        self,
        unit_name: str,
        incident: int,
        rule: str,
        found: Remedy,
        document: Mapping[str, Any],
        name: str,
        time: int,
        *,
        ask: bool = True,
    ) -> Plan:
        policy = self._policy()
        unit, owner = self._unit(unit_name)
        ours = self.root is None and owner is None
        parser, unasked = self.inquiry.parser(unit, self.listening, self._rouse) if ours and ask else (None, "")
        release = parser.release if parser else installed(unit, self._root)
        release = release or document.get("sglang_version")  # in a container only the log tells
        found = hinted(respelled(found, release, parser), spelled(effective(unit)), release)
        known = standing(self.ledger.results(), unit.name, self._root)
        tried = () if self.root else self.store.tried(unit.name)
        logged = document.get("context", {}).get("flags", {})
        stands = as_it_stands(unit, known)
        if file := flagfile.of_unit(unit, self._root):
            found, logged = configured(found, stands, file), logged_beside(file, logged)
        found = searched(found, stands, logged, incident, tried, self.store.crashed_with)
        result = plan(
            unit,
            incident,
            rule,
            found,
            known,
            action=name,
            now=time,
            policy=policy,
            present=logged,
            held=self._held(unit.name) if any(edit.op == "set-unit" for edit in found.edits) else EMPTY,
            root=self._root,
        )
        if why := opposed(result, tried):
            raise Refused(why)
        if owner is not None:
            raise Refused(instruct(result, owner))
        before = failed_before(result, tried, release)
        result = noted(result, file) if file else result
        notes = filter(None, (unasked, before, self._lifted(unit.name) if ours else ""))
        return replace(result, notes=(*result.notes, *notes), failed_before=before)

    def _unit(self, name: str) -> tuple[Unit, str | None]:
        """The unit, and whose it is if it is a user's: '' of whoever enables it."""
        try:
            return self.manager.read_unit(name), None
        except NotKnown:
            if found := find_user_unit(name):
                return found
            raise

    def plan_rollback(self, action: ActionRow, name: str, time: int, *, retire: bool = False) -> Plan:
        """The file without that action; `retire`: with the proof of an apply.

        Raises Refused where it is not in force here."""
        if action.host not in ("", self.store.host):
            raise Refused(f"{action.name} was applied on {action.host}, this is {self.store.host}: undo it there")
        known = standing(self.ledger.results(), action.unit, self._root)
        if action.name not in {item.action for item in known.actions} and (where := self._elsewhere(action.name)):
            raise Refused(f"{action.name} was applied {where}")
        unit = self.manager.read_unit(action.unit)
        undo = plan_rollback(unit, known, action.name, action=name, now=time, root=self._root)
        undo = replace(undo, notes=(*undo.notes, *filter(None, (self._lifted(unit.name),))))
        return replace(undo, verify=self._proof_of(action)) if retire else undo

    def outdated(self, action: ActionRow) -> str:
        """In words that the unit changed below that action; '' where it did not, or cannot be looked at from here."""
        if action.host not in ("", self.store.host):
            return ""
        try:
            manager = self.manager if action.root == self._root else Folder(Path(action.root))
            results = [result for ledger in self.others for result in ledger.results()]
            return outdated(manager.read_unit(action.unit), standing(results, action.unit, action.root))
        except (TriageError, OSError):
            return ""

    # ------------------------------------------------------------ filing

    def apply(self, plan: Plan, name: str, time: int, who: str, *, verify: bool = True) -> None:
        """File it under that name, recorded in the store first."""
        self._file(replace(self._request(plan, name, time, who), verify=verify), plan, who)

    def rollback(self, action: ActionRow, name: str, who: str, *, reason: str = "", retire: bool = False) -> None:
        """Plan the undoing of that action as things are now, and file it. `retire`: with the proof of an apply."""
        now = self.clock()
        undo = self.plan_rollback(action, name, now, retire=retire)
        kind = "retire" if retire else "rollback"
        request = replace(self._request(undo, name, now, reason or who), kind=kind, target=action.name, edits=())
        self._file(request, undo, who)

    def put_back(self, retired: ActionRow, name: str, reason: str) -> None:
        """The crash came back without what was retired: the same edits again, as the unit is now."""
        now, old = self.clock(), self.store.action(retired.target or "")
        cure = Remedy(old.remedy, "flag", old.title, old.cost, True, old.edits, applicable=True)
        again = self._work_out(old.unit, old.incident, old.rule, cure, {}, name, now, ask=False)
        again = replace(again, verify=old.proof.profile if old.proof else self._usual())
        request = replace(self._request(again, name, now, reason), target=retired.name)
        self.store.still_needed(old.name, name, self.release(old.unit) or UNKNOWN)
        self._file(request, again, "triage")

    def release(self, unit: str) -> str | None:
        """Of SGLang, as installed for that unit; None where its files do not tell."""
        try:
            return installed(self.manager.read_unit(unit), self._root)
        except (TriageError, OSError):
            return None

    def removed_by_hand(self, action: ActionRow) -> bool:
        """Whether the drop-in that holds it is gone (systemctl revert, rm). False while anything is under way."""
        if action.root != self._root or self.under_way(action.unit):
            return False
        known = standing(self.ledger.results(), action.unit, self._root)
        held = action.name in {item.action for item in known.actions}
        if not held or any(own_drop_in(file.path) for file in self.manager.read_unit(action.unit).files):
            return False
        # An undoing that came and went between the looks would have changed what is in force.
        return not self.under_way(action.unit) and known == standing(self.ledger.results(), action.unit, self._root)

    def file_rollback(self, wanted: WantedRollback, now: int) -> str:
        """For the worker, whose window saw the signature again. The name of the request; asked twice, it files once.

        What can never be filed (the action is gone, its file was changed by hand) is told in the store instead.
        """
        action = self.store.action(wanted.action)
        retired = action.kind == "retire"
        name = f"{wanted.action[:58]}-{'again' if retired else 'back'}"
        if name in self._used() or not (retired or action.in_force):
            return name
        self._check_free(action.unit)
        try:
            if retired:
                self.put_back(action, name, wanted.reason[:500])
            else:
                self.rollback(action, name, "triage", reason=wanted.reason[:500])
        except Busy:
            raise
        except Refused as reason:
            self.store.note(wanted.incident, f"{wanted.action} was not taken back: {reason}", "triage", now)
        return name

    def gave_up(self, unit: str) -> bool:
        """Whether systemd starts the unit no more because it failed too often: that is for a person to lift."""
        return self.manager.live and self.manager.state(unit).result == "start-limit-hit"

    def _lifted(self, unit: str) -> str:
        """In words that the restart lifts systemd's start limit; '' where there is none to lift."""
        if not self.gave_up(unit):
            return ""
        return "systemd starts it no more (start limit): the restart lifts that first, by systemctl reset-failed"

    def settle_abandoned(self, now: int) -> int:
        """For the worker: actions that were reserved and never came to root, or whose account is gone; gives how many.

        A kill between reserving and filing leaves such a one, and no other action of its unit may begin before it is
        settled. Looked for in the order in which a request moves on: spool, claims, results. Where one of them cannot
        be read nothing is settled."""
        lost = [row for row in self.store.unsettled(now - ABANDONED) if not self._alive(row.name)]
        for row in lost:
            self.store.abandoned(row.name, now)
        return len(lost)

    def _alive(self, name: str) -> bool:
        return any(name in spool.waiting() for spool in self._spools) or any(
            name in ledger.names() for ledger in self.others
        )

    def follow(self, name: str, sleep: Callable[[float], None] = time.sleep) -> Iterator[ActionResult]:
        """Root's account as it grows, imported into the store each time; ends with the settled one.

        Raises Unreachable where nobody takes the request: it is withdrawn then, so that it cannot come as a surprise.
        """
        started, last = time.monotonic(), None
        while True:
            result = self.ledger.result(name)
            if result is not None and result != last:
                self.store.import_result(result, self.clock())
                last = result
                yield result
                if result.ended is not None:
                    return
            waited = time.monotonic() - started
            if result is None and waited > PICKED_UP and self.spool.withdraw(name):
                self._refused(name, f"nobody took it within {PICKED_UP:.0f} s")
                why = durable.full(self.ledger.folder) or f"systemctl status {PATH_UNIT} triage-apply.service"
                raise Unreachable(f"root's side does not take requests: {why}")
            if self._child and self._child.poll() is not None and self.ledger.result(name) == result:
                raise Unreachable(f"the one-shot ended with {self._child.returncode}: see {self.ledger.folder}.log")
            if result is None and waited > PICKED_UP and name not in self._used():
                self._refused(name, "root's side threw it out")
                why = durable.full(self.ledger.folder) or "journalctl -u triage-apply.service says why"
                raise Refused(f"root's side threw the request out: {why}")
            if result is None and waited > PICKED_UP and (full := durable.full(self.ledger.folder)):
                raise Unreachable(f"{name} is taken and begins as soon as there is room: {full}")
            sleep(0.2)

    # ------------------------------------------------------------ inside

    def _rouse(self) -> subprocess.Popen[bytes] | None:
        """Root's side looks by itself where it is installed; a private one is started."""
        return self._start_one_shot() if self.private else None

    @property
    def _root(self) -> str:
        return str(self.root) if self.root else ""

    def _held(self, unit: str) -> Mapping[str, Value]:
        try:
            return self.manager.loaded(unit).settings
        except Unreachable:  # files below --root: no manager has loaded them
            return EMPTY

    def _policy(self) -> Policy | None:
        """To say early what root would refuse; where it cannot be read here, root will say so."""
        return Policy.load(self.policy) if os.access(self.policy, os.R_OK) or not self.policy.exists() else None

    def _used(self) -> frozenset[str]:
        names: set[str] = set(self.spool.waiting())
        for ledger in self.others:
            try:
                names |= ledger.names()
            except NotPermitted:
                if ledger.folder == self.ledger.folder:
                    raise
        return frozenset(names)

    def _elsewhere(self, action: str) -> str:
        for ledger in self.others:
            try:
                result = ledger.result(action)
            except (TriageError, OSError):
                continue
            if result is not None and result.request.root != self._root:
                root = result.request.root
                return f"below {root}: add --root {root}" if root else "on the machine itself: leave --root out"
        return ""

    def under_way(self, unit: str) -> str:
        """The action that is asked for or carried out on that unit, '' where there is none."""
        for request in (*self.ledger.claims(), *self.spool.waiting_requests()):
            if request.unit == unit and request.root == self._root:
                return request.action
        return ""

    def _check_free(self, unit: str) -> None:
        """One action at a time: two plans of one moment cannot both be what the operator saw."""
        if busy := self.under_way(unit):
            raise Busy(f"{busy} is under way on {unit}: wait for its end (triage actions show {busy})")

    def _profile(self, document: Mapping[str, Any], rule: str, remedy: Remedy) -> Verify:
        """How the rule wants it proved; the settings where it says nothing; the cost that the rung announced."""
        known = Verify.__dataclass_fields__
        said: dict[str, Any] = {}
        for match in document.get("matches") or ():
            if match["rule"] == rule:
                said = {name: value for name, value in (match.get("verify") or {}).items() if name in known}
        if remedy.speed is not None:
            said["min_speed"] = remedy.speed
        return replace(self._usual(), **said)

    def _usual(self) -> Verify:
        settings = self.settings.proof
        return Verify(
            soak=settings.soak,
            rate=settings.rate,
            timeout=settings.timeout_seconds,
            min_speed=settings.min_speed,
            window=self.settings.rollback_window_seconds,
        )

    def _proof_of(self, action: ActionRow) -> Verify:
        """As that action was proved; but what it was allowed to cost is no excuse once it is gone."""
        usual = self._usual()
        return replace(action.proof.profile, min_speed=usual.min_speed) if action.proof else usual

    def _request(self, plan: Plan, name: str, time: int, reason: str) -> Request:
        return Request(
            action=name,
            kind="apply",
            unit=plan.unit,
            incident=plan.incident,
            rule=plan.rule,
            remedy=plan.remedy,
            edits=plan.edits,
            seen_digest=plan.seen_digest,
            result_digest=plan.result_digest,
            uid=self.uid,
            sudo_uid=self.sudo_uid,
            time=time,
            reason="".join(char for char in reason if char.isprintable())[:500],
            root=self._root,
            ready_timeout=int(plan.verify.ready_timeout or 0),
        )

    def _file(self, request: Request, plan: Plan, who: str) -> None:
        if self.private and not self.root and os.geteuid():
            state = self.spool.folder.parent.parent
            command = f"sudo env TRIAGE_STATE_DIR={state} {sys.executable} {' '.join(sys.argv)}"
            raise NotPermitted(f"only root changes units: {command}, or --root DIR to try it on copies")
        if request.action in self._used():
            raise Refused(f"an action {request.action} exists already: plan again")
        self._check_free(request.unit)
        now = self.clock()
        words = {"title": plan.title, "cost": plan.cost, "diff": plan.diff, "who": who}
        self.store.reserve(request, **words, now=now, limits=self.limits, profile=plan.verify)
        try:
            if self.private:
                self.spool.create()
            self.spool.file(request)
        except TriageError as error:
            self.store.import_result(ActionResult(request, ActionState.REFUSED, (), now, now, str(error)), now)
            raise
        if self.private:
            self._child = self._start_one_shot()
            threading.Thread(target=self._child.wait, daemon=True).start()  # no zombie, whoever follows or not

    def _refused(self, name: str, text: str) -> None:
        now, row = self.clock(), self.store.action(name)
        request = Request(
            name,
            row.kind,
            row.unit,
            row.incident,
            row.rule,
            row.remedy,
            row.edits,
            "",
            "",
            self.uid,
            None,
            now,
            row.target,
        )
        self.store.import_result(ActionResult(request, ActionState.REFUSED, (), now, now, text), now)

    def _start_one_shot(self) -> subprocess.Popen[bytes]:
        """In a session of its own: Ctrl-C here must not cut an action in half."""
        package = str(Path(__file__).resolve().parent.parent)
        code = (
            f"import sys; sys.path.insert(0, {package!r}); from triage.actions.apply import main; "
            "sys.exit(main(sys.argv[1:]))"
        )
        argv = [sys.executable, "-I", "-c", code, "--spool", str(self.spool.folder), "--dir", str(self.ledger.folder)]
        argv += ["--policy", str(self.policy), *(["--root", self._root] if self.root else [])]
        with open(f"{self.ledger.folder}.log", "ab") as said:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)


def newest_document(view: IncidentView) -> Mapping[str, Any]:
    """The newest crash of an incident. Raises Refused where it is none that an action may follow."""
    if not view.crashes:
        raise Refused(f"incident {view.incident.number} has no crash any more")
    crash = view.crashes[0]
    if not crash.outcome.actionable:
        raise Refused(f"the outcome is {crash.outcome}: only a fatal or degraded crash leads to an action")
    return crash.document


def find_remedy(document: Mapping[str, Any], remedy: str) -> tuple[str, Remedy]:
    """(rule, remedy) of that id; the best match that has it. Raises InputError where none has."""
    known = []
    for match in document.get("matches") or ():
        for rung in match["remedies"]:
            known.append(rung["id"])
            if rung["id"] == remedy:
                return match["rule"], _remedy(rung)
    raise InputError(f"there is no remedy {remedy!r} here; there are: {', '.join(known) or 'none, it is undiagnosed'}")


def _remedy(rung: Mapping[str, Any]) -> Remedy:
    fields = ("op", "name", "value", "floor", "ceiling")
    edits = tuple(Edit(*(edit.get(field) for field in fields)) for edit in rung["edits"])
    return Remedy(
        id=rung["id"],
        kind=rung["kind"],
        title=rung["title"],
        cost=rung["cost"],
        confirmed=rung["confirmed"],
        edits=edits,
        versions=rung["versions"],
        applicable=rung["applicable"],
        blocked_by=rung["blocked_by"],
        speed=rung.get("speed"),
    )
