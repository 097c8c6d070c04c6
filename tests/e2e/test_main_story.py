"""The story that triage was born from, on a real systemd: crash, incident, alert, remedy, proof, and all undone."""

from __future__ import annotations

import json

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import Server

EXITED = "98e322203f7a4ed290d09fe03c09fe15"
RANKS = [f"TP{n}" for n in range(8)]


def exit_time(triage: Installed, server: Server) -> int:
    """When the manager said that the main process was gone, microseconds."""
    entry = triage.box.journal("-o", "json", "-n", "1", f"UNIT={server.name}", f"MESSAGE_ID={EXITED}")
    return int(json.loads(entry)["__REALTIME_TIMESTAMP"])


def test_a_crash_is_found_told_cured_and_the_cure_undone(triage: Installed) -> None:
    server = Server(triage.box, "main", 31100)
    before = server.files()
    invocation = server.crash()

    # One incident, complete within two seconds of the unit's exit (issue 2 names the time).
    number = triage.incident(server)
    [crash] = triage.crashes(server)
    assert crash["invocation"] == invocation
    assert crash["closed_at"] - exit_time(triage, server) < 2_000_000
    assert (crash["outcome"], crash["phase"]) == ("fatal", "serving")
    shown = triage.json("incidents", "show", str(number))
    text = json.dumps(shown)
    assert all(rank in text for rank in RANKS)
    assert "dflash_worker.py" in text
    assert crash["rule"].startswith("dflash-")

    # One signed webhook.
    wait_for("the webhook", lambda: triage.types(number))
    [hook] = triage.hooks(number)
    assert hook.event["type"] == "incident.opened"
    assert hook.signed()

    # The remedy, applied and proved.
    done = triage.apply(number)
    assert done.code == 0, done
    drop_in = f"{server.path}.d/zzz-triage.conf"
    text = triage.box.pull(drop_in).decode()
    assert f"incident {number}" in text.lower()
    assert crash["rule"] in text
    assert "triage rollback" in text
    assert text in triage.box.systemctl("cat", server.name)
    assert server.serves()
    assert server.argv()[-1] == "--disable-cuda-graph"
    assert server.argv().count("--speculative-dflash-block-size") == 1
    assert server.generate().code == 0
    wait_for("the incident to be mitigated", lambda: triage.state(number) == "mitigated")
    [action] = triage.actions(server)
    assert action["state"] == "verified"

    [unit] = [u for u in triage.json("units")["units"] if u["name"] == server.name]
    assert (unit["state"], unit["version"]) == ("active", "0.5.12")
    assert unit["flags"]["--speculative-dflash-block-size"] == "8"
    assert "--disable-cuda-graph" in unit["flags"]
    assert [w["action"] for w in unit["workarounds"]] == [action["name"]]

    # ... and taken back, to the byte.
    undone = triage.rollback(action["name"])
    assert undone.code == 0, undone
    assert server.files() == before
    assert "--disable-cuda-graph" not in server.argv()
    wait_for("the action to be undone", lambda: triage.actions(server)[0]["state"] == "undone")
    assert triage.types(number)[:3] == ["incident.opened", "action.started", "action.verified"]
    server.stop()


def test_the_incident_is_open_while_the_ranks_are_still_failing(triage: Installed) -> None:
    server = Server(triage.box, "open", 31101, behaviour="stagger=0.3")
    server.start()
    server.generate(1)
    number = triage.incident(server, 3, closed=False)
    assert server.state()["ActiveState"] == "active"
    assert triage.state(number) == "open"
    wait_for("the unit to fail", lambda: server.state()["ActiveState"] == "failed")
    triage.incident(server)
    [crash] = triage.crashes(server)
    assert all(rank in json.dumps(triage.json("incidents", "show", str(number))) for rank in RANKS)
    assert crash["opened_at"] < exit_time(triage, server) < crash["closed_at"]


def test_a_clean_stop_and_an_operators_restart_are_no_crash(triage: Installed) -> None:
    server = Server(triage.box, "calm", 31102, flags="--disable-cuda-graph")
    server.start()
    triage.box.systemctl("restart", server.name)
    wait_for("it to serve again", server.serves)
    assert server.generate().code == 0
    server.stop()
    # Its ends look like any crash's to systemd: killed by SIGKILL, failed.
    assert server.state()["Result"] == "signal"
    other = Server(triage.box, "marker", 31103)  # when this one's crash is told, all before it has been read
    other.crash()
    triage.incident(other)
    assert [c for c in triage.crashes(server) if c["outcome"] in ("fatal", "degraded")] == []
