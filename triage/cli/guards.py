"""`triage guards`: what holds triage back on this host, and how a person lets it go on.

Shows the breaker and the rules that failed a proof; `reset` is the only way to close the one and to trust the other
again. Called by the command line; changes rows of the store and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from triage.cli.screen import clean, document, echo, iso, moment, print_json, table

if TYPE_CHECKING:
    from triage.cli.identity import Session
    from triage.store import Store

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


@contextmanager
def _store() -> Iterator[tuple[Store, Session]]:
    from triage.cli.identity import enter
    from triage.store import open_store

    session = enter()
    store = open_store(session.settings)
    try:
        yield store, session
    finally:
        store.close()


@click.group(invoke_without_command=True)
@_JSON
@click.pass_context
def guards(context: click.Context, as_json: bool) -> None:
    """The breaker, and the rules that do nothing unasked. Without a command: `show`."""
    if context.invoked_subcommand is None:
        context.invoke(show, as_json=as_json)
    elif as_json:
        raise click.UsageError(f"--json goes after `{context.invoked_subcommand}`")


@guards.command()
@_JSON
def show(as_json: bool) -> None:
    """What holds triage back on this host now."""
    with _store() as (store, session):
        found, limits = store.guarded(), session.settings.guards
    breaker = found.breaker
    if as_json:
        opened = {"open": breaker.opened_at is not None, "opened_at": iso(breaker.opened_at), "why": breaker.why}
        demoted = [document(row) | {"since": iso(row.since)} for row in found.demotions]
        print_json({"schema": 1, "breaker": opened, "demotions": demoted, "limits": limits.model_dump()})
        return
    if breaker.opened_at is None:
        click.echo(f"breaker  closed; opens at {limits.breaker_actions} actions in {limits.breaker_seconds} s")
    else:
        echo(f"breaker  OPEN since {moment(breaker.opened_at)}: {breaker.why}; close it: triage guards reset")
    a_day = f"{limits.signature_per_day} a signature, {limits.unit_per_day} a unit, {limits.host_per_day} in all"
    click.echo(f"a day    {a_day}")
    rows = [(row.rule, row.unit, moment(row.since), row.why) for row in found.demotions]
    table(("DEMOTED RULE", "UNIT", "SINCE", "WHY"), rows)


@guards.command()
@click.argument("rule", required=False)
@click.argument("unit", required=False)
def reset(rule: str | None, unit: str | None) -> None:
    """Close the breaker; with RULE and UNIT: trust that rule on that unit again."""
    from triage.model import InputError

    if rule and not unit:
        raise click.UsageError("give both RULE and UNIT, or neither for the breaker")
    with _store() as (store, session):
        if rule and unit:
            if not store.reset_demotion(rule, unit):
                raise InputError(f"{clean(rule)} is not demoted on {clean(unit)}: `triage guards` shows what is")
            echo(f"{rule} is trusted on {unit} again, as far as [autonomy] goes")
        elif store.reset_breaker(session.who, time.time_ns() // 1000):
            click.echo("the breaker is closed; actions are counted anew")
        else:
            click.echo("the breaker is not open", err=True)
