"""How far each source was read, and what was known there: the cursor and the contexts that belong to it.

Called by `Store.record` and `Store.resume`, inside their transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from triage.model import Context
from triage.schema import context, cursor
from triage.store.codec import context_text, context_value

_HERE = (cursor.c.host == bindparam("at_host")) & (cursor.c.source == bindparam("at_source"))
_MOVE = update(cursor).where(_HERE)
_BEGIN = insert(cursor)
_MINE = (context.c.host == bindparam("at_host")) & (context.c.source == bindparam("at_source"))
_KNOWN = select(context.c.invocation, context.c.document).where(_MINE)
_FORGET = delete(context).where(_MINE, context.c.invocation == bindparam("at_invocation"))
_LEARN = insert(context)


def load(tx: Connection, host: str, source: str) -> tuple[str | None, dict[str, Context]]:
    place = {"at_host": host, "at_source": source}
    at = tx.execute(select(cursor.c.cursor).where(_HERE), place).scalar()
    known: dict[str, Context] = {}
    for row in tx.execute(_KNOWN, place):
        with suppress(ValueError, KeyError, TypeError):  # written by a newer triage: reading goes on without it
            known[row.invocation] = context_value(row.document)
    return at, known


def move(tx: Connection, host: str, source: str, to: str, now: int) -> None:
    place = {"at_host": host, "at_source": source}
    if tx.execute(_MOVE, place | {"cursor": to, "read_at": now}).rowcount == 0:
        tx.execute(_BEGIN, {"host": host, "source": source, "cursor": to, "read_at": now})


def learn(tx: Connection, host: str, source: str, contexts: Mapping[str, Context]) -> None:
    """Make the stored contexts of this source these; writes only what has changed."""
    place = {"at_host": host, "at_source": source}
    kept = {row.invocation: row.document for row in tx.execute(_KNOWN, place)}
    new = {invocation: context_text(value) for invocation, value in contexts.items()}
    for invocation in kept.keys() | new.keys():
        if kept.get(invocation) == new.get(invocation):
            continue
        tx.execute(_FORGET, place | {"at_invocation": invocation})
        if invocation in new:
            row = {"host": host, "source": source, "invocation": invocation, "document": new[invocation]}
            tx.execute(_LEARN, row)
