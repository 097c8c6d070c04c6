"""Counters kept beside what they count, in its transaction, and those that other processes leave for /metrics."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, insert, update

from triage.schema import counter
from triage.store.codec import dump

_PLACE = (
    (counter.c.host == bindparam("at_host"))
    & (counter.c.name == bindparam("at_name"))
    & (counter.c.labels == bindparam("at_labels"))
)
_BUMP = update(counter).where(_PLACE).values(value=counter.c.value + bindparam("by"))
_PUT = update(counter).where(_PLACE).values(value=bindparam("by"))
_INSERT = insert(counter)


def bump(tx: Connection, host: str, name: str, labels: Mapping[str, str], by: float = 1) -> None:
    """Add to a counter."""
    place = {"at_host": host, "at_name": name, "at_labels": dump(dict(labels))}
    if tx.execute(_BUMP, place | {"by": by}).rowcount == 0:
        tx.execute(_INSERT, {"host": host, "name": name, "labels": place["at_labels"], "value": by})


def put(tx: Connection, host: str, name: str, labels: Mapping[str, str], value: float) -> None:
    """Set a gauge, or a counter that its process keeps itself."""
    place = {"at_host": host, "at_name": name, "at_labels": dump(dict(labels))}
    if tx.execute(_PUT, place | {"by": value}).rowcount == 0:
        tx.execute(_INSERT, {"host": host, "name": name, "labels": place["at_labels"], "value": value})
