"""When a workaround may go: what a person set for it, what was proposed, and on which releases it was still needed.

Called by `Store`, inside its transaction. Whether a condition is met is `triage.debt`'s to say.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, and_, insert, select, update

from triage.schema import action as actions
from triage.schema import retirement
from triage.store import notice
from triage.store.codec import plain
from triage.store.incident import follow, get, note
from triage.store.rows import ActionRow, Retirement

NOTHING = {"release": "", "due": None, "proposed_at": None, "proposed_for": "", "why": "", "failed": ""}


def retirements(tx: Connection, host: str) -> dict[str, Retirement]:
    """By action, of those of which anything is known."""
    rows = tx.execute(select(retirement).where(retirement.c.host == host))
    return {
        row.action: Retirement(
            row.action, row.release, row.due, row.proposed_at, row.proposed_for, row.why, tuple(row.failed.split())
        )
        for row in rows
    }


def set_condition(tx: Connection, row: ActionRow, release: str, due: int | None, who: str, now: int) -> None:
    """A person's: from that release, or from that time on. Both empty: only what the rule knows."""
    _put(tx, row.host, row.name, release=release, due=due)
    wanted = [f"release {release}" if release else "", notice.iso(due) if due is not None else ""]
    text = " or ".join(filter(None, wanted)) or "what its rule says"
    note(tx, follow(tx, get(tx, row.incident)).id, now, "note", f"{row.name} is to be retired at {text}", who, row.name)


def propose(tx: Connection, row: ActionRow, release: str, why: str, base_url: str, now: int) -> None:
    """Its condition is met on that release: told once for each."""
    _put(tx, row.host, row.name, proposed_at=now, proposed_for=release, why=plain(why)[:500])
    incident = follow(tx, get(tx, row.incident)).id
    text = f"{row.name} ({row.remedy}) may not be needed any more: {why}; triage workarounds retire {row.name}"
    note(tx, incident, now, "note", text, action=row.name)
    data = {
        "action": row.name,
        "incident": incident,
        "unit": row.unit,
        "host": row.host,
        "rule": row.rule,
        "remedy": row.remedy,
        "cost": row.cost,
        "text": text,
        "url": f"{base_url}/workarounds",
    }
    of = (row.name, release, str(now) if not release else "")
    notice.put(tx, row.host, "workaround.retirable", incident, data, of=of, now=now, due=now)


def still_needed(tx: Connection, host: str, gone: str, heir: str, release: str) -> None:
    """It came back without `gone` on that release: `heir` puts it back and is not proposed for that release."""
    known = tx.execute(select(retirement).where(_place(host, gone))).first()
    failed = {*(known.failed.split() if known else ()), release}
    values = {"release": known.release, "due": None} if known else {}
    _put(tx, host, heir, **values, failed=" ".join(sorted(failed)))


def others_in_force(tx: Connection, incident: int, states: tuple[str, ...]) -> bool:
    wanted = and_(actions.c.incident == incident, actions.c.kind == "apply", actions.c.state.in_(states))
    return tx.execute(select(actions.c.name).where(wanted)).first() is not None


def _place(host: str, action: str) -> Any:
    return and_(retirement.c.host == host, retirement.c.action == action)


def _put(tx: Connection, host: str, action: str, **values: Any) -> None:
    if not tx.execute(update(retirement).where(_place(host, action)).values(**values)).rowcount:
        tx.execute(insert(retirement).values(host=host, action=action, **{**NOTHING, **values}))
