"""The button with the real hands: unit files in a folder, root's one-shot as a child process, no manager needed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.dashboard.conftest import TOKEN, form
from tests.dashboard.made import UNIT
from triage.actionmodel import ActionState
from triage.request import Requester
from triage.settings import Settings
from triage.store import Store

UNITS = Path(__file__).parents[1] / "units"
PREVIEW = "/incidents/1/remedies/disable-cuda-graph"
APPLY = "/incidents/1/apply"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with one unit in it, as `--root` takes it."""
    folder = tmp_path / "machine"
    (folder / "etc/systemd/system").mkdir(parents=True)
    (folder / "etc/systemd/system" / UNIT).write_bytes((UNITS / "kimi-k26-dflash.service").read_bytes())
    return folder


@pytest.fixture
def requester(tmp_path: Path, store: Store, machine: Path) -> Requester:
    return Requester(Settings(state_dir=tmp_path, policy=tmp_path / "no-policy"), store, root=machine)


@pytest.fixture
def operator(make: Callable[..., TestClient], requester: Requester) -> TestClient:
    client = make(hands=requester, clock=time.time)  # root's side has the machine's, and takes no request of a day ago
    assert client.get(f"/login?token={TOKEN}").status_code == 303
    return client


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_preview_apply_and_undo_change_one_file_and_bring_the_bytes_back(
    operator: TestClient, requester: Requester, machine: Path, store: Store
) -> None:
    before = files(machine)
    page = operator.get(PREVIEW).text
    assert '<span class="add">+' in page
    assert "<ins>--disable-cuda-graph</ins>" in page
    assert files(machine) == before

    answer = operator.post(APPLY, data={**form(operator, PREVIEW, APPLY), "agreed": "yes"})
    assert answer.status_code == 303, re.sub(r"<[^>]+>", "", answer.text)
    where = answer.headers["location"]
    name = where.removeprefix("/actions/")
    for _ in requester.follow(name):
        pass
    assert store.action(name).state is ActionState.UNVERIFIED
    new = set(files(machine)) - set(before)
    assert new == {f"etc/systemd/system/{UNIT}.d/zzz-triage.conf"}
    assert b"--disable-cuda-graph" in files(machine)[new.pop()]
    assert "In force since" in operator.get("/incidents/1").text
    assert "/actions/" + name in operator.get("/workarounds").text

    fields = {**form(operator, where, f"{where}/rollback"), "agreed": "yes"}
    undo = operator.post(f"{where}/rollback", data=fields)
    assert undo.status_code == 303, re.sub(r"<[^>]+>", "", undo.text)
    for _ in requester.follow(undo.headers["location"].removeprefix("/actions/")):
        pass
    assert files(machine) == before
    assert store.action(name).state is ActionState.UNDONE
    assert operator.get(PREVIEW).status_code == 200  # it can be applied again


def test_a_unit_edited_by_hand_after_the_preview_is_not_touched(operator: TestClient, machine: Path) -> None:
    fields = {**form(operator, PREVIEW, APPLY), "agreed": "yes"}
    unit = machine / "etc/systemd/system" / UNIT
    unit.write_text(unit.read_text() + "# by hand\n")
    before = files(machine)
    answer = operator.post(APPLY, data=fields)
    assert answer.status_code == 409
    assert "the unit changed since the plan was shown" in answer.text
    assert files(machine) == before


def test_a_unit_that_is_not_there_is_a_refusal_on_the_page(operator: TestClient, machine: Path) -> None:
    (machine / "etc/systemd/system" / UNIT).unlink()
    answer = operator.get(PREVIEW)
    assert answer.status_code == 409
    assert "nothing was changed" in answer.text
    assert operator.get("/api/v1/incidents/1/plan").json()["code"] == "refused"


def test_the_command_line_of_a_unit_is_shown_without_its_key(operator: TestClient, machine: Path) -> None:
    unit = machine / "etc/systemd/system" / UNIT
    secret = "k3y-of-the-larch"
    unit.write_text(re.sub(r"(?m)(--tp(?:-size)? 8)", rf"\1 --api-key {secret}", unit.read_text()))
    assert secret in unit.read_text()
    for path in (PREVIEW, "/api/v1/incidents/1/plan"):
        text = operator.get(path).text
        assert "disable-cuda-graph" in text
        assert secret not in text
