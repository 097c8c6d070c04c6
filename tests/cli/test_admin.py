"""`triage db`, `triage config`, `triage doctor`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.store.made import T0, closed, made_finding, record
from triage.cli import checkup
from triage.store import Store

Type = Callable[..., Result]


def test_the_database_is_made_once_and_checked(home: Path, run: Type) -> None:
    assert run("db", "check").exit_code == 6
    assert "is made" in run("db", "upgrade").stdout
    assert "already" in run("db", "upgrade").stdout
    assert run("db", "check").exit_code == 0
    assert json.loads(run("db", "check", "--json").stdout)["faults"] == []


def test_a_broken_file_is_a_failed_check(store: Store, home: Path, run: Type) -> None:
    for number in range(200):
        record(store, closed(made_finding(number, signature=f"s{number}")))
    store.close()
    file = home / "state/triage/triage.db"
    size = file.stat().st_size
    with file.open("r+b") as raw:
        raw.seek(size // 2)
        raw.write(b"\xff" * (size // 4))
    assert run("db", "check").exit_code in (1, 6)


def test_a_backup_is_written_beside_running_services(store: Store, home: Path, run: Type) -> None:
    record(store, closed(made_finding()))
    assert run("db", "backup", str(home / "copy.db")).exit_code == 0
    assert (home / "copy.db").stat().st_mode & 0o077 == 0
    assert run("db", "backup", str(home / "copy.db")).exit_code == 2
    assert run("db", "backup", str(home / "nowhere" / "copy.db")).exit_code == 6


def test_pruning_says_what_went(store: Store, run: Type) -> None:
    record(store, closed(made_finding(1)), closed(made_finding(2)), now=T0 - 10**14)
    assert "1 crashes" in run("db", "prune", "--days", "1").stdout


def test_shown_settings_are_a_settings_file(home: Path, run: Type) -> None:
    (home / "etc").mkdir()
    (home / "etc/triage.toml").write_text(
        '[[webhooks]]\nname = "ops"\nurl = "https://ops.example/h"\n[web]\nport = 99\n'
    )
    shown = tomllib.loads(run("config", "show").stdout)
    assert shown["web"]["port"] == 99
    assert shown["webhooks"][0]["name"] == "ops"
    document = json.loads(run("config", "show", "--json").stdout)
    assert document["files"] == [str(home / "etc/triage.toml")]
    assert document["settings"]["units"] == ["sglang*.service"]


def test_wrong_settings_fail_the_check_with_their_file(home: Path, run: Type) -> None:
    assert run("config", "check").exit_code == 0
    (home / "etc").mkdir()
    (home / "etc/triage.toml").write_text("port = 1\nunit = 2\n")
    result = run("config", "check")
    assert result.exit_code == 1
    assert result.output.count(str(home / "etc/triage.toml")) == 2


def test_the_doctor_names_what_is_missing_and_what_mends_it(
    home: Path, run: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup.importlib.util, "find_spec", lambda name: None)
    result = run("doctor", "--json")
    looks = {look["name"]: look for look in json.loads(result.stdout)["items"]}
    assert result.exit_code == 1
    assert looks["python-systemd"]["state"] == "missing"
    assert "pip install systemd-python" in looks["python-systemd"]["mend"]
    assert looks["database"] == looks["database"] | {"state": "missing", "mend": "triage db upgrade"}
    assert looks["rules"]["state"] == "ok"
    assert "-> triage db upgrade" in run("doctor").stdout


def test_the_doctor_goes_on_after_a_fault(home: Path, run: Type) -> None:
    (home / "etc").mkdir()
    (home / "etc/triage.toml").write_text("nope = 1\n")
    result = run("doctor", "--json")
    assert result.exit_code == 1
    looks = json.loads(result.stdout)["items"]
    assert looks[0]["name"] == "settings"
    assert "nope" in looks[0]["text"]
    assert len(looks) > 1


def test_a_healthy_machine_makes_the_doctor_content(
    store: Store, home: Path, run: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "_journal", lambda settings: iter(()))
    monkeypatch.setattr(checkup.importlib.util, "find_spec", lambda name: object())
    result = run("doctor")
    assert result.exit_code == 0, result.output


def test_an_installed_machine_is_asked_for_its_services(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triage.settings import Settings, load_settings

    settings = load_settings()
    monkeypatch.setattr(Settings, "installed", property(lambda self: True))
    monkeypatch.setattr(checkup, "_active", lambda unit: "failed" if unit == checkup.APPLY else "active")
    assert [look.state for look in checkup._services(settings)] == ["ok", "ok", "ok"]
    (apply,) = checkup._apply(settings)
    assert apply.state == "missing"
    assert "reset-failed" in apply.mend
