"""A unit of `systemctl --user`, from its crash to the cure and back: by its user's own hand, which root asks for."""

from __future__ import annotations

import json

from tests.e2e.box import Result, wait_for
from tests.e2e.installed import ROOTS_OWN, Installed
from tests.e2e.stories import FLAG, comes_back, put_back, retire
from tests.e2e.userserver import UserServer
from tests.e2e.wheelhouse import OURS, ROOT


def test_a_users_unit_is_cured_and_the_cure_undone(triage: Installed) -> None:
    server = UserServer(triage.box, "ada", "own", 32100)
    other = UserServer(triage.box, "ben", "own", 32101)  # another user's, of the same name
    other.start()
    before, others = server.files(), other.files()
    home = triage.box.tree("/home/ada")
    server.crash()

    number = triage.incident(server)
    shown = json.loads(triage.cli("incidents", "show", str(number), "--json").out)
    assert shown["crashes"][0]["document"]["owner"] == server.uid

    done = triage.apply(number)
    assert done.code == 0, done
    drop_in = f"{server.path}.d/zzz-triage.conf"
    text = triage.box.pull(drop_in).decode()
    assert f"incident {number}" in text
    assert triage.box.run(["stat", "-c", "%U %a", drop_in]).out.split() == ["ada", "644"]
    assert server.serves()
    assert server.argv()[-1] == FLAG
    assert server.generate().code == 0
    [action] = triage.actions(server)
    assert action["state"] == "verified"
    # The longer proof is another user's process, and sees the server all the same.
    wait_for(
        "the soak", lambda: triage.query(f"select * from proof where action = '{action['name']}'")[0]["sent"] > 20, 30
    )

    # Nobody else's unit was touched, not even read as root: the homes are closed, and root's side has no way in.
    assert other.files() == others
    assert FLAG not in other.argv()
    assert not [path for path in triage.box.tree("/etc/systemd") if "sglang-own" in path]

    undone = triage.rollback(action["name"])
    assert undone.code == 0, undone
    assert server.files() == before
    assert {path: what for path, what in triage.box.tree("/home/ada").items() if "/sglang-own" in path} == {
        path: what for path, what in home.items() if "/sglang-own" in path
    }
    assert FLAG not in server.argv()
    wait_for("the action to be undone", lambda: triage.actions(server)[0]["state"] == "undone")
    server.stop()
    other.stop()


def test_a_remedy_that_does_not_cure_is_rolled_back(triage: Installed) -> None:
    server = UserServer(triage.box, "ada", "hers-incurable", 32110, behaviour="incurable")
    server.crash()
    before = server.files()
    done = triage.apply(triage.incident(server))
    assert done.code == 4, done
    assert server.files() == before
    wait_for("it to run on the old bytes", server.serves)
    assert FLAG not in server.argv()
    server.stop()


def test_a_crash_that_comes_back_takes_the_edit_away_unasked(triage: Installed) -> None:
    """By the worker, which sees the unit only by what root passes on."""
    server = UserServer(triage.box, "ada", "hers-returns", 32111)
    comes_back(triage, server)
    wait_for("the action to be undone", lambda: triage.actions(server)[0]["state"] == "undone")
    server.stop()


def test_a_workaround_is_retired_put_back_and_missed_when_a_hand_removes_it(triage: Installed) -> None:
    """All of it unasked by the worker, which looks by way of root."""
    with triage.settings("retire", "rollback_window_seconds = 300\n"):
        server = UserServer(triage.box, "ada", "hers-debt", 32115)
        before = server.files()
        server.crash()
        number = triage.incident(server)
        assert triage.apply(number).code == 0
        action = triage.actions(server)[0]["name"]
        (item,) = triage.json("workarounds", "list", "--unit", server.name)["items"]
        assert (item["release"], item["owner"]) == ("0.5.12", server.uid)

        retire(triage, server, action, before)
        again = put_back(triage, server)
        assert (again["kind"], again["name"][-6:]) == ("apply", "-again")

        # Such a unit is looked at every ten minutes: the last look is made to be older.
        server.ctl("revert", server.name)
        answer = f"{ROOTS_OWN}/answers/{server.uid}~{server.name}"
        aged = json.loads(triage.box.pull(answer))
        triage.box.push(json.dumps({**aged, "time": aged["time"] - 700}), answer, mode=0o640, owner="root:triage")
        triage.box.systemctl("restart", "triage-worker.service")
        state = f"select state from action where name = '{again['name']}'"
        wait_for("it to be closed", lambda: triage.query(state)[0]["state"] == "undone", 90)
        assert "removed by hand" in triage.actions(server)[-1]["text"]
        server.stop()


def test_what_the_user_does_by_hand_counts(triage: Installed) -> None:
    server = UserServer(triage.box, "ada", "hers-byhand", 32112)
    server.crash()
    number = triage.incident(server)
    assert triage.apply(number).code == 0
    [action] = triage.actions(server)
    server.ctl("revert", server.name)
    before = server.files()
    undone = triage.rollback(action["name"])
    assert (undone.code, "by hand" in undone.out + undone.err) == (0, True), undone
    assert server.files() == before
    assert [row["state"] for row in triage.actions(server)] == ["undone", "undone"]
    server.stop()


def test_what_is_not_allowed_is_refused_in_words(triage: Installed) -> None:
    server = UserServer(triage.box, "ada", "hers-refused", 32113)
    server.crash()
    number = triage.incident(server)
    before = server.files()
    triage.box.run(["sed", "-i", 's/^users = .*/users = ["b*"]/', "/etc/triage/policy.toml"])
    try:
        refused = triage.apply(number)
        assert (refused.code, "add a glob to users" in refused.err) == (3, True), refused
    finally:
        triage.box.run(["sed", "-i", 's/^users = .*/users = ["*"]/', "/etc/triage/policy.toml"])
    triage.box.run(["chmod", "600", server.path])
    refused = triage.apply(number)
    assert (refused.code, "chmod o+r" in refused.err) == (3, True), refused
    triage.box.run(["chmod", "644", server.path])
    triage.box.run(["loginctl", "disable-linger", "ada"])
    manager = f"user@{server.uid}.service"
    wait_for("ada's manager to end", lambda: triage.box.show(manager, "ActiveState")["ActiveState"] == "inactive")
    refused = triage.apply(number)
    assert (refused.code, "loginctl enable-linger ada" in refused.err) == (3, True), refused
    assert server.files() == before
    assert triage.actions(server) == []


def test_a_user_who_runs_triage_from_a_checkout_needs_nobody(triage: Installed) -> None:
    """State, spool and one-shot are the user's own; the manager is asked directly."""
    box = triage.box
    for name in (*OURS, "catalogue"):
        if (ROOT / name).is_dir():
            box.push(ROOT / name, f"/opt/checkout/{name}")
    server = UserServer(box, "dan", "checkout", 32114)
    before = server.files()
    python = ("/opt/triage/bin/python", "-m", "triage")
    variables = ("PYTHONPATH=/opt/checkout", f"XDG_RUNTIME_DIR=/run/user/{server.uid}", "HOME=/home/dan")

    def own(*args: str) -> Result:
        return box.run(["env", "-C", "/home/dan", *variables, *python, *args], user="dan", check=False, timeout=120)

    run = ["systemd-run", "-q", "--unit=own-watch.service", "--uid=dan", "--working-directory=/home/dan"]
    box.run([*run, *(f"--setenv={item}" for item in variables), *python, "watch"])
    try:
        server.crash()

        def closed() -> int | None:
            items = json.loads(own("incidents", "list", "--json").out or "{}").get("items", [])
            found = [item for item in items if item["unit"] == server.name]
            return int(found[0]["number"]) if found and found[0]["outcome"] == "fatal" else None

        number = wait_for("the incident", closed, 30, 1.0)
        done = own("apply", str(number), "--yes")
        assert done.code == 0, done
        assert server.argv()[-1] == FLAG
        assert server.generate().code == 0
        undone = own("rollback", f"i{number}-1", "--yes")
        assert undone.code == 0, undone
        assert server.files() == before
    finally:
        box.systemctl("stop", "own-watch.service", check=False)
        server.stop()
