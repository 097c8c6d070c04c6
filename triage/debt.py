"""The debt list: workarounds in force, what they cost, and whether the condition on which they may go is met.

In: actions in force, the rules, what people set, the release that is installed. Out: `Debt` values for command line and
pages; for the worker a round that proposes what may go and closes what was removed by hand. Taking one back is nobody's
here: a person says so, and root proves it. Called by `worker` (through `cli`), `cli`, `dashboard`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from triage.actionmodel import ActionState
from triage.frozen import frozen
from triage.model import TriageError
from triage.rulebase.releases import release_key
from triage.rulebase.rule import Rule
from triage.store import ActionRow, Retirement, Store

SECOND = 1_000_000
EVERY = 30 * SECOND  # microseconds between two looks at the units' files
UNKNOWN = "unknown"


class Hands(Protocol):
    """What knows this machine's units; `triage.request.Requester` is it."""

    def release(self, unit: str, owner: int | None = None) -> str | None: ...
    def removed_by_hand(self, action: ActionRow) -> bool: ...
    def rollback(self, action: ActionRow, name: str, who: str, *, reason: str = "") -> None: ...


@frozen
class Debt:
    """One workaround in force."""

    action: ActionRow
    condition: str  # on which it may go, in words; '' where nobody has said one
    release: str | None  # of SGLang, as installed for its unit
    met: str  # why it may go now; '' while it may not
    still_needed_on: tuple[str, ...]  # releases on which the crash came back without it


def debt(
    row: ActionRow, rule: Rule | None, known: Retirement, release: str | None, now: int, crashed_on: str | None = None
) -> Debt:
    """Worked out from what is known; looks nowhere. `crashed_on`: that of the crash it was to cure, where told."""
    mended = rule.fixed_in if rule else None
    if mended and _reached(crashed_on, mended):
        mended = None  # so the mend was none here
    conditions = (
        f"mended in {mended}" if mended else "",
        f"release {known.release}" if known.release else "",
        f"{_day(known.due)}" if known.due is not None else "",
    )
    met = ""
    if (release or UNKNOWN) not in known.failed:
        if known.release and _reached(release, known.release):
            met = f"{release} is installed, it was to stay until {known.release}"
        elif mended and _reached(release, mended):
            met = f"{release} is installed, and {mended} has it mended"
        elif known.due is not None and now >= known.due:
            met = f"it was to stay until {_day(known.due)}"
    return Debt(row, " or ".join(filter(None, conditions)), release, met, known.failed)


def debts(store: Store, hands: Hands, rule: Callable[[str], Rule | None], unit: str | None, now: int) -> list[Debt]:
    """All of this host, oldest first. Of files below a folder (--root) and of other hosts no release is asked."""
    known = store.retirements()
    found = []
    for row in store.workarounds(unit):
        here = store.is_here(row.host) and not row.root
        release = None
        if here:
            release = hands.release(row.unit) if row.owner is None else hands.release(row.unit, row.owner)
        own = known.get(row.name, Retirement(row.name))
        found.append(debt(row, rule(row.rule), own, release, now, store.crashed_on(row)))
    return found


class Collector:
    """One for a worker: proposes what may go, notices what was removed by hand."""

    def __init__(self, store: Store, hands: Hands, rule: Callable[[str], Rule | None]) -> None:
        self._store = store
        self._hands = hands
        self._rule = rule
        self._looked_at = 0

    def round(self, now: int) -> int:
        """Gives how many were proposed or closed. Looks at the files only every half minute."""
        if now - self._looked_at < EVERY:
            return 0
        self._looked_at = now
        known = self._store.retirements()
        done = 0
        for one in debts(self._store, self._hands, self._rule, None, now):
            if one.action.root or not self._store.is_here(one.action.host):
                continue
            if self._removed(one.action):
                done += 1
            elif one.met and one.action.state is not ActionState.ROLLBACK_FAILED:
                done += self._propose(one, known.get(one.action.name), now)
        return done

    def _propose(self, one: Debt, known: Retirement | None, now: int) -> int:
        release = one.release or UNKNOWN
        if known is not None and known.proposed_at is not None and known.proposed_for == release:
            return 0
        self._store.propose_retirement(one.action, release, one.met, now)
        return 1

    def _removed(self, row: ActionRow) -> bool:
        """Root closes it: a rollback of what is gone touches nothing, and says so."""
        try:
            if not self._hands.removed_by_hand(row):
                return False
            self._hands.rollback(row, f"{row.name[:56]}-byhand", "triage", reason="its drop-in was removed by hand")
        except TriageError:  # something else is under way, or the unit cannot be read: look again later
            return False
        return True


def _reached(release: str | None, wanted: str) -> bool:
    here, there = release_key(release or ""), release_key(wanted)
    return here is not None and there is not None and here >= there


def _day(due: int | None) -> str:
    return "" if due is None else datetime.fromtimestamp(due / SECOND, UTC).strftime("%Y-%m-%d %H:%MZ")
