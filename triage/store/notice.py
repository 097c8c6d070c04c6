"""What goes out: the events of the outbox, made in the transaction of what they tell.

An event of a crash waits HOLD after its crash was opened, so that it can tell all ranks; it goes at once when the crash
is closed. Only the root's exception, message and place go out, masked and cut: never other lines of a log, which may
carry prompts and keys. Called by `record`, `incident` and `action`; must not decide whether something alarms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from triage.masking import mask
from triage.model import Finding, Link, Remedy
from triage.schema import outbox
from triage.store.codec import dump

HOLD = 5_000_000
MESSAGE_CHARS = 2_000
_INSERT = insert(outbox)
_SETTLED = select(outbox.c.settled).where(outbox.c.id == bindparam("identity"))


def masked(text: str, limit: int = MESSAGE_CHARS) -> str:
    """Without what looks like a key or a password, and not longer than `limit` characters."""
    text = mask(text[: limit * 2])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def iso(time: int) -> str:
    return datetime.fromtimestamp(time / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def put(
    tx: Connection,
    host: str,
    kind: str,
    incident: int | None,
    data: Mapping[str, Any],
    *,
    of: tuple[str, ...],
    now: int,
    due: int,
) -> str:
    """Queue one event; gives its id, which is the webhook-id of all its deliveries.

    `of` is what it tells of: told again (the power failed and took the last commits, or the event was taken back), it
    has the same id, and a receiver that keeps ids takes it once.
    """
    identity = "msg_" + hashlib.sha256("\0".join((host, kind, *of)).encode("utf-8", "replace")).hexdigest()[:32]
    payload = dump({"type": kind, "timestamp": iso(now), "data": data})
    row = {"host": host, "type": kind, "incident": incident, "payload": payload}
    row |= {"created_at": now, "due": due, "settled": ""}
    settled = tx.execute(_SETTLED, {"identity": identity}).scalar()
    if settled is None:
        tx.execute(_INSERT, row | {"id": identity})
    elif settled == "cancelled":
        tx.execute(update(outbox).where(outbox.c.id == identity).values(**row))
    return identity


def amend(tx: Connection, identity: str, data: Mapping[str, Any], *, now: int, due: int | None) -> None:
    """Tell more in an event that has not gone out yet, or let it go at `due`; nothing happens to one that has."""
    waiting = (outbox.c.id == identity) & (outbox.c.settled == "")
    kind = tx.execute(select(outbox.c.type).where(waiting)).scalar()
    if kind is None:
        return
    values: dict[str, Any] = {"payload": dump({"type": kind, "timestamp": iso(now), "data": data})}
    if due is not None:
        values["due"] = due
    tx.execute(update(outbox).where(waiting).values(**values))


def withdraw(tx: Connection, identity: str) -> bool:
    """Take an event back; False when it has gone out already."""
    done = tx.execute(update(outbox).where(outbox.c.id == identity, outbox.c.settled == "").values(settled="cancelled"))
    return done.rowcount > 0


def incident_data(incident: Any, finding: Finding | None, base_url: str) -> dict[str, Any]:
    """`data` of an incident.* event: `incident` is its row as it is now, `finding` the crash that it tells of."""
    data: dict[str, Any] = {
        "incident": incident.id,
        "title": masked(incident.title, 300),
        "state": incident.state,
        "severity": incident.severity,
        "unit": incident.unit,
        "host": incident.host,
        "signature": incident.signature,
        "rule": incident.rule or None,
        "phase": incident.phase,
        "outcome": incident.outcome,
        "crashes": incident.crashes,
        "root": {
            "rank": None,
            "exception": incident.exception[:300],
            "message": masked(incident.message),
            "frame": None,
        },
        "ranks": [],
        "remedy": None,
        "url": link(base_url, incident.id),
    }
    if finding is not None:
        crash = finding.crash
        remedies = finding.matches[0].remedies if finding.matches else ()
        data["root"] = _root(crash.root.cause, crash.root.rank)
        data["ranks"] = [rank[:40] for rank in crash.ranks[:64]]
        data["remedy"] = _remedy(remedies[0]) if remedies else None
    return data


def action_data(row: Any, incident: int, base_url: str) -> dict[str, Any]:
    """`data` of an action.* event: `row` is the action's, `incident` the number of today."""
    return {
        "action": row.name,
        "kind": row.kind,
        "state": row.state,
        "incident": incident,
        "unit": row.unit,
        "host": row.host,
        "rule": row.rule,
        "remedy": row.remedy,
        "title": row.title,
        "text": masked(row.text),
        "target": row.target or None,
        "reason": masked(json.loads(row.request).get("reason", "")),
        "steps": [{"name": s["name"], "state": s["state"]} for s in json.loads(row.steps)[-40:]],
        "url": link(base_url, incident),
    }


def link(base_url: str, incident: int) -> str:
    return f"{base_url}/incidents/{incident}"


def _root(cause: Link, rank: str | None) -> dict[str, Any]:
    frame = cause.frame
    place = {"file": frame.file[:200], "function": frame.function[:200], "line": frame.line} if frame else None
    return {"rank": rank, "exception": cause.exception[:300], "message": masked(cause.message), "frame": place}


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "id": remedy.id,
        "kind": remedy.kind,
        "title": remedy.title[:300],
        "cost": remedy.cost[:500],
        "applicable": remedy.applicable,
    }
