"""Which remedy is taken where nobody names one, what is said of those above it, and when none is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from triage.actionmodel import ActionState, Plan, Tried
from triage.ladder import check_evidence, failed_before, first_plan, known_bad, opposed
from triage.model import Refused
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


def attempt(remedy: str, state: ActionState = ActionState.VERIFIED, **more: Any) -> Tried:
    known: dict[str, Any] = {"incident": 3, "requested_at": 0, "came_back": False, "release": "0.5.12", "edits": ()}
    return Tried(**{"action": "i3-1", "remedy": remedy, "state": state, "measured": {}, **known, **more})


def offered(tried: list[Tried], release: str | None = "0.5.12", incident: int = 3) -> str:
    ladder = known_bad([rung("one"), rung("two", confirmed=False), rung("three")], tried, incident, release)
    return first_plan(ladder, Planner())[0].remedy


def test_what_failed_on_this_unit_is_not_offered_again() -> None:
    assert offered([]) == "one"
    assert offered([attempt("one")]) == "one"
    assert offered([attempt("one", came_back=True)]) == "two"
    assert offered([attempt("one", ActionState.ROLLED_BACK)]) == "two"
    assert offered([attempt("one", ActionState.ROLLED_BACK), attempt("two", ActionState.ROLLED_BACK)]) == "three"


def test_a_failure_counts_for_its_incident_and_release() -> None:
    bad = attempt("one", ActionState.ROLLED_BACK)
    assert offered([bad], release="0.5.13") == "one"
    assert offered([bad], release=None) == "two"
    assert offered([bad], incident=4) == "one"
    assert offered([attempt("one"), bad]) == "one"  # newest first: it has held since


def test_it_is_told_why_a_rung_is_passed_over() -> None:
    ladder = known_bad([rung("one"), rung("two")], [attempt("one", came_back=True)], 3, "0.5.12")
    assert first_plan(ladder, Planner())[1] == (
        "one does not fit here: it was tried here as i3-1 and the crash came back",
    )


def test_a_search_goes_on_where_its_last_value_failed() -> None:
    searching = rung("one") | {"edits": [{"op": "search-flag", "name": "--x"}]}
    [same] = known_bad([searching], [attempt("one", came_back=True)], 3, "0.5.12")
    assert not same["blocked_by"]


GRAPHS = "--cuda-graph-max-bs"
SMALLER = {f"changed {GRAPHS}": "not set -> 16"}


@pytest.mark.parametrize(
    ("tried", "told"),
    [
        ([attempt("max-bs", ActionState.ROLLED_BACK, measured=SMALLER)], True),
        ([attempt("max-bs", measured=SMALLER, came_back=True)], True),
        ([attempt("max-bs", ActionState.ROLLED_BACK, measured=SMALLER, release="0.5.11")], False),
        ([attempt("max-bs", ActionState.ROLLED_BACK, measured=SMALLER, incident=4)], False),
        ([attempt("max-bs", ActionState.ROLLED_BACK, measured={f"changed {GRAPHS}": "32 -> 16"})], False),
        ([attempt("max-bs", measured=SMALLER), attempt("max-bs", came_back=True, measured=SMALLER)], False),
        ([attempt("other", ActionState.ROLLED_BACK)], False),
    ],
)
def test_the_same_change_under_another_name_is_not_tried_again(tried: list[Tried], told: bool) -> None:
    plan = replace(Planner()("decode"), incident=3, changes=((GRAPHS, "not set -> 16"),))
    why = failed_before(plan, tried, "0.5.12")
    assert ("tried here as i3-1" in why) == told
    ladder = [rung("decode"), rung("lower", confirmed=False)]
    taken, passed = first_plan(
        ladder, lambda one: replace(plan, remedy=one, failed_before=why if one == "decode" else "")
    )
    assert taken.remedy == ("lower" if told else "decode")
    assert passed == ((f"decode does not fit here: {why}",) if told else ())


FRACTION = "--mem-fraction-static"


@pytest.mark.parametrize(
    ("before", "now", "stops"),
    [
        ("0.9 -> 0.81", "0.81 -> 0.86", True),
        ("0.81 -> 0.86", "0.86 -> 0.81", True),
        ("0.9 -> 0.81", "0.81 -> 0.76", False),
        ("triton -> fa3", "fa3 -> triton", True),
        ("triton -> fa3", "fa3 -> flashinfer", False),
        ("not set -> set", "set -> not set", True),
        ("fp8 -> not set", "not set -> fp8", True),
        ("not set -> 64", "64 -> not set", True),
        ("not set -> 64", "64 -> 32", False),
    ],
)
def test_what_another_crash_needed_is_not_turned_round(before: str, now: str, stops: bool) -> None:
    plan = replace(Planner()("one"), incident=5, changes=((FRACTION, now),), time=1)
    why = opposed(plan, [attempt("raise", measured={f"changed {FRACTION}": before})])
    assert bool(why) == stops
    if stops:
        assert f"i3-1 changed {FRACTION} ({before}) against incident 3" in why
        assert "stop and decide by hand" in why


def test_only_what_stands_or_was_taken_back_lately_has_a_say() -> None:
    plan = replace(Planner()("one"), incident=5, changes=((FRACTION, "0.81 -> 0.9"),), time=30 * 86_400_000_000)
    lowered = attempt("lower", measured={f"changed {FRACTION}": "0.9 -> 0.81"})
    assert opposed(plan, [lowered])
    assert not opposed(replace(plan, incident=3), [lowered])  # its own incident may try the other way
    assert not opposed(plan, [replace(lowered, state=ActionState.ROLLED_BACK)])
    undone = replace(lowered, state=ActionState.UNDONE, requested_at=29 * 86_400_000_000)
    assert opposed(plan, [undone])
    assert not opposed(plan, [replace(undone, requested_at=0)])
