"""The dashboard over a made store, asked in-process; the browser's tests start a real server."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.dashboard.made import SECOND, T0, MadeHands, made_store, seed, units
from triage.dashboard.app import create_app
from triage.rulebase.rule import Rule, Rules
from triage.rulebase.rulefile import load_rules
from triage.rulebase.shelf import InForce
from triage.settings import Settings, Web
from triage.shipped import shipped
from triage.store import Store

TOKEN = "t" * 43
PORT = 8475
BASE = f"http://localhost:{PORT}"
NOW = T0 + 6 * 3600 * SECOND


@dataclass
class Clock:
    """A clock that stands still until a test moves it. Seconds."""

    time: float = NOW / SECOND

    def __call__(self) -> float:
        return self.time


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database as every test finds it, made once."""
    folder = tmp_path_factory.mktemp("seeded")
    made = made_store(folder)
    seed(made, NOW)
    made.backup(folder / "copy.db")
    made.close()
    return folder / "copy.db"


@pytest.fixture(scope="session")
def rules() -> tuple[Rule, ...]:
    return load_rules([shipped("rules")]).rules


@pytest.fixture
def store(tmp_path: Path, seeded: Path) -> Iterator[Store]:
    shutil.copy(seeded, tmp_path / "triage.db")
    made = made_store(tmp_path)
    yield made
    made.close()


@pytest.fixture
def hands(store: Store) -> MadeHands:
    return MadeHands(store)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(
    tmp_path: Path, store: Store, hands: MadeHands, clock: Clock, rules: tuple[Rule, ...]
) -> Callable[..., TestClient]:
    """A client of a dashboard made with these options."""

    def client(**options: Any) -> TestClient:
        settings = Settings(state_dir=tmp_path, runtime_dir=tmp_path / "run", web=Web(port=PORT))
        present = InForce(Rules(rules))
        given: dict[str, Any] = {"token": TOKEN, "hands": hands, "units": units, "clock": clock, **options}
        app = create_app(settings, store, **{"in_force": lambda: present, **given})
        return TestClient(app, base_url=BASE, follow_redirects=False)

    return client


@pytest.fixture
def reader(make: Callable[..., TestClient]) -> TestClient:
    """Somebody who was shown no token."""
    return make()


@pytest.fixture
def operator(make: Callable[..., TestClient]) -> TestClient:
    """Somebody whose browser opened the printed link."""
    client = make()
    assert client.get(f"/login?token={TOKEN}").status_code == 303
    return client


def form(client: TestClient, path: str, action: str) -> dict[str, str]:
    """The hidden fields of the form on a page that posts to `action`."""
    text = client.get(path).text
    part = text[text.index(f'action="{action}"') :]
    part = part[: part.index("</form>")]
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', part))
    assert fields["csrf"]
    return fields
