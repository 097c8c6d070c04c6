"""kill -9 of root's one-shot after each thing it does: the next start ends as if nothing had been, or cleanly back.

Each run is a forked process that kills itself just before its n-th deed (a file renamed or removed, a folder made or
removed, a call to the manager) for every n there is; then the claim is carried again, as the path unit would have it.
"""

import os
import shutil
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.remedy.machine import USELESS, Machine
from triage.actionmodel import ActionState, Request
from triage.model import Edit

_DEEDS = ("rename", "unlink", "mkdir", "rmdir")


def in_child(folder: Path, request: Request, deeds: int, *, crashes: bool = False) -> bool:
    """Carry the request in a process that is killed before deed number `deeds`; True if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            left = deeds

            def count() -> None:
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1

            machine = Machine(folder)
            machine.manager.crashes_at_load = crashes
            for name in _DEEDS:
                setattr(os, name, counted(getattr(os, name), count))
            for name in ("reload", "restart", "forget", "begin"):
                setattr(machine.manager, name, counted(getattr(machine.manager, name), count))
            machine.carrier().carry(request)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), "the child failed by itself"
    return status != 0


def counted(deed: Callable[..., object], count: Callable[[], None]) -> Callable[..., object]:
    def replacement(*args: object, **named: object) -> object:
        count()
        return deed(*args, **named)

    return replacement


def every_kill(tmp_path: Path, prepare: Callable[[Machine], Request], check: Callable[[Machine], None]) -> int:
    """Run with a kill before each deed in turn, again with a second kill a little later; check after the last start."""
    deeds = 0
    (tmp_path / "prepared").mkdir()
    request = prepare(Machine(tmp_path / "prepared"))
    while True:
        again = [None] if deeds % 5 else [None, 3, 11]
        for second in again:
            folder = tmp_path / f"{deeds}-{second}"
            shutil.copytree(tmp_path / "prepared", folder)
            machine = Machine(folder)
            machine.ledger.claim(request)
            killed = in_child(folder, request, deeds)
            if killed and second is not None:
                in_child(folder, request, second)
            if request.action in machine.ledger.names() and machine.ledger.claims():
                assert not in_child(folder, request, 10_000)
            check(Machine(folder))
        if not killed:
            return deeds
        deeds += 1


def test_a_cure_is_in_force_after_any_kill(tmp_path: Path) -> None:
    def check(machine: Machine) -> None:
        result = machine.ledger.result("i3-1")
        assert result is not None
        assert result.state is ActionState.VERIFIED
        assert "--disable-cuda-graph" in machine.drop_in.read_text()
        assert machine.manager.facts()["starts"] == 1
        assert "--disable-cuda-graph" in machine.manager.facts()["command"][0]
        assert machine.ledger.claims() == ()

    def prepare(machine: Machine) -> Request:
        machine.manager.crash()
        return machine.apply_request()

    assert every_kill(tmp_path, prepare, check) > 40


def test_what_does_not_cure_is_gone_after_any_kill(tmp_path: Path) -> None:
    clean = Machine(tmp_path).files()

    def check(machine: Machine) -> None:
        result = machine.ledger.result("i3-1")
        assert result is not None
        assert result.state is ActionState.ROLLED_BACK
        assert machine.files() == clean
        assert machine.manager.facts()["starts"] == 2
        assert "--max-running-requests" not in machine.manager.facts()["command"][0]

    assert every_kill(tmp_path, lambda machine: machine.apply_request(USELESS), check) > 50


def test_an_undoing_is_done_after_any_kill(tmp_path: Path) -> None:
    clean = Machine(tmp_path).files()

    def prepare(machine: Machine) -> Request:
        machine.carry(machine.apply_request())
        return machine.rollback_request("i3-1", "i3-2")

    def check(machine: Machine) -> None:
        states = {result.request.action: result.state for result in machine.ledger.results()}
        assert states == {"i3-1": ActionState.UNDONE, "i3-2": ActionState.UNDONE}
        assert machine.files() == clean
        assert machine.manager.facts()["starts"] == 2

    assert every_kill(tmp_path, prepare, check) > 30


def test_a_second_action_that_fails_gives_the_first_one_back_after_any_kill(tmp_path: Path) -> None:
    cap = Edit("remove-flag", "--disable-cuda-graph")
    with_first = Machine(tmp_path)
    with_first.carry(with_first.apply_request())
    expected = with_first.files()

    def prepare(machine: Machine) -> Request:
        machine.carry(machine.apply_request())
        return machine.apply_request(cap, action="i3-2")

    def check(machine: Machine) -> None:
        result = machine.ledger.result("i3-2")
        assert result is not None
        assert result.state is ActionState.ROLLED_BACK
        assert machine.files() == expected
        assert machine.manager.facts()["starts"] == 3

    assert every_kill(tmp_path, prepare, check) > 50


def test_an_action_that_dies_every_time_is_taken_back_in_the_end(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    clean = machine.files()
    request = machine.apply_request()
    machine.ledger.claim(request)
    for deeds in (60, 40, 40, 40, 40, 40, 40):
        in_child(tmp_path, request, deeds)
        if not machine.ledger.claims():
            break
    if machine.ledger.claims():
        assert not in_child(tmp_path, request, 10_000)
    result = machine.ledger.result("i3-1")
    assert result is not None
    assert result.ended is not None
    assert result.state in (ActionState.VERIFIED, ActionState.ROLLED_BACK)
    assert (machine.files() == clean) == (result.state is ActionState.ROLLED_BACK)
