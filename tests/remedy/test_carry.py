"""One request carried out: cured, not cured, refused, undone; files are the new ones or the old ones, byte for byte."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.remedy.fixtures import DISABLE_GRAPH
from tests.remedy.machine import NOW, UNIT, USELESS, Machine
from triage.actionmodel import ActionResult, ActionState, Request, StepState
from triage.actions.policy import Policy
from triage.actions.probe import Answer
from triage.actions.readiness import Limits, Proof
from triage.model import Damaged, Edit, Refused
from triage.units.dropin import standing

CAP = Edit("cap-flag", "--speculative-dflash-block-size", 4)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def step_names(machine: Machine, action: str) -> list[str]:
    result = machine.ledger.result(action)
    assert result is not None
    return [step.name for step in result.steps]


def test_a_cure_is_written_restarted_and_proved(machine: Machine) -> None:
    record = machine.carry(machine.apply_request())
    assert record.result.state is ActionState.VERIFIED
    assert "--disable-cuda-graph" in machine.drop_in.read_text()
    assert machine.manager.facts()["starts"] == 1
    assert machine.ledger.claims() == ()
    assert step_names(machine, "i3-1") == [
        "claim", "policy", "read", "render", "stage", "leftovers", "baseline", "write", "reload", "compare",
        "restart", "ready", "probe",
    ]  # fmt: skip
    assert all(step.state is StepState.DONE for step in record.result.steps)
    assert record.result.measured["ready_seconds"] == "3.0"


def test_what_does_not_cure_is_taken_back(machine: Machine) -> None:
    before = machine.files()
    record = machine.carry(machine.apply_request(USELESS))
    assert record.result.state is ActionState.ROLLED_BACK
    assert machine.files() == before
    assert machine.manager.facts()["starts"] == 2
    assert "the server went away" in record.result.text
    assert "old file is back" in record.result.text
    assert "--max-running-requests" not in machine.manager.facts()["command"][0]


@pytest.mark.parametrize(
    ("loads", "state", "said"),
    [
        (90, ActionState.VERIFIED, "ready after 90 s"),
        (290, ActionState.VERIFIED, "ready after 290 s"),
        (400, ActionState.ROLLED_BACK, "not ready within 300 s"),
    ],
)
def test_a_server_that_loads_for_long_is_waited_for_up_to_the_limit(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, loads: int, state: ActionState, said: str
) -> None:
    clock, started, restart = [0.0], [0.0], machine.manager.restart

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def start(name: str) -> None:
        started[0] = clock[0]
        restart(name)

    before = machine.files()
    machine.manager.crash()
    monkeypatch.setattr(machine.manager, "restart", start)
    up = "triage.actions.readiness.healthy"
    monkeypatch.setattr(up, lambda at: (clock[0] - started[0] >= loads, "loading"))
    monkeypatch.setattr("triage.actions.readiness.probe", lambda *_: Answer(True, "answered 'ready'", 0.4))
    proof = Proof(machine.manager, Limits(ready=300), lambda: clock[0], sleep)
    request = machine.apply_request()
    machine.ledger.claim(request)
    record = machine.carrier(proof=proof).carry(request)
    assert record.result.state is state
    assert said in record.result.text
    assert (machine.files() == before) is (state is ActionState.ROLLED_BACK)
    assert machine.manager.facts()["starts"] == (1 if state is ActionState.VERIFIED else 2)


def test_a_second_action_that_fails_leaves_the_first_in_force(machine: Machine) -> None:
    machine.carry(machine.apply_request())
    before = machine.files()
    machine.manager.crashes_at_load = True
    record = machine.carry(machine.apply_request(CAP, action="i3-2"))
    assert machine.files() == before
    assert record.result.state is ActionState.ROLLBACK_FAILED  # it was up, and even the old bytes do not come up
    machine.manager.crashes_at_load = False
    assert machine.carry(machine.apply_request(CAP, action="i3-3")).result.state is ActionState.VERIFIED


def test_a_unit_that_was_down_before_may_be_down_after(machine: Machine) -> None:
    facts = machine.manager.facts()
    machine.manager._save({**facts, "active": "failed"})
    machine.manager.crashes_at_load = True
    record = machine.carry(machine.apply_request())
    assert record.result.state is ActionState.ROLLED_BACK
    assert "crashed while loading" in record.result.text
    assert [step.state for step in record.result.steps if step.name == "restore-ready"] == ["failed"]


def test_undoing_gives_the_old_files_byte_for_byte(machine: Machine) -> None:
    before = machine.files()
    machine.carry(machine.apply_request())
    record = machine.carry(machine.rollback_request("i3-1", "i3-2"))
    assert record.result.state is ActionState.UNDONE
    assert machine.files() == before
    undone = machine.ledger.result("i3-1")
    assert undone is not None
    assert undone.state is ActionState.UNDONE


def test_a_folder_that_was_there_stays(machine: Machine) -> None:
    machine.drop_in.parent.mkdir()
    before = machine.files()
    machine.carry(machine.apply_request())
    machine.carry(machine.rollback_request("i3-1", "i3-2"))
    assert machine.files() == before


def test_of_two_actions_the_first_is_undone_alone(machine: Machine) -> None:
    before = machine.files()
    machine.carry(machine.apply_request(CAP))
    assert not machine.own_file_loaded()  # it did not cure: back
    machine.carry(machine.apply_request(action="i3-2"))
    machine.carry(machine.apply_request(CAP, action="i3-3"))
    assert [item.action for item in standing(machine.ledger.results(), UNIT).actions] == ["i3-2", "i3-3"]
    machine.carry(machine.rollback_request("i3-2", "i3-4"))
    text = machine.drop_in.read_text()
    assert "--disable-cuda-graph" not in text
    assert "--speculative-dflash-block-size 4" in text
    machine.carry(machine.rollback_request("i3-3", "i3-5"))
    assert machine.files() == before


def test_a_unit_changed_between_plan_and_apply_is_refused(machine: Machine) -> None:
    request = machine.apply_request()
    fragment = machine.folder / "etc/systemd/system" / UNIT
    fragment.write_text(fragment.read_text() + "# by hand\n")
    before = machine.files()
    record = machine.carry(request)
    assert record.result.state is ActionState.REFUSED
    assert "changed since the plan" in record.result.text
    assert machine.files() == before
    assert machine.manager.facts()["starts"] == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"edits": (Edit("set-flag", "--disable-cuda-graph"), Edit("set-flag", "--tp", 1))}, "not be the one"),
        ({"result_digest": "0" * 64}, "not be the one"),
        ({"seen_digest": "0" * 64}, "changed since"),
        ({"rule": "another"}, "not be the one"),
        ({"time": NOW - 2 * 86400 * 1_000_000}, "older than a day"),
        ({"time": NOW + 3600 * 1_000_000}, "from the future"),
        ({"root": "/elsewhere"}, "not for"),
        ({"unit": "sshd.service"}, "outside the policy"),
    ],
)
def test_a_request_that_says_anything_else_is_refused(machine: Machine, change: dict, reason: str) -> None:  # type: ignore[type-arg]
    request = replace(machine.apply_request(), **change)
    before = machine.files()
    record = machine.carry(request)
    assert record.result.state is ActionState.REFUSED
    assert reason in record.result.text
    assert machine.files() == before


def test_an_edit_outside_the_policy_is_refused_even_with_the_right_digests(machine: Machine) -> None:
    request = machine.apply_request(Edit("set-flag", "--trust-remote", "x"))
    assert "never changed" in machine.carry(request).result.text
    request = machine.apply_request(action="i3-2")
    machine.ledger.claim(request)

    def missing() -> Policy:
        raise Refused("without a policy nothing is applied")

    record = machine.carrier(missing).carry(request)
    assert record.result.state is ActionState.REFUSED
    assert not machine.drop_in.exists()


def test_what_systemd_objects_to_is_refused(machine: Machine) -> None:
    machine.manager.objections = ("Unknown key 'Foo'",)
    record = machine.carry(machine.apply_request())
    assert (record.result.state, machine.drop_in.exists()) == (ActionState.REFUSED, False)


def test_a_manager_that_loads_something_else_is_not_restarted(machine: Machine) -> None:
    before = machine.files()
    machine.manager.loads_something_else = True
    record = machine.carry(machine.apply_request())
    assert machine.files() == before
    assert machine.manager.facts()["starts"] == 0
    assert record.result.state is ActionState.ROLLBACK_FAILED  # nor is the old command loaded


def test_without_verification_it_is_in_force_and_says_so(machine: Machine) -> None:
    record = machine.carry(machine.apply_request(USELESS, verify=False))
    assert record.result.state is ActionState.UNVERIFIED
    assert machine.drop_in.exists()
    assert machine.carry(machine.rollback_request("i3-1", "i3-2")).result.state is ActionState.UNDONE


def test_a_file_removed_by_hand_closes_all_its_actions(machine: Machine) -> None:
    before = machine.files()
    machine.carry(machine.apply_request())
    machine.carry(machine.apply_request(CAP, action="i3-2"))
    machine.drop_in.unlink()
    machine.drop_in.parent.rmdir()
    starts = machine.manager.facts()["starts"]
    record = machine.carry(machine.rollback_request("i3-1", "i3-3"))
    assert record.result.state is ActionState.UNDONE
    assert "removed by hand" in record.result.text
    assert "still runs with it" in record.result.text
    assert machine.manager.facts()["starts"] == starts
    assert standing(machine.ledger.results(), UNIT).actions == ()
    machine.carry(machine.apply_request(action="i3-4"))
    machine.carry(machine.rollback_request("i3-4", "i3-5"))
    assert machine.files() == before


@pytest.mark.parametrize("when", ["while_loading", "while_probed"])
def test_a_unit_that_an_operator_stops_meanwhile_is_left_stopped_with_the_change(machine: Machine, when: str) -> None:
    setattr(machine.manager, when, [machine.manager.stop])
    record = machine.carry(machine.apply_request())
    assert record.result.state is ActionState.UNVERIFIED
    assert "stopped by somebody" in record.result.text
    assert f"systemctl start {UNIT}" in record.result.text
    assert machine.manager.facts()["active"] == "failed"
    assert machine.manager.facts()["starts"] == 1
    assert "--disable-cuda-graph" in machine.drop_in.read_text()
    assert [item.action for item in standing(machine.ledger.results(), UNIT).actions] == ["i3-1"]


@pytest.mark.parametrize("when", ["while_loading", "while_probed"])
def test_after_a_restart_by_an_operator_the_new_invocation_is_proved(machine: Machine, when: str) -> None:
    setattr(machine.manager, when, [lambda: machine.manager.stop(begin=True)] * 2)
    record = machine.carry(machine.apply_request())
    assert record.result.state is ActionState.VERIFIED
    assert machine.manager.facts()["starts"] == 3
    machine.manager.while_loading = [machine.manager.crash]
    crashed = machine.carry(machine.apply_request(CAP, action="i3-2"))
    assert crashed.result.state is not ActionState.UNVERIFIED


def test_a_unit_stopped_while_the_old_file_comes_back_is_left_stopped(machine: Machine) -> None:
    before = machine.files()
    machine.manager.while_loading = [machine.manager.crash, machine.manager.stop]
    record = machine.carry(machine.apply_request())
    assert record.result.state is ActionState.ROLLED_BACK
    assert "stopped by somebody" in record.result.text
    assert machine.files() == before
    assert machine.manager.facts()["active"] == "failed"


@pytest.mark.parametrize("first", [False, True])
def test_a_full_disk_refuses_and_leaves_all_as_it_was(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    if first:
        machine.carry(machine.apply_request(action="i3-0"))
    before, facts = machine.files(), machine.manager.facts()
    rename = os.rename

    def no_room(source: str, target: str, **folders: int) -> None:
        if target == machine.drop_in.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", no_room)
    record = machine.carry(machine.apply_request(CAP))
    assert record.result.state is ActionState.REFUSED
    assert "the disk is full" in record.result.text
    assert "nothing was changed" in record.result.text
    assert machine.files() == before
    assert machine.manager.facts() == facts
    monkeypatch.undo()
    assert machine.carry(machine.apply_request(DISABLE_GRAPH if not first else CAP, action="i3-2")).result.ended


def stuck(machine: Machine, request: Request) -> ActionResult:
    """A kill after the write, then a hand in the file: root may neither go on nor take it back."""
    begun = machine.carrier()
    begun.manager.reload = lambda: os._exit(9)  # type: ignore[method-assign]
    machine.ledger.claim(request)
    child = os.fork()
    if child == 0:
        begun.carry(request)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    del machine.manager.reload  # type: ignore[method-assign]
    machine.drop_in.write_text(machine.drop_in.read_text() + "# mine\n")
    return machine.carrier().carry(request).result


def test_an_action_that_could_not_be_taken_back_stays_in_force_until_it_is_undone(machine: Machine) -> None:
    before = machine.files()
    result = stuck(machine, machine.apply_request())
    assert result.state is ActionState.ROLLBACK_FAILED
    assert "still holds it: triage rollback i3-1" in result.text
    assert [item.action for item in standing(machine.ledger.results(), UNIT).actions] == ["i3-1"]
    for ask in (lambda: machine.apply_request(CAP, action="i3-2"), lambda: machine.rollback_request("i3-1", "i3-2")):
        with pytest.raises(Refused, match=r"changed by hand since i3-1: .* rm .* triage rollback i3-1"):
            ask()
    machine.drop_in.unlink()
    assert machine.carry(machine.rollback_request("i3-1", "i3-2")).result.state is ActionState.UNDONE
    undone = machine.ledger.result("i3-1")
    assert undone is not None
    assert undone.state is ActionState.UNDONE
    assert standing(machine.ledger.results(), UNIT).actions == ()
    machine.drop_in.parent.rmdir()
    machine.carry(machine.apply_request(action="i3-3"))
    machine.carry(machine.rollback_request("i3-3", "i3-4"))
    assert machine.files() == before


def test_an_action_whose_old_bytes_are_gone_is_undone_like_any_other(machine: Machine) -> None:
    machine.carry(machine.apply_request())
    machine.ledger.save_old = lambda action, data: None  # type: ignore[method-assign]
    harmful = Edit("remove-flag", "--disable-cuda-graph")
    result = machine.carry(machine.apply_request(harmful, action="i3-2")).result
    assert result.state is ActionState.ROLLBACK_FAILED
    assert [item.action for item in standing(machine.ledger.results(), UNIT).actions] == ["i3-1", "i3-2"]
    assert machine.carry(machine.rollback_request("i3-2", "i3-3")).result.state is ActionState.UNDONE
    assert "    --disable-cuda-graph\n" in machine.drop_in.read_text()


def test_a_stopped_unit_is_not_started_by_undoing(machine: Machine) -> None:
    machine.carry(machine.apply_request())
    facts = machine.manager.facts()
    machine.manager._save({**facts, "active": "inactive"})
    record = machine.carry(machine.rollback_request("i3-1", "i3-2"))
    assert record.result.state is ActionState.UNDONE
    assert machine.manager.facts()["starts"] == facts["starts"]


def test_a_unit_stopped_by_an_operator_is_not_started_by_undoing_though_it_ends_by_a_signal(machine: Machine) -> None:
    machine.carry(machine.apply_request())
    machine.manager.stop()
    record = machine.carry(machine.rollback_request("i3-1", "i3-2"))
    assert record.result.state is ActionState.UNDONE
    assert machine.manager.facts()["starts"] == 1


def test_an_undoing_after_which_the_unit_stays_down_says_so(machine: Machine) -> None:
    before = machine.files()
    machine.carry(machine.apply_request())
    machine.manager.crashes_at_load = True
    record = machine.carry(machine.rollback_request("i3-1", "i3-2"))
    assert machine.files() == before
    assert (record.result.state, record.result.measured["well"]) == (ActionState.UNDONE, "no")


def test_the_file_keeps_the_units_mode(machine: Machine) -> None:
    (machine.folder / "etc/systemd/system" / UNIT).chmod(0o600)
    machine.carry(machine.apply_request())
    assert machine.drop_in.stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_the_units_folder_is_refused(machine: Machine, tmp_path: Path) -> None:
    request = machine.apply_request()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    machine.drop_in.parent.symlink_to(elsewhere)
    record = machine.carry(request)
    assert record.result.state is ActionState.REFUSED
    assert list(elsewhere.iterdir()) == []


def test_one_damaged_account_of_roots_stops_what_rests_on_it_and_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.manager.crash()
    machine.carry(machine.apply_request())
    undo, before = machine.rollback_request("i3-1", "i3-2"), machine.files()
    damaged = machine.ledger.folder / "results" / "i3-0"
    damaged.write_text("")
    for request in (undo, replace(undo, action="i3-3", kind="retire")):
        record = machine.carry(request)
        assert record.result.state is ActionState.REFUSED
        assert f"{damaged} is damaged (not JSON" in record.result.text
        assert f"sudo mv {damaged} /root/" in record.result.text
    assert machine.files() == before
    with pytest.raises(Damaged, match="i3-0"):
        machine.ledger.results()
    found = machine.ledger.each()
    assert [next(found).request.action for _ in range(3)] == ["i3-1", "i3-2", "i3-3"]
    with pytest.raises(Damaged, match="i3-0"):
        next(found)
    machine.ledger.prune()
    damaged.unlink()
    assert machine.carry(replace(undo, action="i3-4")).result.state is ActionState.UNDONE
