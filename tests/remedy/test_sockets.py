"""Whose a listening port is: by the kernel's word on its cgroup, told apart by address."""

import os
import socket
from pathlib import Path

import pytest

from triage.units import sockets
from triage.units.sockets import Ears, Listener, command_lines, ears, listeners

OURS, OTHERS = 26492, 27001


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Listener]:
    there: list[Listener] = []
    monkeypatch.setattr(sockets, "listeners", lambda: tuple(there))
    monkeypatch.setattr(sockets, "_ids", lambda group: frozenset((OURS,)) if group == "/system.slice/a.service" else ())
    monkeypatch.setattr(sockets, "_name", lambda cgroup: {OTHERS: "b.service"}.get(cgroup, "?"))
    return there


@pytest.mark.parametrize(
    ("host", "there", "expected"),
    [
        ("127.0.0.1", [("127.0.0.1", OURS)], Ears(True)),
        ("127.0.0.1", [("0.0.0.0", OURS)], Ears(True)),
        ("127.0.0.1", [("::", OURS)], Ears(True)),
        ("::1", [("::1", OURS)], Ears(True)),
        ("127.0.0.1", [("127.0.0.1", OTHERS)], Ears(False, "b.service")),
        ("127.0.0.1", [], Ears(False)),
        ("127.0.0.1", [("10.0.0.5", OURS)], Ears(False)),
        ("127.0.0.1", [("0.0.0.0", OTHERS), ("127.0.0.1", OURS)], Ears(True)),
        ("127.0.0.1", [("0.0.0.0", OURS), ("127.0.0.1", OTHERS)], Ears(False, "b.service")),
        ("127.0.0.1", [("127.0.0.1", OURS), ("127.0.0.1", OTHERS)], Ears(False, "b.service")),  # SO_REUSEPORT
        ("gpu-a.example", [("10.0.0.5", OTHERS), ("127.0.0.1", OURS)], Ears(True)),
        ("gpu-a.example", [("10.0.0.5", OTHERS)], Ears(False, "b.service")),
        ("127.0.0.1", [("127.0.0.1", 1)], Ears(None)),  # the hierarchy's root: nobody's
    ],
)
def test_the_closest_listener_decides(
    heard: list[Listener], host: str, there: list[tuple[str, int]], expected: Ears
) -> None:
    heard += [Listener("127.0.0.1", 8000, OTHERS), *(Listener(address, 30000, cgroup) for address, cgroup in there)]
    assert ears(host, 30000, "/system.slice/a.service") == expected


def test_without_a_cgroup_nothing_is_told(heard: list[Listener]) -> None:
    assert ears("127.0.0.1", 30000, "") == Ears(None)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_names_a_listener_with_its_cgroup(family: socket.AddressFamily) -> None:
    with socket.socket(family) as one:
        try:
            one.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        except OSError:
            pytest.skip("no such address here")
        one.listen()
        found = listeners()
        if found is None:
            pytest.skip("this kernel does not tell the cgroup of a socket")
        assert next(item for item in found if item.port == one.getsockname()[1]).address == one.getsockname()[0]


def test_the_words_of_all_processes_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.controllers").write_text("")
    below = tmp_path / "system.slice/a.service/worker"
    below.mkdir(parents=True)
    (below / "cgroup.procs").write_text(f"{os.getpid()}\n999999999\n")
    monkeypatch.setattr(sockets, "_HIERARCHY", (tmp_path,))
    own = Path("/proc/self/cmdline").read_bytes().decode().removesuffix("\0").split("\0")
    assert command_lines("/system.slice/a.service") == (tuple(own),)
    assert command_lines("/system.slice/none.service") == ()
