"""Which way out is taken where nobody names one.

In: the remedies of a crash's best match, in the rule's order, and what plans one of them. Out: the plan of the first
that fits, and why those above it were passed over. Called by `triage apply` and by the dashboard, so that both choose
alike. A remedy that nobody has seen cure this crash is never taken by itself while a surer or simpler way stands above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from triage.model import Plan, Refused
from triage.units.edits import DoesNotFit


def check_evidence(document: Mapping[str, Any]) -> None:
    """Raise Refused where the evidence is too poor to take a remedy that nobody named."""
    grade = document.get("evidence", {}).get("grade", "complete")
    if grade != "complete":
        raise Refused(f"the evidence is {grade}: read it, then name the remedy to take with --remedy ID")


def first_plan(ladder: Sequence[Mapping[str, Any]], plan: Callable[[str], Plan]) -> tuple[Plan, tuple[str, ...]]:
    """`plan` raises Refused where a remedy does not fit the unit or the policy: the next one is looked at then.

    Raises Refused with all the reasons where none is taken."""
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
                return plan(rung["id"]), tuple(passed)
            except Refused as reason:
                refusals.add(str(reason))
                passed.append(str(reason) if str(reason).startswith(rung["id"]) else f"{rung['id']}: {reason}")
                # What has nothing to do in this unit (a cap on a flag that it lacks) is no way that stands above.
                better = better or (rung["confirmed"] and not isinstance(reason, DoesNotFit))
    if len(refusals) == 1:  # one reason for all, such as a file that was changed by hand
        raise Refused(refusals.pop())
    raise Refused("; ".join(passed) or "there is no remedy, the crash is undiagnosed")


def _ask_for_a_name(ladder: Sequence[Mapping[str, Any]], at: int, passed: Sequence[str]) -> str:
    first = ladder[0]
    by_hand = not first["applicable"] and not first["blocked_by"]
    why = "; ".join([f"the first way is by hand: {_plain(first['title'])}", *passed[1:]] if by_hand else passed)
    ids = ", ".join(rung["id"] for rung in ladder[at:] if rung["applicable"])
    return f"{why}; to take another name it with --remedy ID: {ids}"


def _plain(title: str) -> str:
    """Titles of rungs for people begin so already."""
    return title.removeprefix("By hand: ")
