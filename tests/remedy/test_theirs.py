"""A unit of `systemctl --user`: root acts through a process of that user's and believes nothing that it says."""

from __future__ import annotations

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

from tests.remedy.machine import UNIT, USELESS
from tests.remedy.usermachine import POLICY, Killed, UserMachine, Wire
from triage.actionmodel import ActionState, Owner
from triage.actions import apply, described, theirs
from triage.actions.policy import Policy
from triage.actions.readiness import Limits
from triage.actions.theirs import Session, TheirProof
from triage.model import Refused, TriageError, Unreachable
from triage.units import owners
from triage.units.dropin import standing


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
