"""`triage alerts list | test`: the channels that the settings name, and whether they work."""

from __future__ import annotations

import json
import secrets
import sys
import time
from typing import TYPE_CHECKING

import click

from triage.cli.options import JSON
from triage.cli.screen import clean, echo, iso, print_json, table

if TYPE_CHECKING:
    from triage.settings import Settings


def _settings() -> Settings:
    from triage.cli.identity import enter

    return enter().settings


@click.group()
def alerts() -> None:
    """Test and list alert channels."""


@alerts.command("list")
@JSON
def list_(as_json: bool) -> None:
    """Name, kind, address without its secrets, events, and how many secrets sign."""
    from triage.model import InputError
    from triage.settings import EVENTS, mask_url

    items = []
    for hook in _settings().webhooks:
        try:
            signs = len(hook.secrets())
        except InputError as error:
            click.echo(f"triage: {error}", err=True)
            signs = 0
        items.append((hook.name, mask_url(hook.url), list(hook.events), signs))
    if as_json:
        names = ("name", "url", "events", "secrets")
        print_json(
            {"schema": 1, "items": [{"kind": "webhook", **dict(zip(names, item, strict=True))} for item in items]}
        )
        return
    cells = [
        (
            name,
            "webhook",
            f"{signs} secrets" if signs else "unsigned",
            "all" if len(events) == len(EVENTS) else " ".join(events),
            url,
        )
        for name, url, events, signs in items
    ]
    table(("NAME", "KIND", "SIGNED", "EVENTS", "ADDRESS"), cells)
    if not cells:
        click.echo("No channels: add [[webhooks]] to the settings.", err=True)


@alerts.command()
@click.argument("channel", required=False)
@JSON
def test(channel: str | None, as_json: bool) -> None:
    """Send a test message now, to one channel or to all. Exit 1 where one did not arrive."""
    from triage.channels import Message, open_channels
    from triage.model import InputError

    settings = _settings()
    channels = [one for one in open_channels(settings) if channel in (None, one.name)]
    if not channels:
        what = f"no channel '{channel}'" if channel else "no channel"
        raise InputError(f"there is {what} in the settings: `triage alerts list` shows those there are")
    results = []
    for one in channels:
        now = time.time_ns() // 1000
        data = {"text": "This is a test of triage's alerts. Nothing has happened.", "url": settings.base_url}
        body = json.dumps({"type": "triage.test", "timestamp": iso(now), "data": data})
        sent = one.send(Message(f"msg_{secrets.token_hex(12)}", "triage.test", body), now)
        one.close()
        results.append({"name": one.name, "ok": sent.ok, "text": clean(sent.text)})
        if not as_json:
            echo(f"{one.name}: {'arrived' if sent.ok else 'did not arrive'} ({sent.text})")
    if as_json:
        print_json({"schema": 1, "items": results})
    if not all(result["ok"] for result in results):
        sys.exit(1)
