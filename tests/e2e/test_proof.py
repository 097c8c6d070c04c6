"""Remedies that look well and are not, cures that take their time, and units that no restart can help.

One box, one unit a mode, all side by side: applying waits for the server, and waiting needs no processor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.box import Result, wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import DFLASH, Server

POLICY = "/etc/triage/policy.toml"
PROBE_SECONDS = 6  # instead of 300: a dead scheduler costs the whole of it
LOADING = "--mem-fraction-static 0.84"
WORKER = "triage-worker.service"
SMI = '#!/bin/sh\necho "999999, 77312"\n'


pytestmark = pytest.mark.timeout(400)  # the first test waits for all of them


@pytest.fixture(scope="module")
def impatient(triage: Installed) -> Iterator[None]:
    before = triage.box.pull(POLICY).decode()
    text = before.replace("probe_seconds = 300", f"probe_seconds = {PROBE_SECONDS}")
    triage.box.push(text.replace("steady_seconds = 3", "steady_seconds = 1"), POLICY)
    triage.box.push(SMI, "/usr/local/bin/nvidia-smi", mode=0o755)
    yield
    triage.box.push(before, POLICY)
    triage.box.run(["rm", "/usr/local/bin/nvidia-smi"])


class Mode:
    """A unit of its own that crashes as `crash` says; what runs after a remedy behaves as `then` says."""

    def __init__(
        self, triage: Installed, name: str, port: int, crash: str, then: str, flags: str = DFLASH, service: str = ""
    ) -> None:
        self.triage = triage
        # Two ranks do: what is proved here does not hang on their number, and the tests' machine is small.
        self.server = Server(triage.box, name, port, flags=f"{flags} \\\n  --tp 2", service=service)
        self.before = self.server.files()
        self.crash, self.then = crash, then
        self.result = Result((), -1, "", "")

    def fall(self, requests: int = 1, last: str = "one two three") -> None:
        """Run until it crashes at that request (0: while it loads)."""
        self.server.behave(self.crash)
        if requests:
            self.server.start()
        else:
            self.triage.box.systemctl("start", self.server.name)
        for number in range(1, requests + 1):
            self.server.generate(5, last if number == requests else "one two three")
        wait_for(f"{self.server.name} to end", lambda: self.server.state()["ActiveState"] in ("failed", "inactive"))
        self.server.behave(self.then)

    def apply(self, *more: str) -> Result:
        number = self.triage.incident(self.server, 30)
        return self.triage.cli("apply", str(number), "--yes", *more, check=False, timeout=300)

    def proof(self) -> dict[str, object]:
        name = next(row["name"] for row in self.triage.actions(self.server) if row["kind"] == "apply")
        found = self.triage.json("actions", "show", name)["action"]["proof"]
        assert isinstance(found, dict)
        return found

    def settled_state(self) -> str:
        """active or failed, once it has done with loading and with crashing."""
        ends = ("active", "failed", "inactive")
        return wait_for(
            "it to settle", lambda: next((s for s in ends if self.server.state()["ActiveState"] == s), ""), 30
        )

    def taken_back(self) -> None:
        """The unit is as it was and runs as well as it did."""
        assert self.server.files() == self.before
        wait_for("it to run on the old bytes", self.server.serves)
        assert "zzz-triage.conf" not in self.server.state()["DropInPaths"]


def kill_the_worker(triage: Installed, mode: Mode) -> None:
    """kill -9 in the middle of a soak, and of whatever else it does for the others."""
    sent = f"select sent from proof where unit = '{mode.server.name}' and state = 'soak' and sent > 5"
    wait_for("the soak to be under way", lambda: triage.query(sent), 300, every=0.5)
    triage.box.systemctl("kill", "--kill-whom=main", "--signal=KILL", WORKER)


@pytest.fixture(scope="module")
def modes(triage: Installed, impatient: None) -> Iterator[dict[str, Mode]]:
    """All of them crash, then are cured (or not), side by side."""
    made = {
        "slow": Mode(triage, "slow", 32003, "", "slow=90"),  # first: the others are told meanwhile
        "empty": Mode(triage, "empty", 32000, "", "empty"),
        "hang": Mode(triage, "hang", 32001, "", "hang-at=120"),
        "zombie": Mode(triage, "zombie", 32002, "", "zombie"),
        "exit-0": Mode(triage, "exits", 32004, "exit-0", "exit-0,incurable"),
        "half": Mode(triage, "half", 32005, "healthy,oom-at=6", "healthy,half", LOADING),
        "second": Mode(triage, "second", 32006, "oom-capture,healthy", "oom-capture,healthy", LOADING),
        "orphan": Mode(triage, "orphan", 32007, "orphan", "orphan", service="User=root"),
        "poison": Mode(triage, "poison", 32008, "poison", "poison"),
    }
    requests = {"half": 6, "second": 0}
    waits = dict.fromkeys(("empty", "hang", "half", "exit-0"), ("--wait",))

    def night(name: str) -> Result:
        mode = made[name]
        for _ in range(3 if name == "poison" else 1):
            mode.fall(*((3, "a moonstone, please") if name == "poison" else (requests.get(name, 1),)))
            triage.incident(mode.server, 30)
        return mode.apply(*waits.get(name, ()))

    with ThreadPoolExecutor(5) as threads:
        killer = threads.submit(kill_the_worker, triage, made["hang"])
        for mode, result in zip(made.values(), threads.map(night, made), strict=True):
            mode.result = result
        killer.result()
    yield made
    for mode in made.values():
        mode.server.stop()


# By mode: the exit code of `apply`, what its action came to, whether the unit runs, whether the edit is in it.
ENDS = {
    "empty": (4, "rolled-back", "active", False),
    "hang": (4, "undone", "active", False),
    "zombie": (4, "rolled-back", "active", False),
    "slow": (0, "verified", "active", True),
    "exit-0": (4, "rolled-back", "active", False),
    "half": (4, "undone", "active", False),
    "second": (4, "rolled-back", "failed", False),  # as before: it crashes while it loads
    "orphan": (3, "refused", "failed", False),  # as before
    "poison": (3, None, "failed", False),  # as before
}


def test_each_mode_ends_as_it_should_and_no_unit_worse_than_before(modes: dict[str, Mode]) -> None:
    found = {}
    for name, mode in modes.items():
        actions = [row["state"] for row in mode.triage.actions(mode.server) if row["kind"] == "apply"]
        changed = mode.server.files() != mode.before
        found[name] = (mode.result.code, actions[-1] if actions else None, mode.settled_state(), changed)
    assert found == ENDS, {name: modes[name].result for name in ENDS if found[name] != ENDS[name]}


def test_an_empty_answer_is_a_failure_at_once(modes: dict[str, Mode]) -> None:
    mode = modes["empty"]
    assert mode.result.code == 4, mode.result
    assert "empty text" in mode.result.err
    mode.taken_back()


def test_a_hang_at_request_120_is_found_by_the_soak(modes: dict[str, Mode]) -> None:
    mode = modes["hang"]
    assert mode.result.code == 4, mode.result
    assert mode.proof()["state"] == "failed"
    # Request 1 was root's own probe; what a killed worker had not noted is asked again.
    found = re.search(r"no answer to request (\d+) in 5 s", str(mode.proof()["text"]))
    assert found is not None, mode.proof()
    assert 60 <= int(found[1]) <= 119
    assert int(mode.triage.box.show(WORKER, "NRestarts")["NRestarts"]) >= 1
    assert mode.triage.actions(mode.server)[0]["state"] == "undone"
    mode.taken_back()


def test_a_dead_scheduler_behind_a_healthy_page_is_a_failure(modes: dict[str, Mode]) -> None:
    mode = modes["zombie"]
    assert mode.result.code == 4, mode.result
    assert f"no answer to the probe in {PROBE_SECONDS} s" in mode.result.err
    mode.taken_back()


def test_a_server_that_takes_its_time_is_waited_for(modes: dict[str, Mode]) -> None:
    mode = modes["slow"]
    [action] = mode.triage.actions(mode.server)
    assert float(json.loads(action["measured"])["ready_seconds"]) >= 90
    assert "--disable-cuda-graph" in mode.server.argv()
    assert mode.result.code == 0, mode.result
    assert "77312 MiB of GPU memory is held by pid 999999, which is gone" in mode.result.err
    wait_for("the soak to be over", lambda: mode.proof()["state"] == "window")
    assert "150 requests answered" in str(mode.proof()["text"])


def test_a_crash_that_ends_with_status_0_is_a_crash(modes: dict[str, Mode]) -> None:
    mode = modes["exit-0"]
    assert mode.result.code == 4, mode.result
    mode.taken_back()


def test_half_the_speed_that_nobody_announced_is_a_failure(modes: dict[str, Mode]) -> None:
    mode = modes["half"]
    assert mode.result.code == 4, mode.result
    assert "0.50 of the speed before (41.9 -> 20.9" in str(mode.proof()["text"])
    mode.taken_back()


def test_the_second_rung_is_taken_when_the_first_did_not_cure(modes: dict[str, Mode]) -> None:
    mode = modes["second"]
    assert mode.result.code == 4, mode.result
    assert mode.server.files() == mode.before
    again = mode.apply()
    assert again.code == 0, str(again)
    assert "it was tried here as" in again.out
    assert again.out.count("passed over: ") == 1, again.out  # the flag's newer name is no rung of its own
    argv = mode.server.argv()
    assert float(argv[len(argv) - argv[::-1].index("--mem-fraction-static")]) < 0.8
    assert "--cuda-graph-max-bs" not in argv


def test_a_process_that_left_the_unit_is_named_and_neither_ended_nor_blamed_on_the_change(
    modes: dict[str, Mode],
) -> None:
    mode = modes["orphan"]
    assert mode.result.code == 3, mode.result
    assert mode.server.files() == mode.before
    found = re.search(r"sglang::orphan \(pid (\d+)\) of an earlier run is still there", mode.result.err)
    assert found is not None, mode.result
    assert mode.triage.box.pull(f"/proc/{found[1]}/comm").decode().strip() == "sglang::orphan"
    mode.triage.box.run(["kill", "-9", found[1]])
    assert mode.apply().code == 0


def test_a_poison_request_changes_no_flag(modes: dict[str, Mode]) -> None:
    mode = modes["poison"]
    assert mode.result.code == 3, mode.result
    assert "this looks like a poison request" in mode.result.err
    assert "--crash-dump-folder" in mode.result.err
    assert mode.server.files() == mode.before
    assert mode.triage.actions(mode.server) == []


def test_never_more_than_one_probe_at_a_time(modes: dict[str, Mode]) -> None:
    """The logs hold each new maximum. What was not to be touched was not probed either."""
    logs = {name: mode.triage.box.journal("-u", mode.server.name, "-o", "cat") for name, mode in modes.items()}
    most = {name: set(re.findall(r"probes in flight: (\d+)", log)) for name, log in logs.items()}
    assert most == {name: set() if name == "poison" else {"1"} for name in modes}
