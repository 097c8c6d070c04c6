"""`triage actions | verify`: what was done, and whether a server answers now.

Reads the store and asks the server; nothing here plans or files (triage.cli.applying).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from triage.cli.options import JSON
from triage.cli.parts import kept
from triage.cli.screen import MARKS, clean, document, echo, moment, print_json, table

if TYPE_CHECKING:
    from triage.store import ActionRow


@click.group()
def actions() -> None:
    """List and show actions."""


@actions.command("list")
@click.option("--unit", help="Only this unit's.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", help="The next page: what the page before gave as `next`.")
@JSON
def list_(unit: str | None, limit: int, before: str | None, as_json: bool) -> None:
    """Newest first."""
    with kept() as (store, _):
        page = store.actions(unit=unit, limit=limit, before=before)
        breaker = store.guarded().breaker
    if as_json:
        print_json({"schema": 1, "items": [document(row) for row in page.rows], "next": page.next})
        return
    _table(page.rows)
    if breaker.opened_at is not None:
        words = f"the breaker is open since {moment(breaker.opened_at)} ({breaker.why}): look, then triage guards reset"
        click.echo(words, err=True)
    if not page.rows:
        click.echo("No actions.", err=True)
    if page.next:
        click.echo(f"There are more: --before {page.next}", err=True)


@actions.command()
@click.argument("action")
@JSON
def show(action: str, as_json: bool) -> None:
    """One action: what was asked, the diff, each step, the end."""
    with kept() as (store, _):
        row = store.action(action)
    if as_json:
        print_json({"schema": 1, "action": document(row)})
        return
    for key, text in (
        ("action", f"{row.name} ({row.kind}{f' of {row.target}' if row.target else ''})"),
        ("state", str(row.state)),
        ("unit", f"{row.unit} on {row.host}"),
        ("incident", f"{row.incident}, rule {row.rule}"),
        ("remedy", f"{row.remedy}: {row.title}"),
        ("cost", row.cost),
        ("asked", f"{moment(row.requested_at)} by {row.who}" + (f" ({row.reason})" if row.reason else "")),
        ("ended", moment(row.ended)),
        ("said", row.text),
        ("proof", row.proof.words if row.proof else ""),
        *((f"proof {key}".replace("_", " "), value) for key, value in _proved(row)),
        *((key.replace("_", " "), value) for key, value in sorted(row.measured.items())),
    ):
        if text:
            click.echo(f"{click.style(f'{key:>13}', bold=True)}  {clean(text)}")
    for step in row.steps:
        click.echo(f"  {moment(step.time)}  {MARKS[step.state]} {step.name:<16} {clean(step.text)}".rstrip())
    if row.diff:
        click.echo()
        for line in row.diff.splitlines():
            echo(line)


def _proved(row: ActionRow) -> list[tuple[str, str]]:
    return sorted(row.proof.measured.items()) if row.proof else []


@click.command()
@click.argument("unit")
@click.option(
    "--timeout", type=click.FloatRange(1, 3600), default=300, show_default=True, help="Seconds for the answer."
)
@JSON
def verify(unit: str, timeout: float, as_json: bool) -> None:
    """Probe UNIT's server with one short request, as a client of it would."""
    from triage.actions.probe import Answer
    from triage.actions.readiness import ByHand, Limits, Proof
    from triage.units.systemctl import Systemd

    manager = Systemd()
    name = manager.read_unit(unit if "." in unit else f"{unit}.service").name
    state = manager.state(name)
    proof = Proof(manager, Limits(probe=timeout))
    endpoint = proof.endpoint(name)
    found: dict[str, Any] = {
        "schema": 1,
        "unit": name,
        "state": state.active,
        "kind": endpoint.kind,
        "url": endpoint.url if endpoint.port else None,
    }
    if state.up:
        try:
            answer = proof.probe(name, state.invocation)
        except ByHand as job:
            answer = Answer(False, str(job), proved=False)
        found |= {"ok": answer.ok, "proved": answer.proved, "text": answer.text, "seconds": round(answer.seconds, 3)}
    else:
        found |= {"ok": False, "proved": False, "text": f"the unit is {state.active} ({state.result})", "seconds": None}
    if as_json:
        print_json(found)
    else:
        word = "answers" if found["proved"] and found["ok"] else "is up" if found["ok"] else "does not answer"
        took = f" in {found['seconds']} s" if found["seconds"] else ""
        where = f" at {endpoint.url}" if endpoint.port else ""
        echo(f"{name} {word}{where}{took}: {found['text']}")
    if not found["ok"]:
        sys.exit(1)


def _table(rows: tuple[ActionRow, ...]) -> None:
    cells = [(row.name, row.kind, str(row.state), moment(row.requested_at), row.unit, row.remedy) for row in rows]
    table(("ACTION", "KIND", "STATE", "ASKED", "UNIT", "REMEDY"), cells)
