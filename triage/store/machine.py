"""Which machine the database belongs to, and the name that its rows bear: `host` is part of every key.

A machine that is given another name keeps its incidents, actions and debts: its services rename the rows when they
start; until then everybody goes on under the name that the rows bear. It is told by its machine-id, so that a database
that was copied to another machine is not taken for that one's own. Called by `Store`, inside its transactions.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, insert, select, update

from triage.schema import machine, metadata

_ID = Path("/etc/machine-id")


def machine_id() -> str | None:
    """None where the system has none, as in some containers."""
    try:
        return _ID.read_text().strip() or None
    except OSError:
        return None


def name_of(tx: Connection, identity: str) -> str | None:
    """The name under which this machine's rows stand."""
    found: str | None = tx.execute(select(machine.c.name).where(machine.c.id == identity)).scalar()
    return found


def call(tx: Connection, identity: str, name: str) -> None:
    """Give the machine that name, and its rows with it. A row that is there under the new name already stays so."""
    before = name_of(tx, identity)
    if before is None:
        tx.execute(insert(machine).values(id=identity, name=name))
    elif before != name:
        tx.execute(update(machine).where(machine.c.id == identity).values(name=name))
        for table in metadata.sorted_tables:
            if "host" in table.c:
                tx.execute(update(table).prefix_with("OR IGNORE").where(table.c.host == before).values(host=name))
