"""A remedy of an incident planned for its unit as it is: shown, and asked of root by `request`.

In: the store, the units as they are, what root's ledger says is in force, what the installed server says of its flags.
Out: plans, or the reason why there is none. Called by `request`, whose hands plan and file. It runs without rights, and
having a plan changes nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from triage.actionmodel import Plan, Unit
from triage.actions.address import Kind
from triage.actions.ledger import Ledger
from triage.actions.policy import Policy
from triage.actions.readiness import Limits, Proof
from triage.actions.spool import Spool
from triage.configured import configured, logged_beside, noted
from triage.document import find_remedy
from triage.inquiry import PATIENCE, Inquiry, unasked
from triage.ladder import failed_before, known_bad, opposed
from triage.model import EMPTY, NotPermitted, Pending, Refused, Remedy, TriageError, Unreachable, Verify
from triage.remedy import as_it_stands, plan, plan_rollback
from triage.rulebase.hints import hinted
from triage.rulebase.parser import Parser
from triage.rulebase.spelling import doubted, respelled
from triage.search import searched
from triage.settings import Settings
from triage.shipped import shipped
from triage.store import ActionRow, IncidentRow, IncidentView, Store
from triage.units import flagfile
from triage.units.directives import Value
from triage.units.dropin import outdated, standing
from triage.units.flags import spelled
from triage.units.owners import owner_of
from triage.units.servers import installed
from triage.units.systemctl import Folder, Manager, NotKnown, Systemd, is_active
from triage.units.unitfile import drop_in_path, effective
from triage.units.userunits import find_user_unit, instruct
from triage.views import PATIENCE as VIEW_PATIENCE
from triage.views import Seen, Views

PATH_UNIT = "triage-apply.path"
LONG_AGO = 600.0  # seconds: how old a look at a user's unit may be where nothing is planned


class Planner:
    """For this machine, or for the unit files below `root`. `patience`: seconds to wait for the server's flags."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        root: Path | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.settings = settings
        self.store = store
        self.root = root.resolve() if root else None
        self.manager: Manager = Folder(self.root) if self.root else Systemd()
        # With --root nothing needs root: spool and ledger are the caller's own, even where triage is installed.
        self.private = self.root is not None or not settings.installed
        aside = settings.state_dir / "folders"
        own = self.private and settings.installed
        self.spool = Spool(aside / "spool" if own else settings.spool)
        self.ledger = Ledger(aside / "apply" if own else settings.apply_dir)
        self.others = (Ledger(settings.apply_dir), Ledger(aside / "apply"))
        take_shipped = self.private and not settings.policy.exists()
        self.policy = shipped("packaging") / "policy.toml" if take_shipped else settings.policy
        self.patience = patience
        self.inquiry = Inquiry(self.spool, self.ledger.folder, patience)
        self.views = Views(self.spool, self.ledger.folder, self.listening, self._rouse)

    def listening(self) -> bool:
        """Whether a request that is filed here will be taken."""
        if self.private:
            return self.root is not None or os.geteuid() == 0
        return is_active(PATH_UNIT)

    def action_name(self, incident: int) -> str:
        """`i3-1`: short to type, the same until it is used."""
        used = self._used()
        return next(name for number in range(1, 100_000) if (name := f"i{incident}-{number}") not in used)

    def manager_of(self, owner: int | None, *, age: float | None = None, patience: float | None = None) -> Manager:
        """The system's manager, or that user's: as the user where triage runs as that, else as root shows it, at most
        `age` seconds old. Raises Refused for users whose units are not touched."""
        if owner is None:
            return self.manager
        if self.root is not None:
            raise Refused("--root works on the system's units; a user's unit lies in the user's home")
        user = owner_of(owner)
        if self.private and os.geteuid() == owner:
            return Systemd(user)
        waits = min(self.patience, VIEW_PATIENCE) if patience is None else patience
        return Seen(self.views, user, age=age, patience=waits, changed=lambda unit: self._changed(unit, owner))

    def _changed(self, unit: str, owner: int) -> float:
        """When the last action on a user's unit ended, seconds UTC."""
        of = (unit, owner)
        ended = (one.ended or 0 for one in self.ledger.results() if (one.request.unit, one.request.owner) == of)
        return max(ended, default=0) / 1_000_000

    def rungs(
        self, ladder: Sequence[Mapping[str, Any]], incident: IncidentRow, document: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """The ladder with what failed on this unit, under the release of this crash, blocked."""
        if self.root or not incident.unit:
            return ladder
        tried = self.store.tried(incident.unit, incident.host, document.get("owner"))
        return known_bad(ladder, tried, incident.number, document.get("sglang_version"))

    def plan(self, incident: IncidentRow, document: Mapping[str, Any], remedy: str, name: str, time: int) -> Plan:
        """The remedy of that id, worked out for the unit as it is now. Raises Refused with the reason."""
        if not incident.unit:
            raise Refused("the crash names no unit (it was read from a plain log): nothing to edit")
        if self.root is None and not self.store.is_here(incident.host):
            raise Refused(f"{incident.unit} runs on {incident.host}, this is {self.store.host}: apply it there")
        rule, found = find_remedy(document, remedy)
        owner = document.get("owner")
        result = self._work_out(incident.unit, incident.number, rule, found, document, name, time, owner=owner)
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
        owner: int | None = None,
    ) -> Plan:
        policy = self._policy()
        if policy is not None and owner is not None:
            policy.check_user(owner_of(owner))
        manager = self.manager_of(owner)
        unit, told = (manager.read_unit(unit_name), None) if owner is not None else self._unit(unit_name)
        ours = self.root is None and told is None
        parser, without = self._parser(unit) if ours and ask else (None, "")
        release = parser.release if parser else _release(manager, unit, self._root)
        release = release or document.get("sglang_version")  # in a container only the log tells
        doubt = doubted(found, release, parser)
        found = hinted(respelled(found, release, parser), spelled(effective(unit)), release)
        known = standing(self.ledger.results(), unit.name, self._root, owner)
        tried = () if self.root else self.store.tried(unit.name, owner=owner)
        logged = document.get("context", {}).get("flags", {})
        stands = as_it_stands(unit, known)
        if file := manager.view(unit.name).flags if isinstance(manager, Seen) else flagfile.of_unit(unit, self._root):
            found, logged = configured(found, stands, file), logged_beside(file, stands, logged)
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
            held=_held(manager, unit.name) if any(edit.op == "set-unit" for edit in found.edits) else EMPTY,
            root=self._root,
        )
        if why := opposed(result, tried):
            raise Refused(why)
        if told is not None:
            raise Refused(instruct(result, told))
        before = failed_before(result, tried, release)
        result = noted(result, file) if file else result
        more = (self._unproved(unit.name, manager), self._lifted(unit.name, manager, starts=True)) if ours else ()
        notes = filter(None, (without, doubt, before, *more))
        return replace(result, notes=(*result.notes, *notes), failed_before=before)

    def _parser(self, unit: Unit) -> tuple[Parser | None, str]:
        """What the installed server says of its flags. A user's server is not asked: root starts no user's program."""
        if unit.owner is not None:
            return None, unasked(f"it is a unit of user {unit.owner.name}")
        return self.inquiry.parser(unit, self.listening, self._rouse)

    def _unit(self, name: str) -> tuple[Unit, str | None]:
        """The system's unit. Where there is none of that name and the crash does not tell whose it was (an older
        triage kept that), a user's that may be read, and the user's name: '' of whoever enables it."""
        try:
            return self.manager.read_unit(name), None
        except NotKnown:
            if found := find_user_unit(name):
                return found
            raise

    def plan_rollback(self, action: ActionRow, name: str, time: int, *, retire: bool = False) -> Plan:
        """The file without that action; `retire`: with the proof of an apply.

        Raises Refused where it is not in force here."""
        if not self.store.is_here(action.host):
            raise Refused(f"{action.name} was applied on {action.host}, this is {self.store.host}: undo it there")
        known = standing(self.ledger.results(), action.unit, self._root, action.owner)
        if action.name not in {item.action for item in known.actions} and (where := self._elsewhere(action.name)):
            raise Refused(f"{action.name} was applied {where}")
        manager = self.manager_of(action.owner)
        try:
            unit = manager.read_unit(action.unit)
        except NotKnown:
            if retire or action.owner is not None:
                raise
            gone = Unit(action.unit, ())  # root sees the same, and closes what stands in the file
            undo = plan_rollback(gone, known, action.name, action=name, now=time, root=self._root)
            return replace(undo, notes=(f"{self._orphaned(action.unit)}: all that stands in it is closed",))
        undo = plan_rollback(unit, known, action.name, action=name, now=time, root=self._root)
        undo = replace(undo, notes=(*undo.notes, *filter(None, (self._lifted(unit.name, manager),))))
        return replace(undo, verify=self._proof_of(action)) if retire else undo

    def outdated(self, action: ActionRow) -> str:
        """In words that the unit changed below that action; '' where it did not, or cannot be looked at from here."""
        if not self.store.is_here(action.host):
            return ""
        try:
            here = action.root == self._root
            manager = self.manager_of(action.owner, age=LONG_AGO, patience=0) if here else Folder(Path(action.root))
            results = [result for ledger in self.others for result in ledger.results()]
            known = standing(results, action.unit, action.root, action.owner)
            return outdated(manager.read_unit(action.unit), known)
        except NotKnown:
            return "" if action.owner else f"{self._orphaned(action.unit)}: triage rollback {action.name}"
        except (TriageError, OSError):
            return ""

    @staticmethod
    def _orphaned(unit: str) -> str:
        """In words that a unit of the system is gone, and what of triage's is left."""
        path = drop_in_path(unit)
        left = "is left, a rollback removes it" if os.path.lexists(path) else "is gone too"
        return f"{unit} is not known to systemd any more, {path} {left}"

    def release(self, unit: str, owner: int | None = None) -> str | None:
        """Of SGLang, as installed for that unit; None where its files do not tell."""
        try:
            manager = self.manager_of(owner, age=LONG_AGO, patience=0)
            return _release(manager, manager.read_unit(unit), self._root)
        except Pending:  # as it was seen last
            last = self.views.last(owner_of(owner), unit) if owner is not None else None
            return last.release or None if last else None
        except (TriageError, OSError):
            return None

    def gave_up(self, unit: str) -> bool:
        """Whether systemd starts the unit no more because it failed too often: that is for a person to lift."""
        return self.manager.live and self.manager.state(unit).result == "start-limit-hit"

    def stopped(self, unit: str) -> bool:
        """Whether it does not run, and not for having failed: somebody wants it so."""
        return self.manager.live and self.manager.state(unit).active == "inactive"

    def _lifted(self, unit: str, manager: Manager, *, starts: bool = False) -> str:
        """In words what a restart overrides: systemd's start limit, and (`starts`) that somebody has stopped the unit.

        Raises Refused while it is being stopped."""
        if not manager.live:
            return ""
        state = manager.state(unit)
        if state.result == "start-limit-hit":
            return "systemd starts it no more (start limit): the restart lifts that first, by systemctl reset-failed"
        if starts and state.stopping:
            raise Refused(f"{unit} is being stopped: wait until it is, then plan again")
        return f"{unit} is stopped: to apply this starts it" if starts and state.active == "inactive" else ""

    def _unproved(self, unit: str, manager: Manager) -> str:
        """In words why the proof may send no request; '' where it does."""
        if not manager.live:
            return ""
        at = Proof(manager, Limits()).endpoint(unit)
        return at.note if at.kind is Kind.UNKNOWN else ""

    @property
    def _root(self) -> str:
        return str(self.root) if self.root else ""

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

    def _rouse(self) -> subprocess.Popen[bytes] | None:
        """Root's side looks by itself where it is installed; a private one is started."""
        return self._start_one_shot() if self.private else None

    def _start_one_shot(self) -> subprocess.Popen[bytes]:
        """In a session of its own: Ctrl-C here must not cut an action in half."""
        package = str(Path(__file__).resolve().parent.parent)
        code = (
            f"import sys; sys.path.insert(0, {package!r}); from triage.actions.apply import main; "
            "sys.exit(main(sys.argv[1:]))"
        )
        argv = [sys.executable, "-I", "-c", code, "--spool", str(self.spool.folder), "--dir", str(self.ledger.folder)]
        argv += ["--policy", str(self.policy), *(["--root", self._root] if self.root else [])]
        argv += ["--own"] if os.geteuid() and not self.root else []
        with open(f"{self.ledger.folder}.log", "ab") as said:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)


def _release(manager: Manager, unit: Unit, root: str) -> str | None:
    return manager.view(unit.name).release or None if isinstance(manager, Seen) else installed(unit, root)


def _held(manager: Manager, unit: str) -> Mapping[str, Value]:
    try:
        return manager.loaded(unit).settings
    except Unreachable:  # files below --root: no manager has loaded them
        return EMPTY


def newest_document(view: IncidentView) -> Mapping[str, Any]:
    """The newest crash of an incident. Raises Refused where it is none that an action may follow."""
    if not view.crashes:
        raise Refused(f"incident {view.incident.number} has no crash any more")
    crash = view.crashes[0]
    if not crash.outcome.actionable:
        raise Refused(f"the outcome is {crash.outcome}: only a fatal or degraded crash leads to an action")
    return crash.document
