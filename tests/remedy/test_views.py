"""A user's unit as those see it who have no rights on it; and triage run by that user."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.remedy.machine import UNIT
from tests.remedy.usermachine import POLICY, OwnManager, UserMachine, Wire
from triage.actionmodel import ActionState, Owner
from triage.actions import apply, asking
from triage.actions.asking import answer_all, take_asks, view_name
from triage.actions.readiness import Limits
from triage.actions.spool import Spool
from triage.model import Pending, Refused, Unreachable
from triage.planning import Planner
from triage.request import Requester
from triage.units.servers import installed
from triage.units.systemctl import State
from triage.views import Seen, Views, in_cgroup


@pytest.fixture
def machine(tmp_path: Path) -> UserMachine:
    return UserMachine(tmp_path)


# ---------------------------------------------------------------- for those without rights


class Looks:
    """Spool and folder of root's, and a deputy in place of systemd-run."""

    def __init__(self, folder: Path, machine: UserMachine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spool, self.folder = Spool(folder / "state" / "spool"), folder / "apply"
        (self.spool.folder / asking.ASKS).mkdir(parents=True)
        self.folder.mkdir()
        self.machine = machine
        self.looked = 0
        monkeypatch.setattr(asking, "Session", lambda owner: Wire(machine))
        monkeypatch.setattr(asking, "owner_of", self._owner)

    def _owner(self, uid: int) -> Owner:
        if uid != self.machine.owner.uid:
            raise Refused("nobody's")
        return self.machine.owner

    def rouse(self) -> None:
        self.looked += 1

        def allowed(name: str) -> None:
            if name != UNIT:
                raise Refused(f"{name} is outside the policy")

        answer_all(take_asks(self.spool.folder), self.folder, self.machine.manager.read_unit, allowed)

    def seen(self, **more: float) -> Seen:
        return Seen(Views(self.spool, self.folder, lambda: True, self.rouse), self.machine.owner, **more)


@pytest.fixture
def looks(tmp_path: Path, machine: UserMachine, monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(tmp_path / "looks", machine, monkeypatch)


def test_a_plan_is_made_of_what_root_passed_on_and_proved_against_the_unit(looks: Looks) -> None:
    seen = looks.seen()
    assert seen.read_unit(UNIT) == looks.machine.manager.read_unit(UNIT)
    assert seen.loaded(UNIT).commands == looks.machine.manager.loaded(UNIT).commands
    assert looks.looked == 1
    file = looks.folder / asking.ANSWERS / view_name(1000, UNIT)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_files_that_the_user_keeps_to_themselves_are_not_passed_on(looks: Looks) -> None:
    path = Path(looks.machine.owner.folder) / UNIT
    path.chmod(0o600)
    with pytest.raises(Refused, match="chmod o\\+r"):
        looks.seen().read_unit(UNIT)
    path.chmod(0o644)
    secret = Path(looks.machine.owner.home) / "env"
    secret.write_text("API_KEY=x\n")
    path.write_text(path.read_text().replace("[Service]", f"[Service]\nEnvironmentFile={secret}", 1))
    secret.chmod(0o600)
    assert looks.seen(age=0).read_unit(UNIT).environment_files == ()
    secret.chmod(0o644)
    assert [file.text for file in looks.seen(age=0).read_unit(UNIT).environment_files] == ["API_KEY=x\n"]


def test_what_the_policy_does_not_name_is_told_and_what_nobody_owns_is_not_looked_at(looks: Looks) -> None:
    with pytest.raises(Refused, match="outside the policy"):
        looks.seen().read_unit("sglang-other.service")
    stranger = Seen(looks.seen().views, Owner(0, "root", "/root"), patience=0)
    with pytest.raises(Pending):
        stranger.read_unit(UNIT)
    assert not (looks.folder / asking.ANSWERS / view_name(0, UNIT)).exists()
    (looks.spool.folder / asking.ASKS / "1000~..~x.service").touch()
    assert take_asks(looks.spool.folder) == ()


def test_who_may_not_wait_is_told_to_look_again(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = looks.seen(patience=0)
    monkeypatch.setattr(seen.views, "rouse", lambda: None)
    with pytest.raises(Pending):
        seen.read_unit(UNIT)
    looks.rouse()
    assert seen.read_unit(UNIT).name == UNIT
    monkeypatch.setattr(seen.views, "listening", lambda: False)
    monkeypatch.setattr(seen.views, "clock", lambda: 4e9)
    with pytest.raises(Unreachable, match="not listening"):
        seen.read_unit(UNIT)


def test_only_the_newest_views_are_kept(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_VIEWS", 3)
    for number in range(6):
        asking._keep(looks.folder, view_name(1000, f"sglang-{number}.service"), b"{}")
        os.utime(looks.folder / asking.ANSWERS / view_name(1000, f"sglang-{number}.service"), (number, number))
    asking._keep(looks.folder, UNIT, b"{}")  # the answer to another question
    names = sorted(os.listdir(looks.folder / asking.ANSWERS))
    assert names == [*(view_name(1000, f"sglang-{number}.service") for number in (3, 4, 5)), UNIT]


def test_a_state_holds_while_its_process_is_in_its_group(
    looks: Looks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        OwnManager, "state", lambda self, name: State("active", "running", "", "ab" * 16, 0, 7, cgroup="/g")
    )
    alive = [True]
    monkeypatch.setattr("triage.views.in_cgroup", lambda pid, path: alive[0] and (pid, path) == (7, "/g"))
    seen = looks.seen()
    present = [seen.views.clock()]
    monkeypatch.setattr(seen.views, "clock", lambda: present[0])
    assert seen.state(UNIT).up
    present[0] += 60
    assert seen.state(UNIT).up
    assert looks.looked == 1
    alive[0] = False
    monkeypatch.setattr(seen.views, "listening", lambda: False)
    with pytest.raises(Unreachable):  # it has to be looked at anew; this clock is ahead of root's
        seen.state(UNIT)


def test_a_group_is_read_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "a/user.slice").mkdir(parents=True)
    (tmp_path / "a/user.slice/cgroup.procs").write_text("6\n7\n")
    bases = (str(tmp_path / "none"), str(tmp_path / "a"))
    assert in_cgroup(7, "/user.slice", bases)
    assert not in_cgroup(67, "/user.slice", bases)
    assert not in_cgroup(7, "/other", bases)
    assert not in_cgroup(0, "/user.slice", bases)


@pytest.fixture
def worker(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> Requester:
    """The unprivileged hands, which wait for nobody."""
    machine = looks.machine
    machine.time = time.time_ns() // 1000
    monkeypatch.setattr("triage.planning.owner_of", lambda uid: machine.owner)
    hands = Requester.__new__(Requester)
    hands.root, hands.private, hands.patience = None, False, 0.0
    hands.ledger, hands.spool, hands.views = machine.ledger, looks.spool, looks.seen().views
    return hands


def test_a_file_is_missed_by_no_look_from_before_it_was_written(looks: Looks, worker: Requester) -> None:
    action: Any = SimpleNamespace(name="i3-1", unit=UNIT, root="", owner=1000)
    looks.seen().read_unit(UNIT)
    looks.machine.time = time.time_ns() // 1000
    looks.machine.carry(looks.machine.request())
    time.sleep(max(0.0, looks.machine.time / 1_000_000 - time.time()) + 0.01)  # its clock goes a millisecond a look
    with pytest.raises(Pending):  # there is a look, but no file in it yet
        worker.removed_by_hand(action)
    assert not worker.removed_by_hand(action)
    (Path(looks.machine.owner.folder) / f"{UNIT}.d/zzz-triage.conf").unlink()
    assert not worker.removed_by_hand(action)  # it is looked at every ten minutes only
    answer = looks.folder / asking.ANSWERS / view_name(1000, UNIT)
    answer.write_text(json.dumps({**json.loads(answer.read_text()), "time": time.time() - 700}))
    with pytest.raises(Pending):
        worker.removed_by_hand(action)
    assert worker.removed_by_hand(action)


def test_the_release_is_that_of_the_last_look_while_a_new_one_is_taken(looks: Looks, worker: Requester) -> None:
    assert worker.release(UNIT, 1000) is None
    worker.release(UNIT, 1000)
    answer = looks.folder / asking.ANSWERS / view_name(1000, UNIT)
    answer.write_text(json.dumps({**json.loads(answer.read_text()), "release": "0.5.12", "time": time.time() - 700}))
    worker.views.rouse = lambda: None  # type: ignore[method-assign]
    assert worker.release(UNIT, 1000) == "0.5.12"


def test_what_stands_for_the_users_home_is_put_in(machine: UserMachine) -> None:
    home, path = Path(machine.owner.home), Path(machine.owner.folder) / UNIT
    (home / "sglang.env").write_text("ARGS=--tp 8\n")
    (home / "venv/lib/python3.12/site-packages/sglang-0.5.12.dist-info").mkdir(parents=True)
    command = "%h/venv/bin/python -m sglang.launch_server --model-path /models/m $ARGS"
    path.write_text(f"[Service]\nEnvironmentFile=%h/sglang.env\nExecStart={command}\n")
    machine.manager.reload()
    unit = machine.manager.read_unit(UNIT)
    assert [file.text for file in unit.environment_files] == ["ARGS=--tp 8\n"]
    assert installed(unit) == "0.5.12"
    assert "%h/venv/bin/python -m sglang.launch_server" in machine.request_text()


# ---------------------------------------------------------------- run by the user


def test_who_runs_triage_from_a_checkout_uses_the_own_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = Planner.__new__(Planner)
    planner.root, planner.private, planner.patience = None, True, 0.0
    monkeypatch.setattr("triage.planning.owner_of", lambda uid: Owner(uid, "ada", "/home/ada"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    own = planner.manager_of(1000)
    assert (type(own).__name__, own.owner) == ("Systemd", Owner(1000, "ada", "/home/ada"))  # type: ignore[attr-defined]
    planner.views = None  # type: ignore[assignment]
    assert isinstance(planner.manager_of(1001), Seen)
    planner.private = False
    assert isinstance(planner.manager_of(1000), Seen)
    planner.root = Path("/tmp")
    with pytest.raises(Refused, match="--root"):
        planner.manager_of(1000)


def test_a_user_carries_out_nobody_elses_request(machine: UserMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "owner_of", lambda uid: machine.owner)
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    request = machine.request()
    machine.ledger.claim(request)
    apply._carry_theirs(machine.ledger, Limits(), lambda: POLICY, request)
    result = machine.ledger.result("i3-1")
    assert result is not None
    assert (result.state, "only that user or root" in result.text) == (ActionState.REFUSED, True)
