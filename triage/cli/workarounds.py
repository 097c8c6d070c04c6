"""`triage workarounds`: the debt list, when each of them may go, and the trying of it.

Called by the command line. Retiring is an ordinary request with the proof of an apply; where the crash comes back in
the window, the worker puts the workaround back.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import click

from triage.cli.applying import undo
from triage.cli.options import DRY, JSON, ROOT, WAIT, YES
from triage.cli.parts import hands_here
from triage.cli.screen import clean, document, echo, iso, moment, print_json, table


@click.group(invoke_without_command=True)
@click.option("--unit", help="Only this unit's.")
@JSON
@click.pass_context
def workarounds(context: click.Context, unit: str | None, as_json: bool) -> None:
    """Applied remedies still in force: the debt. Without a command: `list`."""
    if context.invoked_subcommand is None:
        context.invoke(list_, unit=unit, as_json=as_json)
    elif unit or as_json:
        raise click.UsageError(f"--unit and --json go after `{context.invoked_subcommand}`")


@workarounds.command("list")
@click.option("--unit", help="Only this unit's.")
@JSON
def list_(unit: str | None, as_json: bool) -> None:
    """Oldest first: what each costs, since when, why, and the condition on which it may go."""
    from triage.cli.parts import rule_here
    from triage.debt import debts

    with hands_here() as (requester, session):
        found = debts(requester.store, requester, rule_here(session.settings), unit, time.time_ns() // 1000)
        notes = {one.action.name: requester.outdated(one.action) for one in found}
        known = requester.store.retirements()
    if as_json:
        items = []
        for one in found:
            proposed = known.get(one.action.name)
            more = {
                "note": notes[one.action.name] or None,
                "retire_when": one.condition or None,
                "release": one.release,
                "retirable": one.met or None,
                "proposed_at": iso(proposed.proposed_at) if proposed else None,
                "still_needed_on": list(one.still_needed_on),
            }
            items.append(document(one.action) | more)
        print_json({"schema": 1, "items": items})
        return
    cells = [
        (
            one.action.name,
            str(one.action.state),
            moment(one.action.effective_at),
            one.action.unit,
            one.action.remedy,
            "NOW" if one.met else one.condition or "-",
            "; ".join(filter(None, (one.action.speeds, one.action.cost))) or "-",
        )
        for one in found
    ]
    table(("ACTION", "STATE", "SINCE", "UNIT", "REMEDY", "RETIRE WHEN", "COST"), cells)
    for one in found:
        if one.met:
            click.echo(clean(f"{one.action.name}: {one.met}; try it: triage workarounds retire {one.action.name}"))
        if one.still_needed_on:
            echo(f"{one.action.name}: the crash came back without it on {', '.join(one.still_needed_on)}")
        if one.action.state == "rollback-failed":
            click.echo(f"{one.action.name}: {clean(one.action.text)}", err=True)
    for note in dict.fromkeys(filter(None, notes.values())):
        click.echo(f"note: {clean(note)}", err=True)
    if not found:
        click.echo("No workarounds are in force.", err=True)


@workarounds.command()
@click.argument("action")
@DRY
@YES
@WAIT
@ROOT
def retire(action: str, dry_run: bool, yes: bool, wait: bool, root: Path | None) -> None:
    """Try to do without ACTION: proved like an apply, and put back if that fails or the crash comes back."""
    undo(action, dry_run, yes, root, reason="retired: needed no more", retire=True, wait=wait)


@workarounds.command()
@click.argument("action")
@click.option("--release", metavar="R", default="", help="Propose it once this release of SGLang is installed.")
@click.option("--date", type=click.DateTime(["%Y-%m-%d"]), help="Propose it from that day on (UTC).")
@click.option("--clear", is_flag=True, help="Only what its rule says.")
def until(action: str, release: str, date: datetime | None, clear: bool) -> None:
    """Say when ACTION is to be proposed for retirement, beside the release that its rule names."""
    from triage.model import InputError
    from triage.rulebase.releases import release_key

    if clear == bool(release or date):
        raise click.UsageError("give --release, --date or both, or --clear")
    if release and release_key(release) is None:
        raise InputError(f"{clean(release)} is no release number, such as 0.5.15")
    due = int(date.replace(tzinfo=UTC).timestamp()) * 1_000_000 if date else None
    with hands_here() as (requester, session):
        row = requester.store.action(action)
        if not row.in_force:
            raise InputError(f"{action} is {row.state}: only what is in force can be retired")
        requester.store.set_retirement(row, release, due, session.who, time.time_ns() // 1000)
    echo(f"{action}: noted")
