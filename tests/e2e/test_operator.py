"""An operator stops or restarts the unit while an action waits for it: theirs is no crash, and the change stays."""

from __future__ import annotations

import threading

import pytest

from tests.e2e.box import Result, wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import Server


@pytest.mark.parametrize(("verb", "port", "state"), [("stop", 31210, "unverified"), ("restart", 31211, "verified")])
def test_an_operators_job_during_an_apply_is_no_crash(triage: Installed, verb: str, port: int, state: str) -> None:
    server = Server(triage.box, f"operator-{verb}", port)
    server.crash()
    number = triage.incident(server)
    server.behave("slow=6")
    done: list[Result] = []
    asking = threading.Thread(target=lambda: done.append(triage.apply(number)))
    asking.start()
    wait_for("it to load with the change", lambda: "--disable-cuda-graph" in ending(server))
    triage.box.systemctl(verb, server.name)
    asking.join(60)
    assert done, "the action does not end"
    assert done[0].code == (1 if state == "unverified" else 0), done
    assert triage.actions(server)[0]["state"] == state
    assert any("zzz-triage.conf" in path for path in server.files())
    assert server.serves() == (verb == "restart")
    assert triage.rollback(triage.actions(server)[0]["name"]).code == 0
    assert server.serves() == (verb == "restart")
    server.stop()


def ending(server: Server) -> list[str]:
    return server.argv() if server.state()["MainPID"] != "0" else []
