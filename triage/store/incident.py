"""Incidents change state here: by people's word, by an action's proof, by a crash that went elsewhere.

Every change leaves a line in the timeline with who did it. Called by `Store`, `record` and `action`, inside their
transaction.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from triage.model import InputError
from triage.schema import action as actions
from triage.schema import crash as crashes
from triage.schema import incident as incidents
from triage.schema import outbox, timeline, wanted_rollback
from triage.store import notice
from triage.store.codec import plain
from triage.store.rows import IncidentState

SYSTEM = "triage"


def get(tx: Connection, number: int) -> Row[Any]:
    """The incident's row; an unknown number is the caller's mistake."""
    row = tx.execute(select(incidents).where(incidents.c.id == number)).first()
    if row is None:
        raise InputError(f"there is no incident {number}: `triage incidents list` shows those there are")
    return row


def follow(tx: Connection, row: Row[Any]) -> Row[Any]:
    """Where an incident that was merged lives on."""
    while row.merged_into is not None:
        row = get(tx, row.merged_into)
    return row


def note(tx: Connection, number: int, time: int, kind: str, text: str, who: str = SYSTEM, action: str = "") -> None:
    """One line of the timeline."""
    host = select(incidents.c.host).where(incidents.c.id == number).scalar_subquery()
    values = {"incident": number, "time": time, "kind": kind, "text": plain(text)[:2000], "who": who, "action": action}
    tx.execute(insert(timeline).values(host=host, **values))


def noted(tx: Connection, number: int, kind: str, text: str) -> bool:
    """Whether such a line stands there already."""
    line = (timeline.c.incident == number, timeline.c.kind == kind, timeline.c.text == plain(text)[:2000])
    return tx.execute(select(timeline.c.id).where(*line).limit(1)).first() is not None


def settle(tx: Connection, number: int, state: IncidentState, text: str, who: str, now: int, action: str = "") -> bool:
    """Change the state and note it; False where it was so already."""
    changed = tx.execute(
        update(incidents)
        .where(incidents.c.id == number, incidents.c.state != state)
        .values(state=state, changed_at=now)
    )
    if changed.rowcount:
        note(tx, number, now, "state", text, who, action)
    return bool(changed.rowcount)


def resolve(tx: Connection, number: int, who: str, base_url: str, now: int) -> None:
    row = follow(tx, get(tx, number))
    if not settle(tx, row.id, IncidentState.RESOLVED, "resolved", who, now):
        return
    if row.mute_until is None or row.mute_until <= now:
        data = notice.incident_data(get(tx, row.id), None, base_url)
        place = (str(row.id), str(now))
        notice.put(tx, row.host, "incident.resolved", row.id, data | {"who": who}, of=place, now=now, due=now)


def reopen(tx: Connection, number: int, who: str, now: int) -> None:
    settle(tx, follow(tx, get(tx, number)).id, IncidentState.OPEN, "opened again", who, now)


def mute(tx: Connection, number: int, until: int, why: str, who: str, now: int) -> None:
    """No alerts until then; what waits in the outbox is dropped. A time that has passed ends a mute."""
    row = follow(tx, get(tx, number))
    ends = until <= now
    values = {"mute_until": None if ends else until, "mute_why": "" if ends else plain(why)[:500], "changed_at": now}
    tx.execute(update(incidents).where(incidents.c.id == row.id).values(**values))
    text = "unmuted" if ends else f"muted until {notice.iso(until)}: {why}"
    note(tx, row.id, now, "mute", text, who)


def merge(tx: Connection, number: int, into: int, who: str, now: int) -> None:
    """`number` becomes part of `into`: its crashes now, and those to come."""
    source, target = get(tx, number), follow(tx, get(tx, into))
    if follow(tx, source).id == target.id:
        raise InputError(f"incidents {number} and {into} are one already")
    if source.merged_into is not None:
        raise InputError(f"incident {number} was merged into {source.merged_into}: merge that one")
    if (source.host, source.unit) != (target.host, target.unit):
        raise InputError(
            f"incidents {number} and {into} are of different units: a remedy of one would not be the other's"
        )
    values = {
        "crashes": target.crashes + source.crashes,
        "alarms": target.alarms + source.alarms,
        "first_seen": min(target.first_seen, source.first_seen),
        "last_seen": max(target.last_seen, source.last_seen),
        "changed_at": now,
    }
    tx.execute(update(incidents).where(incidents.c.id == target.id).values(**values))
    gone = {"merged_into": target.id, "crashes": 0, "alarms": 0, "changed_at": now}
    tx.execute(update(incidents).where(incidents.c.id == number).values(**gone))
    _carry(tx, number, target.id)
    note(tx, target.id, now, "merge", f"incident {number} was merged into this one", who)
    note(tx, number, now, "merge", f"merged into incident {target.id}", who)


def forget_empty(tx: Connection, number: int, heir: int, now: int) -> None:
    """An incident whose only crash turned out to be another's leaves its number behind, which leads to the heir."""
    if tx.execute(select(func.count()).where(crashes.c.incident == number)).scalar_one():
        return
    gone = {"merged_into": heir, "signature": f"gone:{number}", "crashes": 0, "alarms": 0, "changed_at": now}
    tx.execute(update(incidents).where(incidents.c.id == number).values(**gone))
    # Its first lines are told anew for the heir; what people and actions did goes along.
    tx.execute(delete(timeline).where(timeline.c.incident == number, timeline.c.kind.in_(("crash", "state"))))
    _carry(tx, number, heir)


def _carry(tx: Connection, number: int, heir: int) -> None:
    for table in (crashes, timeline, actions, wanted_rollback, outbox):
        tx.execute(update(table).where(table.c.incident == number).values(incident=heir))
