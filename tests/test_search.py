"""The next value to try lies halfway between what worked and what crashed, and the search ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remedy.fixtures import remedy
from triage.actionmodel import ActionState, Tried, Unit, UnitFile
from triage.model import Edit, Remedy
from triage.search import next_value, searched
from triage.units.edits import DoesNotFit, Draft, draft
from triage.units.unitfile import effective

SEARCH = Edit("search-flag", "--max-running-requests", None, floor=1)


def state(flags: str = "--max-running-requests 64") -> Draft:
    text = f"[Service]\nExecStart=/v/bin/python -m sglang.launch_server --model-path /m {flags}\n"
    return draft(effective(Unit("sglang.service", (UnitFile("/x", text),))))


def held(value: int, *, incident: int = 3, came_back: bool = False) -> Tried:
    edits = (Edit("set-flag", "--max-running-requests", value),)
    return Tried("i3-1", incident, "lower", ActionState.VERIFIED, 0, came_back, None, edits, {})


def worked_out(
    *tried: Tried, crashed: tuple[float, ...] = (), logged: dict[str, str] | None = None, at: Draft | None = None
) -> Remedy:
    return searched(remedy(SEARCH), at or state(), logged or {}, 3, tried, lambda incident, field: crashed)


@pytest.mark.parametrize(
    ("present", "crashed", "worked", "wanted"),
    [
        (64, [], [], 32),
        (64, [64], [60], 62),
        (62, [64, 62], [60], 61),
        (61, [64, 62, 61], [60], 60),
        (60, [64, 62, 61, 60], [60], 30),  # what worked once and crashed later has crashed
        (64, [48], [16, 40, 56], 44),  # 56 lies above what crashed
        (2, [], [], 1),
        (1, [], [], 1),
        (0.9, [], [0.8], 0.85),
        (0.81, [0.9, 0.81], [0.8], 0.8),
    ],
)
def test_halfway(present: float, crashed: list[float], worked: list[float], wanted: float) -> None:
    floor = 1 if present >= 1 else 0.5
    assert next_value(present, crashed, worked, floor) == pytest.approx(wanted)


def test_the_edit_that_root_gets_names_a_value() -> None:
    [edit] = worked_out(held(60)).edits
    assert edit == Edit("set-flag", "--max-running-requests", 62)
    [edit] = worked_out(held(60), held(63, came_back=True), held(10, incident=4)).edits
    assert edit.value == 62
    [edit] = worked_out(held(60), crashed=(64.0, 62.0)).edits
    assert edit.value == 61


def test_the_present_value_comes_from_the_log_where_the_command_leaves_it_out() -> None:
    [edit] = worked_out(held(60), logged={"max_running_requests": "64"}, at=state("--tp 8")).edits
    assert edit.value == 62
    with pytest.raises(DoesNotFit, match="neither the command nor the log"):
        worked_out(held(60), at=state("--tp 8"))


def test_at_the_floor_nothing_is_left() -> None:
    with pytest.raises(DoesNotFit, match="lowest there is to try"):
        worked_out(at=state("--max-running-requests 1"))


@given(st.integers(2, 100_000), st.integers(1, 100_000))
def test_it_finds_the_highest_value_that_works_and_ends(present: int, limit: int) -> None:
    """A server that crashes above `limit`."""
    crashed: list[float] = []
    worked: list[float] = []
    value: float = present
    for _ in range(40):
        if value <= limit:
            worked.append(value)
            break
        crashed.append(value)
        following = next_value(value, crashed, worked, 1)
        assert 1 <= following < value
        value = following
    assert value <= limit
