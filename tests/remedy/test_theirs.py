"""A unit of `systemctl --user`: root acts through a process of that user's and believes nothing that it says."""

from __future__ import annotations

import json
import os
import pwd
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remedy.fixtures import DISABLE_GRAPH, UNITS, remedy
from tests.remedy.machine import NOW, UNIT, USELESS, FakeManager, FakeProof, as_request
from triage.actions import apply, asking, described, theirs
from triage.actions.asking import answer_all, take_asks, view_name
from triage.actions.carry import Carrier
from triage.actions.deputy import Deputy
from triage.actions.ledger import Ledger, Record
from triage.actions.policy import Policy
from triage.actions.readiness import Limits
from triage.actions.spool import Spool
from triage.actions.theirs import Session, TheirManager, TheirPlace, TheirProof
from triage.model import ActionState, Edit, Owner, Pending, Refused, Request, TriageError, Unit, Unreachable
from triage.planning import Planner
from triage.remedy import plan, plan_rollback
from triage.units import owners
from triage.units.dropin import standing
from triage.units.systemctl import State
from triage.units.unitsearch import search, with_environment_files
from triage.views import Seen, Views, in_cgroup

POLICY = Policy.parse('units=["sglang*"]\nusers=["a*"]\n[flags]\n"*"=".*"\n')


class Killed(BaseException):
    """As kill -9 is: nothing catches it."""


class OwnManager(FakeManager):
    """The simulated manager, for the units of one user's home."""

    def __init__(self, folder: Path, owner: Owner) -> None:
        self.owner = owner
        super().__init__(folder)

    def read_unit(self, name: str) -> Unit:
        return with_environment_files(replace(search(name, (Path(self.owner.folder),)), owner=self.owner))

    def state(self, name: str) -> State:
        """With an invocation as systemd has them."""
        state = super().state(name)
        number = state.invocation.removeprefix("inv")
        return replace(state, invocation=f"{int(number):032x}" if number else "")

    def asked_to_stop(self, name: str, invocation: str) -> bool:
        return super().asked_to_stop(name, f"inv{int(invocation, 16)}")


class Wire(Session):
    """The deputy in this process; all that passes goes through JSON. `dies` before or after so many calls."""

    def __init__(self, machine: UserMachine, dies: int = -1, *, after: bool = False) -> None:
        super().__init__(machine.owner, UNIT)
        self.deputy = Deputy(machine.owner, machine.manager)
        self.said: list[str] = []
        self.dies, self.after = dies, after

    def call(self, do: str, *args: Any, limit: float = 0) -> Any:
        self.said.append(do)
        self.dies -= 1
        if self.dies == 0 and not self.after:
            raise Killed
        line = self.deputy.answer(json.dumps({"do": do, "with": described.plain(args)}).encode())
        if self.dies == 0:
            raise Killed
        return theirs._value(line)


class UserMachine:
    def __init__(self, folder: Path, uid: int = 1000, name: str = "ada") -> None:
        self.owner = Owner(uid, name, str(folder / name))
        units = Path(self.owner.folder)
        if not units.exists():
            units.mkdir(parents=True)
            (units / UNIT).write_text((UNITS / "kimi-k26-dflash.service").read_text())
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        self.ledger.create()
        (folder / f"manager-{name}" / "etc").mkdir(parents=True, exist_ok=True)
        self.manager = OwnManager(folder / f"manager-{name}", self.owner)
        self.time = NOW

    def clock(self) -> int:
        self.time += 1000
        return self.time

    def carrier(self, session: Session, policy: Policy = POLICY) -> Carrier:
        manager = TheirManager(session)
        manager._own = self.manager  # type: ignore[assignment]  # what root reads itself: the journal, /proc
        proof = FakeProof(self.manager)
        proof.manager = manager
        place = TheirPlace(session)
        return Carrier(self.ledger, manager, place, proof, lambda: policy, self.clock, owner=self.owner)

    def request(self, *edits: Edit, action: str = "i3-1") -> Request:
        unit = self.manager.read_unit(UNIT)
        known = standing(self.ledger.results(), UNIT, owner=self.owner.uid)
        made = plan(unit, 3, "some-rule", remedy(*(edits or (DISABLE_GRAPH,))), known, action=action, now=NOW)
        assert made.owner == self.owner.uid
        return replace(as_request(made, "apply"), owner=made.owner)

    def rollback(self, target: str, action: str) -> Request:
        known = standing(self.ledger.results(), UNIT, owner=self.owner.uid)
        undo = plan_rollback(self.manager.read_unit(UNIT), known, target, action=action, now=NOW)
        return replace(as_request(undo, "rollback", target), owner=undo.owner)

    def carry(self, request: Request, session: Session | None = None) -> Record:
        self.ledger.claim(request)
        return self.carrier(session or Wire(self)).carry(request)

    def files(self) -> dict[str, bytes]:
        below = Path(self.owner.folder)
        return {str(path.relative_to(below)): path.read_bytes() if path.is_file() else b"" for path in below.rglob("*")}


@pytest.fixture
def machine(tmp_path: Path) -> UserMachine:
    return UserMachine(tmp_path)


def test_the_users_file_is_written_proved_and_taken_back_to_the_byte(machine: UserMachine) -> None:
    before = machine.files()
    done = machine.carry(machine.request())
    assert (done.result.state, done.result.text[:40]) == (ActionState.VERIFIED, f"{UNIT} serves with the change"[:40])
    file = Path(machine.owner.folder) / f"{UNIT}.d/zzz-triage.conf"
    assert "--disable-cuda-graph" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    undone = machine.carry(machine.rollback("i3-1", "i3-2"))
    assert undone.result.state is ActionState.UNDONE
    assert machine.files() == before


def test_what_does_not_cure_is_taken_back(machine: UserMachine) -> None:
    before = machine.files()
    done = machine.carry(machine.request(USELESS))
    assert done.result.state is ActionState.ROLLED_BACK
    assert machine.files() == before


def test_actions_of_one_user_stand_for_nobody_elses_unit(machine: UserMachine, tmp_path: Path) -> None:
    """One ledger, one unit name, three units."""
    other = UserMachine(tmp_path, 1001, "abe")
    machine.carry(machine.request())
    results = machine.ledger.results()
    assert [item.action for item in standing(results, UNIT, owner=1000).actions] == ["i3-1"]
    assert standing(results, UNIT).actions == standing(results, UNIT, owner=1001).actions == ()
    untouched = other.files()
    assert other.carry(other.request(action="i3-2")).result.state is ActionState.VERIFIED
    undone = machine.carry(machine.rollback("i3-1", "i3-3"))
    assert undone.result.state is ActionState.UNDONE
    assert [item.action for item in standing(machine.ledger.results(), UNIT, owner=1001).actions] == ["i3-2"]
    assert other.files() != untouched


def test_a_request_for_another_user_is_refused(machine: UserMachine) -> None:
    for owner in (None, 1001):
        request = replace(machine.request(), owner=owner, action=f"i3-{owner}".lower())
        record = machine.carry(request)
        assert (record.result.state, "another user" in record.result.text) == (ActionState.REFUSED, True)


def test_users_whom_the_policy_does_not_name_are_refused(machine: UserMachine) -> None:
    before = machine.files()
    request = machine.request()
    machine.ledger.claim(request)
    nobody = Policy.parse('units=["sglang*"]\n[flags]\n"*"=".*"\n')
    record = machine.carrier(Wire(machine), nobody).carry(request)
    assert record.result.state is ActionState.REFUSED
    assert "add a glob to users" in record.result.text
    assert machine.files() == before


def test_a_drop_in_removed_by_hand_is_closed_and_one_changed_by_hand_left_alone(machine: UserMachine) -> None:
    machine.carry(machine.request())
    file = Path(machine.owner.folder) / f"{UNIT}.d/zzz-triage.conf"
    undo = machine.rollback("i3-1", "i3-2")
    text = file.read_text()
    file.write_text(f"{text}# mine\n")
    with pytest.raises(Refused, match=r"runuser -u ada -- rm .*\.conf && systemctl --user -M ada@ daemon-reload"):
        machine.request(USELESS, action="i3-4")
    file.unlink()
    undo = machine.rollback("i3-1", "i3-2")
    assert "by hand" in machine.carry(undo).result.text
    assert standing(machine.ledger.results(), UNIT, owner=1000).actions == ()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_root_killed_at_any_call_is_taken_up_again(tmp_path: Path, after: bool) -> None:
    number = 0
    while True:
        number += 1
        machine = UserMachine(tmp_path / str(number))
        request = machine.request()
        machine.ledger.claim(request)
        session = Wire(machine, number, after=after)
        try:
            machine.carrier(session).carry(request)
        except Killed:
            pass
        else:
            break
        record = machine.carrier(Wire(machine)).carry(request)
        assert record.result.state is ActionState.VERIFIED, session.said
        assert machine.manager.facts()["starts"] == 1, session.said
        assert (Path(machine.owner.folder) / f"{UNIT}.d/zzz-triage.conf").exists()
    assert number > 12


# ---------------------------------------------------------------- whose unit


def entry(uid: int, home: str = "/home/x") -> pwd.struct_passwd:
    return pwd.struct_passwd(("x", "x", uid, uid, "", home, "/bin/sh"))


@pytest.mark.parametrize(
    ("uid", "home"), [(0, "/root"), (33, "/var/www"), (999, "/home/s"), (61184, "/"), (65534, "/nonexistent")]
)
def test_root_and_the_users_of_services_are_no_owners(uid: int, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners.pwd, "getpwuid", lambda wanted: entry(wanted, home))
    with pytest.raises(Refused, match="no person's account"):
        owners.owner_of(uid)


def test_an_owner_is_what_the_machines_list_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners.pwd, "getpwuid", lambda uid: entry(uid, "/home/x/"))
    assert owners.owner_of(1000) == Owner(1000, "x", "/home/x")
    monkeypatch.setattr(owners.pwd, "getpwuid", lambda uid: entry(uid, "/"))
    with pytest.raises(Refused, match="no home"):
        owners.owner_of(1000)
    monkeypatch.undo()
    with pytest.raises(Refused, match="no user of uid"):
        owners.owner_of(3_999_999_999)


@pytest.mark.parametrize("owner", [0, 999, 3_999_999_999])
def test_root_refuses_a_request_for_no_persons_unit(owner: int, machine: UserMachine) -> None:
    request = replace(machine.request(), owner=owner)
    machine.ledger.claim(request)
    apply._carry_theirs(machine.ledger, Limits(), lambda: POLICY, request)
    result = machine.ledger.result("i3-1")
    assert result is not None
    assert result.state is ActionState.REFUSED
    assert machine.ledger.claims() == ()


def test_an_action_whose_user_is_gone_in_its_middle_ends_and_says_so(machine: UserMachine) -> None:
    request = machine.request()
    machine.ledger.claim(request)
    with pytest.raises(Killed):
        machine.carrier(Wire(machine, 12)).carry(request)
    kept = machine.ledger.result("i3-1")
    assert kept is not None
    assert kept.kept["phase"] == "forward"
    gone = replace(kept, request=replace(request, owner=3_999_999_999))
    machine.ledger.write_result(gone)
    apply._carry_theirs(machine.ledger, Limits(), lambda: POLICY, gone.request)
    ended = machine.ledger.result("i3-1")
    assert ended is not None
    assert ended.state is ActionState.ROLLBACK_FAILED


def test_a_manager_that_does_not_run_is_named_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theirs, "is_active", lambda name: False)
    with pytest.raises(Refused, match="loginctl enable-linger ada"):
        Session(Owner(1000, "ada", "/home/ada")).call("state", UNIT)


def test_the_deputy_is_started_as_the_user_and_may_gain_nothing() -> None:
    argv = theirs.command(Owner(1000, "ada", "/home/ada"), UNIT)
    assert argv[0] == "systemd-run"
    assert {"--uid=1000", "--property=NoNewPrivileges=yes", "--property=CapabilityBoundingSet="} <= set(argv)
    assert argv[argv.index("--") + 2] == "-I"
    assert argv[-1] == UNIT


# ---------------------------------------------------------------- what comes back


def session_of(script: str, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(theirs, "is_active", lambda name: True)
    code = f"import sys, time\nfor line in sys.stdin:\n    {script}\n    sys.stdout.flush()"
    return Session(Owner(1000, "ada", "/home/ada"), start=lambda owner, unit: [sys.executable, "-I", "-c", code])


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("print('x' * 5_000_000)", Refused, "more than"),
        ("print('[' * 100_000)", Refused, "no answer that can be read"),
        ("print('[1]')", Refused, "no answer that can be read"),
        ("sys.exit()", Unreachable, "has ended"),
        ("time.sleep(30)", Unreachable, "no answer in"),
        ("""print('{"error": "SystemExit", "text": "\\\\u001b[31mred"}')""", Refused, "^ .31mred$"),
        ("""print('{"error": "NotKnown", "text": 7}')""", Refused, "no reason"),
    ],
)
def test_a_process_that_says_something_else_is_an_error_in_words(
    script: str, error: type[TriageError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(script, monkeypatch)
    with pytest.raises(error, match=words):
        session.call("state", UNIT, limit=1)
    session.close()


def test_a_look_is_taken_again_where_the_process_is_killed_and_a_deed_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = f"""import os; path = {str(tmp_path / "died")!r}
    if not os.path.exists(path):
        open(path, "w").close(); sys.exit()
    print('{{"value": "here"}}')"""
    session = session_of(dies, monkeypatch)
    assert session.call("state", UNIT) == "here"
    (tmp_path / "died").unlink()
    with pytest.raises(Unreachable, match="has ended"):
        session.call("restart", UNIT)
    session.close()


def test_one_that_has_ended_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of("""print('{"value": "here"}'); sys.stdout.flush(); sys.exit()""", monkeypatch)
    assert session.call("state") == "here"
    assert session._child is not None
    session._child.wait(10)
    assert session.call("state") == "here"
    session.close()


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
OWNER = Owner(1000, "ada", "/home/ada")
GOOD = {
    "unit": {
        "name": UNIT,
        "files": [{"path": f"/home/ada/.config/systemd/user/{UNIT}", "text": "[Service]\nExecStart=/x\n", "mode": 420}],
        "need_daemon_reload": False,
        "notes": [],
        "environment_files": [],
    },
    "loaded": {"commands": [["/x"]], "environment": [], "unset": [], "environment_files": [], "settings": {}},
    "state": {
        "active": "active",
        "sub": "running",
        "result": "success",
        "invocation": "ab" * 16,
        "restarts": 0,
        "pid": 7,
        "job": False,
        "cgroup": "/user.slice/x",
    },
    "flags": {"path": "/x", "values": {}},
}
READERS: dict[str, Callable[[Any], Any]] = {
    "unit": lambda value: described.unit_of(value, OWNER),
    "loaded": described.loaded_of,
    "state": described.state_of,
    "flags": described.flags_of,
}


@pytest.mark.parametrize("kind", READERS)
def test_what_is_right_is_read(kind: str) -> None:
    READERS[kind](GOOD[kind])


@given(kind=st.sampled_from(sorted(READERS)), junk=JUNK, data=st.data())
def test_whatever_a_user_says_is_a_value_or_refused(kind: str, junk: Any, data: st.DataObject) -> None:
    good: Any = GOOD[kind]
    field = data.draw(st.sampled_from(sorted(good)))
    for value in (junk, {**good, field: junk}):
        try:
            READERS[kind](value)
        except Refused:
            continue


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("unit", "name", "../x.service"),
        ("unit", "files", []),
        ("unit", "files", [{"path": "relative", "text": "", "mode": 0}]),
        ("unit", "files", [{"path": "/a\nb", "text": "", "mode": 0}]),
        ("unit", "files", [{"path": "/x", "text": "y" * 600_000, "mode": 0}]),
        ("state", "cgroup", "/user.slice/../../etc"),
        ("state", "invocation", "x|y"),
        ("state", "active", "active\n"),
        ("loaded", "commands", [["/x"]] * 100),
    ],
)
def test_what_no_unit_has_is_refused(kind: str, field: str, value: Any) -> None:
    good: Any = GOOD[kind]
    with pytest.raises(Refused):
        READERS[kind]({**good, field: value})


def test_where_the_server_listens_stays_with_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root sends nothing anywhere: of an endpoint it learns the kind alone."""
    answers = {"endpoint": {"kind": "generation", "note": "", "host": "10.0.0.1"}, "healthy": [True, "healthy"]}
    session = Session(OWNER)
    monkeypatch.setattr(session, "call", lambda do, *args, **named: answers[do])
    proof = TheirProof(session, Limits())
    at = proof.endpoint(UNIT)
    assert (at.kind, at.host, at.key) == ("generation", "127.0.0.1", "")
    assert proof.healthy(UNIT, at) == (True, "healthy")
    answers["endpoint"] = {"kind": "else", "note": ""}
    with pytest.raises(Refused):
        proof.endpoint(UNIT)


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
