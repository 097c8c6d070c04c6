"""A machine that is given another name keeps what is its own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.store.made import T0, brief_document, closed, made_finding, made_result
from triage.store import Store, machine

NAMES = {"old": "9f1c0000000000000000000000000001", "copy": "9f1c0000000000000000000000000002"}


def opened_on(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, identity: str, *, service: bool) -> Store:
    (folder / "machine-id").write_text(identity + "\n")
    monkeypatch.setattr(machine, "_ID", folder / "machine-id")
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    store = Store(f"sqlite:///{folder / 'triage.db'}", document=brief_document)
    if service:
        store.upgrade()
    else:
        store.ready()
    return store


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    store = opened_on(tmp_path, monkeypatch, "gpu-a", NAMES["old"], service=True)
    store.record("journal:", (closed(made_finding()),), cursor="c1", contexts={}, now=T0)
    store.import_result(made_result(), T0)
    store.close()
    return tmp_path


def test_until_a_service_starts_the_old_name_goes_on(before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened_on(before, monkeypatch, "gpu-b", NAMES["old"], service=False)
    assert store.host == "gpu-a"
    assert store.action("a1").host == "gpu-a"
    assert [store.is_here(host) for host in ("", "gpu-a", "gpu-b", "gpu-c")] == [True, True, True, False]


def test_a_service_takes_all_over_to_the_new_name(before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened_on(before, monkeypatch, "gpu-b", NAMES["old"], service=True)
    assert (store.host, store.incident(1).incident.host, store.action("a1").host) == ("gpu-b", "gpu-b", "gpu-b")
    assert store.resume("journal:")[0] == "c1"
    assert not store.import_result(made_result(), T0), "what root wrote is known under the new name too"
    assert len(store.actions().rows) == 1
    assert store.faults() == ()


def test_a_copy_on_another_machine_takes_nothing_over(before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened_on(before, monkeypatch, "gpu-b", NAMES["copy"], service=True)
    assert (store.host, store.action("a1").host) == ("gpu-b", "gpu-a")
    again = opened_on(before, monkeypatch, "gpu-a", NAMES["old"], service=False)
    assert again.host == "gpu-a"
