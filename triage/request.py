"""What is asked of root: a plan that was shown, filed and followed to its end.

In: plans, what root's ledger says. Out: requests in the spool, results in the store. Called by the command line, the
dashboard (as its hands) and the worker (as what files rollbacks). It runs without rights: everything that needs them
happens in root's one-shot, behind the spool. Where triage is not installed, the one-shot is started here as a child
process on a private spool.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from triage.actionmodel import ActionResult, ActionState, Plan, Request
from triage.actions import durable
from triage.actions.spool import Spool
from triage.debt import UNKNOWN
from triage.inquiry import PATIENCE
from triage.model import Busy, Damaged, NotPermitted, Pending, Refused, Remedy, TriageError, Unreachable
from triage.planning import LONG_AGO, PATH_UNIT, Planner
from triage.settings import Settings
from triage.store import ActionRow, IncidentRow, Store, WantedRollback
from triage.units.dropin import standing
from triage.units.systemctl import NotKnown
from triage.units.unitfile import drop_in_path, own_drop_in

ABANDONED = 60 * 1_000_000  # microseconds after which what was reserved and lies nowhere will never be filed
PICKED_UP = 30.0  # seconds in which root's side takes a request; after that it is withdrawn


class Requester(Planner):
    """Plans and files. `uid` and `sudo_uid`: who asked."""

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
        super().__init__(settings, store, root=root, patience=patience)
        self.limits = settings.guards
        self.uid = os.getuid() if uid is None else uid
        self.sudo_uid = sudo_uid
        self.clock = clock
        self._spools = (Spool(settings.spool), Spool(settings.state_dir / "folders" / "spool"))
        self._child: subprocess.Popen[bytes] | None = None

    def plan(self, incident: IncidentRow, document: Mapping[str, Any], remedy: str, name: str, time: int) -> Plan:
        """As `Planner`. Raises Busy while the unit is acted on: what lies there then is half of somebody's action."""
        self._check_free(incident.unit or "")
        return super().plan(incident, document, remedy, name, time)

    def plan_rollback(self, action: ActionRow, name: str, time: int, *, retire: bool = False) -> Plan:
        """As `Planner`. Raises Busy while the unit is acted on."""
        self._check_free(action.unit)
        return super().plan_rollback(action, name, time, retire=retire)

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
        again = self._work_out(old.unit, old.incident, old.rule, cure, {}, name, now, ask=False, owner=old.owner)
        again = replace(again, verify=old.proof.profile if old.proof else self._usual())
        request = replace(self._request(again, name, now, reason), target=retired.name)
        self.store.still_needed(old.name, name, self.release(old.unit, old.owner) or UNKNOWN)
        self._file(request, again, "triage")

    def removed_by_hand(self, action: ActionRow) -> bool:
        """Whether the drop-in that holds it is gone (systemctl revert, rm). False while anything is under way."""
        if action.root != self._root or self.under_way(action.unit):
            return False
        place = (action.unit, self._root, action.owner)
        known = standing(self.ledger.results(), *place)
        if action.name not in {item.action for item in known.actions} or self._is_there(action):
            return False
        # An undoing that came and went between the looks would have changed what is in force.
        return not self.under_way(action.unit) and known == standing(self.ledger.results(), *place)

    def _is_there(self, action: ActionRow) -> bool:
        """Whether triage's file lies there. A user's unit is seldom looked at; what is missing then is looked for
        again."""
        for age in (LONG_AGO, 60.0) if action.owner is not None else (0.0,):
            try:
                unit = self.manager_of(action.owner, age=age, patience=0).read_unit(action.unit)
            except NotKnown:  # the whole unit was removed, and perhaps the file with it
                if action.owner is not None:
                    raise
                return os.path.lexists(drop_in_path(action.unit))
            if any(own_drop_in(file.path) for file in unit.files):
                return True
        return False

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
        except (Busy, Damaged, Pending):
            raise
        except Refused as reason:
            self.store.not_taken_back(wanted.action, str(reason), now)
        return name

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

    def under_way(self, unit: str) -> str:
        """The action that is asked for or carried out on that unit, '' where there is none."""
        return next((request.action for request in self._acting(unit)), "")

    def _acting(self, unit: str) -> Iterator[Request]:
        for request in (*self.ledger.claims(), *self.spool.waiting_requests()):
            if request.unit == unit and request.root == self._root:
                yield request

    def _check_free(self, unit: str) -> None:
        """One action at a time: two plans of one moment cannot both be what the operator saw."""
        for request in self._acting(unit):
            since = datetime.fromtimestamp(request.time / 1_000_000, UTC).strftime("%H:%M:%S UTC")
            name = request.action
            raise Busy(f"{name} is under way on {unit} since {since}: wait for its end (triage actions show {name})")

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
            owner=plan.owner,
        )

    def _file(self, request: Request, plan: Plan, who: str) -> None:
        if self.private and not self.root and os.geteuid() not in (0, request.owner):
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
            owner=row.owner,
        )
        self.store.import_result(ActionResult(request, ActionState.REFUSED, (), now, now, text), now)
