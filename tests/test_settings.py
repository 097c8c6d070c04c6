"""Settings: who wins, and how errors are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from triage import settings as settings_room
from triage.model import InputError
from triage.settings import EVENTS, Autonomy, Guards, ProofSettings, Settings, Web, Webhook, load_settings


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY", "TRIAGE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(settings_room, "ETC", tmp_path / "etc")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_any_file_all_lies_in_the_users_own_folders(tmp_path: Path) -> None:
    settings = load_settings()
    assert settings.state_dir == tmp_path / "state/triage"
    assert settings.database == f"sqlite:///{tmp_path}/state/triage/triage.db"
    assert settings.spool == tmp_path / "state/triage/spool"
    assert settings.apply_dir == tmp_path / "state/triage/apply"
    assert settings.units == ("sglang*.service",)
    assert settings.base_url == f"http://127.0.0.1:{settings.web.port}"


def test_a_service_lives_where_systemd_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/triage")
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/triage")
    settings = load_settings()
    assert settings.database == "sqlite:////var/lib/triage/triage.db"
    assert settings.apply_dir == Path("/var/lib/triage-apply")
    assert settings.runtime_dir == Path("/run/triage")


def test_the_user_triage_lives_where_its_services_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_room, "_user", lambda: "triage")
    assert load_settings().state_dir == Path("/var/lib/triage")


def test_arguments_beat_variables_beat_drop_ins_beat_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    write(
        etc / "triage.toml",
        'units = ["a*"]\nretention_days = 1\nrollback_window_seconds = 1\n[web]\nport = 1\nhost = "::1"\n',
    )
    write(etc / "triage.toml.d/10-site.toml", "retention_days = 2\nrollback_window_seconds = 2\n[web]\nport = 2\n")
    monkeypatch.setenv("TRIAGE_ROLLBACK_WINDOW_SECONDS", "3")
    monkeypatch.setenv("TRIAGE_WEB__PORT", "3")
    settings = load_settings(arguments={"web": {"port": 4}, "rules": None})
    assert settings.units == ("a*",)
    assert settings.retention_days == 2
    assert settings.rollback_window_seconds == 3
    assert settings.web.port == 4
    assert settings.base_url == "http://[::1]:4"


def test_the_users_files_count_only_where_the_machine_has_none(tmp_path: Path) -> None:
    write(tmp_path / "config/triage/triage.toml", "retention_days = 7\n")
    assert load_settings().retention_days == 7
    write(tmp_path / "etc/triage.toml", "rollback_window_seconds = 2\n")
    assert load_settings().retention_days == 90


def test_lists_in_variables_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIAGE_UNITS", "sglang-a.service, sglang-b.service")
    assert load_settings().units == ("sglang-a.service", "sglang-b.service")


def test_all_errors_are_told_at_once_each_with_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    main = write(tmp_path / "etc/triage.toml", 'nope = 1\nstate_dir = 3\n[[webhooks]]\nname = "A B"\nurl = "ftp://x"\n')
    site = write(tmp_path / "etc/triage.toml.d/x.toml", '[web]\nport = "x"\n')
    broken = write(tmp_path / "etc/triage.toml.d/y.toml", "units = [\n")
    monkeypatch.setenv("TRIAGE_RETENTION_DAYS", "none")
    with pytest.raises(InputError) as caught:
        load_settings()
    told = str(caught.value).splitlines()
    for place, name in (
        (main, "nope"),
        (main, "state_dir"),
        (main, "webhooks.0.name"),
        (main, "webhooks.0.url"),
        (site, "web.port"),
        (broken, "not valid TOML"),
        ("environment", "retention_days"),
    ):
        assert any(str(place) in line and name in line for line in told), (place, name, told)


def test_an_unknown_event_names_those_there_are(tmp_path: Path) -> None:
    text = '[[webhooks]]\nname = "ops"\nurl = "https://ops.example/hook"\nevents = ["incident.open"]\n'
    file = write(tmp_path / "t.toml", text)
    with pytest.raises(InputError, match=r"incident\.open'.*incident\.opened"):
        load_settings(file)


def test_two_webhooks_of_one_name_are_refused(tmp_path: Path) -> None:
    hook = '[[webhooks]]\nname = "ops"\nurl = "https://ops.example/hook"\n'
    with pytest.raises(InputError, match="'ops'"):
        load_settings(write(tmp_path / "t.toml", hook * 2))


def test_secrets_come_from_files_as_they_are_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hook = Webhook(name="ops", url="https://ops.example/hook")
    assert hook.secrets() == ()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    file = write(tmp_path / "webhook-ops", "whsec_b25l\n")
    assert hook.secrets() == ("whsec_b25l",)
    file.write_text("whsec_dHdv\nwhsec_b25l\n")
    assert hook.secrets() == ("whsec_dHdv", "whsec_b25l")


def test_a_secret_that_cannot_be_read_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="/nowhere/secret"):
        Webhook(name="ops", url="https://ops.example/hook", secret_file=Path("/nowhere/secret")).secrets()


def test_what_is_shown_has_no_secret(tmp_path: Path) -> None:
    hook = '[[webhooks]]\nname = "ops"\nurl = "https://bob:pw1@ops.example/hook?token=pw2"\n'
    file = write(tmp_path / "t.toml", 'database = "postgresql://triage:pw3@db/triage"\n' + hook)
    shown = str(load_settings(file).shown())
    assert "ops.example/hook" in shown
    assert "db/triage" in shown
    assert not any(secret in shown for secret in ("pw1", "pw2", "pw3", "bob"))


def test_no_setting_is_required() -> None:
    """triage runs on a machine where nothing was written."""
    assert all(not field.is_required() for field in Settings.model_fields.values())


def test_every_setting_is_in_the_docs_with_its_default() -> None:
    page = (Path(__file__).parents[1] / "docs/settings.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    tables = {"autonomy": Autonomy, "guards": Guards, "web": Web, "webhooks": Webhook, "proof": ProofSettings}
    names = [name for name in Settings.model_fields if name not in tables]
    names += [f"{table}.{name}" for table, model in tables.items() for name in model.model_fields]
    assert sorted(rows) == sorted(names)
    for name in ("rollback_window_seconds", "retention_days"):
        assert f"`{Settings.model_fields[name].default:g}`" in rows[name]
    assert f"`{Web.model_fields['port'].default}`" in rows["web.port"]


def test_every_event_is_in_the_docs() -> None:
    page = (Path(__file__).parents[1] / "docs/alerts.md").read_text()
    assert all(f"| `{event}` |" in page for event in EVENTS)
