"""Actions: asked for here, carried out by root, and brought back as root's account.

`import_result` may see the same account many times, and the accounts of an action and of its rollback in any order;
what it does depends on the account and on what is stored, never on how often. A signature that comes back within the
window of a verified action leaves a wanted rollback, whether the crash or the account is stored first. Called by
`Store` and `record`, inside their transaction.
"""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, insert, or_, select, update

from triage.actionmodel import ActionResult, ActionState, Request, StepState
from triage.model import Outcome, Verify
from triage.schema import action as actions
from triage.schema import crash as crashes
from triage.schema import cursor, wanted_rollback
from triage.schema import incident as incidents
from triage.store import guard, history, notice, proof, retirement, trial
from triage.store.codec import dump, plain, request_text, result_text, steps_text
from triage.store.guard import OPEN_ENDED
from triage.store.incident import follow, note, noted, settle
from triage.store.metrics import bump
from triage.store.rows import IncidentState

_MOST = 200  # crashes of one window
EVENTS = {
    ActionState.RUNNING: "action.started",
    ActionState.VERIFIED: "action.verified",
    ActionState.ROLLED_BACK: "action.rolled_back",
    ActionState.UNDONE: "action.rolled_back",
    ActionState.ROLLBACK_FAILED: "action.rollback_failed",
    ActionState.REFUSED: "action.refused",
}
IN_FORCE = (ActionState.VERIFIED, ActionState.UNVERIFIED)
TAKEN_BACK = (ActionState.UNDONE, ActionState.ROLLED_BACK, *IN_FORCE)  # how the account of a rollback says it worked
_GONE = (ActionState.ROLLED_BACK, ActionState.ROLLBACK_FAILED, ActionState.UNDONE)
# What a crash in the window speaks against: an edit that was verified, or the retiring of one.
_WATCHED = or_(
    and_(actions.c.kind == "apply", actions.c.state == ActionState.VERIFIED),
    and_(actions.c.kind == "retire", actions.c.state == ActionState.UNDONE, ~guard.BELOW_A_FOLDER),
)
_HELD = select(actions).where(
    actions.c.incident == bindparam("incident"),
    actions.c.unit == bindparam("unit"),
    _WATCHED,
    actions.c.effective_at < bindparam("started"),
    actions.c.ended + proof.window_of(bindparam("window")) >= bindparam("started"),
)


def requested(
    tx: Connection,
    host: str,
    request: Request,
    title: str,
    cost: str,
    diff: str,
    who: str,
    now: int,
    profile: Verify | None,
) -> None:
    """An action that is about to be filed; nothing happens where it is known. `profile`: how it will be proved."""
    if profile is not None and request.kind != "rollback" and request.verify and not request.root:
        proof.planned(tx, host, request.action, request.unit, profile, now)
    known = _find(tx, host, request.action)
    if known is None:
        _insert(tx, host, request, now)
    elif known.state == ActionState.REFUSED and not known.digest:  # it was abandoned before it was filed
        again = {"state": ActionState.REQUESTED, "ended": None, "text": ""}
        tx.execute(update(actions).where(_key(host, request.action)).values(**again))
    words = {"title": plain(title)[:500], "cost": plain(cost)[:1000], "diff": plain(diff), "who": who}
    tx.execute(update(actions).where(_key(host, request.action)).values(**words, changed_at=now))


def abandoned(tx: Connection, host: str, name: str, base_url: str, window: int, now: int) -> None:
    """Its process was killed between writing it down and filing it, or root's account of it was taken away."""
    row = _find(tx, host, name)
    if row is None or row.state not in OPEN_ENDED:
        return
    if row.state == ActionState.REQUESTED:
        state, text = ActionState.REFUSED, "it was never filed: nothing was touched"
    else:
        state, text = ActionState.ROLLBACK_FAILED, f"root's account of it is gone: look at the drop-ins of {row.unit}"
    values = {"state": state, "ended": now, "text": text, "changed_at": now}
    tx.execute(update(actions).where(_key(host, name)).values(**values))
    _changed(tx, host, name, row.state, base_url, now)
    _look_again(tx, row, window, now)


def import_result(tx: Connection, host: str, result: ActionResult, base_url: str, window: int, now: int) -> bool:
    """Root's account of one action; False where it says nothing new."""
    request = result.request
    digest = hashlib.sha256(result_text(result).encode()).hexdigest()
    row = _find(tx, host, request.action)
    if row is not None and (row.digest == digest or (row.state not in OPEN_ENDED and result.state in OPEN_ENDED)):
        return False
    if row is None:
        _insert(tx, host, request, now)
        row = _find(tx, host, request.action)
        assert row is not None
    state = ActionState.UNDONE if result.state in IN_FORCE and _undone(tx, host, request.action) else result.state
    values = {
        "state": state,
        "started": result.started,
        "ended": result.ended if result.ended is not None or result.state in OPEN_ENDED else now,
        "effective_at": _effective(result, now),
        "text": plain(result.text)[:2000],
        "steps": steps_text(result.steps),
        "measured": dump(dict(result.measured)),
        "request": request_text(request),
        "digest": digest,
        "changed_at": now,
    }
    tx.execute(update(actions).where(_key(host, request.action)).values(**values))
    if row.state != state:
        _changed(tx, host, request.action, row.state, base_url, now)
    if _holds(result, state):
        proof.begin(tx, host, request.action, now)
    elif request.kind == "retire" and state is ActionState.UNDONE:
        proof.end(tx, host, request.action, "root had nothing to prove", now)
    if (request.kind, state) in (("apply", ActionState.VERIFIED), ("retire", ActionState.UNDONE)):
        _look_back(tx, host, request.action, window, now)
    if row.state in OPEN_ENDED and state not in OPEN_ENDED:
        _look_again(tx, row, window, now)
    return True


def want_rollback(
    tx: Connection, incident: int, unit: str, started: int, window: int, now: int, owner: int | None = None
) -> list[tuple[str, str]]:
    """A fatal or degraded crash began at `started`: the actions in force that it speaks against, and why. `owner`:
    the user in whose unit it was; it says nothing of another's. Nothing yet while an action is under way, or where it
    was one that was taken back."""
    place = {"incident": incident, "unit": unit, "started": started, "window": window}
    rows = [row for row in tx.execute(_HELD, place).all() if _owner(row) == owner]
    if not rows or trial.covered(trial.trials(tx, rows[0].host, unit, owner), started):
        return []
    found = [(row.name, _want(tx, row, started, now)) for row in rows]
    return [(name, reason) for name, reason in found if reason]


def mark_filed(tx: Connection, host: str, action: str, request: str, now: int) -> None:
    place = and_(wanted_rollback.c.host == host, wanted_rollback.c.action == action)
    unfiled = place & wanted_rollback.c.filed_at.is_(None)
    tx.execute(update(wanted_rollback).where(unfiled).values(filed_at=now, request=request))


def not_taken_back(tx: Connection, host: str, name: str, why: str, base_url: str, now: int) -> None:
    """Its rollback is wanted and cannot be filed: somebody must look. Noted once for each reason, told once."""
    row = _find(tx, host, name)
    incident = None if row is None else _incident(tx, row.incident)
    if row is None or incident is None:
        return
    text = f"{name} was not taken back: {why}"
    if not noted(tx, incident.id, "rollback", text):
        note(tx, incident.id, now, "rollback", text, action=name)
    if incident.mute_until is None or incident.mute_until <= now:
        data = notice.action_data(row, incident.id, base_url) | {"text": notice.masked(text)}
        event = EVENTS[ActionState.ROLLBACK_FAILED]
        notice.put(tx, host, event, incident.id, data, of=(name, "not filed"), now=now, due=now)


def watch_windows(tx: Connection, host: str, window: int, now: int) -> int:
    """Note the verified actions whose window has passed in silence, as far as the journal was read; gives how many."""
    read = [row.read_at for row in tx.execute(select(cursor.c.read_at).where(cursor.c.host == host))]
    seen = min(now, max(read)) if read else now
    over = and_(
        actions.c.host == host,
        _WATCHED,
        actions.c.watched_at.is_(None),
        actions.c.ended + proof.window_of(window) < seen,
        # What is retired is so for good only when its soak is through as well.
        or_(actions.c.kind != "retire", actions.c.name.not_in(proof.in_soak(host))),
    )
    wanted = select(wanted_rollback.c.action).where(wanted_rollback.c.host == host)
    rows = tx.execute(select(actions).where(over, actions.c.name.not_in(wanted))).all()
    for row in rows:
        tx.execute(update(actions).where(_key(host, row.name)).values(watched_at=now, changed_at=now))
        own = proof.own_window(tx, host, row.name)
        seconds = (window if own is None else own) // 1_000_000
        text = f"did not come back within {seconds} s of action {row.name}"
        note(tx, row.incident, now, "note", text, action=row.name)
        proof.window_over(tx, host, row.name, now)
        if row.kind == "retire" and not retirement.others_in_force(tx, row.incident, IN_FORCE):
            settle(
                tx, row.incident, IncidentState.RESOLVED, f"{row.target} is retired for good", row.who, now, row.name
            )
    return len(rows)


def _key(host: str, name: str) -> Any:
    return and_(actions.c.host == host, actions.c.name == name)


def _find(tx: Connection, host: str, name: str) -> Row[Any] | None:
    return tx.execute(select(actions).where(_key(host, name))).first()


def _undone(tx: Connection, host: str, name: str) -> bool:
    """Whether the account of its rollback was here before its own."""
    back = or_(
        and_(actions.c.kind == "rollback", actions.c.state.in_(TAKEN_BACK)),
        and_(actions.c.kind == "retire", actions.c.state == ActionState.UNDONE),
    )
    wanted = and_(actions.c.host == host, actions.c.target == name, back)
    return tx.execute(select(actions.c.name).where(wanted)).first() is not None


def _insert(tx: Connection, host: str, request: Request, now: int) -> None:
    incident = _incident(tx, request.incident)  # by its number of today, should it have been merged
    who = f"uid {request.uid}" + (f" (sudo of uid {request.sudo_uid})" if request.sudo_uid is not None else "")
    values = {
        "kind": request.kind,
        "unit": request.unit,
        "incident": request.incident if incident is None else incident.id,
        "rule": request.rule,
        "remedy": request.remedy,
        "target": request.target or "",
        "state": ActionState.REQUESTED,
        "title": request.remedy,
        "cost": "",
        "diff": "",
        "who": who,
        "requested_at": request.time,
        "text": "",
        "request": request_text(request),
        "steps": "[]",
        "measured": "{}",
        "digest": "",
        "changed_at": now,
    }
    tx.execute(insert(actions).values(host=host, name=request.action, **values))


def _effective(result: ActionResult, now: int) -> int | None:
    """Since when the unit runs with it: its restart is done. Older crashes say nothing about it."""
    restarts = [step.time for step in result.steps if step.name == "restart" and step.state is StepState.DONE]
    if restarts or result.state in OPEN_ENDED:
        return restarts[0] if restarts else None
    return result.ended if result.ended is not None else now


def _changed(tx: Connection, host: str, name: str, before: str, base_url: str, now: int) -> None:
    """The state is another than before: tell it, and let the incident and the action it undoes follow."""
    row = _find(tx, host, name)
    assert row is not None
    state = ActionState(row.state)
    incident = _incident(tx, row.incident)
    event = "action.retired" if (row.kind, state) == ("retire", ActionState.UNDONE) else EVENTS.get(state)
    text = f"action {name} ({row.remedy}) is {state}" + (f": {row.text}" if row.text else "")
    if incident is not None:
        note(tx, incident.id, now, "action", text, row.who, name)
    if event is not None and (incident is None or incident.mute_until is None or incident.mute_until <= now):
        data = notice.action_data(row, incident.id if incident is not None else row.incident, base_url)
        notice.put(tx, host, event, row.incident, data, of=(name, state), now=now, due=now)
    if (row.kind, state) != ("retire", ActionState.UNDONE) and (proof.over(state) or state is ActionState.UNVERIFIED):
        proof.end(tx, host, name, f"the action is {state}", now)
    if state not in OPEN_ENDED:
        bump(tx, host, "actions_total", {"rule": row.rule, "result": state})
    if row.kind == "rollback":
        if state in TAKEN_BACK:
            _undo_target(tx, host, row, incident, now)
    elif row.kind == "retire":
        if state is ActionState.UNDONE:
            _undo_target(tx, host, row, None, now)  # the incident stays as it is until the window has passed
        elif incident is not None:
            _put_back(tx, row, incident, state, now)
    elif incident is not None:
        _incident_follows(tx, incident, row, state, now)


def _holds(result: ActionResult, state: ActionState) -> bool:
    """Whether root has proved it, so that the longer proof may begin. A retirement may end without any proof."""
    if result.request.kind == "retire" and state is ActionState.UNDONE:
        return any(step.name == "probe" and step.state is StepState.DONE for step in result.steps)
    return result.request.kind == "apply" and state is ActionState.VERIFIED


def _incident_follows(tx: Connection, incident: Row[Any], row: Row[Any], state: ActionState, now: int) -> None:
    if state in (ActionState.ROLLED_BACK, ActionState.ROLLBACK_FAILED):
        _demote(tx, row, f"{row.name} did not prove itself: {row.text}", now)
    if state is ActionState.VERIFIED:
        settle(tx, incident.id, IncidentState.MITIGATED, f"mitigated by action {row.name}", row.who, now, row.name)
    elif state in _GONE and not _being_retired(tx, row):
        _open_again(tx, incident, row.name, row.who, now)


def _being_retired(tx: Connection, row: Row[Any]) -> bool:
    """Whether a retirement undid it, whose own account may come later: what follows for the incident is for that."""
    of = and_(actions.c.host == row.host, actions.c.target == row.name, actions.c.kind == "retire")
    states = (*OPEN_ENDED, ActionState.UNDONE)
    return tx.execute(select(actions.c.name).where(of, actions.c.state.in_(states))).first() is not None


def _put_back(tx: Connection, row: Row[Any], incident: Row[Any], state: ActionState, now: int) -> None:
    """What was to be retired is in force again: the crash of its trial is no return, unless the unit stayed down."""
    words = (row.who, now, row.name)
    if state is ActionState.ROLLBACK_FAILED and incident.state == IncidentState.MITIGATED:
        settle(tx, incident.id, IncidentState.REGRESSED, f"came back without {row.target}", *words)
    if state is not ActionState.ROLLED_BACK or incident.state != IncidentState.REGRESSED:
        return
    tried = [one for one in trial.trials(tx, row.host, row.unit, _owner(row)) if one.action == row.name]
    turned = and_(crashes.c.incident == incident.id, crashes.c.state_before == IncidentState.MITIGATED)
    times = tx.execute(select(crashes.c.started).where(turned, crashes.c.alarming)).scalars()
    if any(one.covers(time) for time in times if time is not None for one in tried):
        settle(tx, incident.id, IncidentState.MITIGATED, f"{row.target} is in force again", *words)


def _undo_target(tx: Connection, host: str, row: Row[Any], incident: Row[Any] | None, now: int) -> None:
    """The rollback `row` succeeded: the action it names is no longer in force."""
    target = _find(tx, host, row.target)
    if target is not None and target.state in (*IN_FORCE, ActionState.ROLLBACK_FAILED):
        values = {"state": ActionState.UNDONE, "changed_at": now}
        tx.execute(update(actions).where(_key(host, row.target)).values(**values))
        proof.end(tx, host, row.target, f"undone by {row.name}", now)
    if incident is not None:
        _open_again(tx, incident, row.target, row.who, now)


def _open_again(tx: Connection, incident: Row[Any], name: str, who: str, now: int) -> None:
    """Without the action the incident is open, unless another one holds it."""
    others = and_(actions.c.incident == incident.id, actions.c.kind == "apply", actions.c.name != name)
    held = tx.execute(select(actions.c.name).where(others, actions.c.state == ActionState.VERIFIED)).first()
    if held is None and incident.state == IncidentState.MITIGATED:
        settle(tx, incident.id, IncidentState.OPEN, f"open again: action {name} is no longer in force", who, now, name)


def _look_back(tx: Connection, host: str, name: str, window: int, now: int) -> None:
    """Crashes that were stored before root's account was imported."""
    row = _find(tx, host, name)
    assert row is not None
    own = proof.own_window(tx, host, name)
    after = and_(
        crashes.c.incident == row.incident,
        crashes.c.unit == row.unit,
        crashes.c.outcome.in_([outcome for outcome in Outcome if outcome.actionable]),
        crashes.c.started > row.effective_at,
        crashes.c.started <= row.ended + (window if own is None else own),
    )
    rows = tx.execute(select(crashes).where(after).order_by(crashes.c.started).limit(_MOST))
    others = trial.trials(tx, host, row.unit, _owner(row))
    under = (crash.started for crash in rows if history.whose(crash) == _owner(row))
    found = next((started for started in under if not trial.covered(others, started)), None)
    if found is not None and (reason := _want(tx, row, found, now)):
        note(tx, row.incident, now, "rollback", f"{reason}: taking that back is asked for", action=name)
        settle(tx, row.incident, IncidentState.REGRESSED, "came back after the action", "triage", now, name)


def _look_again(tx: Connection, settled: Row[Any], window: int, now: int) -> None:
    """An action of the unit is settled: what crashed while it was under way has waited for that."""
    others = and_(actions.c.host == settled.host, actions.c.unit == settled.unit, actions.c.name != settled.name)
    inside = actions.c.ended + proof.window_of(window) >= settled.requested_at
    for row in tx.execute(select(actions).where(others, _WATCHED, inside)).all():
        if trial.place(row) == trial.place(settled):
            _look_back(tx, settled.host, row.name, window, now)


def _owner(row: Row[Any]) -> int | None:
    return trial.place(row)[1]


def _want(tx: Connection, row: Row[Any], started: int, now: int) -> str:
    """Why the rollback of this action is wanted; '' where that is known already."""
    place = and_(wanted_rollback.c.host == row.host, wanted_rollback.c.action == row.name)
    if tx.execute(select(wanted_rollback.c.action).where(place)).first() is not None:
        return ""
    seconds = (started - row.ended) // 1_000_000
    done = f"{row.target} was retired by {row.name}" if row.kind == "retire" else f"action {row.name} was verified"
    reason = f"the signature came back {max(seconds, 0)} s after {done}"
    values = {"unit": row.unit, "incident": row.incident, "reason": reason, "created_at": now, "request": ""}
    tx.execute(insert(wanted_rollback).values(host=row.host, action=row.name, **values))
    proof.came_back(tx, row.host, row.name, reason, now)
    if row.kind == "apply":
        _demote(tx, row, reason, now)
    return reason


def _demote(tx: Connection, row: Row[Any], why: str, now: int) -> None:
    """One failed proof, and nothing of this rule is done unasked on this unit any more."""
    if guard.demote(tx, row, why, now) and (incident := _incident(tx, row.incident)) is not None:
        text = f"{row.rule} does nothing unasked on {row.unit} from now on: {guard.RESET} {row.rule} {row.unit}"
        note(tx, incident.id, now, "note", text, action=row.name)


def _incident(tx: Connection, number: int) -> Row[Any] | None:
    """None where the account names one that this store does not have."""
    row = tx.execute(select(incidents).where(incidents.c.id == number)).first()
    return None if row is None else follow(tx, row)
