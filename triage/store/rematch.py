"""Incidents that no rule knew, and the rule that knows one now.

Called by `Store` for `triage.rematch`, inside its transaction. A crash that a rule named already is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, desc, select, update

from triage.model import Finding, Severity
from triage.schema import crash as crashes
from triage.schema import incident as incidents
from triage.store import notice
from triage.store.codec import pack, plain
from triage.store.incident import note
from triage.store.query import UNSETTLED

_UNKNOWN = ""


def undiagnosed(tx: Connection, limit: int) -> tuple[int, ...]:
    """Numbers of open incidents without a rule, the newest first; of all hosts, whose journals may be read here."""
    wanted = (
        incidents.c.rule == _UNKNOWN,
        incidents.c.merged_into.is_(None),
        incidents.c.state.in_(UNSETTLED),
    )
    found = select(incidents.c.id).where(*wanted).order_by(desc(incidents.c.last_seen), desc(incidents.c.id))
    return tuple(tx.execute(found.limit(limit)).scalars())


def diagnosed(tx: Connection, number: int, finding: Finding, document: Mapping[str, Any], now: int) -> bool:
    """What the crash of that number turns out to be; its incident says so too. False where a rule was there first."""
    row = tx.execute(
        select(crashes.c.incident, crashes.c.alarming, crashes.c.rule).where(crashes.c.id == number)
    ).first()
    if row is None or row.rule != _UNKNOWN:
        return False
    title = notice.masked(plain(finding.title), 500)
    rule = finding.matches[0].rule
    named = {"rule": rule, "title": title, "severity": finding.severity if row.alarming else Severity.INFO}
    tx.execute(update(crashes).where(crashes.c.id == number).values(**named, document=pack(document)))
    known = (incidents.c.id == row.incident, incidents.c.rule == _UNKNOWN)
    if tx.execute(update(incidents).where(*known).values(**named, changed_at=now)).rowcount:
        note(tx, row.incident, now, "crash", f"rules changed, and one knows it now: {title} ({rule})")
    return True
