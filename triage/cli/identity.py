"""Who types the command, and as whom it goes on: the line of contracts.md, Who runs what.

Every verb that touches state calls `enter` first. On a machine where triage is installed, root becomes user `triage`
before anything is opened (root's own part is the one-shot behind the spool, never the command line), and anybody else
is told the command that works. In a checkout the state is the caller's own.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from triage import settings as configuration
from triage.frozen import frozen
from triage.model import NotPermitted, Unreachable

USER = "triage"


@frozen
class Session:
    """The settings, and who asked: `uid` is the caller's before the change of user, `sudo_uid` who called sudo."""

    settings: configuration.Settings
    uid: int
    sudo_uid: int | None

    @property
    def who(self) -> str:
        """For timelines: the person behind sudo where there is one."""
        if self.sudo_uid is None:
            return _name(self.uid)
        return f"{_name(self.sudo_uid)} (sudo)"


def enter(arguments: Mapping[str, Any] | None = None, *, journal: bool = False) -> Session:
    """Change to user `triage` where triage is installed, then read the settings. `journal`: keep the right to read it.

    Raises NotPermitted (exit 7) for another user of an installed triage, with the command to type instead.
    """
    uid, sudo = os.geteuid(), os.environ.get("SUDO_UID", "")
    if configuration.installed():
        _become_triage(uid, journal)
    settings = configuration.load_settings(arguments=arguments)
    return Session(settings, uid, int(sudo) if sudo.isdigit() and uid == 0 else None)


def _become_triage(uid: int, journal: bool) -> None:
    try:
        account = pwd.getpwnam(USER)
    except KeyError:
        raise Unreachable(
            "triage's units are installed but its user is not: run systemd-sysusers, or the installer again"
        ) from None
    if uid == account.pw_uid:
        return
    if uid != 0:
        command = shlex.join(["sudo", "triage", *sys.argv[1:]])
        raise NotPermitted(f"the state belongs to user {USER}; type: {command}")
    os.initgroups(USER, account.pw_gid)
    if journal:  # as SupplementaryGroups= of triage-watch.service
        with contextlib.suppress(KeyError):
            os.setgroups([*os.getgroups(), grp.getgrnam("systemd-journal").gr_gid])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    os.umask(0o077)
    os.environ.update(HOME=account.pw_dir, USER=USER, LOGNAME=USER)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):  # root's, not triage's
        os.environ.pop(name, None)
    os.chdir("/")


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
