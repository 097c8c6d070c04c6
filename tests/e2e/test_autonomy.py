"""Unasked, where the site wants it: a remedy with a history is applied by itself, a prepared one at a person's yes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import Server

SETTINGS = """\
rollback_window_seconds = 2

[[autonomy.rules]]
unit = "sglang-alone.service"
level = "automatic"

[[autonomy.rules]]
unit = "sglang-willing.service"
level = "approve"
"""


@pytest.fixture(scope="module")
def trusting(triage: Installed) -> Iterator[Installed]:
    with triage.settings("autonomy", SETTINGS) as one:
        yield one


def verdicts(triage: Installed, server: Server) -> list[str]:
    rows = triage.query(f"select verdict, text from decision where unit = '{server.name}' order by crash")
    return [f"{row['verdict']}: {row['text']}" for row in rows]


def test_what_has_held_here_before_is_applied_by_itself(trusting: Installed) -> None:
    server = Server(trusting.box, "alone", 31900)
    server.crash()
    number = trusting.incident(server)
    (first,) = wait_for("a decision", lambda: verdicts(trusting, server))
    assert first.startswith("proposed: "), first
    if "was not applied and verified" in first:  # else another story has made the history
        assert server.files().keys() == {server.path}
    done = trusting.apply(number)
    assert done.code == 0, done
    action = trusting.actions(server)[0]["name"]
    watched = f"select name from action where name = '{action}' and watched_at is not null"
    wait_for("the window to pass in silence", lambda: trusting.query(watched))
    assert trusting.rollback(action).code == 0
    server.stop()

    server.crash()
    wait_for("a second decision", lambda: len(verdicts(trusting, server)) == 2)
    assert verdicts(trusting, server)[1].startswith("filed: "), verdicts(trusting, server)
    wait_for("its action to be verified", lambda: trusting.actions(server)[-1]["state"] == "verified")
    mine = trusting.actions(server)[-1]
    assert (mine["kind"], mine["who"]) == ("apply", "triage (automatic)")
    assert "--disable-cuda-graph" in server.argv()
    assert server.generate().code == 0
    assert trusting.rollback(mine["name"]).code == 0
    server.stop()


def test_what_was_prepared_is_applied_at_a_yes_and_nothing_else_is(trusting: Installed) -> None:
    server = Server(trusting.box, "willing", 31901)
    server.crash()
    number = trusting.incident(server)
    wait_for("a prepared plan", lambda: verdicts(trusting, server))
    assert [text.split(":")[0] for text in verdicts(trusting, server)] == ["waiting"]
    trusting.box.push(server.text.replace("Kimi K2.6, DFlash", "renamed"), server.path)
    trusting.box.systemctl("daemon-reload")
    refused = trusting.cli("guards", "approve", str(number), check=False)
    assert refused.code == 3, refused
    assert "was changed since the plan was made" in refused.err
    trusting.box.push(server.text, server.path)
    trusting.box.systemctl("daemon-reload")
    done = trusting.cli("guards", "approve", str(number), check=False)
    assert done.code == 0, done
    assert "--disable-cuda-graph" in server.argv()
    assert trusting.cli("guards", "approve", str(number), check=False).code == 3
    assert trusting.rollback(trusting.actions(server)[0]["name"]).code == 0
    server.stop()
