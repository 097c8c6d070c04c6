"""The manager hears what the service says."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from triage.notify import notify, watchdog_interval


def test_states_reach_the_managers_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1", "STATUS=reading")
        assert manager.recv(4096) == b"READY=1\nSTATUS=reading"


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("WATCHDOG=1")


def test_the_watchdog_interval_is_half_of_what_the_manager_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    assert watchdog_interval() == 15.0
    monkeypatch.delenv("WATCHDOG_USEC")
    assert watchdog_interval() is None
