"""The proof of an action that goes on after root's own: a soak, the speed, a window of silence.

A row is made when the action is asked for, with the profile the operator saw; it begins when root's account says
verified. The worker asks what is to be soaked and notes how it goes; a verdict against the action leaves a wanted
rollback. Called by `Store`, `store.action` and `store.query`, inside their transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Connection, Row, Select, and_, func, insert, select, update

from triage.actionmodel import ActionState
from triage.model import Outcome, Pace, Verify
from triage.schema import action as actions
from triage.schema import context, wanted_rollback
from triage.schema import crash as crashes
from triage.schema import proof as proofs
from triage.store import guard, trial
from triage.store.codec import context_value, dump, plain, unpack
from triage.store.incident import note
from triage.store.rows import ProofRow, ProofState, SoakRow

_RUNNING = (ProofState.SOAK, ProofState.WINDOW)
_CRASHES = 5  # the newest before the action that are asked how fast the server was


def planned(tx: Connection, host: str, name: str, unit: str, profile: Verify, now: int) -> None:
    """An action is about to be asked for; its profile is fixed from here on."""
    if _find(tx, host, name) is None:
        values = {"state": ProofState.PLANNED, "sent": 0, "measured": "{}", "text": "", "changed_at": now}
        window = None if profile.window is None else int(profile.window * 1_000_000)
        tx.execute(
            insert(proofs).values(
                host=host, action=name, unit=unit, profile=dump(asdict(profile)), window=window, **values
            )
        )


def begin(tx: Connection, host: str, name: str, now: int) -> None:
    """Root's own proof has held: now the longer one."""
    row = _find(tx, host, name)
    nothing = row is not None and not _profile(row.profile).soak
    state, text = (ProofState.WINDOW, "no soak") if nothing else (ProofState.SOAK, "the soak begins")
    _set(tx, host, name, now, (ProofState.PLANNED,), state=state, text=text)


def end(tx: Connection, host: str, name: str, text: str, now: int) -> None:
    """The action is over before its proof was."""
    _set(tx, host, name, now, (ProofState.PLANNED, *_RUNNING), state=ProofState.ENDED, text=text)


def progress(tx: Connection, host: str, name: str, sent: int, text: str, now: int, skipped: int) -> bool:
    """How far the soak is; False where it is not wanted any more."""
    row = _find(tx, host, name)
    if row is not None and (row.state, row.sent, row.text) == (ProofState.SOAK, sent, plain(text)[:300]):
        return True  # it waits, and pages need not be told again
    measured = {"measured": dump({"skipped": str(skipped)})} if skipped else {}
    return _set(tx, host, name, now, (ProofState.SOAK,), sent=sent, text=plain(text)[:300], **measured)


def soaked(tx: Connection, host: str, name: str, sent: int, text: str, measured: Mapping[str, str], now: int) -> None:
    """Soak and speed speak for it; what is left is the window."""
    row = tx.execute(select(actions.c.watched_at).where(actions.c.host == host, actions.c.name == name)).first()
    state = ProofState.PROVED if row is not None and row.watched_at is not None else ProofState.WINDOW
    values = {"state": state, "sent": sent, "text": plain(text)[:500], "measured": dump(dict(measured))}
    if _set(tx, host, name, now, (ProofState.SOAK,), **values):
        _note(tx, host, name, f"action {name}: {text}", now)


def window_over(tx: Connection, host: str, name: str, now: int) -> None:
    _set(tx, host, name, now, (ProofState.WINDOW,), state=ProofState.PROVED)


def failed(tx: Connection, host: str, name: str, sent: int, text: str, measured: Mapping[str, str], now: int) -> None:
    """The verdict is against it: its rollback is wanted."""
    values = {"state": ProofState.FAILED, "sent": sent, "text": plain(text)[:500], "measured": dump(dict(measured))}
    if not _set(tx, host, name, now, _RUNNING, **values):
        return
    row = tx.execute(select(actions).where(actions.c.host == host, actions.c.name == name)).one()
    place = and_(wanted_rollback.c.host == host, wanted_rollback.c.action == name)
    if tx.execute(select(wanted_rollback.c.action).where(place)).first() is None:
        facts = {"unit": row.unit, "incident": row.incident, "reason": plain(text)[:500], "created_at": now}
        tx.execute(insert(wanted_rollback).values(host=host, action=name, request="", **facts))
        asked = f"{row.target} is asked back" if row.kind == "retire" else "its rollback is asked for"
        _note(tx, host, name, f"action {name} did not prove itself, {asked}: {text}", now, "rollback")
        if row.kind == "apply" and guard.demote(tx, row, text, now):
            words = f"{row.rule} does nothing unasked on {row.unit} from now on: {guard.RESET} {row.rule} {row.unit}"
            _note(tx, host, name, words, now, "note")


def came_back(tx: Connection, host: str, name: str, text: str, now: int) -> None:
    """The window has decided by itself."""
    _set(tx, host, name, now, _RUNNING, state=ProofState.FAILED, text=text)


def window_of(default: BindParameter[Any] | int) -> ColumnElement[Any]:
    """The window of the action that a statement is about: its own, else the setting's."""
    own = select(proofs.c.window).where(proofs.c.host == actions.c.host, proofs.c.action == actions.c.name)
    return func.coalesce(own.correlate(actions).scalar_subquery(), default)


def has_failed(tx: Connection, host: str, name: str) -> bool:
    row = _find(tx, host, name)
    return row is not None and row.state == ProofState.FAILED


def own_window(tx: Connection, host: str, name: str) -> int | None:
    row = _find(tx, host, name)
    return None if row is None else row.window


def in_soak(host: str) -> Select[tuple[str]]:
    """The names of the actions whose soak is not through."""
    states = (ProofState.PLANNED, ProofState.SOAK)
    return select(proofs.c.action).where(proofs.c.host == host, proofs.c.state.in_(states))


def soaking(tx: Connection, host: str) -> tuple[SoakRow, ...]:
    """What is to be soaked here, the newest action of a unit first."""
    mine = and_(actions.c.host == proofs.c.host, actions.c.name == proofs.c.action)
    here = and_(proofs.c.host == host, proofs.c.state == ProofState.SOAK)
    columns = (proofs, actions.c.effective_at, actions.c.measured.label("told"), actions.c.request)
    rows = tx.execute(select(*columns).join(actions, mine).where(here).order_by(actions.c.started.desc()))
    return tuple(
        SoakRow(
            row.action,
            row.unit,
            _profile(row.profile),
            row.sent,
            row.effective_at or 0,
            json.loads(row.told),
            json.loads(row.request).get("owner"),
            int(json.loads(row.measured).get("skipped", "0")),
        )
        for row in rows
    )


def pace_before(tx: Connection, host: str, unit: str, before: int, owner: int | None = None) -> tuple[Pace, ...]:
    """How fast the unit was in the runs that crashed before that time; the newest word on each load."""
    wanted = and_(crashes.c.host == host, crashes.c.unit == unit, crashes.c.started < before)
    found: dict[int, Pace] = {}
    rows = tx.execute(select(crashes.c.document).where(wanted).order_by(crashes.c.id.desc()).limit(_CRASHES))
    for row in rows:
        document = unpack(row.document)
        for one in document.get("context", {}).get("pace", ()) if document.get("owner") == owner else ():
            found.setdefault(one["running"], Pace(one["running"], one["samples"], one["speed"], one["accepted"]))
    return tuple(found.values())


def pace_of(tx: Connection, host: str, invocation: str) -> tuple[Pace, ...]:
    """How fast a running invocation is, as far as `watch` has saved it."""
    of = and_(context.c.host == host, context.c.invocation.endswith(f"|{invocation}", autoescape=True))
    row = tx.execute(select(context.c.document).where(of)).first()
    return () if row is None else context_value(row.document).pace


def crash_of(tx: Connection, unit: str, invocation: str) -> str:
    """What that run died of, by what `watch` recorded; '' where it recorded nothing."""
    wanted = and_(crashes.c.unit == unit, crashes.c.invocation == invocation, crashes.c.alarming)
    row = tx.execute(select(crashes.c.title).where(wanted).order_by(crashes.c.id.desc()).limit(1)).first()
    return "" if row is None else str(row.title)


def died_of(tx: Connection, host: str, unit: str, invocation: str, owner: int | None, since: int) -> str:
    """The crash since then that ended that run, by the manager's word; '' where there was none, or where it belongs to
    a change that was taken back. `since`: a look at the unit may be older than the change."""
    run = and_(crashes.c.host == host, crashes.c.unit == unit, crashes.c.invocation == invocation)
    wanted = and_(run, crashes.c.outcome == Outcome.FATAL, crashes.c.started >= since)
    others = trial.trials(tx, host, unit, owner)
    rows = tx.execute(select(crashes.c.title, crashes.c.started).where(wanted).order_by(crashes.c.id.desc()))
    return next((str(row.title) for row in rows if invocation and not trial.covered(others, row.started)), "")


def proofs_of(tx: Connection, names: Iterable[str]) -> dict[str, ProofRow]:
    rows = tx.execute(select(proofs).where(proofs.c.action.in_(list(names))))
    return {row.action: _row(row) for row in rows}


def _row(row: Row[Any]) -> ProofRow:
    state = ProofState(row.state)
    profile = _profile(row.profile)
    return ProofRow(state, row.sent, profile.soak or 0, row.text, json.loads(row.measured), row.changed_at, profile)


def _profile(text: str) -> Verify:
    known = Verify.__dataclass_fields__
    return Verify(**{name: value for name, value in json.loads(text).items() if name in known})


def _find(tx: Connection, host: str, name: str) -> Row[Any] | None:
    return tx.execute(select(proofs).where(_key(host, name))).first()


def _key(host: str, name: str) -> ColumnElement[bool]:
    return and_(proofs.c.host == host, proofs.c.action == name)


def _set(tx: Connection, host: str, name: str, now: int, states: tuple[ProofState, ...], **values: Any) -> bool:
    """Change the row where it is in one of these states. The action's own time moves too: pages wait for that."""
    changed = tx.execute(
        update(proofs).where(_key(host, name), proofs.c.state.in_(states)).values(**values, changed_at=now)
    )
    if changed.rowcount:
        tx.execute(update(actions).where(actions.c.host == host, actions.c.name == name).values(changed_at=now))
    return bool(changed.rowcount)


def _note(tx: Connection, host: str, name: str, text: str, now: int, kind: str = "note") -> None:
    row = tx.execute(select(actions.c.incident).where(actions.c.host == host, actions.c.name == name)).one()
    note(tx, row.incident, now, kind, plain(text)[:800], action=name)


def over(state: ActionState) -> bool:
    """An action in this state is not proved any further."""
    return state in (ActionState.UNDONE, ActionState.ROLLED_BACK, ActionState.ROLLBACK_FAILED, ActionState.REFUSED)
