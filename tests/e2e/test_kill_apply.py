"""kill -9 of root's one-shot at every step of an action, forward and back: it is taken up again and ends the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e.box import wait_for
from tests.e2e.installed import ROOTS_OWN, Installed
from tests.e2e.server import Server
from tests.e2e.userserver import UserServer

# Root's real one-shot, but for one thing: having written down a step that is on the list, it kills itself. The kill
# falls on the worst moments, before a deed (`running`) and after it (`done`), which no timing from outside would hit.
DIE = f"""
import os, signal, sys
from triage.actions import apply, ledger
LIST = "{ROOTS_OWN}/die"
real = ledger.Ledger.write_result
def write_result(self, result):
    real(self, result)
    here = " ".join((result.steps[-1].name, result.steps[-1].state)) if result.steps else ""
    points = open(LIST).read().split(",") if os.path.exists(LIST) else []
    if here in points:
        points.remove(here)
        with open(LIST, "w") as file:
            file.write(",".join(points))
        os.kill(os.getpid(), signal.SIGKILL)
ledger.Ledger.write_result = write_result
sys.exit(apply.main())
"""

OVERRIDE = "[Service]\nExecStart=\nExecStart=/opt/triage/bin/python -I /opt/die.py\n"
SERVICE = "triage-apply.service"
DROP_IN = f"/etc/systemd/system/{SERVICE}.d/die.conf"

# Root gives up an action that was begun more than five times, so four kills each.
CYCLES = (
    ["policy done", "read done", "render done", "stage done"],
    ["write running", "write done", "reload done", "compare done"],
    ["restart running", "restart done", "ready done", "probe done"],
)


@pytest.fixture(scope="module")
def deadly(triage: Installed) -> Iterator[Installed]:
    triage.box.push(DIE, "/opt/die.py")
    triage.box.push(OVERRIDE, DROP_IN)
    triage.box.systemctl("daemon-reload")
    yield triage
    triage.box.run(["rm", "-r", DROP_IN.rsplit("/", 1)[0]])
    triage.box.systemctl("daemon-reload")


@pytest.fixture(scope="module")
def server(triage: Installed) -> Server:
    server = Server(triage.box, "killed", 31600)
    server.crash()
    triage.incident(server)
    return server


def kill_at(triage: Installed, points: list[str]) -> None:
    triage.box.push(",".join(points), f"{ROOTS_OWN}/die")


def left(triage: Installed) -> list[str]:
    return [point for point in triage.box.pull(f"{ROOTS_OWN}/die").decode().split(",") if point]


@pytest.mark.parametrize("points", CYCLES, ids=lambda points: points[0].split()[0])
def test_an_action_that_is_killed_at_each_step_ends_as_if_it_had_not_been(
    deadly: Installed, server: Server, points: list[str]
) -> None:
    number = deadly.incident(server)
    before = server.files()

    kill_at(deadly, points)
    done = deadly.apply(number)
    assert done.code == 0, done
    assert left(deadly) == []
    assert server.serves()
    assert server.argv()[-1] == "--disable-cuda-graph"
    assert server.generate().code == 0
    action = deadly.actions(server)[-1]
    assert action["state"] == "verified"
    # Restarted once for the action, however often it was begun.
    starts = deadly.box.journal("-u", server.name, "-o", "cat", "--since", f"@{action['requested_at'] // 1_000_000}")
    assert len(re.findall(r"^Started ", starts, re.M)) == 1

    kill_at(deadly, [point for point in points if not point.startswith("probe")])
    undone = deadly.rollback(action["name"])
    assert undone.code == 0, undone
    assert left(deadly) == []
    assert server.files() == before
    wait_for("it to serve on the old bytes", server.serves)
    assert "--disable-cuda-graph" not in server.argv()
    assert deadly.box.run(f"ls {ROOTS_OWN}/claims").out == ""


def test_an_action_on_a_users_unit_that_is_killed_ends_as_if_it_had_not_been(deadly: Installed) -> None:
    """Root's process dies; the user's, which works for it, ends with it, and the next one takes up where it was."""
    server = UserServer(deadly.box, "kim", "killed-own", 31602)
    before = server.files()
    server.crash()
    number = deadly.incident(server)
    for points in CYCLES[1:]:
        kill_at(deadly, points)
        done = deadly.apply(number)
        assert done.code == 0, done
        assert left(deadly) == []
        assert server.argv()[-1] == "--disable-cuda-graph"
        action = deadly.actions(server)[-1]
        of = (f"_SYSTEMD_UNIT=user@{server.uid}.service", f"USER_UNIT={server.name}")
        starts = deadly.box.journal(*of, "-o", "cat", "--since", f"@{action['requested_at'] // 1_000_000}")
        assert len(re.findall(r"^Started ", starts, re.M)) == 1
        kill_at(deadly, ["write running", "reload done", "restart running"])
        undone = deadly.rollback(action["name"])
        assert undone.code == 0, undone
        assert left(deadly) == []
        assert server.files() == before
    wait_for("nobody to act for the user any more", lambda: not deputies(deadly, server))
    server.stop()


def deputies(triage: Installed, server: UserServer) -> str:
    return triage.box.run(["pgrep", "-u", server.user, "-f", "triage.actions.deputy"], check=False).out


def test_a_rollback_of_roots_own_that_is_killed_is_finished(deadly: Installed) -> None:
    server = Server(deadly.box, "killed-back", 31601, behaviour="incurable")
    server.crash()
    number = deadly.incident(server)
    before = server.files()
    kill_at(deadly, ["probe failed", "restore running", "restore done", "restore-restart running"])
    done = deadly.apply(number)
    assert done.code == 4, done
    assert left(deadly) == []
    assert server.files() == before
    assert deadly.actions(server)[-1]["state"] == "rolled-back"
    server.stop()
