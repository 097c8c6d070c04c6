"""Alerts over a receiver that is down and a worker that is killed: told once, under one id."""

from __future__ import annotations

from tests.e2e.box import wait_for
from tests.e2e.installed import RECEIVED, Installed
from tests.e2e.server import Server


def test_a_dead_receiver_and_a_killed_worker_delay_an_alert_and_do_not_double_it(triage: Installed) -> None:
    server = Server(triage.box, "alarm", 31800)
    triage.box.run(f"touch {RECEIVED}/down")
    server.crash()
    number = triage.incident(server)
    wait_for("a try that is turned away", lambda: triage.types(number, 503))
    triage.box.systemctl("kill", "--signal=KILL", "triage-worker.service")
    triage.box.run(f"rm {RECEIVED}/down")
    wait_for("the alert", lambda: triage.types(number))
    marker = Server(triage.box, "alarm-marker", 31801)  # whatever was left to say of the first was said before this
    marker.crash()
    wait_for("the next alert", lambda: triage.types(triage.incident(marker)))
    assert triage.types(number) == ["incident.opened"]
    hooks = triage.hooks(number)
    assert len({hook.id for hook in hooks}) == 1
    assert all(hook.signed() for hook in hooks)
