"""Which way out is taken where nobody names one.

In: the remedies of a crash's best match, in the rule's order, and what plans one of them. Out: the plan of the first
that fits, and why those above it were passed over. Called by `triage apply` and by the dashboard, so that both choose
alike. A remedy that nobody has seen cure this crash is never taken by itself while a surer or simpler way stands above.
What failed on this unit is not offered again to the same release, and what another crash needed is not turned round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from triage.actionmodel import ActionState, Plan, Tried
from triage.model import Busy, Pending, Refused
from triage.units.dropin import NOT_SET
from triage.units.edits import DoesNotFit

_REMEMBERED = 7 * 86_400 * 1_000_000  # microseconds for which what was taken back still counts against its opposite
_STANDING = (ActionState.VERIFIED, ActionState.UNVERIFIED, ActionState.ROLLBACK_FAILED)


def check_evidence(document: Mapping[str, Any]) -> None:
    """Raise Refused where the evidence is too poor to take a remedy that nobody named."""
    grade = document.get("evidence", {}).get("grade", "complete")
    if grade != "complete":
        raise Refused(f"the evidence is {grade}: read it, then name the remedy to take with --remedy ID")


def first_plan(ladder: Sequence[Mapping[str, Any]], plan: Callable[[str], Plan]) -> tuple[Plan, tuple[str, ...]]:
    """`plan` raises Refused where a remedy does not fit the unit or the policy: the next one is looked at then.

    Raises Refused with all the reasons where none is taken, Pending where that cannot be told yet, Busy while the unit
    is acted on."""
    passed: list[str] = []
    refusals: set[str] = set()
    better = False
    for at, rung in enumerate(ladder):
        if rung["blocked_by"]:
            passed.append(f"{rung['id']} does not fit here: {rung['blocked_by']}")
        elif not rung["applicable"]:
            passed.append(f"{rung['id']} is by hand: {_plain(rung['title'])}")
            better = True
        elif better and not rung["confirmed"]:
            raise Refused(_ask_for_a_name(ladder, at, passed))
        else:
            try:
                found = plan(rung["id"])
                if not found.failed_before:
                    return found, tuple(passed)
                passed.append(f"{rung['id']} does not fit here: {found.failed_before}")
            except (Busy, Pending):  # no reason against it: whoever asked asks again
                raise
            except Refused as reason:
                refusals.add(str(reason))
                passed.append(str(reason) if str(reason).startswith(rung["id"]) else f"{rung['id']}: {reason}")
                # What has nothing to do in this unit (a cap on a flag that it lacks) is no way that stands above.
                better = better or (rung["confirmed"] and not isinstance(reason, DoesNotFit))
    if len(refusals) == 1:  # one reason for all, such as a file that was changed by hand
        raise Refused(refusals.pop())
    raise Refused("; ".join(passed) or "there is no remedy, the crash is undiagnosed")


def known_bad(
    ladder: Sequence[Mapping[str, Any]], tried: Iterable[Tried], incident: int, release: str | None
) -> list[Mapping[str, Any]]:
    """The ladder with those rungs blocked that failed against this incident on its unit, under this release.

    A search goes on where its last value failed: it ends by itself."""
    last: dict[str, Tried] = {}
    for attempt in tried:  # newest first
        if attempt.incident == incident:
            last.setdefault(attempt.remedy, attempt)
    rungs = []
    for rung in ladder:
        one = last.get(rung["id"])
        searching = any(edit["op"] == "search-flag" for edit in rung.get("edits") or ())
        same = one is not None and (release is None or one.release in (None, release))
        if one is not None and one.failed and same and not searching and not rung["blocked_by"]:
            why = f"it was tried here as {one.action} and {_how(one)}"
            rung = {**rung, "blocked_by": why, "applicable": False}
        rungs.append(rung)
    return rungs


def failed_before(plan: Plan, tried: Iterable[Tried], release: str | None) -> str:
    """Which action made the same change against the same incident and failed, under whatever name; '' for none.

    Two rungs may be one change: a flag that was renamed has a rung for each name, and each is spelled for this server.
    """
    for one in tried:  # newest first
        same = all(one.measured.get(f"changed {name}") == change for name, change in plan.changes)
        if plan.changes and same and one.incident == plan.incident:
            known = release is None or one.release in (None, release)
            return f"the same change was tried here as {one.action} and {_how(one)}" if one.failed and known else ""
    return ""


def _how(one: Tried) -> str:
    return "the crash came back" if one.came_back else "its proof failed"


def opposed(plan: Plan, tried: Iterable[Tried]) -> str:
    """Why this would turn round what another incident of the unit needed; '' where it would not."""
    for one in tried:
        recent = one.state is ActionState.UNDONE and plan.time - one.requested_at < _REMEMBERED
        if one.incident == plan.incident or not (one.state in _STANDING or recent):
            continue
        for name, change in plan.changes:
            before = one.measured.get(f"changed {name}", "")
            if before and _opposite(before, change):
                return (
                    f"{one.action} changed {name} ({before}) against incident {one.incident}, this would turn it round "
                    f"({change}): two crashes want opposite things of this unit, stop and decide by hand"
                )
    return ""


def _opposite(first: str, second: str) -> bool:
    ways = [_way(*change.split(" -> ", 1)) for change in (first, second)]
    if all(ways):
        return ways[0] != ways[1]
    return second.rpartition(" -> ")[2] == first.partition(" -> ")[0]


def _way(before: str, after: str) -> int:
    """1 up, -1 down; for a switch 1 on, -1 off; 0 where it is no question of more or less."""
    if NOT_SET in (before, after):
        return 0
    try:
        return (float(after) > float(before)) - (float(after) < float(before))
    except ValueError:
        return 0


def _ask_for_a_name(ladder: Sequence[Mapping[str, Any]], at: int, passed: Sequence[str]) -> str:
    first = ladder[0]
    by_hand = not first["applicable"] and not first["blocked_by"]
    why = "; ".join([f"the first way is by hand: {_plain(first['title'])}", *passed[1:]] if by_hand else passed)
    ids = ", ".join(rung["id"] for rung in ladder[at:] if rung["applicable"])
    return f"{why}; to take another name it with --remedy ID: {ids}"


def _plain(title: str) -> str:
    """Titles of rungs for people begin so already."""
    return title.removeprefix("By hand: ").removeprefix("By hand, ")
