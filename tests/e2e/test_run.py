"""`triage run` typed by root on an installed machine: all three, as user triage, reading the journal."""

from __future__ import annotations

from tests.e2e.box import wait_for
from tests.e2e.installed import SERVICES, Installed
from tests.e2e.server import Server


def test_run_as_root_becomes_triage_reads_the_journal_and_ends_its_children(triage: Installed) -> None:
    box = triage.box
    services = [name for name in SERVICES if name != "triage-apply.path"]
    box.systemctl("stop", *services)
    try:
        box.run(["systemd-run", "-q", "--unit=by-hand.service", "/usr/local/bin/triage", "run", "--port", "0"])
        wait_for("the dashboard", lambda: "/login?token=" in box.journal("-u", "by-hand.service", "-o", "cat") or None)
        who = box.run("ps -o user= -C triage || true; pgrep -fu triage 'triage (watch|worker|web)' | wc -l").out
        assert "root" not in who
        assert int(who.split()[-1]) == 3
        server = Server(box, "byhand", 31160)
        server.crash()
        assert triage.state(triage.incident(server)) == "open"
        box.systemctl("stop", "by-hand.service")
        assert box.run(["pgrep", "-fu", "triage", "triage (watch|worker|web)"], check=False).out == ""
    finally:
        box.systemctl("stop", "by-hand.service", check=False)
        box.systemctl("start", *services)
