"""Remedies that do not cure, units that changed, units with a person's own drop-in, two edits on one unit."""

from __future__ import annotations

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import DFLASH, Server


def test_a_remedy_that_does_not_cure_is_rolled_back(triage: Installed) -> None:
    server = Server(triage.box, "incurable", 31200, behaviour="incurable")
    server.crash()
    number = triage.incident(server)
    before = server.files()
    done = triage.apply(number)
    assert done.code == 4, done
    assert server.files() == before
    wait_for("it to run on the old bytes", server.serves)
    assert "--disable-cuda-graph" not in server.argv()
    assert triage.actions(server)[0]["state"] == "rolled-back"
    assert triage.state(number) == "open"
    wait_for("both results to be told", lambda: "action.rolled_back" in triage.types(number))
    server.stop()


def test_a_unit_that_was_changed_after_the_plan_is_left_alone(triage: Installed) -> None:
    server = Server(triage.box, "changed", 31201)
    server.crash()
    number = triage.incident(server)
    # The operator reads the plan; meanwhile a colleague edits the unit; then the operator says yes.
    script = f"""
      mkfifo /tmp/answer
      triage_pid() {{ :; }}
      script -qec 'triage apply {number}' /dev/null </tmp/answer >/tmp/asked & pid=$!
      exec 3>/tmp/answer
      for i in $(seq 200); do grep -q 'zzz-triage.conf' /tmp/asked && break; sleep 0.05; done
      sleep 0.2
      sed -i 's/^Description=.*/Description=changed by a colleague/' {server.path}
      echo y >&3
      exec 3>&-
      wait $pid
    """
    done = triage.box.run(script, check=False, timeout=90)
    assert done.code == 3, (done, triage.box.run("cat /tmp/asked", check=False))
    assert list(server.files()) == [server.path]
    assert "changed by a colleague" in triage.box.pull(server.path).decode()
    assert triage.actions(server)[0]["state"] == "refused"


def test_the_edit_wins_over_a_persons_override(triage: Installed) -> None:
    server = Server(triage.box, "override", 31202)
    override = (
        "[Service]\nExecStart=\nExecStart=/opt/sglang/bin/python -m sglang.launch_server --model-path /models/other "
        "--port 31202 --tp 8 --speculative-algorithm DFLASH --speculative-dflash-block-size 8\n"
    )
    triage.box.push(override, f"{server.path}.d/override.conf")
    triage.box.systemctl("daemon-reload")
    server.crash()
    number = triage.incident(server)
    before = server.files()
    done = triage.apply(number)
    assert done.code == 0, done
    assert "/models/other" in server.argv()
    assert server.argv()[-1] == "--disable-cuda-graph"
    assert triage.rollback(triage.actions(server)[0]["name"]).code == 0
    assert server.files() == before
    assert "--disable-cuda-graph" not in server.argv()
    server.stop()


def test_of_two_actions_the_first_is_undone_alone(triage: Installed) -> None:
    server = Server(
        triage.box,
        "two",
        31203,
        flags=DFLASH + " \\\n  --speculative-ddtree-budget 16 --mem-fraction-static 0.9",
        behaviour="illegal-capture",
    )
    before = server.files()
    triage.box.systemctl("start", server.name)
    wait_for("it to fail in capture", lambda: server.state()["ActiveState"] == "failed")
    first = triage.incident(server)
    done = triage.apply(first, "--no-verify")  # the budget is capped; the first request still ends it
    assert done.code == 0, done
    capped = triage.actions(server)[0]["name"]
    server.crash()
    wait_for("a second incident", lambda: len(triage.incidents(server)) == 2)
    second = triage.incidents(server)[1]["id"]
    triage.incident(server)
    done = triage.apply(second)
    assert done.code == 0, done
    argv = server.argv()
    assert argv[argv.index("--speculative-ddtree-budget") + 1] == "8"
    assert "--disable-cuda-graph" in argv
    # Without graphs nothing is captured, so the cap is no longer needed.
    assert triage.rollback(capped).code == 0
    argv = server.argv()
    assert argv[argv.index("--speculative-ddtree-budget") + 1] == "16"
    assert "--disable-cuda-graph" in argv
    other = next(a["name"] for a in triage.actions(server) if a["state"] in ("verified", "unverified"))
    # Undone it is, but as the unit was first written it does not come up: that is said too.
    assert triage.rollback(other).code == 4
    assert server.files() == before
    server.stop()
