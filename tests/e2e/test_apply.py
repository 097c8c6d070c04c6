"""The main job against the real manager: apply, prove, undo; refusals, failures, strangers at the privilege line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.box import wait_for
from tests.e2e.installed import ROOTS_OWN, SPOOL, Installed
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


def action_names(triage: Installed, server: Server) -> list[str]:
    return [row["name"] for row in triage.actions(server)]


def path_unit_lives(triage: Installed) -> bool:
    return triage.box.show("triage-apply.path", "ActiveState")["ActiveState"] == "active"


def root_is_idle(triage: Installed) -> bool:
    idle = triage.box.show("triage-apply.service", "ActiveState")["ActiveState"] in ("inactive", "failed")
    return idle and not triage.box.run(f"ls {REQUESTS} {ROOTS_OWN}/claims | grep -v : || true").out.strip()


def test_a_crash_is_cured_and_the_cure_undone_byte_for_byte(triage: Installed, crashed: tuple[Server, int]) -> None:
    server, number = crashed
    before = server.files()
    done = triage.apply(number)
    assert done.code == 0, done
    assert f"+    {FLAG}" in done.out
    assert FLAG in server.argv()
    assert server.generate().code == 0
    assert triage.state(number) == "mitigated"
    told = triage.box.systemctl("cat", server.name)
    (action,) = action_names(triage, server)
    for words in (f"incident {number}", f"triage rollback {action}", FLAG):
        assert words in told
    undone = triage.rollback(action)
    assert undone.code == 0, undone
    assert server.files() == before
    assert FLAG not in server.argv()
    assert triage.state(number) == "open"


def test_a_remedy_that_does_not_cure_is_taken_back(triage: Installed, crashed: tuple[Server, int]) -> None:
    server, number = crashed
    before = server.files()
    server.behave("incurable")
    done = triage.apply(number)
    assert done.code == 4, done
    assert "old file is back" in done.err
    assert server.files() == before
    assert triage.actions(server)[0]["state"] == "rolled-back"


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


def test_an_override_keeps_its_say_and_the_edit_wins(triage: Installed, crashed: tuple[Server, int]) -> None:
    server, number = crashed
    argv = triage.box.run(["sed", "-n", "/^ExecStart/,/[^\\\\]$/p", server.path]).out
    override = f"[Service]\nExecStart=\n{argv.rstrip()} --log-level debug\nEnvironment=EXTRA=%n\n"
    triage.box.push(override, f"{server.path}.d/override.conf")
    triage.box.systemctl("daemon-reload")
    assert triage.apply(number).code == 0
    assert server.argv()[-3:] == ["--log-level", "debug", FLAG]
    assert triage.rollback(action_names(triage, server)[0]).code == 0
    assert triage.box.pull(f"{server.path}.d/override.conf").decode() == override


def test_without_yes_or_a_terminal_nothing_happens(triage: Installed, crashed: tuple[Server, int]) -> None:
    server, number = crashed
    before = server.files()
    assert triage.cli("apply", str(number), check=False).code == 3
    assert triage.cli("apply", str(number), "--dry-run").out.count(FLAG) >= 1
    stranger = triage.cli("apply", str(number), "--yes", user="sglang", check=False)
    assert stranger.code == 7
    assert "sudo triage apply" in stranger.err
    assert server.files() == before


def test_root_killed_in_the_middle_is_taken_up_again(triage: Installed, crashed: tuple[Server, int]) -> None:
    server, number = crashed
    server.behave("slow=2")
    said = triage.box.run(
        f"(set +e; triage apply {number} --yes >/tmp/said 2>&1; echo $? >/tmp/code) & "
        f"for i in $(seq 200); do grep -lq '\"restart\"' {ROOTS_OWN}/results/i{number}-1 2>/dev/null && break; "
        "sleep 0.05; done; systemctl kill -s KILL triage-apply.service; wait; cat /tmp/code /tmp/said",
        timeout=90,
    ).out
    assert said.splitlines()[0] == "0", said
    assert FLAG in server.argv()
    result = json.loads(triage.box.run(["cat", f"{ROOTS_OWN}/results/i{number}-1"]).out)
    assert result["kept"]["attempts"] == "2"
    assert path_unit_lives(triage)


HOSTILE = f"""
set +e
cd {REQUESTS}
ln -s /etc/shadow link; ln -s {ROOTS_OWN} folderlink; mkfifo fifo; mkdir -p full/of/things; mkdir empty
head -c 200000 /dev/zero >huge; echo '{{}}' >i1-99; touch 'a b' $'new\\nline' .hidden
for i in $(seq 300); do echo rubbish >flood-$i; done
"""


def test_what_the_triage_user_throws_at_root_is_thrown_out(triage: Installed) -> None:
    box = triage.box
    before = box.tree("/etc/systemd/system")
    for _ in range(3):
        box.run(HOSTILE, user="triage")
    wait_for("root to empty the spool", lambda: root_is_idle(triage), 30)
    assert path_unit_lives(triage)
    assert box.tree("/etc/systemd/system") == before
    assert "root" in box.run(["stat", "-c", "%U", "/etc/shadow"]).out


def test_a_request_of_the_triage_users_own_making_is_refused(triage: Installed, crashed: tuple[Server, int]) -> None:
    server, number = crashed
    before = triage.box.tree("/etc/systemd/system")
    edit = {"op": "set-flag", "name": "--trust-remote-code", "value": None, "floor": None, "ceiling": None}
    request: dict[str, Any] = {"kind": "apply", "unit": server.name, "incident": number, "rule": "r", "remedy": "x"}
    request |= {"action": "evil-1", "edits": [edit], "seen_digest": "a" * 64, "result_digest": "b" * 64, "uid": 0}
    request |= {"sudo_uid": None, "target": None, "verify": False}
    request |= {"time": int(triage.box.run("date +%s").out) * 1_000_000, "reason": "x", "root": ""}
    variants = {
        "evil-1": request,
        "evil-2": {**request, "action": "evil-2", "unit": "systemd-journald.service"},
        "evil-3": {**request, "action": "evil-3", "drop_in_text": "[Service]\nUser=root\n"},
        "evil-4": {**request, "action": "evil-4", "root": "/"},
        "evil-5": {
            **request,
            "action": "evil-5",
            "edits": [{**edit, "op": "set-env", "name": "LD_PRELOAD", "value": "/x"}],
        },
    }
    for name, content in variants.items():
        triage.box.run(f"cat >{REQUESTS}/{name}", user="triage", data=json.dumps(content).encode())
    wait_for("root to be done with them", lambda: root_is_idle(triage), 30)
    assert triage.box.tree("/etc/systemd/system") == before
    states = triage.box.run(f'grep -h \'"state": "ref\' {ROOTS_OWN}/results/evil-* | sort | uniq -c').out
    assert states.split() == ["3", '"state":', '"refused",']
    assert path_unit_lives(triage)


def test_a_spool_turned_into_a_link_costs_only_the_spool(triage: Installed) -> None:
    box = triage.box
    box.run(f"mv {REQUESTS} {SPOOL}/aside && ln -s /etc/systemd/system {REQUESTS}", user="triage")
    try:
        before = box.tree("/etc/systemd/system")
        box.systemctl("restart", "triage-apply.path")
        box.run("sleep 4")
        assert path_unit_lives(triage)
        assert box.tree("/etc/systemd/system") == before
    finally:
        box.run(f"rm {REQUESTS} && mv {SPOOL}/aside {REQUESTS}", user="triage")
    wait_for("root to be idle again", lambda: root_is_idle(triage), 30)
    assert path_unit_lives(triage)


def test_root_writes_only_where_it_should(triage: Installed) -> None:
    said = triage.box.run(["systemd-analyze", "security", "--no-pager", "triage-apply.service"]).out
    score = re.search(r"exposure level for \S+: ([0-9.]+)", said)
    assert score is not None
    assert float(score[1]) <= 2.2
