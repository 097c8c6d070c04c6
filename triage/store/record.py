"""Findings in; crash, incident, timeline and outbox rows out, all in the caller's transaction.

A crash is stored once under its key however often it is read: it is inserted when first seen, amended until it is
closed, and counted, told and noted only at these steps. Called by `Store.record`. Must not read a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, insert, select, update

from triage.model import Change, Crash, Finding, FindingEvent, Outcome, Role, Severity
from triage.schema import crash as crashes
from triage.schema import incident as incidents
from triage.store import notice
from triage.store.action import want_rollback
from triage.store.codec import pack, plain
from triage.store.incident import follow, forget_empty, get, note
from triage.store.metrics import bump
from triage.store.rows import IncidentState

HOUR = 3_600_000_000
ENDED_WELL = (IncidentState.MITIGATED, IncidentState.RESOLVED)


@dataclass(frozen=True, slots=True)
class Writing:
    """What every step of one transaction needs to know."""

    tx: Connection
    host: str  # for crashes that do not name theirs
    base_url: str
    window: int  # microseconds in which a signature that comes back takes its action back
    document: Callable[[Finding], Mapping[str, Any]]
    now: int


def alarms(crash: Crash) -> bool:
    """Whether it counts as a failure. One that only follows from others, or hit one request, is stored in silence."""
    if crash.outcome is Outcome.UNKNOWN:
        return crash.root.role is Role.ROOT
    return crash.outcome.actionable


def record_event(writing: Writing, event: FindingEvent) -> None:
    tx, crash = writing.tx, event.finding.crash
    host, unit, invocation, position, identity = crash.key
    host = host or writing.host
    key = {"host": host, "unit": unit, "invocation": invocation, "position": position, "crash_id": identity}
    stored = tx.execute(select(crashes).where(and_(*(crashes.c[name] == value for name, value in key.items())))).first()
    closing = event.change is Change.CLOSED
    if stored is None:
        incident = _incident_of(writing, event.finding, host, None)
        values = _values(writing, event.finding) | key
        values |= {"incident": incident.id, "alarming": False, "opened_at": writing.now}
        number = tx.execute(insert(crashes).values(**values).returning(crashes.c.id)).scalar_one()
        _count(writing, incident, event.finding)
    elif stored.closed_at is not None and not (closing and _weight(crash) > stored.weight):
        return  # read again: all that it can say is known
    elif event.change is Change.OPENED:
        return  # read again: it had grown since
    else:
        number = stored.id
        incident = _incident_of(writing, event.finding, host, stored)
        tx.execute(update(crashes).where(crashes.c.id == number).values(**_values(writing, event.finding)))
        if incident.id != stored.incident:
            _move(writing, stored, incident, event.finding)
    stored = tx.execute(select(crashes).where(crashes.c.id == number)).one()
    if stored.alarming and not alarms(crash):
        _calm(writing, stored)
    _describe(writing, incident.id, event.finding)
    if alarms(crash):
        _alarm(writing, stored, event.finding, closing)
    want_rollback(tx, stored.incident, stored.unit, crash.started, crash.outcome, writing.window, writing.now)
    if closing and stored.closed_at is None:
        tx.execute(update(crashes).where(crashes.c.id == number).values(closed_at=writing.now))
        followed = f", {crash.cascades} followed" if crash.cascades else ""
        note(tx, stored.incident, writing.now, "crash", f"ended as {crash.outcome} in {crash.phase}{followed}")
        bump(tx, host, "crashes_total", {"rule": _rule(event.finding), "outcome": crash.outcome})


def _values(writing: Writing, finding: Finding) -> dict[str, Any]:
    crash = finding.crash
    return {
        "signature": _signature(finding),
        "rule": _rule(finding),
        "title": plain(finding.title)[:500],
        "phase": crash.phase,
        "outcome": crash.outcome,
        "severity": finding.severity if alarms(crash) else Severity.INFO,
        "grade": crash.grade,
        "started": crash.started,
        "ended": crash.ended,
        "weight": _weight(crash),
        "document": pack(writing.document(finding)),
    }


def _weight(crash: Crash) -> int:
    return len(crash.failures) + len(crash.evidence) + (crash.outcome is not Outcome.UNKNOWN) + (crash.end is not None)


def _rule(finding: Finding) -> str:
    return finding.matches[0].rule if finding.matches else ""


def _signature(finding: Finding) -> str:
    return f"{finding.signature.version}:{finding.signature.key}"


# ---------------------------------------------------------------- incidents


def _incident_of(writing: Writing, finding: Finding, host: str, stored: Row[Any] | None) -> Row[Any]:
    """The incident of this signature, made where there is none; one that was merged leads to where it went."""
    tx, crash, signature = writing.tx, finding.crash, _signature(finding)
    unit = crash.unit or ""
    key = and_(incidents.c.host == host, incidents.c.unit == unit, incidents.c.signature == signature)
    found = tx.execute(select(incidents).where(key)).first()
    if found is not None:
        return follow(tx, found)
    if stored is not None:
        # The root was seen better while the crash grew: an incident that only this crash has made is renamed.
        old = get(tx, stored.incident)
        if old.crashes == 1 and old.signature == stored.signature:
            tx.execute(update(incidents).where(incidents.c.id == old.id).values(signature=signature))
            return get(tx, old.id)
    seen = crash.started if crash.started is not None else writing.now
    values = {"host": host, "unit": unit, "signature": signature, "state": IncidentState.OPEN, "mute_why": ""}
    values |= _description(finding) | {"crashes": 0, "alarms": 0, "first_seen": seen, "last_seen": seen}
    number = tx.execute(
        insert(incidents).values(**values, changed_at=writing.now).returning(incidents.c.id)
    ).scalar_one()
    return get(tx, number)


def _description(finding: Finding) -> dict[str, Any]:
    crash, cause = finding.crash, finding.crash.root.cause
    frame = cause.frame
    place = f"{frame.file}:{frame.line} in {frame.function}" if frame else ""
    return {
        "severity": finding.severity if alarms(crash) else Severity.INFO,
        "title": plain(finding.title)[:500],
        "rule": _rule(finding),
        "phase": crash.phase,
        "outcome": crash.outcome,
        "exception": plain(cause.exception)[:300],
        "message": notice.masked(plain(cause.message)),
        "place": plain(place)[:500],
        "sglang_version": crash.context.sglang_version,
    }


def _describe(writing: Writing, number: int, finding: Finding) -> None:
    """The incident tells of its newest crash; one that does not alarm does not speak for failures."""
    tx = writing.tx
    incident = get(tx, number)
    values: dict[str, Any] = {"changed_at": writing.now}
    if alarms(finding.crash) or incident.alarms == 0:
        values |= _description(finding)
    tx.execute(update(incidents).where(incidents.c.id == number).values(**values))


def _count(writing: Writing, incident: Row[Any], finding: Finding) -> None:
    crash = finding.crash
    seen = crash.started if crash.started is not None else writing.now
    writing.tx.execute(
        update(incidents)
        .where(incidents.c.id == incident.id)
        .values(
            crashes=incidents.c.crashes + 1,
            first_seen=min(incident.first_seen, seen),
            last_seen=max(incident.last_seen, seen),
        )
    )
    ranks = f" on {', '.join(crash.ranks[:8])}" if crash.ranks else ""
    note(writing.tx, incident.id, writing.now, "crash", f"{plain(finding.title)[:300]}{ranks}")


def _move(writing: Writing, stored: Row[Any], target: Row[Any], finding: Finding) -> None:
    """The crash turned out to be of another incident than its first lines said."""
    tx = writing.tx
    if stored.alarming:
        _calm(writing, stored)
    tx.execute(update(crashes).where(crashes.c.id == stored.id).values(incident=target.id, state_before=None))
    tx.execute(update(incidents).where(incidents.c.id == stored.incident).values(crashes=incidents.c.crashes - 1))
    forget_empty(tx, stored.incident, target.id, writing.now)
    _count(writing, target, finding)


# ---------------------------------------------------------------- alarms


def _alarm(writing: Writing, stored: Row[Any], finding: Finding, closing: bool) -> None:
    """Raise the alarm of this crash, or tell more in the one that waits; never a second one."""
    if not stored.alarming:
        _raise(writing, stored, finding, closing)
    elif stored.notice:
        incident = get(writing.tx, stored.incident)
        data = notice.incident_data(incident, finding, writing.base_url)
        due = writing.now if closing else None
        notice.amend(writing.tx, stored.notice, data, now=writing.now, due=due)


def _raise(writing: Writing, stored: Row[Any], finding: Finding, closing: bool) -> None:
    tx, now = writing.tx, writing.now
    incident = get(tx, stored.incident)
    state = incident.state
    if state in ENDED_WELL:
        state = IncidentState.REGRESSED if incident.alarms else IncidentState.OPEN
    values = {"alarms": incident.alarms + 1, "state": state, "changed_at": now}
    tx.execute(update(incidents).where(incidents.c.id == incident.id).values(**values))
    if state != incident.state:
        note(tx, incident.id, now, "state", f"came back: {incident.state} is now {state}")
    kind = _kind(incident, now)
    muted = incident.mute_until is not None and incident.mute_until > now
    identity = stored.notice
    if kind is not None and not muted and identity is None:
        fresh = get(tx, incident.id)
        data = notice.incident_data(fresh, finding, writing.base_url)
        due = now if closing else now + notice.HOLD
        identity = notice.put(tx, incident.host, kind, incident.id, data, now=now, due=due)
    values = {"alarming": True, "notice": identity, "state_before": incident.state}
    tx.execute(update(crashes).where(crashes.c.id == stored.id).values(**values))


def _kind(incident: Row[Any], now: int) -> str | None:
    """Which event tells of one more failure. Repetitions are told ever more rarely, but hourly at least."""
    if incident.alarms == 0:
        return "incident.opened"
    if incident.state in ENDED_WELL:
        return "incident.regressed"
    count = incident.alarms + 1
    round_number = str(count).rstrip("0") in ("1", "2", "5") or count == 3
    due = incident.noticed_at is None or now - incident.noticed_at >= HOUR
    return "incident.repeated" if round_number or due else None


def _calm(writing: Writing, stored: Row[Any]) -> None:
    """No failure after all: the alarm is taken back where it has not gone out, and the state it changed with it."""
    tx = writing.tx
    taken_back = stored.notice is not None and notice.withdraw(tx, stored.notice)
    values: dict[str, Any] = {"alarming": False, "state_before": None}
    if taken_back:
        values["notice"] = None
    tx.execute(update(crashes).where(crashes.c.id == stored.id).values(**values))
    incident = get(tx, stored.incident)
    values = {"alarms": incident.alarms - 1, "changed_at": writing.now}
    if incident.state == IncidentState.REGRESSED and stored.state_before in ENDED_WELL:
        values["state"] = stored.state_before
        note(tx, incident.id, writing.now, "state", f"no failure after all: {stored.state_before} again")
    tx.execute(update(incidents).where(incidents.c.id == incident.id).values(**values))
