"""Who may type what on a machine where triage is installed."""

from __future__ import annotations

import pwd
import sys
from pathlib import Path

import pytest

from triage import settings
from triage.cli import identity
from triage.model import NotPermitted, Unreachable


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "installed", lambda: True)


def account(uid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd(("triage", "x", uid, uid, "", "/var/lib/triage", "/usr/sbin/nologin"))


@pytest.mark.usefixtures("_installed")
def test_another_user_is_told_the_sudo_command_and_exit_7(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwnam", lambda name: account(990))
    monkeypatch.setattr(identity.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["triage", "apply", "7", "--remedy", "cap it"])
    with pytest.raises(NotPermitted, match="sudo triage apply 7 --remedy 'cap it'") as told:
        identity.enter()
    assert told.value.exit_code == 7


@pytest.mark.usefixtures("_installed")
def test_a_missing_user_is_said_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(name: str) -> pwd.struct_passwd:
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", nobody)
    with pytest.raises(Unreachable, match="systemd-sysusers"):
        identity.enter()


def test_in_a_checkout_the_caller_stays_who_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    session = identity.enter()
    assert session.settings.state_dir == tmp_path / "triage"
    assert not session.settings.installed


def test_the_person_behind_sudo_is_named() -> None:
    me = pwd.getpwuid(0).pw_name
    shown = identity.Session(settings.Settings(), 0, 0)
    assert shown.who == f"{me} (sudo)"
    assert identity.Session(settings.Settings(), 0, None).who == me
