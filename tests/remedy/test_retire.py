"""Retiring: a rollback with the proof of an apply. What fails it goes back in force, byte for byte, after any kill."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.remedy.machine import NOW, UNIT, USELESS, Machine, as_request
from tests.remedy.test_kill import every_kill
from triage.actionmodel import ActionState, Request, Unit
from triage.actions import wire
from triage.model import Edit, Refused
from triage.remedy import plan_rollback
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


def without_unit(machine: Machine, *, drop_in: bool) -> Request:
    """The request to undo i3-1, when the unit's file was removed, and the drop-in too unless it is left."""
    (machine.folder / "etc/systemd/system" / UNIT).unlink()
    if not drop_in:
        shutil.rmtree(machine.drop_in.parent)
    known = standing(machine.ledger.results(), UNIT)
    return as_request(plan_rollback(Unit(UNIT, ()), known, "i3-1", action="i3-3", now=NOW), "rollback", "i3-1")


@pytest.mark.parametrize("left", [True, False])
def test_a_unit_that_is_gone_leaves_no_debt(tmp_path: Path, left: bool) -> None:
    machine = applied(tmp_path)
    request = without_unit(machine, drop_in=left)
    starts = machine.manager.facts()["starts"]
    record = machine.carry(request)
    assert record.result.state is ActionState.UNDONE
    assert ("was removed: i3-1, i3-2 closed" if left else "was gone too: i3-1, i3-2 closed") in record.result.text
    assert not machine.drop_in.parent.exists()
    assert machine.manager.facts()["starts"] == starts
    assert standing(machine.ledger.results(), UNIT).actions == ()
    states = [result.state for result in machine.ledger.results()]
    assert states == [ActionState.UNDONE] * 3


def test_a_unit_that_is_gone_is_neither_changed_nor_retired(tmp_path: Path) -> None:
    machine = applied(tmp_path)
    planned = machine.apply_request(Edit("set-env", "SGLANG_X", "1"), action="i3-4")
    request = without_unit(machine, drop_in=True)
    for other in (planned, replace(request, action="i3-5", kind="retire"), replace(request, action="i3-6", target="x")):
        assert machine.carry(other).result.state is ActionState.REFUSED
    machine.drop_in.write_text("# mine\n")
    record = machine.carry(request)
    assert record.result.state is ActionState.REFUSED
    assert f"rm /etc/systemd/system/{UNIT}.d/zzz-triage.conf" in record.result.text
    assert machine.drop_in.read_text() == "# mine\n"


def test_a_unit_that_is_gone_leaves_no_debt_after_any_kill(tmp_path: Path) -> None:
    def prepare(machine: Machine) -> Request:
        machine.carry(machine.apply_request())
        return without_unit(machine, drop_in=True)

    def check(machine: Machine) -> None:
        assert not machine.drop_in.parent.exists()
        assert standing(machine.ledger.results(), UNIT).actions == ()

    assert every_kill(tmp_path, prepare, check) > 10


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
