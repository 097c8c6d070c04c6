"""What `triage units` learns of a unit, and that it learns it without starting anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from triage.actionmodel import ActionResult, ActionState, Request, Unit, UnitFile
from triage.model import Edit, Refused
from triage.units.dropin import files_digest
from triage.units.servers import find_servers, release
from triage.units.systemctl import State

FRAGMENT = """\
[Service]
Environment=PORT=30001
ExecStart={python} -m sglang.launch_server --model-path /models/k --port ${{PORT}} \\
  --tp 8 --api-key s3cr3t-of-ours --cuda-graph-bs 1 2 4 --trust-remote-code
"""
NAME = "sglang-k.service"


class Manager:
    def __init__(self, *files: UnitFile, stale: bool = False) -> None:
        self.files, self.stale = files, stale

    def list_units(self, *globs: str) -> tuple[str, ...]:
        return (NAME,) if "sglang*.service" in globs else ()

    def read_unit(self, name: str) -> Unit:
        if not self.files:
            raise Refused(f"{name} is masked: systemctl unmask it first")
        return Unit(name, self.files, need_daemon_reload=self.stale)

    def state(self, name: str) -> State:
        return State("active", "running", "success", "a" * 32, 2, 4711)


@pytest.fixture
def python(tmp_path: Path) -> str:
    (tmp_path / "lib/python3.12/site-packages/sglang-0.5.12.dist-info").mkdir(parents=True)
    return str(tmp_path / "bin/python")


def fragment(python: str) -> UnitFile:
    return UnitFile(f"/etc/systemd/system/{NAME}", FRAGMENT.format(python=python))


def test_a_unit_tells_state_flags_and_release(python: str) -> None:
    [server] = find_servers(Manager(fragment(python), stale=True), ["sglang*.service"])
    assert (server.name, server.state, server.sub, server.restarts) == (NAME, "active", "running", 2)
    assert server.version == "0.5.12"
    assert server.stale
    assert server.flags["--port"] == "30001"
    assert server.flags["--tensor-parallel-size"] == "8"
    assert server.flags["--cuda-graph-bs"] == "1 2 4"
    assert server.flags["--trust-remote-code"] == ""
    assert server.files == (f"/etc/systemd/system/{NAME}",)


def test_secrets_of_the_command_are_not_shown(python: str) -> None:
    [server] = find_servers(Manager(fragment(python)), ["sglang*.service"])
    assert "s3cr3t-of-ours" not in repr(server)
    assert "--api-key" in server.argv


def test_drop_ins_count_for_the_command(python: str) -> None:
    text = f"[Service]\nExecStart=\nExecStart={python} -m sglang.launch_server --model-path /models/other\n"
    files = fragment(python), UnitFile(f"/etc/systemd/system/{NAME}.d/zzz-triage.conf", text)
    [server] = find_servers(Manager(*files), ["sglang*.service"])
    assert dict(server.flags) == {"--model-path": "/models/other"}


def test_a_unit_that_cannot_be_read_is_listed_with_the_reason() -> None:
    [server] = find_servers(Manager(), ["sglang*.service"])
    assert (server.name, server.state, server.flags) == (NAME, "active", {})
    assert "masked" in server.note


def test_a_unit_that_starts_no_sglang_is_listed_with_the_reason() -> None:
    file = UnitFile("/x", "[Service]\nExecStart=/usr/bin/docker run sglang\n")
    [server] = find_servers(Manager(file), ["sglang*.service"])
    assert server.note
    assert server.files == ("/x",)


def test_what_triage_changed_is_listed(python: str) -> None:
    request = Request(
        action="a-1",
        kind="apply",
        unit=NAME,
        incident=7,
        rule="some-rule",
        remedy="disable-cuda-graph",
        edits=(Edit("set-flag", "--disable-cuda-graph"),),
        seen_digest="0" * 64,
        result_digest="0" * 64,
        uid=0,
        sudo_uid=None,
        time=1,
    )
    seen = files_digest(Unit(NAME, (fragment(python),)))
    result = ActionResult(request, ActionState.VERIFIED, (), 1, 2, digest="0" * 64, kept={"files_digest": seen})
    [server] = find_servers(Manager(fragment(python)), ["sglang*.service"], [result])
    assert [(a.action, a.incident, a.remedy) for a in server.in_force] == [("a-1", 7, "disable-cuda-graph")]
    assert not server.note
    override = UnitFile(f"/etc/systemd/system/{NAME}.d/override.conf", "[Service]\nNice=5\n")
    [server] = find_servers(Manager(fragment(python), override), ["sglang*.service"], [result])
    assert f"other files of {NAME} changed since a-1" in server.note


def test_a_program_without_metadata_has_no_release(tmp_path: Path) -> None:
    assert release(str(tmp_path / "bin/python")) is None
    assert release("python") is None
