"""What pages, the API and the command line ask. Reads only; pages by key, never by offset; nothing counts whole tables.

Called by `Store`, inside its transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, case, desc, func, or_, select, tuple_

from triage.actionmodel import ActionState
from triage.model import Grade, InputError, Outcome, Phase, Severity
from triage.schema import action as actions
from triage.schema import counter, cursor, timeline, wanted_rollback
from triage.schema import crash as crashes
from triage.schema import incident as incidents
from triage.store.action import IN_FORCE
from triage.store.codec import edits_value, steps_value, unpack
from triage.store.guard import OPEN_ENDED
from triage.store.incident import get
from triage.store.proof import proofs_of
from triage.store.rows import (
    ActionRow,
    Counter,
    CrashRow,
    IncidentRow,
    IncidentState,
    IncidentView,
    OpenCount,
    Page,
    ProofRow,
    SourceHealth,
    TimelineRow,
    UnitSeen,
    WantedRollback,
)

UNSETTLED = (IncidentState.OPEN, IncidentState.REGRESSED)


def incident_page(
    tx: Connection,
    *,
    states: tuple[IncidentState, ...],
    unit: str | None,
    severity: Severity | None,
    text: str | None,
    alarming: bool,
    limit: int,
    before: str | None,
) -> Page[IncidentRow]:
    wanted: list[ColumnElement[bool]] = [incidents.c.merged_into.is_(None)]
    if states:
        wanted.append(incidents.c.state.in_(states))
    if unit:
        wanted.append(incidents.c.unit == unit)
    if severity:
        wanted.append(incidents.c.severity == severity)
    if alarming:
        wanted.append(incidents.c.alarms > 0)
    if text:
        columns = (incidents.c.title, incidents.c.unit, incidents.c.rule, incidents.c.exception, incidents.c.message)
        wanted.append(or_(*(column.icontains(text, autoescape=True) for column in columns)))
    if before:
        wanted.append(tuple_(incidents.c.last_seen, incidents.c.id) < tuple_(*_place(before)))
    order = (desc(incidents.c.last_seen), desc(incidents.c.id))
    rows = tx.execute(select(incidents).where(and_(*wanted)).order_by(*order).limit(limit + 1)).all()
    more = f"{rows[limit - 1].last_seen}.{rows[limit - 1].id}" if len(rows) > limit else None
    return Page(tuple(incident_row(row) for row in rows[:limit]), more)


def incident_view(tx: Connection, number: int, crash_limit: int, timeline_limit: int) -> IncidentView:
    row = get(tx, number)
    newest = select(timeline).where(timeline.c.incident == number).order_by(desc(timeline.c.id)).limit(timeline_limit)
    lines = tuple(
        TimelineRow(line.id, line.time, line.kind, line.text, line.who, line.action or None)
        for line in reversed(tx.execute(newest).all())
    )
    mine = select(actions).where(actions.c.incident == number).order_by(desc(actions.c.requested_at), actions.c.name)
    return IncidentView(
        incident=incident_row(row),
        crashes=crash_page(tx, number, crash_limit, None).rows,
        timeline=lines,
        actions=_action_rows(tx, tx.execute(mine).all()),
    )


def crash_page(tx: Connection, number: int | None, limit: int, before: str | None) -> Page[CrashRow]:
    wanted: list[ColumnElement[bool]] = []
    if number is not None:
        wanted.append(crashes.c.incident == number)
    if before:
        wanted.append(crashes.c.id < _number(before))
    rows = tx.execute(select(crashes).where(and_(True, *wanted)).order_by(desc(crashes.c.id)).limit(limit + 1)).all()
    more = str(rows[limit - 1].id) if len(rows) > limit else None
    return Page(tuple(crash_row(row) for row in rows[:limit]), more)


def units_seen(tx: Connection) -> tuple[UnitSeen, ...]:
    is_open = and_(incidents.c.state.in_(UNSETTLED), incidents.c.alarms > 0)
    query = (
        select(
            incidents.c.host,
            incidents.c.unit,
            func.coalesce(func.sum(case((is_open, 1), else_=0)), 0),
            func.count(),
            func.max(incidents.c.last_seen),
        )
        .where(incidents.c.merged_into.is_(None))
        .group_by(incidents.c.host, incidents.c.unit)
        .order_by(incidents.c.host, incidents.c.unit)
    )
    return tuple(UnitSeen(*row) for row in tx.execute(query))


def open_counts(tx: Connection) -> tuple[OpenCount, ...]:
    columns = (incidents.c.host, incidents.c.unit, incidents.c.severity, incidents.c.state)
    wanted = and_(
        incidents.c.state.in_((*UNSETTLED, IncidentState.MITIGATED)),
        incidents.c.alarms > 0,
        incidents.c.merged_into.is_(None),
    )
    rows = tx.execute(select(*columns, func.count()).where(wanted).group_by(*columns).order_by(*columns))
    return tuple(OpenCount(host, unit, Severity(sev), IncidentState(state), n) for host, unit, sev, state, n in rows)


def action_page(tx: Connection, unit: str | None, limit: int, before: str | None) -> Page[ActionRow]:
    wanted: list[ColumnElement[bool]] = []
    if unit:
        wanted.append(actions.c.unit == unit)
    if before:
        time, _, name = before.partition(".")
        wanted.append(tuple_(actions.c.requested_at, actions.c.name) < tuple_(_number(time), name))
    order = (desc(actions.c.requested_at), desc(actions.c.name))
    rows = tx.execute(select(actions).where(and_(True, *wanted)).order_by(*order).limit(limit + 1)).all()
    more = f"{rows[limit - 1].requested_at}.{rows[limit - 1].name}" if len(rows) > limit else None
    return Page(_action_rows(tx, rows[:limit]), more)


def action(tx: Connection, name: str) -> ActionRow:
    row = tx.execute(select(actions).where(actions.c.name == name)).first()
    if row is None:
        raise InputError(f"there is no action '{name}': `triage actions list` shows those there are")
    return _action_rows(tx, [row])[0]


def knows_action(tx: Connection, name: str) -> bool:
    return tx.execute(select(actions.c.name).where(actions.c.name == name)).first() is not None


def workarounds(tx: Connection, unit: str | None) -> tuple[ActionRow, ...]:
    """Actions in force, in the order they were applied."""
    wanted = and_(actions.c.kind == "apply", actions.c.state.in_((*IN_FORCE, ActionState.ROLLBACK_FAILED)))
    if unit:
        wanted = and_(wanted, actions.c.unit == unit)
    rows = tx.execute(select(actions).where(wanted).order_by(actions.c.requested_at, actions.c.name)).all()
    return tuple(found for found in _action_rows(tx, rows) if found.in_force)


def unsettled(tx: Connection, host: str, before: int) -> tuple[ActionRow, ...]:
    wanted = and_(actions.c.host == host, actions.c.state.in_(OPEN_ENDED), actions.c.changed_at < before)
    return _action_rows(tx, tx.execute(select(actions).where(wanted).order_by(actions.c.name)).all())


def wanted_rollbacks(tx: Connection, host: str) -> tuple[WantedRollback, ...]:
    unfiled = and_(wanted_rollback.c.host == host, wanted_rollback.c.filed_at.is_(None))
    rows = tx.execute(select(wanted_rollback).where(unfiled).order_by(wanted_rollback.c.created_at)).all()
    return tuple(WantedRollback(r.action, r.host, r.unit, r.incident, r.reason, r.created_at) for r in rows)


def sources(tx: Connection) -> tuple[SourceHealth, ...]:
    rows = tx.execute(select(cursor).order_by(cursor.c.host, cursor.c.source))
    return tuple(SourceHealth(row.host, row.source, row.cursor, row.read_at) for row in rows)


def counters(tx: Connection) -> tuple[Counter, ...]:
    rows = tx.execute(select(counter).order_by(counter.c.name, counter.c.labels))
    return tuple(Counter(row.name, tuple(sorted(json.loads(row.labels).items())), row.value) for row in rows)


def pulse(tx: Connection) -> str:
    """Another text whenever something that a page shows has changed. Cheap: three index look-ups."""
    columns = (func.max(incidents.c.changed_at), func.max(actions.c.changed_at), func.max(timeline.c.id))
    return ".".join(str(tx.execute(select(column)).scalar() or 0) for column in columns)


# ---------------------------------------------------------------- rows


def incident_row(row: Row[Any]) -> IncidentRow:
    values = dict(row._mapping)
    values["number"] = values.pop("id")
    values["state"] = IncidentState(row.state)
    values["severity"] = Severity(row.severity)
    values["rule"] = row.rule or None
    values["phase"] = Phase(row.phase)
    values["outcome"] = Outcome(row.outcome)
    return IncidentRow(**{name: values[name] for name in IncidentRow.__dataclass_fields__})


def crash_row(row: Row[Any]) -> CrashRow:
    values = dict(row._mapping)
    values["number"] = row.id
    values["id"] = row.crash_id
    values["rule"] = row.rule or None
    values["phase"] = Phase(row.phase)
    values["outcome"] = Outcome(row.outcome)
    values["severity"] = Severity(row.severity)
    values["grade"] = Grade(row.grade)
    values["document"] = unpack(row.document)
    return CrashRow(**{name: values[name] for name in CrashRow.__dataclass_fields__})


def _action_rows(tx: Connection, rows: Sequence[Row[Any]]) -> tuple[ActionRow, ...]:
    proofs = proofs_of(tx, [row.name for row in rows])
    return tuple(_action_row(row, proofs.get(row.name)) for row in rows)


def _action_row(row: Row[Any], proof: ProofRow | None) -> ActionRow:
    values = dict(row._mapping)
    request = json.loads(row.request)
    values["target"] = row.target or None
    values["state"] = ActionState(row.state)
    values["reason"] = request.get("reason", "")
    values["edits"] = edits_value(request)
    values["verify"] = request.get("verify", True)
    values["root"] = request.get("root", "")
    values["owner"] = request.get("owner")
    values["steps"] = steps_value(row.steps)
    values["measured"] = json.loads(row.measured)
    values["proof"] = proof
    return ActionRow(**{name: values[name] for name in ActionRow.__dataclass_fields__})


def _place(before: str) -> tuple[int, int]:
    time, _, number = before.partition(".")
    return _number(time), _number(number)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"'{text[:40]}' is no place in a list: take the one that came with the page before") from None
