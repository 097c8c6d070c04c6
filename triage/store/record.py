"""Findings in; crash, incident, timeline and outbox rows out, all in the caller's transaction.

A crash is stored once under its key however often it is read: it is inserted when first seen, amended until it is
closed, and counted, told and noted only at these steps. Called by `Store.record`. Must not read a clock.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, insert, select, update

from triage.model import Change, Crash, Finding, FindingEvent, Outcome, Role, Severity
from triage.schema import crash as crashes
from triage.store import notice, trial
from triage.store.action import want_rollback
from triage.store.codec import pack, plain
from triage.store.incident import forget_empty
from triage.store.rows import IncidentState
from triage.store.writing import Draft, Writing

HOUR = 3_600_000_000
OWN_WORDS = ("signal", "exit-code", "core-dump")  # what the end of the main process says by itself
ENDED_WELL = (IncidentState.MITIGATED, IncidentState.RESOLVED)
_KEY = ("host", "unit", "invocation", "position", "crash_id")
_FIND = select(*(column for column in crashes.c if column.name != "document")).where(
    *(crashes.c[name] == bindparam(name) for name in _KEY)
)
_INSERT = insert(crashes)
_UPDATE = update(crashes).where(crashes.c.id == bindparam("row"))


def alarms(crash: Crash) -> bool:
    """Whether it counts as a failure. One that only follows from others, or hit one request, is stored in silence."""
    if crash.outcome is Outcome.UNKNOWN:
        return crash.root.role is Role.ROOT
    return crash.outcome.actionable


def record_event(writing: Writing, event: FindingEvent) -> None:
    """One finding as it is known now."""
    finding, crash = event.finding, event.finding.crash
    key = dict(zip(_KEY, (crash.host or writing.host, *crash.key[1:]), strict=True))
    row = writing.tx.execute(_FIND, key).first()
    closing = event.change in (Change.CLOSED, Change.CORRECTED)
    if row is None:
        incident = _incident_of(writing, finding, key["host"], None)
        stored = Draft(id=None, **key, incident=incident.id, alarming=False, notice=None, state_before=None)
        stored.opened_at, stored.closed_at = writing.now, None
        _count(writing, incident, finding)
    elif row.closed_at is not None and not (closing and _weight(crash) > row.weight):
        return  # read again: all that it can say is known
    elif event.change is Change.OPENED:
        return  # read again: it had grown since
    else:
        stored = Draft(**row._mapping)
        incident = _incident_of(writing, finding, key["host"], stored)
        if incident.id != stored.incident:
            incident = _move(writing, stored, incident.id, finding)
    _settle(writing, stored, incident, finding, closing)
    if event.change is Change.CORRECTED and crash.end is not None:
        writing.note(incident, "crash", f"the manager said later how the unit ended: {crash.end.result}")
    vars(stored).update(_values(finding), document=pack(writing.document(finding)))
    values = {name: value for name, value in vars(stored).items() if name != "id"}
    if stored.id is None:
        writing.tx.execute(_INSERT, values)
    else:
        writing.tx.execute(_UPDATE, values | {"row": stored.id})


def _settle(writing: Writing, stored: Draft, incident: Draft, finding: Finding, closing: bool) -> None:
    """What this knowledge of the crash means for its incident, its alarm, an action in force."""
    crash = finding.crash
    if stored.alarming and not alarms(crash):
        _calm(writing, stored, incident)
    if alarms(crash) or incident.alarms == 0:
        # The incident tells of its newest crash; one that does not alarm does not speak for failures.
        vars(incident).update(_description(finding))
    incident.changed_at = writing.now
    if alarms(crash):
        _alarm(writing, stored, incident, finding, closing)
    if crash.started is not None and crash.outcome.actionable:
        for action, reason in want_rollback(
            writing.tx, incident.id, stored.unit, crash.started, writing.window, writing.now, crash.owner
        ):
            writing.note(incident, "rollback", f"{reason}: taking that back is asked for", action)
    if closing and stored.closed_at is None:
        stored.closed_at = writing.now
        followed = f", {crash.cascades} followed" if crash.cascades else ""
        writing.note(incident, "crash", f"ended as {crash.outcome} in {crash.phase}{followed}")
        writing.count(stored.host, "crashes_total", {"rule": _rule(finding), "outcome": crash.outcome.value})


def _values(finding: Finding) -> dict[str, Any]:
    crash = finding.crash
    return {
        "signature": _signature(finding),
        "rule": _rule(finding),
        "title": _title(finding, 500),
        "phase": crash.phase,
        "outcome": crash.outcome,
        "severity": finding.severity if alarms(crash) else Severity.INFO,
        "grade": crash.grade,
        "started": crash.started,
        "ended": crash.ended,
        "weight": _weight(crash),
    }


def _title(finding: Finding, limit: int) -> str:
    """What the log put into it is masked: titles stand in lists, timelines and alerts."""
    return notice.masked(plain(finding.title), limit)


def _weight(crash: Crash) -> int:
    """How much is known of it; how the main process went is less than what the manager made of it."""
    told = 0 if crash.end is None else 1 if crash.end.result in ("success", *OWN_WORDS) else 2
    return len(crash.failures) + len(crash.evidence) + (crash.outcome is not Outcome.UNKNOWN) + told


def _rule(finding: Finding) -> str:
    return finding.matches[0].rule if finding.matches else ""


def _signature(finding: Finding) -> str:
    return f"{finding.signature.version}:{finding.signature.key}"


# ---------------------------------------------------------------- incidents


def _incident_of(writing: Writing, finding: Finding, host: str, stored: Draft | None) -> Draft:
    """The incident of this signature, made where there is none."""
    unit, signature = finding.crash.unit or "", _signature(finding)
    found = writing.find(host, unit, signature)
    if found is not None:
        return found
    if stored is not None:
        # The root was seen better while the crash grew: an incident that only this crash has made is renamed.
        old = writing.incident(stored.incident)
        if old.crashes == 1 and old.signature == stored.signature:
            old.signature = signature
            writing.flush()  # so that its old name is free for the next crash of this batch
            return writing.incident(old.id)
    seen = finding.crash.started if finding.crash.started is not None else writing.now
    key = {"host": host, "unit": unit, "signature": signature}
    counts = {"crashes": 0, "alarms": 0, "first_seen": seen, "last_seen": seen, "changed_at": writing.now}
    return writing.make(key | counts | {"state": IncidentState.OPEN, "mute_why": ""} | _description(finding))


def _description(finding: Finding) -> dict[str, Any]:
    crash, cause = finding.crash, finding.crash.root.cause
    frame = cause.frame
    place = f"{frame.file}:{frame.line} in {frame.function}" if frame else ""
    return {
        "severity": finding.severity if alarms(crash) else Severity.INFO,
        "title": _title(finding, 500),
        "rule": _rule(finding),
        "phase": crash.phase,
        "outcome": crash.outcome,
        "exception": plain(cause.exception)[:300],
        "message": notice.masked(plain(cause.message)),
        "place": plain(place)[:500],
        "sglang_version": crash.context.sglang_version,
    }


def _count(writing: Writing, incident: Draft, finding: Finding) -> None:
    crash = finding.crash
    seen = crash.started if crash.started is not None else writing.now
    incident.crashes += 1
    incident.first_seen = min(incident.first_seen, seen)
    incident.last_seen = max(incident.last_seen, seen)
    ranks = f" on {', '.join(crash.ranks[:8])}" if crash.ranks else ""
    writing.note(incident, "crash", f"{_title(finding, 300)}{ranks}")


def _move(writing: Writing, stored: Draft, target: int, finding: Finding) -> Draft:
    """The crash turned out to be of another incident than its first lines said."""
    source = writing.incident(stored.incident)
    if stored.alarming:
        _calm(writing, stored, source)
    source.crashes -= 1
    source.changed_at = writing.now
    stored.incident = target
    writing.flush()  # what follows works on the tables
    writing.tx.execute(_UPDATE, {"incident": target, "row": stored.id})
    forget_empty(writing.tx, source.id, target, writing.now)
    incident = writing.incident(target)
    _count(writing, incident, finding)
    return incident


# ---------------------------------------------------------------- alarms


def _alarm(writing: Writing, stored: Draft, incident: Draft, finding: Finding, closing: bool) -> None:
    """Raise the alarm of this crash, or tell more in the one that waits; never a second one."""
    if not stored.alarming:
        _raise(writing, stored, incident, finding, closing)
    elif stored.notice:
        data = notice.incident_data(incident, finding, writing.base_url)
        due = writing.now if closing else None
        notice.amend(writing.tx, stored.notice, data, now=writing.now, due=due)


def _raise(writing: Writing, stored: Draft, incident: Draft, finding: Finding, closing: bool) -> None:
    now = writing.now
    tried = _tried(writing, stored, incident, finding.crash)
    kind = _kind(incident, now, expected=tried is not None)
    stored.alarming, stored.state_before = True, incident.state
    if tried is not None:
        text = f"it ran without {tried.target}, which {tried.action} was to retire: {incident.state} as before"
        writing.note(incident, "crash", text, tried.action)
    elif incident.state in ENDED_WELL:
        state = IncidentState.REGRESSED if incident.alarms else IncidentState.OPEN
        writing.note(incident, "state", f"came back: {incident.state} is now {state}")
        incident.state = state
    incident.alarms += 1
    muted = incident.mute_until is not None and incident.mute_until > now
    if kind is not None and not muted and stored.notice is None:
        data = notice.incident_data(incident, finding, writing.base_url)
        due = now if closing else now + notice.HOLD
        key = tuple(getattr(stored, name) for name in _KEY)
        stored.notice = notice.put(writing.tx, incident.host, kind, incident.id, data, of=key, now=now, due=due)
        incident.noticed_at = now


def _tried(writing: Writing, stored: Draft, incident: Draft, crash: Crash) -> trial.Trial | None:
    """The retirement that failed by this crash; its own account says what became of it."""
    if crash.started is None or incident.state not in ENDED_WELL:
        return None
    found = trial.trials(writing.tx, stored.host, stored.unit, crash.owner)
    mine = (one for one in found if one.kind == "retire" and one.incident == incident.id)
    return next((one for one in mine if one.covers(crash.started)), None)


def _kind(incident: Draft, now: int, *, expected: bool) -> str | None:
    """Which event tells of one more failure. Repetitions are told ever more rarely, but hourly at least."""
    if incident.alarms == 0:
        return "incident.opened"
    if incident.state in ENDED_WELL and not expected:
        return "incident.regressed"
    count = incident.alarms + 1
    round_number = str(count).rstrip("0") in ("1", "2", "5") or count == 3
    due = incident.noticed_at is None or now - incident.noticed_at >= HOUR
    return "incident.repeated" if round_number or due else None


def _calm(writing: Writing, stored: Draft, incident: Draft) -> None:
    """No failure after all: the alarm is taken back where it has not gone out, and the state it changed with it."""
    if stored.notice is not None and notice.withdraw(writing.tx, stored.notice):
        stored.notice = None
    incident.alarms -= 1
    if incident.state == IncidentState.REGRESSED and stored.state_before in ENDED_WELL:
        incident.state = stored.state_before
        writing.note(incident, "state", f"no failure after all: {stored.state_before} again")
    stored.alarming, stored.state_before = False, None
