"""What was tried on a unit: the remedies carried out there, and whether their crash came back under them.

Called by `Store`, inside its transaction. Reads only; what follows from it is for `ladder` and `search` to say.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Row, and_, select

from triage.actionmodel import ActionState, Tried
from triage.model import Outcome
from triage.schema import action as actions
from triage.schema import crash as crashes
from triage.store import proof, trial
from triage.store.codec import edits_value, unpack

_MOST = 200  # actions of one unit, crashes of one incident
_NEVER_BEGAN = (ActionState.REQUESTED, ActionState.RUNNING, ActionState.REFUSED)
_ACTIONABLE = [outcome for outcome in Outcome if outcome.actionable]


def tried(tx: Connection, host: str, unit: str, owner: int | None = None) -> tuple[Tried, ...]:
    """Newest first; of the system's unit, or of that user's. Actions below a folder (--root) restarted nothing and say
    nothing."""
    wanted = and_(actions.c.host == host, actions.c.unit == unit, actions.c.kind == "apply")
    found = select(actions).where(wanted, actions.c.state.not_in(_NEVER_BEGAN))
    rows = tx.execute(found.order_by(actions.c.requested_at.desc()).limit(_MOST)).all()
    place = ("", owner)
    return tuple(_tried(tx, host, row) for row in rows if trial.place(row) == place)


def whose(crash: Row[Any]) -> int | None:
    """The user in whose unit it was; None: the system's."""
    found: int | None = unpack(crash.document).get("owner")
    return found


def crashed_with(tx: Connection, incident: int, field: str) -> tuple[float, ...]:
    """The values of one flag under which this incident's crashes came, newest first, as the server logged them."""
    wanted = and_(crashes.c.incident == incident, crashes.c.outcome.in_(_ACTIONABLE))
    rows = tx.execute(select(crashes.c.document).where(wanted).order_by(crashes.c.id.desc()).limit(_MOST))
    values: list[float] = []
    for row in rows:
        logged = unpack(row.document).get("context", {}).get("flags", {}).get(field, "")
        try:
            values.append(float(logged))
        except ValueError:
            continue
    return tuple(values)


def _tried(tx: Connection, host: str, row: Row[Any]) -> Tried:
    failed = row.state in (ActionState.ROLLED_BACK, ActionState.ROLLBACK_FAILED)
    back = None if failed else _came_back(tx, host, row)
    unproved = back is None and row.state == ActionState.UNDONE and proof.has_failed(tx, host, row.name)
    release = None
    if back is not None:
        release = _release(back)
    elif failed or unproved:
        release = crashed_on(tx, row.incident, row.requested_at)
    return Tried(
        action=row.name,
        incident=row.incident,
        remedy=row.remedy,
        state=ActionState(row.state),
        requested_at=row.requested_at,
        came_back=back is not None,
        release=release,
        edits=edits_value(json.loads(row.request)),
        measured=json.loads(row.measured),
        unproved=unproved,
    )


def _came_back(tx: Connection, host: str, row: Row[Any]) -> Row[Any] | None:
    """The first crash of its incident while the unit ran with it, and with nothing that was taken back."""
    if row.effective_at is None:
        return None
    undoing = and_(actions.c.host == host, actions.c.kind != "apply", actions.c.target == row.name)
    since = select(actions.c.effective_at).where(undoing, actions.c.state == ActionState.UNDONE)
    until = tx.execute(since.order_by(actions.c.requested_at)).scalar()
    under = [crashes.c.incident == row.incident, crashes.c.unit == row.unit, crashes.c.outcome.in_(_ACTIONABLE)]
    under += [crashes.c.started > row.effective_at, *([crashes.c.started < until] if until else [])]
    owner = trial.place(row)[1]
    others = trial.trials(tx, host, row.unit, owner)
    rows = tx.execute(select(crashes).where(*under).order_by(crashes.c.started).limit(_MOST))
    return next((one for one in rows if whose(one) == owner and not trial.covered(others, one.started)), None)


def crashed_on(tx: Connection, incident: int, requested_at: int) -> str | None:
    """The server's release in the crash that an action of that time was to cure."""
    before = and_(crashes.c.incident == incident, crashes.c.opened_at <= requested_at)
    row = tx.execute(select(crashes).where(before).order_by(crashes.c.opened_at.desc()).limit(1)).first()
    return None if row is None else _release(row)


def _release(crash: Row[Any]) -> str | None:
    found: str | None = unpack(crash.document).get("sglang_version")
    return found
