"""What one rule would change: crashes that were seen before come in, the differences that it makes go out.

Called by `triage rules backtest`. Each crash is matched twice, by the rules in force without that one (or with its
present version) and with it. Pure: it reads no log and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from triage.frozen import frozen
from triage.model import Crash, Outcome
from triage.rulebase.rulebook import Rulebook


class Change(StrEnum):
    NEW = "new"  # undiagnosed before, this rule's now
    TAKEN = "taken"  # another rule's before
    KEPT = "kept"  # this rule's before and after
    BESIDE = "beside"  # this rule matches too, another one wins
    LOST = "lost"  # this rule's present version matches, the new one does not
    FALSE_ALARM = "false alarm"  # it matches where no server failed


@frozen
class Difference:
    change: Change
    crash: Crash
    before: str | None  # the rule that wins without it
    after: str | None


def differences(rule: str, before: Rulebook, after: Rulebook, crashes: Iterable[Crash]) -> Iterator[Difference]:
    """Only crashes that the rule matches, or matched before."""
    for crash in crashes:
        old, new = ([match.rule for match in book.match(crash)] for book in (before, after))
        change = _change(rule, old, new, crash)
        if change is not None:
            yield Difference(change, crash, old[0] if old else None, new[0] if new else None)


def _change(rule: str, old: list[str], new: list[str], crash: Crash) -> Change | None:
    if rule not in new:
        return Change.LOST if rule in old else None
    if crash.outcome in (Outcome.REQUEST_ERROR, Outcome.RECOVERED):
        return Change.FALSE_ALARM
    if new[0] != rule:
        return Change.BESIDE
    if not old:
        return Change.NEW
    return Change.KEPT if old[0] == rule else Change.TAKEN
