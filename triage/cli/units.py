"""`triage units`: the SGLang units found, how they run, with which flags, and what triage changed about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from triage.cli.options import JSON
from triage.cli.screen import clean, echo, moment, print_json
from triage.cli.screen import iso as iso_time

if TYPE_CHECKING:
    from triage.actionmodel import ActionResult
    from triage.settings import Settings
    from triage.units.servers import Server

COLOURS = {"active": "green", "failed": "red", "activating": "yellow"}


@click.command()
@click.argument("globs", nargs=-1, metavar="[GLOB]...")
@JSON
def units(globs: tuple[str, ...], as_json: bool) -> None:
    """SGLang units found, their flags, version and state.

    GLOB: other names than the settings' (`units`, default sglang*.service).
    """
    from triage.units.servers import find_servers
    from triage.units.systemctl import Systemd

    settings, results, note = _known()
    wanted = globs or settings.units
    servers = find_servers(Systemd(), wanted, results)
    if as_json:
        print_json({"globs": list(wanted), "units": [_document(server) for server in servers]})
        return
    if note:
        click.echo(note, err=True)
    if not servers:
        click.echo(f"no unit matches {' '.join(wanted)}: set `units` in /etc/triage/triage.toml to yours", err=True)
    for server in servers:
        _show(server)


def _known() -> tuple[Settings, tuple[ActionResult, ...], str]:
    """Settings and root's results; units may be looked at by anybody, only the workarounds are for triage's user."""
    from triage.actions.ledger import Ledger
    from triage.cli.identity import enter
    from triage.model import NotPermitted
    from triage.settings import load_settings

    try:
        settings = enter().settings
        return settings, Ledger(settings.apply_dir).results(), ""
    except NotPermitted as reason:
        return load_settings(), (), f"workarounds are left out: {reason}"


def _document(server: Server) -> dict[str, Any]:
    return {
        "name": server.name,
        "state": server.state,
        "sub": server.sub,
        "restarts": server.restarts,
        "version": server.version,
        "argv": list(server.argv),
        "flags": dict(server.flags),
        "files": list(server.files),
        "need_daemon_reload": server.stale,
        "workarounds": [
            {
                "action": action.action,
                "incident": action.incident,
                "rule": action.rule,
                "remedy": action.remedy,
                "time": iso_time(action.time),
            }
            for action in server.in_force
        ],
        "note": server.note or None,
    }


def _show(server: Server) -> None:
    state = clean(f"{server.state} ({server.sub})")
    release = f"SGLang {server.version}" if server.version else "SGLang release unknown"
    restarts = f", {server.restarts} automatic restarts" if server.restarts else ""
    click.echo(f"{clean(server.name)}  {click.style(state, fg=COLOURS.get(server.state))}  {release}{restarts}")
    if server.flags:
        echo("  flags: " + "  ".join(f"{name} {value}".rstrip() for name, value in server.flags.items()))
    elif server.argv:
        echo("  command: " + " ".join(server.argv))
    if server.files:
        echo("  files: " + "  ".join(server.files))
    if server.stale:
        echo("  the files changed since systemd loaded them: systemctl daemon-reload")
    for action in server.in_force:
        since = moment(action.time)
        echo(
            f"  workaround: {action.remedy} (rule {action.rule}, incident {action.incident}, {action.action}, {since})"
        )
    if server.note:
        echo(f"  note: {server.note}")
