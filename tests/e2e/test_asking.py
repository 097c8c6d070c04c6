"""Planning asks the installed server, as its own user, through root's one-shot: its parser has the last word."""

from __future__ import annotations

from tests.e2e.installed import Installed
from tests.e2e.server import Server

FLAG = "--disable-cuda-graph"
ANSWERS = "/var/lib/triage-apply/answers"


def test_a_flag_that_the_server_does_not_know_is_refused_with_the_reason(triage: Installed) -> None:
    server = Server(triage.box, "lacking", 31911, behaviour="lacks=disable-cuda-graph")
    server.crash()
    number = triage.incident(server)
    done = triage.cli("apply", str(number), "--remedy", "disable-cuda-graph", "--dry-run", check=False)
    assert done.code == 3, done
    assert f"sglang 0.5.12 has no {FLAG}" in done.err
    told = triage.cli("apply", str(number), "--dry-run", check=False)
    assert f"has no {FLAG}" in told.out + told.err  # passed over, with the reason
    server.stop()


def test_a_server_that_knows_the_flag_was_asked_as_its_own_user(triage: Installed) -> None:
    server = Server(triage.box, "asked", 31912)
    server.crash()
    number = triage.incident(server)
    told = triage.cli("apply", str(number), "--dry-run")
    assert FLAG in told.out
    assert "was not asked" not in told.out + told.err
    answer = triage.box.run(["cat", f"{ANSWERS}/{server.name}"]).out
    assert '"release": "0.5.12"' in answer
    ran = triage.box.run("journalctl -o json -u 'run-*.service' --no-pager | grep -c 'triage asks' || true").out
    assert int(ran or 0) >= 1
    server.stop()
