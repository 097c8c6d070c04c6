"""A unit whose server is started by a shell's script, with its port in SGLang's own file, is cured, proved and put back
like any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import MODEL, PYTHON, Server

FLAG = "--disable-cuda-graph"
PORT = 31977
CONFIG = "/etc/sglang-script.yaml"
SERVICE = f"""\
Environment=HOST=127.0.0.1 "FLAGS=--speculative-algorithm DFLASH --speculative-dflash-block-size 8"
ExecStart=
ExecStart=/bin/bash -c 'export A=1; cd /tmp && exec {PYTHON} -m sglang.launch_server --model-path {MODEL} \\
  --host "$HOST" --config {CONFIG} --tp 8 $FLAGS 2>&1'
"""


def test_a_server_in_a_script_is_cured_and_put_back(triage: Installed) -> None:
    triage.box.push(f"port: {PORT}\nlog-level: info\n", CONFIG)
    server = Server(triage.box, "script", PORT, service=SERVICE)
    server.crash()
    number = triage.incident(server)
    before = server.files()
    triage.cli("apply", str(number), "--yes", timeout=60)
    try:
        assert server.argv()[-1] == FLAG
        assert server.generate().code == 0
        triage.cli("rollback", f"i{number}-1", "--yes", timeout=60)
        assert FLAG not in server.argv()
        assert server.files() == before
    finally:
        server.stop()


def shell_port(triage: Installed, name: str, port: int, behaviour: str = "") -> Server:
    """A unit whose port only the shell knows."""
    service = f"""\
ExecStart=
ExecStart=/bin/bash -c 'P={port}; exec {PYTHON} -m sglang.launch_server --model-path {MODEL} \\
  --host 127.0.0.1 --tp 8 --speculative-algorithm DFLASH --speculative-dflash-block-size 8 --port $$P'
"""
    return Server(triage.box, name, port, behaviour=behaviour, service=service)


@pytest.fixture
def healthy(triage: Installed) -> Iterator[Server]:
    """Somebody else's server, on SGLang's own port."""
    server = Server(triage.box, "on-the-default", 30000, behaviour="healthy")
    server.start()
    yield server
    server.stop()


@pytest.mark.usefixtures("healthy")
def test_what_does_not_cure_behind_a_shells_port_is_not_proved_by_another_server(triage: Installed) -> None:
    server = shell_port(triage, "shell-port", 31978, "incurable")
    before = server.files()
    server.crash()
    try:
        done = triage.apply(triage.incident(server))
        assert (done.code, server.files()) == (4, before), done
    finally:
        server.stop()


@pytest.mark.usefixtures("healthy")
def test_a_port_that_only_the_shell_knows_is_asked_and_soaked(triage: Installed) -> None:
    server = shell_port(triage, "shell-cured", 31980)
    server.crash()
    number = triage.incident(server)

    def shown() -> dict[str, Any]:
        action: dict[str, Any] = triage.json("actions", "show", f"i{number}-1")["action"]
        return action

    try:
        triage.cli("apply", str(number), "--yes", timeout=90)
        assert shown()["measured"]["asked"] == "generation http://127.0.0.1:31980"
        wait_for("the soak at that port", lambda: "150 requests answered" in shown()["proof"]["text"], 60)
    finally:
        server.stop()


def test_the_server_of_another_unit_on_the_same_port_proves_nothing(triage: Installed) -> None:
    server, healthy = (Server(triage.box, f"port-{name}", 31979, behaviour=how) for name, how in (("a", ""), ("b", "")))
    server.crash()
    number = triage.incident(server)
    server.behave("slow=60")
    healthy.behave("healthy")
    healthy.start()
    policy = "/etc/triage/policy.toml"
    kept = triage.box.pull(policy).decode()
    triage.box.run(["sed", "-Ei", "s/^ready_seconds = .*/ready_seconds = 8/", policy])
    try:
        done = triage.apply(number)
        assert "somebody else answers on port 31979: sglang-port-b.service" in done.err, done
        assert done.code == 4
    finally:
        triage.box.push(kept, policy)
        server.stop()
        healthy.stop()
