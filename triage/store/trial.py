"""The times in which a unit ran on a change that was taken back, or is not settled yet.

What crashed then speaks against that change and nothing else: root proved it, saw the crash and put the old file back.
Above all a retirement runs without the workaround for a while, and its crash says nothing of a return under it. While
an action is under way nobody knows which it will be: whoever asks then asks again when it is settled. Called by
`action`, `record`, `history`, `proof` and `decision`, inside their transaction. Reads only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, and_, select

from triage.actionmodel import ActionState
from triage.frozen import frozen
from triage.schema import action as actions
from triage.store.guard import OPEN_ENDED

_DEEDS = ("reload", "restart")
_STATES = (*OPEN_ENDED, ActionState.ROLLED_BACK, ActionState.ROLLBACK_FAILED)


@frozen
class Trial:
    """Times are microseconds UTC, by root's clock."""

    action: str
    kind: str
    incident: int
    target: str
    asked: int
    begun: int | None  # the manager was told of the change; None: not as far as its account is known here
    ended: int | None  # None: not settled

    def covers(self, time: int) -> bool:
        """Whether the unit ran on the change then."""
        return self.begun is not None and self.begun < time and (self.ended is None or time <= self.ended)

    def may_cover(self, time: int) -> bool:
        """The same, or it may turn out so: the account comes a moment after the deeds."""
        return self.covers(time) or (self.begun is None and self.ended is None and self.asked < time)


def trials(tx: Connection, host: str, unit: str, owner: int | None = None) -> tuple[Trial, ...]:
    """Of that unit of the system, or of that user; below a folder (--root) nothing runs."""
    wanted = and_(actions.c.host == host, actions.c.unit == unit, actions.c.state.in_(_STATES))
    return tuple(_trial(row) for row in tx.execute(select(actions).where(wanted)) if place(row) == ("", owner))


def covered(found: Iterable[Trial], time: int) -> bool:
    """Whether a crash of that time is, or may turn out to be, one of those changes'."""
    return any(one.may_cover(time) for one in found)


def place(row: Row[Any]) -> tuple[str, int | None]:
    """(folder of --root, user) of an action."""
    request = json.loads(row.request)
    return request.get("root", ""), request.get("owner")


def _trial(row: Row[Any]) -> Trial:
    steps = json.loads(row.steps)
    begun = next((step["time"] for step in steps if step["name"] in _DEEDS), None)
    ended = None if row.state in OPEN_ENDED else row.ended
    return Trial(row.name, row.kind, row.incident, row.target, row.requested_at, begun, ended)
