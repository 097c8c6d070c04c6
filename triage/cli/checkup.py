"""What `triage doctor` looks at: one function a thing, each of which says what is missing and what mends it.

Called by `triage.cli.admin`. Looks only; changes nothing. A fault of one look never hides the next.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from triage.cli.identity import USER, enter
from triage.frozen import frozen
from triage.model import Damaged, InputError, TriageError
from triage.settings import Settings, setting_files

State = Literal["ok", "note", "missing"]
JOURNALS = (Path("/var/log/journal"), Path("/run/log/journal"))
SERVICES = ("triage-watch.service", "triage-worker.service", "triage-web.service")
APPLY = "triage-apply.path"


@frozen
class Look:
    """One thing that was looked at. `note` is no fault: something works less well, or does not apply here."""

    name: str
    state: State
    text: str
    mend: str = ""


def checkup() -> tuple[Look, ...]:
    """All of it, in the order in which it should be mended."""
    try:
        settings = enter().settings
    except InputError as error:
        mend = (
            f"edit {', '.join(str(path) for path in _files()) or '/etc/triage/triage.toml'}, then `triage config check`"
        )
        return (Look("settings", "missing", str(error), mend), *_library())
    looks: list[Look] = []
    for look in (_settings, _rules, _library, _journal, _database, _services, _apply, _accounts, _policy, _webhooks):
        try:
            looks += _ask(look, settings)
        except (TriageError, OSError) as error:
            looks.append(Look(look.__name__.strip("_"), "missing", str(error)))
    return tuple(looks)


def _ask(look: Callable[..., Iterator[Look]], settings: Settings) -> Iterator[Look]:
    return look() if look is _library else look(settings)


def _files() -> tuple[Path, ...]:
    try:
        return setting_files()
    except InputError:
        return ()


def _settings(settings: Settings) -> Iterator[Look]:
    files = ", ".join(str(path) for path in _files()) or "no file, the defaults"
    yield Look("settings", "ok", f"{files}; units {' '.join(settings.units)}")


def _rules(settings: Settings) -> Iterator[Look]:
    from triage.rulebase.rulefile import load_rules, rule_folders

    try:
        rules = load_rules(rule_folders(*settings.rules))
        yield Look("rules", "ok", f"{len(rules.rules)} in force")
    except InputError as error:
        yield Look("rules", "missing", str(error), "triage rules check")


def _library() -> Iterator[Look]:
    if importlib.util.find_spec("systemd") is not None:
        yield Look("python-systemd", "ok", "installed")
        return
    build = "apt-get install libsystemd-dev pkg-config gcc python3-dev"
    mend = f"{build} && {shlex.quote(sys.executable)} -m pip install systemd-python"
    yield Look("python-systemd", "missing", "the live journal cannot be read without it; files can", mend)


def _journal(settings: Settings) -> Iterator[Look]:
    folders = [folder for folder in JOURNALS if folder.is_dir()]
    if not folders:
        yield Look("journal", "missing", "there is no journal on this machine: journald does not run here")
        return
    if not JOURNALS[0].is_dir():
        mend = "mkdir -p /var/log/journal && systemctl restart systemd-journald"
        yield Look("journal", "note", "kept in memory only: crashes before a reboot are lost", mend)
    files = [file for folder in folders for file in folder.glob("*/system*.journal")]
    if settings.installed and _me() == USER:
        # watch has the group by its unit (SupplementaryGroups=); this process need not have it
        yield Look("journal", "ok", "watch is in group systemd-journal")
    elif any(os.access(file, os.R_OK) for file in files):
        yield Look("journal", "ok", "readable")
    elif files or not all(os.access(folder, os.R_OK | os.X_OK) for folder in folders):
        mend = f"usermod -a -G systemd-journal {_me()}   (then log in again)"
        yield Look("journal", "missing", "the system journal may not be read", mend)
    else:
        mend = "systemctl status systemd-journald"
        yield Look("journal", "missing", "the journal is empty: journald does not run here", mend)


def _database(settings: Settings) -> Iterator[Look]:
    from triage.store import open_store

    try:
        store = open_store(settings)
    except TriageError as error:
        yield Look("database", "missing", str(error), "triage db upgrade")
        return
    health = store.health()
    store.close()
    yield Look("database", "ok", f"revision {health.revision}, {health.database_bytes / 1e6:.1f} MB")
    if store.host != (named := socket.gethostname()):
        text = f"its rows are {store.host}'s, and this machine is called {named} now: its services take them over"
        yield Look("name", "note", text, f"systemctl restart {' '.join(SERVICES)}")
    if health.outbox.dead:
        yield Look("alerts", "note", f"{health.outbox.dead} were given up: no receiver took them", "triage alerts test")


def _services(settings: Settings) -> Iterator[Look]:
    if not settings.installed:
        yield Look("services", "note", "not installed: `triage run` starts them by hand", "packaging/install")
        return
    for unit in SERVICES:
        state = _active(unit)
        if state == "active":
            yield Look(unit, "ok", state)
        else:
            yield Look(unit, "missing", state, f"systemctl enable --now {unit}; journalctl -u {unit} -n 20")


def _apply(settings: Settings) -> Iterator[Look]:
    if not settings.installed:
        yield Look("apply", "note", "not installed: `triage apply` runs root's part as a child, on a private spool")
        return
    state = _active(APPLY)
    if state == "active":
        yield Look(APPLY, "ok", state)
    else:
        mend = f"systemctl reset-failed {APPLY} triage-apply.service; systemctl enable --now {APPLY}"
        yield Look(APPLY, "missing", f"{state}: remedies are not carried out", mend)


def _accounts(settings: Settings) -> Iterator[Look]:
    """Root's accounts of its actions: one that cannot be read stops them all."""
    from triage.actions.ledger import Ledger

    try:
        Ledger(settings.apply_dir).results()
    except Damaged as error:
        yield Look("root's accounts", "missing", str(error))


def _policy(settings: Settings) -> Iterator[Look]:
    from triage.actions.policy import Policy
    from triage.shipped import shipped

    path = settings.policy
    if not path.exists():
        state: State = "missing" if settings.installed else "note"
        mend = f"install -D -m 644 {shipped('packaging') / 'policy.toml'} {path}"
        yield Look("policy", state, f"{path} is missing: every remedy is refused", mend)
        return
    facts = path.stat()
    if facts.st_uid != 0 or stat.S_IMODE(facts.st_mode) & 0o022:
        yield Look(
            "policy", "missing", f"{path} can be written by others than root", f"chown root {path}; chmod 644 {path}"
        )
    policy = Policy.load(path)
    yield Look("policy", "ok", f"{path}: units {' '.join(policy.units)}; of users {' '.join(policy.users) or 'none'}")


def _webhooks(settings: Settings) -> Iterator[Look]:
    for hook in settings.webhooks:
        if hook.secrets():
            yield Look(f"webhook {hook.name}", "ok", "signed")
        else:
            mend = "set secret_file to a file with a line whsec_BASE64"
            yield Look(f"webhook {hook.name}", "note", "has no secret: what it sends is not signed", mend)


def _active(unit: str) -> str:
    """As the manager has it: active, inactive, failed, ..."""
    from triage.units.systemctl import Systemd

    return Systemd().state(unit).active or "unknown"


def _me() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
