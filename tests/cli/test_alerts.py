"""`triage alerts`: the channels there are, and whether they work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.worker.receiver import receiver

Type = Callable[..., Result]
SECRET = "whsec_" + "b2xkLXNlY3JldC1vbGQtc2VjcmV0"


def hooks(home: Path, **urls: str) -> None:
    (home / "secret").write_text(SECRET)
    text = "".join(
        f'[[webhooks]]\nname = "{name}"\nurl = "{url}"\nsecret_file = "{home / "secret"}"\n'
        for name, url in urls.items()
    )
    (home / "etc").mkdir(exist_ok=True)
    (home / "etc/triage.toml").write_text(text)


def test_a_test_message_arrives_signed(home: Path, run: Type) -> None:
    with receiver() as ops:
        hooks(home, ops=ops.url)
        result = run("alerts", "test")
    assert result.exit_code == 0
    assert "ops: arrived" in result.stdout
    assert ops.got[0].type == "triage.test"
    assert ops.got[0].signed_by(SECRET)


def test_one_that_does_not_arrive_is_a_failed_check(home: Path, run: Type) -> None:
    with receiver() as ops:
        hooks(home, ops=ops.url, dead="http://127.0.0.1:1/x")
        assert run("alerts", "test", "ops").exit_code == 0
        result = run("alerts", "test", "--json")
    assert result.exit_code == 1
    assert [item["ok"] for item in json.loads(result.stdout)["items"]] == [True, False]


def test_a_channel_that_is_not_there_is_a_usage_error(home: Path, run: Type) -> None:
    result = run("alerts", "test", "pager")
    assert result.exit_code == 2
    assert "pager" in str(result.exception)


@pytest.mark.parametrize("words", [("alerts", "list"), ("alerts", "list", "--json"), ("config", "show"), ("doctor",)])
def test_no_command_shows_a_secret(home: Path, run: Type, words: tuple[str, ...]) -> None:
    hooks(home, ops="https://user:hunter2@ops.example/hook?token=hunter3")
    out = run(*words).output
    assert "ops" in out
    assert not any(secret in out for secret in ("hunter2", "hunter3", SECRET, SECRET.removeprefix("whsec_")))
