"""Apply, approve, retire and rollback, each once: the same key gives the same action, whoever asks twice.

The action's name is made of the key, so the store itself remembers: no second table, and a retry after a crash of this
process finds what the first try recorded. Called by `forms` and `api`, which check who asks.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from triage.actionmodel import Plan
from triage.autonomy import check_same, waiting
from triage.dashboard.desk import Desk
from triage.dashboard.problem import Problem
from triage.frozen import frozen
from triage.ladder import check_evidence, first_plan
from triage.model import InputError, Refused
from triage.poison import check_poison
from triage.store import ActionRow, CrashRow, Decision, IncidentView, Verdict

_PREFIX = {"rollback": "undo-", "retire": "retire-"}
SHOWN_FOR = 3600 * 1_000_000  # microseconds for which a plan that was shown may be applied


def action_name(incident: int, kind: str, key: str) -> str:
    """`i3-1a2b3c4d`: short to type, the same for the same key. Root takes [a-z0-9._-]{1,64}."""
    word = hashlib.sha256(f"{kind}:{key}".encode()).hexdigest()[:8]
    return f"i{incident}-{_PREFIX.get(kind, '')}{word}"


def find(desk: Desk, name: str) -> ActionRow | None:
    try:
        return desk.store.action(name)
    except InputError:
        return None


def view(desk: Desk, number: int) -> IncidentView:
    """The incident, or the one it was merged into. Raises Problem 404."""
    for _ in range(16):
        try:
            found = desk.store.incident(number)
        except InputError as error:
            raise Problem(404, "not-found", str(error)) from error
        if found.incident.merged_into is None:
            return found
        number = found.incident.merged_into
    raise Problem(404, "not-found", f"incident {number} was merged in a circle")


def newest(found: IncidentView) -> CrashRow:
    if not found.crashes:
        raise Problem(404, "not-found", f"incident {found.incident.number} has no crash any more")
    return found.crashes[0]


class Changed(Refused):
    """The plan is another one than the one that was seen."""


@frozen
class Seen:
    """What the asker saw: the unit's files; on a page the drop-in too, which holds the time at which it was shown."""

    unit_digest: str | None = None
    result_digest: str | None = None
    time: int | None = None


def work_out(desk: Desk, number: int, remedy: str | None, name: str, time: int) -> Plan:
    """The plan as computed now, under that action's name and time. Raises Refused with the reason."""
    found = view(desk, number)
    crash = newest(found)
    ladder = crash.document["matches"][0]["remedies"] if crash.document["matches"] else ()
    if not crash.outcome.actionable:
        raise Refused(f"the outcome is {crash.outcome}: only a fatal or degraded crash leads to an action")
    if not remedy:
        check_evidence(crash.document)
        check_poison(found, ladder)
        rungs = desk.hands.rungs(ladder, found.incident, crash.document)
        plan, passed = first_plan(rungs, lambda one: desk.hands.plan(found.incident, crash.document, one, name, time))
        return replace(plan, notes=(*(f"passed over: {reason}" for reason in passed), *plan.notes))
    rung = next((rung for rung in ladder if rung["id"] == remedy), None)
    if rung is None:
        raise Refused(f"incident {number} has no remedy '{remedy}'")
    if rung["blocked_by"]:
        raise Refused(f"'{rung['title']}' does not fit here: {rung['blocked_by']}")
    if not rung["applicable"]:
        raise Refused(f"'{rung['title']}' is no edit of the unit: it is for you to do")
    return desk.hands.plan(found.incident, crash.document, rung["id"], name, time)


def apply_once(desk: Desk, number: int, remedy: str | None, seen: Seen, key: str, who: str) -> ActionRow:
    """File the apply, or give back what this key filed before.

    Where the plan is another one than was seen, nothing is filed. Raises Refused (Changed), and Problem 422 when the
    key was used for something else.
    """
    number = view(desk, number).incident.number
    name = action_name(number, "apply", key)
    with desk.filing:
        known = find(desk, name)
        if known is not None:
            _same(remedy is None or known.remedy == remedy)
            return known
        now = desk.now()
        time = seen.time if seen.time is not None else now
        if not now - SHOWN_FOR <= time <= now:
            raise Changed("the plan was shown too long ago: look at it again")
        plan = work_out(desk, number, remedy, name, time)
        _unchanged(seen, plan)
        _listening(desk)
        desk.hands.apply(plan, name, time, who)
    return desk.store.action(name)


def prepared(desk: Desk, number: int) -> tuple[Decision, Plan]:
    """The plan that waits for a yes on this incident, as it was made. Raises Refused where the unit changed since."""
    found = next(iter(waiting(desk.store, number)), None)
    if found is None:
        raise Refused(f"nothing waits for a yes on incident {number}")
    plan = work_out(desk, number, found.remedy, found.action, found.plan["time"])
    check_same(found, plan)
    return found, plan


def approve_once(desk: Desk, number: int, seen: Seen, who: str) -> ActionRow:
    """File the plan that waits; it carries its action's name, so a yes said twice gives the same action."""
    number = view(desk, number).incident.number
    with desk.filing:
        newest = next(iter(desk.store.decisions(incident=number, limit=1)), None)
        known = find(desk, newest.action) if newest and newest.verdict is Verdict.WAITING else None
        if known is not None and known.incident == number:
            return known
        found, plan = prepared(desk, number)
        _unchanged(seen, plan)
        _listening(desk)
        desk.hands.apply(plan, found.action, plan.time, who)
    return desk.store.action(found.action)


def rollback_once(desk: Desk, target: str, seen: Seen, key: str, who: str, *, retire: bool = False) -> ActionRow:
    """File the rollback of an action (`retire`: with the proof of an apply), or give back what this key filed before.

    Where it would do something else than was seen, nothing is filed."""
    action = find(desk, target)
    if action is None:
        raise Problem(404, "not-found", f"there is no action '{target}'")
    name = action_name(action.incident, "retire" if retire else "rollback", key)
    with desk.filing:
        known = find(desk, name)
        if known is not None:
            _same(known.target == target)
            return known
        if not action.in_force:
            raise Refused(f"action {target} is {action.state}: only one in force can be taken back")
        _unchanged(seen, desk.hands.plan_rollback(action, name, desk.now()))
        _listening(desk)
        desk.hands.rollback(action, name, who, retire=retire)
    return desk.store.action(name)


def _unchanged(seen: Seen, plan: Plan) -> None:
    if seen.unit_digest not in (None, plan.seen_digest) or seen.result_digest not in (None, plan.result_digest):
        raise Changed("the unit changed since the plan was shown: look at it again")


def _same(same: bool) -> None:
    if not same:
        raise Problem(422, "key-reused", "this Idempotency-Key was used for another request; take a new one")


def _listening(desk: Desk) -> None:
    if not desk.hands.listening():
        raise Refused("root's side is not listening here (triage-apply.path is not active): use the command line")
