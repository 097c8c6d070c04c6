"""A remedy that proved itself and fails all the same: the signature comes back within the window."""

from __future__ import annotations

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import Server
from tests.e2e.stories import comes_back


def test_a_signature_that_comes_back_takes_the_edit_away(triage: Installed) -> None:
    server = Server(triage.box, "returns", 31700)
    number = comes_back(triage, server)
    wait_for("the action to be undone", lambda: triage.actions(server)[0]["state"] in ("undone", "rolled-back"))
    asked = triage.actions(server)[-1]
    assert (asked["kind"], asked["target"]) == ("rollback", triage.actions(server)[0]["name"])
    assert triage.state(number) in ("open", "regressed")
    wait_for("the operator to be told", lambda: "action.rolled_back" in triage.types(number))
    server.stop()
