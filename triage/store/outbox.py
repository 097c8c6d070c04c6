"""The outbox as the worker sees it: events become deliveries, one a channel, and deliveries end.

A channel never waits for another: each has its own rows, tries and times. Called by `Store`, inside its transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, and_, func, insert, select, update

from triage.schema import delivery, outbox
from triage.schema import incident as incidents
from triage.store.codec import plain
from triage.store.metrics import bump
from triage.store.rows import DueDelivery, OutboxDepth


def fan_out(tx: Connection, channels: Mapping[str, frozenset[str]], now: int) -> int:
    """One delivery of each event that is due for every channel that wants its type; gives how many events.

    A mute that came after the event was queued still holds it back.
    """
    due = select(outbox).where(outbox.c.settled == "", outbox.c.due <= now).order_by(outbox.c.due).limit(500)
    events = tx.execute(due).all()
    for event in events:
        muted = select(incidents.c.id).where(incidents.c.id == event.incident, incidents.c.mute_until > now)
        wanted = [name for name, types in channels.items() if event.type in types]
        settled = "sent" if wanted else "nobody"
        if event.incident is not None and tx.execute(muted).first() is not None:
            wanted, settled = [], "cancelled"
        for name in wanted:
            row = {"host": event.host, "outbox": event.id, "channel": name, "state": "waiting"}
            tx.execute(insert(delivery).values(**row, tries=0, next_try=now, result=""))
        tx.execute(update(outbox).where(outbox.c.id == event.id).values(settled=settled))
    return len(events)


def due(tx: Connection, channel: str, now: int, limit: int) -> tuple[DueDelivery, ...]:
    """What this channel is to send now, oldest try first."""
    query = (
        select(delivery.c.outbox, delivery.c.channel, outbox.c.type, outbox.c.payload, delivery.c.tries)
        .join(outbox, outbox.c.id == delivery.c.outbox)
        .where(delivery.c.state == "waiting", delivery.c.channel == channel, delivery.c.next_try <= now)
        .order_by(delivery.c.next_try, outbox.c.created_at)
        .limit(limit)
    )
    return tuple(DueDelivery(*row) for row in tx.execute(query))


def delivered(tx: Connection, identity: str, channel: str, result: str, now: int) -> None:
    _end(tx, identity, channel, "delivered", result, now)


def died(tx: Connection, identity: str, channel: str, result: str, now: int) -> None:
    """Given up: the receiver said never, or all tries are spent."""
    _end(tx, identity, channel, "dead", result, now)


def retry(tx: Connection, identity: str, channel: str, result: str, next_try: int) -> None:
    place = and_(delivery.c.outbox == identity, delivery.c.channel == channel, delivery.c.state == "waiting")
    values = {"tries": delivery.c.tries + 1, "next_try": next_try, "result": plain(result)[:500]}
    tx.execute(update(delivery).where(place).values(**values))


def depth(tx: Connection) -> OutboxDepth:
    queued = tx.execute(select(func.count()).select_from(outbox).where(outbox.c.settled == "")).scalar_one()
    counts = select(delivery.c.state, func.count()).where(delivery.c.state != "delivered").group_by(delivery.c.state)
    states = {str(state): int(count) for state, count in tx.execute(counts)}
    return OutboxDepth(waiting=queued + states.get("waiting", 0), dead=states.get("dead", 0))


def _end(tx: Connection, identity: str, channel: str, state: str, result: str, now: int) -> None:
    place = and_(delivery.c.outbox == identity, delivery.c.channel == channel, delivery.c.state == "waiting")
    host = tx.execute(select(delivery.c.host).where(place)).scalar()
    if host is None:
        return
    values = {"state": state, "tries": delivery.c.tries + 1, "ended_at": now, "result": plain(result)[:500]}
    tx.execute(update(delivery).where(place).values(**values))
    bump(tx, host, "deliveries_total", {"channel": channel, "result": state})
