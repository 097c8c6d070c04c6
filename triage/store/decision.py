"""What autonomy decided: one row a crash, its line in the timeline, and the alert of a proposal.

Called by `Store`, inside its transaction. A row is written before anything is filed: no crash is acted on twice.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Row, and_, desc, func, insert, select, update

from triage.actionmodel import ActionState, Level
from triage.model import Outcome
from triage.schema import action as actions
from triage.schema import crash as crashes
from triage.schema import decision, wanted_rollback
from triage.store import notice, trial
from triage.store.codec import dump, plain
from triage.store.incident import follow, get, note
from triage.store.metrics import bump
from triage.store.query import crash_row
from triage.store.rows import CrashRow, Decision, Verdict

REPEATED = 86_400 * 1_000_000  # a proposal that was told is not told again so soon
_TOLD = {
    Verdict.PROPOSED: "proposes {}; look: triage apply {}",
    Verdict.WAITING: "waits for a yes to {}: triage guards approve {}",
    Verdict.FILED: "applies by itself {}",
    Verdict.HELD: "does nothing by itself: {}",
}


def undecided(tx: Connection, host: str, since: int) -> tuple[CrashRow, ...]:
    """Crashes of this host that ended after that time as failures, oldest first, of which nothing was decided yet.

    Without those of a retirement's trial: what was to be retired is put back, and nothing else is to be done."""
    known = select(decision.c.crash).where(decision.c.host == host)
    wanted = and_(
        crashes.c.host == host,
        crashes.c.closed_at >= since,
        func.coalesce(crashes.c.ended, crashes.c.started) >= since,
        crashes.c.outcome.in_([outcome for outcome in Outcome if outcome.actionable]),
        crashes.c.id.not_in(known),
    )
    found = (crash_row(row) for row in tx.execute(select(crashes).where(wanted).order_by(crashes.c.id)))
    return tuple(crash for crash in found if not _tried(tx, host, crash))


def _tried(tx: Connection, host: str, crash: CrashRow) -> bool:
    """Also while it may turn out so: the account of the retirement comes a moment later."""
    found = trial.trials(tx, host, crash.unit, crash.document.get("owner")) if crash.started is not None else ()
    return any(one.kind == "retire" and one.may_cover(crash.started or 0) for one in found)


def decide(tx: Connection, host: str, made: Decision, base_url: str) -> None:
    """Write it down; told once where the same was told of the incident within a day."""
    place = and_(decision.c.host == host, decision.c.crash == made.crash)
    values: dict[str, Any] = {
        "incident": made.incident,
        "unit": made.unit,
        "rule": made.rule,
        "remedy": made.remedy,
        "level": made.level,
        "verdict": f"would-{made.verdict}" if made.shadow else made.verdict,
        "text": plain(made.text)[:2000],
        "action": made.action,
        "plan": dump(dict(made.plan)),
        "decided_at": made.decided_at,
    }
    same = and_(
        decision.c.host == host,
        decision.c.crash != made.crash,
        decision.c.decided_at > made.decided_at - REPEATED,
        *(decision.c[name] == values[name] for name in ("incident", "verdict", "remedy")),
    )
    told = made.verdict is Verdict.FILED or tx.execute(select(decision.c.crash).where(same)).first() is None
    if not tx.execute(update(decision).where(place).values(**values)).rowcount:
        tx.execute(insert(decision).values(host=host, crash=made.crash, **values))
    if made.verdict is Verdict.FILING:
        return
    bump(tx, host, "decisions_total", {"level": made.level, "verdict": values["verdict"]})
    if told:
        _tell(tx, host, made, base_url)


def _tell(tx: Connection, host: str, made: Decision, base_url: str) -> None:
    incident = follow(tx, get(tx, made.incident))
    words = _TOLD[made.verdict].format(made.text, incident.id)
    kind, said = ("shadow", f"would have been: {words}") if made.shadow else ("decision", words)
    note(tx, incident.id, made.decided_at, kind, said, action=made.action)
    if made.shadow or made.verdict not in (Verdict.PROPOSED, Verdict.WAITING):
        return
    data = {
        "incident": incident.id,
        "unit": made.unit,
        "host": host,
        "rule": made.rule,
        "remedy": made.remedy,
        "verdict": made.verdict,
        "text": notice.masked(words),
        "url": notice.link(base_url, incident.id),
    }
    now = made.decided_at
    notice.put(tx, host, "action.proposed", incident.id, data, of=(str(made.crash),), now=now, due=now)


def proved(tx: Connection, host: str, rule: str, remedy: str) -> int:
    """How often it was verified on this host and its window passed in silence; also where it was retired since."""
    wanted = and_(
        actions.c.host == host,
        actions.c.rule == rule,
        actions.c.remedy == remedy,
        actions.c.kind == "apply",
        actions.c.state.in_((ActionState.VERIFIED, ActionState.UNDONE)),
        actions.c.watched_at.is_not(None),
        actions.c.name.not_in(select(wanted_rollback.c.action).where(wanted_rollback.c.host == host)),
    )
    return int(tx.execute(select(func.count()).select_from(actions).where(wanted)).scalar_one())


def decisions(tx: Connection, host: str, limit: int, incident: int | None) -> tuple[Decision, ...]:
    """Newest first."""
    wanted = decision.c.host == host
    if incident is not None:
        wanted = and_(wanted, decision.c.incident == incident)
    order = (desc(decision.c.decided_at), desc(decision.c.crash))
    return tuple(_row(row) for row in tx.execute(select(decision).where(wanted).order_by(*order).limit(limit)))


def _row(row: Row[Any]) -> Decision:
    shadow = row.verdict.startswith("would-")
    return Decision(
        crash=row.crash,
        incident=row.incident,
        unit=row.unit,
        rule=row.rule,
        level=Level(row.level),
        verdict=Verdict(row.verdict.removeprefix("would-")),
        remedy=row.remedy,
        text=row.text,
        action=row.action,
        plan=json.loads(row.plan),
        shadow=shadow,
        decided_at=row.decided_at,
    )
