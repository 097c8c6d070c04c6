"""`triage db`, `triage config`, `triage doctor`: the house itself."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from triage.cli.options import JSON
from triage.cli.screen import echo, print_json

DAY = 86_400 * 1_000_000


# ---------------------------------------------------------------- db


@click.group()
def db() -> None:
    """Upgrade, check and back up the database."""


@db.command()
def upgrade() -> None:
    """Bring the tables to this version's. The services do so when they start."""
    from triage.cli.identity import enter
    from triage.schema import HEAD
    from triage.store import Store

    store = Store(enter().settings.database)
    before = store.upgrade()
    store.close()
    text = {None: f"The database is made, at revision {HEAD}.", HEAD: f"The database is at revision {HEAD} already."}
    click.echo(text.get(before, f"The database went from revision {before} to {HEAD}."))


@db.command()
@JSON
def check(as_json: bool) -> None:
    """Is the file sound, and of this version? Exit 1 where it is not."""
    from triage.cli.identity import enter
    from triage.model import Unreachable
    from triage.store import open_store

    settings = enter().settings
    try:
        store = open_store(settings)
        faults, health = store.faults(), store.health()
        store.close()
    except Unreachable as error:  # damaged so far that it does not even open
        click.echo(f"triage: {error}", err=True)
        sys.exit(1 if Path(settings.database.removeprefix("sqlite:///")).exists() else error.exit_code)
    if as_json:
        facts = {"revision": health.revision, "bytes": health.database_bytes, "faults": list(faults)}
        print_json({"schema": 1, **facts})
    else:
        for fault in faults:
            echo(fault)
        if not faults:
            click.echo(f"Sound: revision {health.revision}, {health.database_bytes / 1e6:.1f} MB.")
    sys.exit(1 if faults else 0)


@db.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def backup(file: Path) -> None:
    """A consistent copy into a new FILE, while the services run."""
    from triage.cli.identity import enter
    from triage.store import open_store

    file = file.absolute()  # before the change of user, which changes the folder too
    store = open_store(enter().settings)
    store.backup(file)
    store.close()
    click.echo(f"Written: {file}")


@db.command()
@click.option("--days", type=click.IntRange(min=1), help="Keep that many days; default: the setting retention_days.")
def prune(days: int | None) -> None:
    """Drop what is over and old. The worker does so by itself."""
    from triage.cli.identity import enter
    from triage.store import open_store

    settings = enter().settings
    store = open_store(settings)
    gone = store.prune(time.time_ns() // 1000 - (days or settings.retention_days) * DAY)
    store.close()
    click.echo(f"Dropped: {gone.crashes} crashes, {gone.incidents} incidents, {gone.events} sent events.")


# ---------------------------------------------------------------- config


@click.group()
def config() -> None:
    """Check and show the settings."""


@config.command("check")
@JSON
def check_config(as_json: bool) -> None:
    """All errors at once, each with its file; the secrets and the rules too. Exit 1 on an error."""
    from triage.cli.identity import enter
    from triage.model import InputError
    from triage.rulebase.rulefile import load_rules, rule_folders
    from triage.settings import setting_files

    try:
        settings = enter().settings
        unsigned = [hook.name for hook in settings.webhooks if not hook.secrets()]
        rules = load_rules(rule_folders(*settings.rules))
    except InputError as error:
        click.echo(f"triage: {error}", err=True)
        sys.exit(1)
    files = [str(path) for path in setting_files()]
    if as_json:
        print_json({"schema": 1, "files": files, "rules": len(rules.rules), "unsigned": unsigned})
        return
    for name in unsigned:
        click.echo(f"webhook '{name}' has no secret: what it sends is not signed", err=True)
    click.echo(f"Valid: {', '.join(files) or 'no file, the defaults'}; {len(rules.rules)} rules.")


@config.command("show")
@JSON
def show_config(as_json: bool) -> None:
    """What is in force: arguments over TRIAGE_* over files over defaults. Secrets are not shown."""
    from triage.cli.identity import enter
    from triage.settings import setting_files

    session = enter()
    shown = session.settings.shown()
    files = [str(path) for path in setting_files()]
    if as_json:
        print_json({"schema": 1, "files": files, "settings": shown})
        return
    click.echo(f"# {', '.join(files) or 'no file, the defaults'}")
    echo_toml(shown)


def echo_toml(values: dict[str, object]) -> None:
    """The settings as they could stand in the file."""
    import json

    def word(value: object) -> str:
        return json.dumps(value, ensure_ascii=True)

    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    lists = {
        name: value
        for name, value in values.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    }
    for name, value in values.items():
        if name not in tables and name not in lists and value is not None:
            click.echo(f"{name} = {word(value)}")
    for name, inner in tables.items():
        click.echo(f"\n[{name}]")
        echo_toml(inner)
    for name, items in lists.items():
        for item in items:
            click.echo(f"\n[[{name}]]")
            echo_toml(item)


# ---------------------------------------------------------------- doctor


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """What is missing on this machine, and the command that mends it. Exit 1 where something is."""
    from triage.cli.checkup import checkup

    findings = checkup()
    if as_json:
        names = ("name", "state", "text", "mend")
        items = [{name: getattr(finding, name) for name in names} for finding in findings]
        print_json({"schema": 1, "items": items})
    else:
        colours = {"ok": "green", "note": "yellow", "missing": "red"}
        for finding in findings:
            click.echo(click.style(f"{finding.state:8}", fg=colours[finding.state]), nl=False)
            echo(f"{finding.name}: {finding.text}")
            if finding.mend:
                echo(f"        -> {finding.mend}")
    sys.exit(1 if any(finding.state == "missing" for finding in findings) else 0)
