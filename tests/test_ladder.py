"""Which remedy is taken where nobody names one, what is said of those above it, and when none is."""

from __future__ import annotations

from typing import Any

import pytest

from triage.ladder import check_evidence, first_plan
from triage.model import Plan, Refused
from triage.units.edits import DoesNotFit

SPEED = "the mem fraction 1.15 is outside the pattern"


def rung(name: str, *, by_hand: bool = False, confirmed: bool = True, blocked: str | None = None) -> dict[str, Any]:
    title = f"Do {name}"
    applicable = not by_hand and not blocked
    return {"id": name, "title": title, "applicable": applicable, "confirmed": confirmed, "blocked_by": blocked}


class Planner:
    """Plans what it has no reason against."""

    def __init__(self, **reasons: str) -> None:
        self.reasons = reasons

    def __call__(self, remedy: str) -> Plan:
        if remedy in self.reasons:
            raise Refused(self.reasons[remedy])
        return Plan("u", 1, "r", remedy, "", "", (), "", "", "", "", "", (), ())


def test_the_first_that_fits_is_taken() -> None:
    plan, passed = first_plan([rung("one", confirmed=False), rung("two")], Planner())
    assert (plan.remedy, passed) == ("one", ())


def test_what_was_passed_over_is_told_with_its_reason() -> None:
    ladder = [rung("upgrade", by_hand=True), rung("raise"), rung("cut", blocked="no such flag"), rung("stop")]
    plan, passed = first_plan(ladder, Planner(**{"raise": SPEED}))
    assert plan.remedy == "stop"
    assert passed == ("upgrade is by hand: Do upgrade", f"raise: {SPEED}", "cut does not fit here: no such flag")


@pytest.mark.parametrize(
    ("first", "said"),
    [(rung("raise", by_hand=True), "the first way is by hand: Do raise"), (rung("raise"), f"raise: {SPEED}")],
)
def test_an_unconfirmed_remedy_below_a_better_one_has_to_be_named(first: dict[str, Any], said: str) -> None:
    ladder = [first, rung("slow", confirmed=False), rung("up", by_hand=True), rung("stop")]
    with pytest.raises(Refused, match="to take another name it with --remedy ID: slow, stop") as refused:
        first_plan(ladder, Planner(**{"raise": SPEED}))
    assert said in str(refused.value)


def test_a_refusal_of_one_unconfirmed_remedy_leads_to_the_next() -> None:
    plan, passed = first_plan([rung("one", confirmed=False), rung("two", confirmed=False)], Planner(one=SPEED))
    assert (plan.remedy, passed) == ("two", (f"one: {SPEED}",))


def test_a_confirmed_remedy_with_nothing_to_do_in_this_unit_stands_in_nobodys_way() -> None:
    def planner(remedy: str) -> Plan:
        if remedy == "cap":
            raise DoesNotFit("cap changes nothing in u: --budget is not in the command")
        return Planner()(remedy)

    plan, passed = first_plan([rung("cap"), rung("next", confirmed=False)], planner)
    assert (plan.remedy, passed) == ("next", ("cap changes nothing in u: --budget is not in the command",))


def test_by_hand_is_said_once() -> None:
    ladder = [rung("upgrade", by_hand=True) | {"title": "By hand: move to 0.5.13"}, rung("stop")]
    assert first_plan(ladder, Planner())[1] == ("upgrade is by hand: move to 0.5.13",)


def test_where_nothing_fits_all_reasons_are_told() -> None:
    with pytest.raises(Refused, match=f"one: {SPEED}; two is by hand: Do two; three: taken"):
        first_plan([rung("one"), rung("two", by_hand=True), rung("three")], Planner(one=SPEED, three="taken"))
    with pytest.raises(Refused, match=r"^changed by hand$"):
        first_plan([rung("one"), rung("two")], Planner(one="changed by hand", two="changed by hand"))
    with pytest.raises(Refused, match="undiagnosed"):
        first_plan([], Planner())


@pytest.mark.parametrize("grade", ["cut", "suppressed", "rotated", "mixed"])
def test_poor_evidence_takes_no_remedy_that_nobody_named(grade: str) -> None:
    check_evidence({"evidence": {"grade": "complete"}})
    with pytest.raises(Refused, match=f"the evidence is {grade}: .*--remedy ID"):
        check_evidence({"evidence": {"grade": grade}})
