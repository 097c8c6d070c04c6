"""A workaround's end: an upgrade past the mend is proposed, retiring works, a crash that comes back puts it back, and
what a hand removed is closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import PYTHON, Server
from tests.e2e.stories import put_back, retire

OWN = "/opt/sglang-debt"


@pytest.fixture(scope="module")
def patient(triage: Installed) -> Iterator[Installed]:
    """With a window long enough for a crash in it on a slow machine."""
    with triage.settings("retire", "rollback_window_seconds = 300\n") as one:
        yield one


def look_again(triage: Installed) -> None:
    """The worker looks at units' files every half minute, and when it starts."""
    triage.box.systemctl("restart", "triage-worker.service")


def test_an_upgrade_past_the_mend_and_a_crash_that_comes_back(patient: Installed) -> None:
    box = patient.box
    box.run(f"cp -a /opt/sglang {OWN}")
    server = Server(box, "debt", 31950)
    server.text = server.text.replace(PYTHON, f"{OWN}/bin/python")
    box.push(server.text, server.path)
    box.systemctl("daemon-reload")
    before = server.files()
    server.crash()
    number = patient.incident(server)
    assert patient.apply(number).code == 0
    action = patient.actions(server)[0]["name"]
    (item,) = patient.json("workarounds", "list", "--unit", server.name)["items"]
    assert (item["retire_when"], item["release"], item["retirable"]) == ("mended in 0.5.15", "0.5.12", None)

    box.run(f"cd {OWN}/lib/python3*/site-packages && mv sglang-0.5.12.dist-info sglang-0.5.15.dist-info")
    look_again(patient)
    wait_for("the proposal", lambda: "workaround.retirable" in patient.types(number))
    (item,) = patient.json("workarounds", "list", "--unit", server.name)["items"]
    assert "0.5.15 is installed" in item["retirable"]

    retire(patient, server, action, before)
    assert server.generate().code == 0
    assert patient.state(number) == "mitigated", "resolved only when its window has passed"
    retired = patient.actions(server)[1]["name"]
    proof = f"select state from proof where action = '{retired}'"
    wait_for("its soak", lambda: patient.query(proof)[0]["state"] in ("soak", "window"))

    again = put_back(patient, server)
    assert (again["kind"], again["name"]) == ("apply", f"{retired}-again")
    assert patient.query(proof)[0]["state"] == "failed"
    look_again(patient)
    (item,) = patient.json("workarounds", "list", "--unit", server.name)["items"]
    assert (item["name"], item["still_needed_on"], item["retirable"]) == (again["name"], ["0.5.15"], None)

    invocation = server.state()["InvocationID"]
    box.run(f"rm {server.path}.d/zzz-triage.conf && systemctl daemon-reload")
    look_again(patient)
    state = f"select state from action where name = '{again['name']}'"
    wait_for("it to be closed", lambda: patient.query(state)[0]["state"] == "undone")
    closed = patient.actions(server)[-1]
    assert "removed by hand" in closed["text"]
    assert server.state()["InvocationID"] == invocation, "the unit was not touched"
    assert patient.types(number).count("workaround.retirable") == 1
    server.stop()
