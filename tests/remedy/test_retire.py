"""Retiring: a rollback with the proof of an apply. What fails it goes back in force, byte for byte, after any kill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.remedy.machine import USELESS, Machine
from tests.remedy.test_kill import every_kill
from triage.actions import wire
from triage.model import ActionState, Refused, Request
from triage.units.dropin import standing


def retire_request(machine: Machine, target: str, action: str) -> Request:
    return replace(machine.rollback_request(target, action), kind="retire")


def applied(folder: Path) -> Machine:
    """The cure in force, and a second edit on top that cures nothing and costs something."""
    machine = Machine(folder)
    machine.manager.crash()
    machine.carry(machine.apply_request())
    machine.carry(machine.apply_request(USELESS, action="i3-2"))
    return machine


def test_what_is_needed_no_more_goes_and_the_rest_stays(tmp_path: Path) -> None:
    machine = applied(tmp_path)
    record = machine.carry(retire_request(machine, "i3-2", "i3-3"))
    assert record.result.state is ActionState.UNDONE
    assert "is retired" in record.result.text
    assert [step.name for step in record.result.steps if step.name == "probe"] == ["probe"]
    assert [item.action for item in standing(machine.ledger.results(), record.request.unit).actions] == ["i3-1"]
    assert "--max-running-requests" not in machine.drop_in.read_text()


def test_what_is_still_needed_goes_back(tmp_path: Path) -> None:
    machine = applied(tmp_path)
    before, starts = machine.files(), machine.manager.facts()["starts"]
    record = machine.carry(retire_request(machine, "i3-1", "i3-3"))
    assert record.result.state is ActionState.ROLLED_BACK
    assert machine.files() == before
    assert machine.manager.facts()["starts"] == starts + 2
    held = standing(machine.ledger.results(), record.request.unit).actions
    assert [item.action for item in held] == ["i3-1", "i3-2"]
    target = machine.ledger.result("i3-1")
    assert target is not None
    assert target.state is ActionState.VERIFIED


def test_a_stopped_unit_proves_nothing(tmp_path: Path) -> None:
    machine = applied(tmp_path)
    before = machine.files()
    machine.manager.stop()
    record = machine.carry(retire_request(machine, "i3-2", "i3-3"))
    assert record.result.state is ActionState.REFUSED
    assert "is stopped" in record.result.text
    assert machine.files() == before


def test_removed_by_hand_is_closed_and_nothing_touched(tmp_path: Path) -> None:
    machine = applied(tmp_path)
    machine.drop_in.unlink()
    starts = machine.manager.facts()["starts"]
    record = machine.carry(machine.rollback_request("i3-1", "i3-1-byhand"))
    assert record.result.state is ActionState.UNDONE
    assert "removed by hand" in record.result.text
    assert machine.manager.facts()["starts"] == starts
    assert standing(machine.ledger.results(), record.request.unit).actions == ()


def test_still_needed_after_any_kill(tmp_path: Path) -> None:
    with_cure = Machine(tmp_path)
    with_cure.carry(with_cure.apply_request())
    expected = with_cure.files()

    def prepare(machine: Machine) -> Request:
        machine.carry(machine.apply_request())
        return retire_request(machine, "i3-1", "i3-2")

    def check(machine: Machine) -> None:
        result = machine.ledger.result("i3-2")
        assert result is not None
        assert result.state is ActionState.ROLLED_BACK
        assert machine.files() == expected
        assert machine.manager.facts()["starts"] == 3

    assert every_kill(tmp_path, prepare, check) > 40


def test_the_wire_takes_it_with_its_target_only(tmp_path: Path) -> None:
    machine = applied(tmp_path)
    request = retire_request(machine, "i3-2", "i3-3")
    assert wire.load_request(wire.dump_request(request)) == request
    with pytest.raises(Refused):
        wire.load_request(wire.dump_request(replace(request, target=None)))
    with pytest.raises(Refused):
        wire.load_request(wire.dump_request(replace(request, kind="remove")))
    again = replace(Machine(tmp_path / "other").apply_request(action="i3-4"), target="i3-3")
    assert wire.load_request(wire.dump_request(again)) == again
