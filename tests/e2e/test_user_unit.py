"""A unit of `systemctl --user`, from its crash to the cure and back: by its user's own hand, which root asks for."""

from __future__ import annotations

import json

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.userserver import UserServer

FLAG = "--disable-cuda-graph"


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
    wait_for("the action to be undone", lambda: triage.actions(server)[0]["state"] == "undone", 15)
    server.stop()
    other.stop()
