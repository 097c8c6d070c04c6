"""One request carried out, step by step, so that a kill after any of them is taken up again.

In: a claimed request. Out: its settled result in the ledger, and the unit's one file new, or as it was. Called by
`apply` as root. Nothing of the request is believed: the unit is read again, the text rendered again from the edits
and what the ledger says is in force, and both digests must be those the operator saw.

The record knows three phases: before anything is touched (a kill: begin anew), forward (a kill: go on, skipping what
is done), back (a kill: go on restoring). Each deed looks first at what is there, so doing it twice does it once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace

from triage.actionmodel import ActionState, Owner, Request, Unit
from triage.actions.compare import mismatch
from triage.actions.exchange import Exchange
from triage.actions.ledger import Ledger, Record
from triage.actions.place import Place
from triage.actions.policy import Policy
from triage.actions.probe import Answer
from triage.actions.readiness import ByHand, Proof
from triage.model import Refused, VerificationFailed
from triage.units.dropin import (
    STANDS,
    InForce,
    Rendered,
    Standing,
    check_own_file,
    files_digest,
    in_force,
    may_read,
    mode,
    render,
    standing,
    still_runs,
    told,
    with_drop_in,
)
from triage.units.edits import Draft, draft
from triage.units.readers import among
from triage.units.systemctl import Manager, NotKnown
from triage.units.unitfile import digest, effective, systemctl_of, unit_digest

_ATTEMPTS = 5  # starts of one action; then what is there is restored rather than tried again
_STALE = 24 * 3600 * 1_000_000
_AHEAD = 300 * 1_000_000


class Carrier:
    """Root's hands for one machine, or for one folder of --root."""

    def __init__(
        self,
        ledger: Ledger,
        manager: Manager,
        place: Place,
        proof: Proof,
        policy: Callable[[], Policy],
        clock: Callable[[], int],
        root: str = "",
        owner: Owner | None = None,
    ) -> None:
        self.ledger = ledger
        self.manager = manager
        self.place = place
        self.file = Exchange(place, ledger)
        self.proof = proof
        self.policy = policy
        self.clock = clock
        self.root = root
        self.owner = owner
        self._uid = owner.uid if owner else None

    def carry(self, request: Request) -> Record:
        """To the end, whatever the end is. Afterwards the claim is gone."""
        record = Record.open(self.ledger, request, self.clock)
        if record.result.ended is None:
            self._carry(record)
        self._close_target(record)
        self.ledger.finish(request.action)
        return record

    def _carry(self, record: Record) -> None:
        if not record.kept.get("phase"):
            try:
                if _attempts(record) > _ATTEMPTS:
                    raise Refused(f"it was begun {_ATTEMPTS} times and never got anywhere")
                if not self._prepare(record):
                    return
            except Exception as reason:  # noqa: BLE001 - nothing was touched: every error is a refusal
                record.settle(ActionState.REFUSED, str(reason) or repr(reason), "")
                return
        if record.kept["phase"] == "forward":
            try:
                if _attempts(record) > _ATTEMPTS:
                    raise VerificationFailed(f"it was begun {_ATTEMPTS} times and never came to its end")
                self._forward(record)
                return
            except Exception as reason:  # noqa: BLE001 - whatever went wrong, the old bytes come back
                if self._stays(record, reason) or self._untouched(record, reason):
                    return
                record.keep(phase="back", reason=str(reason) or repr(reason))
        try:
            if _attempts(record) > 2 * _ATTEMPTS:
                raise Refused(f"it was begun {_attempts(record)} times")
            self._back(record)
        except Exception as reason:  # noqa: BLE001 - the last resort is to say so
            self._stuck(record, f"{record.kept.get('reason', '')}; and taking it back failed: {reason}")

    # ------------------------------------------------------------ before anything is touched

    def _prepare(self, record: Record) -> bool:
        """Check, render, stage, save the old bytes. False where the action is settled already."""
        request = record.request
        with record.step("policy"):
            self._check_request(request)
            if request.kind == "apply":  # what triage did it may always undo
                policy = self.policy()
                policy.check_unit(request.unit)
                if self.owner:
                    policy.check_user(self.owner)
            if request.kind != "rollback" and self.manager.live:  # a retirement restarts too, and may go on for ever
                self.policy().check_pace(request, self.ledger.results(), self.clock())
        with record.step("read"):
            try:
                unit = self.manager.read_unit(request.unit)
            except NotKnown:
                if request.kind != "rollback" or self.owner:
                    raise
                return self._unit_is_gone(record)
            known = standing(self.ledger.results(), unit.name, self.root, self._uid)
            self._check_unit(request, unit)
            if request.kind != "apply" and known.digest and not self.file.digest(unit.name):
                return self._removed_by_hand(record, known)
            check_own_file(unit, known, self.root)
            if request.kind != "rollback" and self.manager.live and self.manager.state(unit.name).stopping:
                raise Refused(f"{unit.name} is being stopped: wait until it is, then plan again")
            if request.kind == "retire" and self.manager.live and self._was(unit.name) == "stopped":
                raise Refused(f"{unit.name} is stopped, nothing could be proved: start it, or triage rollback instead")
        with record.step("render"):
            rendered = self._render(request, unit, known)
            if _digest_of(rendered.text) != request.result_digest:
                raise Refused("the file would not be the one that was shown: plan again")
            if request.kind == "apply":
                policy.check(unit.name, rendered.changes)
                record.measure(**{f"changed {change.name}": told(change) for change in rendered.changes})
        with record.step("stage"):
            said = self.manager.verify(unit, with_drop_in(unit, rendered.text))
            if said:
                raise Refused(f"systemd-analyze verify objects: {'; '.join(said)[:400]}")
        self._check_readable(unit)
        with record.step("leftovers"):
            self._check_leftovers(record)
        self.file.save(record)
        record.keep(
            phase="forward",
            old_digest=self.file.digest(unit.name),
            made_folder="0" if self.place.has_folder(unit.name) else "1",
            folder_is_ours="1" if known.made_folder else "0",
            was=self._was(unit.name),
            files_digest=files_digest(unit),
            readers=",".join(may_read(unit)),
        )
        return True

    def _check_request(self, request: Request) -> None:
        if request.root != self.root:
            raise Refused(f"the request is for {request.root or 'the machine itself'}, not for {self.root or 'it'}")
        if request.owner != self._uid:
            raise Refused("the request is for a unit of another user")
        age = self.clock() - request.time
        if age > _STALE or age < -_AHEAD:
            raise Refused("the request is older than a day or from the future: plan again")

    def _check_unit(self, request: Request, unit: Unit) -> None:
        if unit.name != request.unit:
            raise Refused(f"{request.unit} is another name of {unit.name}: use that")
        if unit_digest(unit) != request.seen_digest:
            raise Refused(f"{unit.name} was changed since the plan was made, nothing was touched: plan again")

    def _check_readable(self, unit: Unit) -> None:
        """What user triage cannot read it cannot plan to take back."""
        group = os.stat(self.ledger.folder).st_gid
        if self.root or self.owner or not group or mode(unit) & 0o004 or among(may_read(unit), group):
            return
        closed = next(file.path for file in unit.files if not file.mode & 0o004)
        raise Refused(
            f"{self.place.path(unit.name)} would be as closed as {closed}, and user triage could not take it back: "
            f"setfacl -m u:triage:r for each file of the unit that is not for all"
        )

    def _check_leftovers(self, record: Record) -> None:
        """A port or memory that an earlier run still holds would be blamed on the change."""
        request = record.request
        found = self.manager.leftovers(request.unit)
        told = "; ".join(str(one) for one in found)
        if told:
            record.say(told)
        living = [one for one in found if one.name]
        if living and request.kind == "apply":
            kill = " ".join(str(one.pid) for one in living)
            raise Refused(f"{told}: only the unit's own processes are ever ended here. Look, then: sudo kill -9 {kill}")

    def _removed_by_hand(self, record: Record, known: Standing) -> bool:
        names = ", ".join(item.action for item in known.actions)
        record.keep(by_hand="1")
        text = f"the drop-in was removed by hand before: {names} closed, nothing was touched"
        text += still_runs(record.request.unit, self.root, self.owner)
        record.settle(ActionState.UNDONE, text, "")
        return False

    def _unit_is_gone(self, record: Record) -> bool:
        """Nothing to render and nothing to restart: the whole file goes, and all that stood in it is closed."""
        request = record.request
        unit = Unit(request.unit, ())
        known = standing(self.ledger.results(), unit.name, self.root)
        self._check_unit(request, unit)
        if not any(item.action == request.target for item in known.actions):
            raise Refused(f"{request.target} is not in force on {unit.name}: nothing to undo")
        path, present = self.place.path(unit.name), self.file.digest(unit.name)
        if present not in ("", known.digest):
            raise Refused(f"{unit.name} is not known to systemd any more, and {path} was changed by hand: rm {path}")
        self.place.remove(unit.name, folder_too=known.made_folder)  # after a kill only the folder may be left
        self.manager.reload()
        names = ", ".join(item.action for item in known.actions)
        record.keep(by_hand="1")
        done = "was removed" if present else "was gone too"
        text = f"{unit.name} is not known to systemd any more, {path} {done}: {names} closed"
        record.settle(ActionState.UNDONE, text, "")
        return False

    def _render(self, request: Request, unit: Unit, known: Standing) -> Rendered:
        if request.kind == "apply":
            return render(unit, known.actions, in_force(request), root=self.root)
        if not any(item.action == request.target for item in known.actions):
            raise Refused(f"{request.target} is not in force on {unit.name}: nothing to undo")
        rest: tuple[InForce, ...] = tuple(item for item in known.actions if item.action != request.target)
        return render(unit, rest, root=self.root)

    def _was(self, unit: str) -> str:
        """up, failed (a crash loop too) or stopped, before anything was touched."""
        if not self.manager.live:
            return "stopped"
        state = self.manager.state(unit)
        by_hand = state.active == "failed" and self.manager.asked_to_stop(unit, state.invocation)
        return "up" if state.up else "stopped" if by_hand or state.active == "inactive" else "failed"

    # ------------------------------------------------------------ forward

    def _forward(self, record: Record) -> None:
        request = record.request
        unit = self.manager.read_unit(request.unit)
        known = standing(self.ledger.results(), unit.name, self.root, self._uid)
        rendered = self._render(request, unit, known)
        wanted = _digest_of(rendered.text)
        if wanted != request.result_digest:
            raise Refused(f"{unit.name} was changed while the action was under way")
        if request.kind != "rollback" and request.verify and record.kept["was"] == "up":
            self._baseline(record)
        with record.step("write"):
            self.file.write(record, rendered.text, unit)
        if not self.manager.live:
            state = ActionState.UNVERIFIED if request.kind == "apply" else ActionState.UNDONE
            record.skip("restart", f"files below {self.root} only: nothing is reloaded or restarted")
            done = "is written" if rendered.text else "is gone"
            record.settle(
                state, f"{self.place.path(unit.name)} below {self.root} {done}; nothing was restarted", wanted
            )
            return
        with record.step("reload"):
            self.manager.reload()
        with record.step("compare"):
            self._compare(unit.name, rendered.draft)
        if request.kind == "rollback" and record.kept["was"] == "stopped":
            record.skip("restart", "the unit was stopped: it is left so")
            record.settle(
                ActionState.UNDONE, f"{request.target} is undone; {unit.name} was stopped and is left so", wanted
            )
            return
        invocation = self._restart(record, "restart", "")
        if not request.verify:
            record.skip("ready", "not asked for (--no-verify)")
            record.settle(ActionState.UNVERIFIED, f"{unit.name} was restarted with the change, unproved", wanted)
            return
        while True:
            try:
                self._prove(record, invocation)
                return
            except ByHand as job:
                if not job.invocation:
                    self._leave_stopped(record, str(job))
                    return
                invocation = job.invocation  # somebody's restart: what runs now has the change as well
                record.keep(invocation=invocation, restarts=str(job.state.restarts))

    def _baseline(self, record: Record) -> None:
        """How fast it is before the change. Asked once: it may be what ends a server that is to be restarted anyway."""
        if "baseline" in record.kept:
            return
        record.keep(baseline="asked")
        with record.step("baseline"):
            found = self.proof.speed(record.request.unit)
            record.say(f"{found:.1f} tokens/s for one request" if found else "the server could not be asked")
            if found:
                record.measure(speed_before=f"{found:.1f}")

    def _prove(self, record: Record, invocation: str) -> None:
        request = record.request
        with record.step("ready"):
            answer = self.proof.ready(request.unit, invocation, record.report, request.ready_timeout)
            record.say(answer.text)
            record.measure(ready_seconds=f"{answer.seconds:.1f}")
            if not answer.ok:
                raise VerificationFailed(answer.text)
        if request.kind == "rollback":
            text = f"{request.target} is undone; {request.unit} was up again after {answer.seconds:.0f} s"
            record.settle(ActionState.UNDONE, text, request.result_digest)
            return
        self._probe(record, invocation)
        if request.kind == "retire":
            text = f"{request.target} is retired; {request.unit} serves without it: {record.result.steps[-1].text}"
            record.settle(ActionState.UNDONE, text, request.result_digest)
            return
        text = f"{request.unit} serves with the change: ready after {answer.seconds:.0f} s, "
        record.settle(ActionState.VERIFIED, text + record.result.steps[-1].text, request.result_digest)

    def _leave_stopped(self, record: Record, why: str) -> None:
        """Whoever stopped the unit wants it so: it is neither started again nor is the change blamed for it."""
        request = record.request
        if request.kind != "apply":
            record.settle(
                ActionState.UNDONE, f"{request.target} is undone; {why} and is left so", request.result_digest
            )
            return
        text = (
            f"{why} and is left so; the change stays, unproved: {systemctl_of(self.owner)} start {request.unit}"
            f"{'' if self.owner else f' and triage verify {request.unit}'}, or triage rollback {request.action}"
        )
        record.settle(ActionState.UNVERIFIED, text, request.result_digest)

    def _compare(self, unit: str, state: Draft) -> None:
        why = mismatch(state, self.manager.loaded(unit))
        if why:
            raise VerificationFailed(f"after the reload {unit} is not what was planned: {why}")

    def _restart(self, record: Record, name: str, prefix: str) -> str:
        """Restart once, however often this is begun; the invocation that came of it."""
        unit = record.request.unit
        before, after = f"{prefix}before", f"{prefix}invocation"
        if after in record.kept:
            # Done before the kill. After a reboot, or a restart by a person, go on with what runs; restarts by systemd
            # itself are crashes and are left for `ready` to find.
            state = self.manager.state(unit)
            if state.invocation and state.restarts <= int(record.kept[f"{prefix}restarts"]):
                record.keep(**{after: state.invocation})
            return record.kept[after]
        with record.step(name):
            state = self.manager.state(unit)
            begun = before in record.kept
            if not begun:
                record.keep(**{before: state.invocation})
                record.save()
            # reset-failed lets systemd forget a unit that is down, and its invocation with it: '' is no new one.
            if not begun or (state.invocation in ("", record.kept[before]) and not state.job):
                self.manager.restart(unit)
            state = self.proof.restarted(unit, record.kept[before], record.report)
            record.keep(**{after: state.invocation, f"{prefix}restarts": str(state.restarts)})
            record.say("restarted")
        return record.kept[after]

    def _probe(self, record: Record, invocation: str) -> None:
        with record.step("probe"):
            answer = self.proof.probe(record.request.unit, invocation)
            record.measure(probe_seconds=f"{answer.seconds:.1f}", probe_proved=str(answer.proved).lower())
            if answer.asked:
                record.measure(asked=answer.asked)
            record.say(answer.text)
            if not answer.ok:
                raise VerificationFailed(answer.text)

    # ------------------------------------------------------------ back

    def _stays(self, record: Record, reason: Exception) -> bool:
        """An undoing whose file is written stays undone, even if the unit does not come up: so it was asked."""
        request = record.request
        if request.kind != "rollback" or self.file.digest(request.unit) != request.result_digest:
            return False
        record.measure(well="no")
        record.settle(ActionState.UNDONE, f"{request.target} is undone, but {reason}", request.result_digest)
        return True

    def _untouched(self, record: Record, reason: Exception) -> bool:
        """Nothing was written and nothing reloaded: that is a refusal, and nobody needs a restart for it."""
        reloaded = any(step.name == "reload" for step in record.result.steps)
        if reloaded or self.file.digest(record.request.unit) != record.kept["old_digest"]:
            return False
        with contextlib.suppress(OSError):
            self.file.restore(record)  # the folder that may have been made for it goes
        record.settle(ActionState.REFUSED, f"{reason}: nothing was changed", record.kept["old_digest"])
        return True

    def _back(self, record: Record) -> None:
        request, reason = record.request, record.kept["reason"]
        with record.step("restore"):
            self.file.restore(record)
        if not self.manager.live:
            record.settle(ActionState.ROLLED_BACK, f"{reason}; the old file is back", record.kept["old_digest"])
            return
        with record.step("restore-reload"):
            self.manager.reload()
            unit = self.manager.read_unit(request.unit)
            self._compare(unit.name, draft(effective(unit, with_drop_in=True)))
        told = "the old file is back"
        if "before" in record.kept:
            invocation = self._restart(record, "restore-restart", "back_")
            with record.step("restore-ready"):
                try:
                    answer = self.proof.ready(unit.name, invocation, record.report)
                except ByHand as job:  # theirs from here on; the old file is back in any case
                    answer = Answer(True, str(job))
                record.say(answer.text)
                if not answer.ok:
                    record.miss()
                told += f" and the unit is on it ({answer.text})" if answer.ok else f"; {answer.text}"
                if not answer.ok and record.kept["was"] == "up":
                    raise VerificationFailed(f"{unit.name} was up before and is not now: {answer.text}")
        record.settle(ActionState.ROLLED_BACK, f"{reason}; {told}", record.kept["old_digest"])

    def _stuck(self, record: Record, text: str) -> None:
        """Neither forward nor back. While the file is not the old one, the action stays in force."""
        request, now = record.request, self.file.digest(record.request.unit)
        if request.kind == "apply" and now not in ("", record.kept["old_digest"]):
            record.measure(**{STANDS: "yes"})
            undo = f"triage rollback {request.action}" + (f" --root {self.root}" if self.root else "")
            text = (
                f"{text}; {self.place.path(request.unit)} still holds it: {undo} takes it away or says what to do by "
                "hand"
            )
        if request.kind == "retire" and now == request.result_digest:
            record.measure(well="no")  # it is gone, and what was to come back did not: so it is undone
            record.settle(ActionState.UNDONE, f"{request.target} is undone, but {text}", now)
            return
        record.settle(ActionState.ROLLBACK_FAILED, text, now)

    def _close_target(self, record: Record) -> None:
        """What was undone says so in its own result too."""
        request = record.request
        if request.kind == "apply" or record.result.state is not ActionState.UNDONE:
            return
        by_hand = record.kept.get("by_hand") == "1"
        for result in self.ledger.results():
            other = result.request
            place = (request.unit, request.root, request.owner)
            theirs = (other.unit, other.root, other.owner) == place and other.kind == "apply"
            stuck = result.state is ActionState.ROLLBACK_FAILED and STANDS in result.measured
            standing_still = stuck or result.state in (ActionState.VERIFIED, ActionState.UNVERIFIED)
            if theirs and standing_still and (by_hand or other.action == request.target):
                self.ledger.write_result(replace(result, state=ActionState.UNDONE))


def _attempts(record: Record) -> int:
    return int(record.kept.get("attempts", "1"))


def _digest_of(text: str) -> str:
    return digest(text) if text else ""
