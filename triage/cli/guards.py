"""`triage guards`: what holds triage back on this host, what autonomy decided, and a person's word on either.

Shows the breaker, the rules that failed a proof and the latest decisions; `reset` is the only way to close the one and
to trust the other again, `approve` the yes that a prepared plan waits for. Called by the command line.
"""

from __future__ import annotations

import time

import click

from triage.cli.options import JSON
from triage.cli.parts import kept
from triage.cli.screen import clean, document, echo, iso, moment, print_json, table


@click.group(invoke_without_command=True)
@JSON
@click.pass_context
def guards(context: click.Context, as_json: bool) -> None:
    """The breaker, and the rules that do nothing unasked. Without a command: `show`."""
    if context.invoked_subcommand is None:
        context.invoke(show, as_json=as_json)
    elif as_json:
        raise click.UsageError(f"--json goes after `{context.invoked_subcommand}`")


@guards.command()
@JSON
def show(as_json: bool) -> None:
    """What holds triage back on this host now."""
    with kept() as (store, session):
        found, limits, decided = store.guarded(), session.settings.guards, store.decisions(limit=10)
    breaker = found.breaker
    if as_json:
        opened = {"open": breaker.opened_at is not None, "opened_at": iso(breaker.opened_at), "why": breaker.why}
        demoted = [document(row) | {"since": iso(row.since)} for row in found.demotions]
        print_json(
            {
                "schema": 1,
                "breaker": opened,
                "demotions": demoted,
                "limits": limits.model_dump(),
                "decisions": [document(row) | {"decided_at": iso(row.decided_at)} for row in decided],
            }
        )
        return
    if breaker.opened_at is None:
        click.echo(f"breaker  closed; opens at {limits.breaker_actions} actions in {limits.breaker_seconds} s")
    else:
        echo(f"breaker  OPEN since {moment(breaker.opened_at)}: {breaker.why}; close it: triage guards reset")
    a_day = f"{limits.signature_per_day} a signature, {limits.unit_per_day} a unit, {limits.host_per_day} in all"
    click.echo(f"a day    {a_day}")
    rows = [(row.rule, row.unit, moment(row.since), row.why) for row in found.demotions]
    table(("DEMOTED RULE", "UNIT", "SINCE", "WHY"), rows)
    cells = [
        (moment(row.decided_at), str(row.incident), f"{'would be ' * row.shadow}{row.verdict}", row.unit, row.text)
        for row in decided
    ]
    table(("DECIDED", "INCIDENT", "VERDICT", "UNIT", "TEXT"), cells)


@guards.command()
@click.argument("rule", required=False)
@click.argument("unit", required=False)
def reset(rule: str | None, unit: str | None) -> None:
    """Close the breaker; with RULE and UNIT: trust that rule on that unit again."""
    from triage.model import InputError

    if rule and not unit:
        raise click.UsageError("give both RULE and UNIT, or neither for the breaker")
    with kept() as (store, session):
        if rule and unit:
            if not store.reset_demotion(rule, unit):
                raise InputError(f"{clean(rule)} is not demoted on {clean(unit)}: `triage guards` shows what is")
            echo(f"{rule} is trusted on {unit} again, as far as [autonomy] goes")
        elif store.reset_breaker(session.who, time.time_ns() // 1000):
            click.echo("the breaker is closed; actions are counted anew")
        else:
            click.echo("the breaker is not open", err=True)


@guards.command()
@click.argument("incident", type=click.IntRange(min=1))
def approve(incident: int) -> None:
    """Say yes to the plan that waits for INCIDENT: exactly that one is applied, or nothing."""
    from triage.autonomy import check_same, waiting
    from triage.cli.applying import follow
    from triage.cli.parts import hands_here
    from triage.model import Refused
    from triage.planning import newest_document

    with hands_here() as (requester, session):
        prepared = next(iter(waiting(requester.store, incident)), None)
        if prepared is None:
            raise Refused(f"nothing waits for a yes on incident {incident}: triage apply {incident} plans anew")
        view = requester.store.incident(incident)
        document_ = newest_document(view)
        plan = requester.plan(view.incident, document_, prepared.remedy, prepared.action, prepared.plan["time"])
        check_same(prepared, plan)
        requester.apply(plan, plan.action, plan.time, session.who)
        follow(requester, plan.action)
