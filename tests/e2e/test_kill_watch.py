"""kill -9 of watch in the middle of a crash: what is stored is what would have been stored without."""

from __future__ import annotations

import json
import time

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import Server

WATCH = "triage-watch.service"


def told(triage: Installed, server: Server) -> dict[str, object]:
    """What does not depend on when it happened."""
    number = triage.incident(server, 25)
    [crash] = triage.crashes(server)
    [incident] = triage.incidents(server)
    text = json.dumps(triage.json("incidents", "show", str(number)))
    wait_for("the webhook", lambda: triage.types(number))
    return {
        "ranks": [n for n in range(8) if f"TP{n}" in text],
        "crash": [crash[k] for k in ("crash_id", "signature", "rule", "outcome", "phase", "grade")],
        "incident": [incident[k] for k in ("state", "crashes", "alarms", "exception", "message", "place")],
        "told": triage.types(number),
    }


def test_a_crash_is_stored_once_and_whole_however_often_watch_is_killed(triage: Installed) -> None:
    whole = Server(triage.box, "undisturbed", 31400, behaviour="stagger=0.6")
    whole.crash()
    expected = told(triage, whole)
    assert expected["ranks"] == list(range(8))

    server = Server(triage.box, "disturbed", 31401, behaviour="stagger=0.6")
    server.start()
    server.generate(1)
    assert server.state()["ActiveState"] == "active"
    for _ in range(3):
        triage.box.systemctl("kill", "--signal=KILL", WATCH)
        time.sleep(0.3)
        wait_for("watch to read again", lambda: triage.box.show(WATCH, "SubState")["SubState"] == "running")
    wait_for("the unit to fail", lambda: server.state()["ActiveState"] == "failed")
    triage.box.systemctl("kill", "--signal=KILL", WATCH)
    assert told(triage, server) == expected
    assert int(triage.box.show(WATCH, "NRestarts")["NRestarts"]) >= 3


def test_a_crash_while_watch_is_down_is_found_when_it_comes_back(triage: Installed) -> None:
    triage.box.systemctl("stop", WATCH)
    server = Server(triage.box, "unwatched", 31402)
    server.crash()
    triage.box.systemctl("start", WATCH)
    number = triage.incident(server, 25)
    assert len(triage.crashes(server)) == 1
    triage.box.systemctl("restart", WATCH)
    marker = Server(triage.box, "marker2", 31403)
    marker.crash()
    triage.incident(marker, 25)
    assert len(triage.crashes(server)) == 1
    wait_for("the webhook", lambda: triage.types(number))
    assert triage.types(number) == ["incident.opened"]
