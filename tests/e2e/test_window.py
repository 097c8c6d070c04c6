"""A remedy that proved itself and fails all the same: the signature comes back within the window."""

from __future__ import annotations

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import Server


def test_a_signature_that_comes_back_takes_the_edit_away(triage: Installed) -> None:
    server = Server(triage.box, "returns", 31700)
    before = server.files()
    server.crash()
    number = triage.incident(server)
    assert triage.apply(number).code == 0
    wait_for("the incident to be mitigated", lambda: triage.state(number) == "mitigated", 15)

    server.behave("incurable")
    server.stop()
    triage.box.systemctl("start", server.name)
    # The next request ends it: ours, or one of the soak that goes on.
    wait_for("it to serve, or to be taken back", lambda: server.serves() or server.files() == before, 30)
    if server.files() != before:
        server.generate(3)
    wait_for("the old bytes", lambda: server.files() == before, 30)
    wait_for("the unit to run on them", lambda: server.serves() and "--disable-cuda-graph" not in server.argv(), 30)
    wait_for("the action to be undone", lambda: triage.actions(server)[0]["state"] in ("undone", "rolled-back"), 15)
    asked = triage.actions(server)[-1]
    assert (asked["kind"], asked["target"]) == ("rollback", triage.actions(server)[0]["name"])
    assert triage.state(number) in ("open", "regressed")
    wait_for("the operator to be told", lambda: "action.rolled_back" in triage.types(number), 15)
    server.stop()
