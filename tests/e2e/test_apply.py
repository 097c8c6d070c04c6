"""What `triage apply` refuses before root has touched anything. The story and its failures have files of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.installed import SPOOL, Installed
from tests.e2e.server import Server

FLAG = "--disable-cuda-graph"
REQUESTS = f"{SPOOL}/requests"


@pytest.fixture
def crashed(triage: Installed, request: pytest.FixtureRequest) -> Iterator[tuple[Server, int]]:
    """A unit of the test's own that crashed as in the founding story, and its incident."""
    name = request.node.name.removeprefix("test_")[:24].replace("_", "-").strip("-")
    server = Server(triage.box, name, 31000 + sum(map(ord, request.node.name)) % 900)
    server.crash()
    yield server, triage.incident(server)
    server.stop()


def test_a_unit_changed_by_hand_is_refused(triage: Installed, crashed: tuple[Server, int]) -> None:
    server, number = crashed
    triage.box.systemctl("stop", "triage-apply.path")
    try:
        asking = triage.box.run(
            f"(set +e; triage apply {number} --yes >/tmp/said 2>&1; echo $? >/tmp/code) & "
            f"for i in $(seq 100); do ls {REQUESTS} | grep -q . && break; sleep 0.05; done; "
            f"echo '# by hand' >>{server.path}; systemctl start triage-apply.path; wait; cat /tmp/code /tmp/said",
            timeout=60,
        ).out
    finally:
        triage.box.systemctl("start", "triage-apply.path")
    assert asking.splitlines()[0] == "3", asking
    assert "changed since the plan was made" in asking
    assert not any("zzz-triage" in path for path in server.files())


def test_without_yes_or_a_terminal_nothing_happens(triage: Installed, crashed: tuple[Server, int]) -> None:
    server, number = crashed
    before = server.files()
    assert triage.cli("apply", str(number), check=False).code == 3
    assert triage.cli("apply", str(number), "--dry-run").out.count(FLAG) >= 1
    stranger = triage.cli("apply", str(number), "--yes", user="sglang", check=False)
    assert stranger.code == 7
    assert "sudo triage apply" in stranger.err
    assert server.files() == before
