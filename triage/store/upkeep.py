"""Old rows go: crashes, what was delivered, incidents that are over. Crashes whose end nobody will read are closed.
Called by `Store.prune` and `Store.close_left_open`, inside their transactions.

Kept whatever their age: an incident that is not resolved with its newest crash, and every action (the record of what
was done to a machine is small and never stale). A cursor is beyond all that is dropped, so nothing of it is read again.
"""

from __future__ import annotations

from sqlalchemy import Connection, and_, delete, exists, func, or_, select, update

from triage.model import Grade
from triage.schema import action as actions
from triage.schema import crash as crashes
from triage.schema import decision, delivery, outbox, timeline
from triage.schema import incident as incidents
from triage.store.codec import pack, unpack
from triage.store.incident import note
from triage.store.rows import IncidentState, Pruned

LEFT = 3_600_000_000  # microseconds; `watch` closes a crash when its unit has ended or was quiet for seconds


def prune(tx: Connection, before: int) -> Pruned:
    """Drop what is older than `before`."""
    over = and_(
        or_(incidents.c.state == IncidentState.RESOLVED, incidents.c.alarms == 0),
        incidents.c.last_seen < before,
        incidents.c.changed_at < before,
        ~exists().where(actions.c.incident == incidents.c.id),
    )
    ended = [number for (number,) in tx.execute(select(incidents.c.id).where(over))]
    newest = select(func.max(crashes.c.id)).group_by(crashes.c.incident)
    old = and_(crashes.c.opened_at < before, crashes.c.closed_at.is_not(None))
    gone = tx.execute(
        delete(crashes).where(old, or_(crashes.c.id.not_in(newest), crashes.c.incident.in_(ended)))
    ).rowcount
    tx.execute(delete(timeline).where(timeline.c.incident.in_(ended)))
    tx.execute(delete(timeline).where(timeline.c.time < before, timeline.c.kind == "crash"))
    tx.execute(delete(decision).where(decision.c.decided_at < before))
    left = select(crashes.c.incident)
    dropped = tx.execute(delete(incidents).where(incidents.c.id.in_(ended), incidents.c.id.not_in(left))).rowcount
    return Pruned(crashes=gone, incidents=dropped, events=_events(tx, before))


def close_left_open(tx: Connection, host: str, now: int) -> int:
    """Close what has been open for an hour: `watch` died in the middle, and what it had not read was gone when it came
    back. The evidence is then cut at best. If its end is read after all, that replaces this."""
    left = and_(crashes.c.host == host, crashes.c.closed_at.is_(None), crashes.c.opened_at < now - LEFT)
    rows = tx.execute(select(crashes.c.id, crashes.c.incident, crashes.c.grade, crashes.c.document).where(left)).all()
    for row in rows:
        values: dict[str, object] = {"closed_at": now}
        if row.grade == Grade.COMPLETE:
            document = unpack(row.document)
            document.setdefault("evidence", {})["grade"] = Grade.CUT
            values |= {"grade": Grade.CUT, "document": pack(document)}
        tx.execute(update(crashes).where(crashes.c.id == row.id).values(values))
        note(tx, row.incident, now, "crash", "closed: its end was never read")
    return len(rows)


def _events(tx: Connection, before: int) -> int:
    waiting = select(delivery.c.outbox).where(delivery.c.state == "waiting")
    old = and_(outbox.c.created_at < before, outbox.c.settled != "", outbox.c.id.not_in(waiting))
    identities = select(outbox.c.id).where(old)
    tx.execute(delete(delivery).where(delivery.c.outbox.in_(identities)))
    return tx.execute(delete(outbox).where(old)).rowcount
