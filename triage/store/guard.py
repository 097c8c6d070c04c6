"""The guards: what may be begun at all, asked and reserved in one transaction before anything is touched.

One action a unit at a time; so many applied a day for one signature, one unit, one host; and a breaker that opens when
much is applied in a short time and stays open until a person resets it. Taking something back is never limited: that is
the way out. Called by `Store`, inside its transaction. Files below a folder (--root) are nobody's bad night: no limits.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from sqlalchemy import Connection, Row, and_, delete, func, insert, select, update

from triage.actionmodel import ActionState, Request
from triage.schema import action as actions
from triage.schema import breaker, demotion
from triage.store import notice
from triage.store.codec import plain
from triage.store.rows import Breaker, Demotion, Guarded

SECOND = 1_000_000
DAY = 86_400 * SECOND
RESET = "triage guards reset"
BELOW_A_FOLDER = actions.c.request.contains('"root":"/')  # of --root
OPEN_ENDED = (ActionState.REQUESTED, ActionState.RUNNING)


class Limits(Protocol):
    """As the settings have them."""

    @property
    def signature_per_day(self) -> int: ...
    @property
    def unit_per_day(self) -> int: ...
    @property
    def host_per_day(self) -> int: ...
    @property
    def breaker_actions(self) -> int: ...
    @property
    def breaker_seconds(self) -> int: ...


def under_way(tx: Connection, host: str, unit: str, root: str) -> str:
    """The action of that unit which is not settled yet; '' where there is none."""
    wanted = and_(actions.c.host == host, actions.c.unit == unit, actions.c.state.in_(OPEN_ENDED))
    rows = tx.execute(select(actions.c.name, actions.c.request).where(wanted).order_by(actions.c.requested_at))
    return next((row.name for row in rows if json.loads(row.request).get("root", "") == root), "")


def objection(tx: Connection, host: str, request: Request, limits: Limits, base_url: str, now: int) -> str:
    """Why this must not be applied now, '' where it may. Opens the breaker where this one would be too many."""
    if request.kind != "apply" or request.root or request.target:
        return ""
    state = breaker_state(tx, host)
    if state.opened_at is not None:
        return f"the breaker is open since {notice.iso(state.opened_at)} ({state.why}): look, then {RESET}"
    since = max(now - limits.breaker_seconds * SECOND, state.reset_at)
    count = _applied(tx, host, since)
    if count >= limits.breaker_actions:
        why = f"{count} actions on this host within {limits.breaker_seconds} s"
        _open(tx, host, state, why, base_url, now)
        return f"{why}: the breaker is open now; look, then {RESET}"
    day = now - DAY
    for what, limit, found in (
        ("this signature", limits.signature_per_day, _applied(tx, host, day, actions.c.incident == request.incident)),
        (request.unit, limits.unit_per_day, _applied(tx, host, day, actions.c.unit == request.unit)),
        ("this host", limits.host_per_day, _applied(tx, host, day)),
    ):
        if found >= limit:
            return f"{found} actions were applied for {what} within a day, as many as [guards] allows: look first"
    return ""


def breaker_state(tx: Connection, host: str) -> Breaker:
    row = tx.execute(select(breaker).where(breaker.c.host == host)).first()
    return Breaker(host, row.opened_at, row.why, row.reset_at, row.who) if row else Breaker(host, None, "", 0, "")


def guarded(tx: Connection, host: str) -> Guarded:
    """The breaker, and what was demoted."""
    rows = tx.execute(select(demotion).where(demotion.c.host == host).order_by(demotion.c.since))
    return Guarded(
        breaker_state(tx, host), tuple(Demotion(row.rule, row.unit, row.action, row.why, row.since) for row in rows)
    )


def reset_breaker(tx: Connection, host: str, who: str, now: int) -> bool:
    """Close it and count anew; False where it was not open."""
    was_open = and_(breaker.c.host == host, breaker.c.opened_at.is_not(None))
    done = tx.execute(update(breaker).where(was_open).values(opened_at=None, reset_at=now, who=who))
    return bool(done.rowcount)


def demote(tx: Connection, row: Row[Any], why: str, now: int) -> bool:
    """The rule failed its proof on that unit; False where that is known."""
    place = and_(demotion.c.host == row.host, demotion.c.rule == row.rule, demotion.c.unit == row.unit)
    if tx.execute(select(demotion.c.action).where(place)).first() is not None:
        return False
    values = {"host": row.host, "rule": row.rule, "unit": row.unit, "action": row.name}
    tx.execute(insert(demotion).values(**values, why=plain(why)[:500], since=now))
    return True


def demoted(tx: Connection, host: str, rule: str, unit: str) -> bool:
    place = and_(demotion.c.host == host, demotion.c.rule == rule, demotion.c.unit == unit)
    return tx.execute(select(demotion.c.action).where(place)).first() is not None


def reset_demotion(tx: Connection, host: str, rule: str, unit: str) -> bool:
    """Trust it again; False where it was not demoted."""
    place = and_(demotion.c.host == host, demotion.c.rule == rule, demotion.c.unit == unit)
    return bool(tx.execute(delete(demotion).where(place)).rowcount)


def _applied(tx: Connection, host: str, since: int, *more: Any) -> int:
    """How many were filed since then that may have touched something. Putting back what was retired is none."""
    wanted = and_(
        actions.c.host == host,
        actions.c.kind == "apply",
        actions.c.state != ActionState.REFUSED,
        actions.c.requested_at > since,
        actions.c.target == "",
        ~BELOW_A_FOLDER,
        *more,
    )
    return int(tx.execute(select(func.count()).select_from(actions).where(wanted)).scalar_one())


def _open(tx: Connection, host: str, state: Breaker, why: str, base_url: str, now: int) -> None:
    values = {"opened_at": now, "why": why}
    if not tx.execute(update(breaker).where(breaker.c.host == host).values(**values)).rowcount:
        tx.execute(insert(breaker).values(host=host, **values, reset_at=state.reset_at, who=""))
    data = {"host": host, "why": why, "reset": RESET, "url": f"{base_url}/actions"}
    notice.put(tx, host, "breaker.opened", None, data, of=(str(now),), now=now, due=now)
