"""Counters kept beside what they count, in its transaction, and those that other processes leave for /metrics."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, insert, update

from triage.schema import counter
from triage.store.codec import dump


def bump(tx: Connection, host: str, name: str, labels: Mapping[str, str], by: float = 1) -> None:
    """Add to a counter."""
    place = (counter.c.host == host) & (counter.c.name == name) & (counter.c.labels == dump(dict(labels)))
    if tx.execute(update(counter).where(place).values(value=counter.c.value + by)).rowcount == 0:
        tx.execute(insert(counter).values(host=host, name=name, labels=dump(dict(labels)), value=by))


def put(tx: Connection, host: str, name: str, labels: Mapping[str, str], value: float) -> None:
    """Set a gauge, or a counter that its process keeps itself."""
    place = (counter.c.host == host) & (counter.c.name == name) & (counter.c.labels == dump(dict(labels)))
    if tx.execute(update(counter).where(place).values(value=value)).rowcount == 0:
        tx.execute(insert(counter).values(host=host, name=name, labels=dump(dict(labels)), value=value))
