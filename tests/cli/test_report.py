"""The bundle for a bug report says what matters and nothing private."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from triage.cli import triage
from triage.cli.bundle import masker

CRASH = Path(__file__).resolve().parents[2] / "demo" / "crash.export"


@pytest.fixture
def _stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's crash, seen on a host with private names in it."""
    text = CRASH.read_text().replace("/opt/sglang/venv", "/home/jo/venv").replace("/models/", "/srv/secret-project/")
    log = tmp_path / "crash.export"
    log.write_text(text)
    monkeypatch.setenv("TRIAGE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    result = CliRunner().invoke(triage, ["watch", "--source", str(log)], catch_exceptions=False)
    assert result.exit_code == 0


@pytest.mark.usefixtures("_stored")
def test_what_matters_is_in_it_and_what_is_private_is_not() -> None:
    said = CliRunner().invoke(triage, ["report", "1"], catch_exceptions=False).output
    assert "`dflash_worker.py:715`" in said
    assert "AttributeError: 'NoneType' object has no attribute 'hidden_states'" in said
    assert "--speculative-dflash-block-size 8" in said
    assert "--model-path Kimi-K2.6" in said
    for private in ("gpu-07", "/home/jo", "secret-project"):
        assert private not in said


@pytest.mark.usefixtures("_stored")
def test_json_holds_the_same() -> None:
    said = json.loads(CliRunner().invoke(triage, ["report", "1", "--json"], catch_exceptions=False).output)
    assert said["root"]["exception"] == "AttributeError"
    assert len(said["ranks"]) == 8
    assert said["flags"]["tp_size"] == "8"


def test_addresses_go_and_loopback_stays() -> None:
    assert (
        masker("h1")("from 10.1.2.3:5000 on h1 to 127.0.0.1, not h12")
        == "from ADDRESS:5000 on HOST to 127.0.0.1, not h12"
    )
