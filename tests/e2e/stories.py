"""What more than one kind of unit goes through: the system's own and a user's."""

from __future__ import annotations

from typing import Any

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import Server

FLAG = "--disable-cuda-graph"


def comes_back(triage: Installed, server: Server) -> int:
    """The remedy proves itself, the crash comes back in its window, the edit goes unasked. Gives the incident."""
    before = server.files()
    server.crash()
    number = triage.incident(server)
    assert triage.apply(number).code == 0
    wait_for("the incident to be mitigated", lambda: triage.state(number) == "mitigated")

    server.behave("incurable")
    server.stop()
    server.ctl("start", server.name)
    # The next request ends it: ours, or one of the soak that goes on.
    wait_for("it to serve, or to be taken back", lambda: server.serves() or server.files() == before)
    if server.files() != before:
        server.generate(3)
    wait_for("the old bytes", lambda: server.files() == before)
    wait_for("the unit to run on them", lambda: server.serves() and FLAG not in server.argv())
    return number


def retire(triage: Installed, server: Server, action: str, before: dict[str, tuple[str, str]]) -> None:
    """The crash is mended: the workaround goes, and the unit is as it was `before` it."""
    server.behave("healthy")
    done = triage.cli("workarounds", "retire", action, "--yes", check=False, timeout=120)
    assert done.code == 0, done
    assert "is retired" in done.out
    assert server.files() == before


def put_back(triage: Installed, server: Server) -> dict[str, Any]:
    """The mend was none: the crash comes back, and the workaround with it. Gives the action that put it back."""
    server.behave("")
    server.stop()
    server.crash()
    wait_for("the workaround to be back", lambda: triage.actions(server)[-1]["state"] == "verified", 60)
    again = triage.actions(server)[-1]
    wait_for("it to serve", server.serves)
    assert FLAG in server.argv()
    return again
