"""A home for the commands: settings and state below the test's own folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.store.made import HOST
from triage import settings as settings_room
from triage.cli import triage
from triage.model import TriageError
from triage.settings import load_settings
from triage.store import Store, open_store

Type = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY", "TRIAGE_CONFIG", "SUDO_UID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(settings_room, "ETC", tmp_path / "etc")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """The store that the commands use."""
    made = open_store(load_settings(), upgrade=True)
    made.host = HOST
    yield made
    made.close()


@pytest.fixture
def run(home: Path) -> Type:
    """Type a command; an error of the tree becomes its exit code and one line on stderr, as in `main`."""

    def run(*words: str) -> Result:
        result = CliRunner().invoke(triage, list(words))
        if isinstance(result.exception, TriageError):
            result.exit_code = result.exception.exit_code
        elif result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
