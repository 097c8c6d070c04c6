"""`triage incidents list | show | explain | resolve | reopen | mute | merge`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from triage.cli.options import JSON
from triage.cli.parts import kept
from triage.cli.screen import document, echo, moment, print_json, table
from triage.model import InputError

if TYPE_CHECKING:
    from triage.actionmodel import Tried
    from triage.store import CrashRow, IncidentView

SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
STATES = ("open", "regressed", "mitigated", "resolved")
_NUMBER = click.argument("number", metavar="N", type=click.IntRange(min=1))


def _now() -> int:
    return time.time_ns() // 1000


@click.group()
def incidents() -> None:
    """List, show and settle incidents."""


@incidents.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only these; may be repeated.")
@click.option("--unit", help="Only this unit's.")
@click.option("--severity", type=click.Choice(["critical", "error", "warning", "info"]))
@click.option("--text", help="Only those with this text in title, unit, rule, exception or message.")
@click.option("--all", "everything", is_flag=True, help="Also what was no failure: request errors and the like.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", help="The next page: what the page before gave as `next`.")
@JSON
def list_(
    states: tuple[str, ...],
    unit: str | None,
    severity: str | None,
    text: str | None,
    everything: bool,
    limit: int,
    before: str | None,
    as_json: bool,
) -> None:
    """Newest first."""
    from triage.model import Severity
    from triage.store import IncidentState

    with kept() as (store, _):
        page = store.incidents(
            states=tuple(IncidentState(state) for state in states),
            unit=unit,
            severity=Severity(severity) if severity else None,
            text=text,
            alarming=not everything,
            limit=limit,
            before=before,
        )
    if as_json:
        print_json({"schema": 1, "items": [document(row) for row in page.rows], "next": page.next})
        return
    now = _now()
    rows = [
        (
            str(row.number),
            f"{row.state} (muted)" if row.muted(now) else str(row.state),
            str(row.severity),
            str(row.crashes),
            moment(row.last_seen),
            row.unit or "-",
            row.title,
        )
        for row in page.rows
    ]
    table(("N", "STATE", "SEVERITY", "CRASHES", "LAST SEEN", "UNIT", "TITLE"), rows)
    if not rows:
        click.echo("No incidents.", err=True)
    if page.next:
        click.echo(f"There are more: --before {page.next}", err=True)


@incidents.command()
@_NUMBER
@JSON
def show(number: int, as_json: bool) -> None:
    """One incident: what failed, its crashes, its timeline, its actions, its remedies."""
    with kept() as (store, session):
        view = store.incident(number)
        owner = view.crashes[0].document.get("owner") if view.crashes else None
        tried = store.tried(view.incident.unit, view.incident.host, owner)
        if view.incident.merged_into is not None and not as_json:
            click.echo(f"Incident {number} was merged into {view.incident.merged_into}.", err=True)
    if as_json:
        parts = {name: [document(row) for row in getattr(view, name)] for name in ("crashes", "timeline", "actions")}
        print_json({"schema": 1, "incident": document(view.incident), **parts})
        return
    _show(view, tried, session.settings.base_url)


def _of_user(view: IncidentView) -> str:
    """Whose unit crashed last, where it is a user's."""
    owner = view.crashes[0].document.get("owner") if view.crashes else None
    if owner is None:
        return ""
    from triage.model import Refused
    from triage.units.owners import owner_of

    try:
        return f" (of user {owner_of(owner).name})"
    except Refused:
        return f" (of uid {owner})"


def _show(view: IncidentView, tried: Iterable[Tried], base_url: str) -> None:
    from triage.poison import poison

    incident = view.incident
    echo(f"Incident {incident.number}: {incident.title}")
    facts = {
        "state": str(incident.state),
        "severity": f"{incident.severity}, {incident.outcome} in {incident.phase}",
        "unit": f"{incident.unit or '-'} on {incident.host}{_of_user(view)}",
        "failed": f"{incident.exception}: {incident.message}",
        "at": incident.place,
        "rule": incident.rule or "undiagnosed",
        "sglang": incident.sglang_version or "",
        "crashes": f"{incident.crashes}, from {moment(incident.first_seen)} to {moment(incident.last_seen)}",
        "muted": f"until {moment(incident.mute_until)}: {incident.mute_why}" if incident.muted(_now()) else "",
        "page": f"{base_url}/incidents/{incident.number}",
    }
    for name, value in facts.items():
        if value:
            echo(f"  {name:9} {value}")
    if why := poison(view):
        echo(f"\nNote: {why}.")
    if view.crashes:
        _remedies(view.crashes[0].document, incident.number, tried)
    if view.actions:
        click.echo("\nActions, newest first")
        cells = [(a.name, str(a.state), a.kind, a.remedy, moment(a.requested_at), a.who, a.text) for a in view.actions]
        table(("NAME", "STATE", "KIND", "REMEDY", "ASKED", "WHO", "TEXT"), cells)
    click.echo("\nTimeline")
    table(("TIME", "WHO", "WHAT"), [(moment(line.time), line.who, line.text) for line in view.timeline])


def _remedies(crash: Mapping[str, Any], number: int, tried: Iterable[Tried]) -> None:
    from triage.ladder import known_bad

    matches = crash.get("matches") or []
    if not matches:
        _unknown(crash, number)
        return
    echo()
    echo(f"Why: {matches[0].get('cause', '')}")
    click.echo("\nRemedies, cheapest first")
    for remedy in known_bad(matches[0].get("remedies", []), tried, number, crash.get("sglang_version")):
        blocked = f" [does not fit: {remedy['blocked_by']}]" if remedy.get("blocked_by") else ""
        echo(f"  {remedy['id']}: {remedy['title']}{blocked}")
        echo(f"    costs: {remedy['cost']}")
        if remedy.get("applicable") and not blocked:
            echo(f"    triage apply {number} --remedy {remedy['id']}")


def _unknown(crash: Mapping[str, Any], number: int) -> None:
    """What there is to say where no rule matches: general advice, and how to make a rule of it."""
    click.echo("\nNo rule knows it. In general, for any crash of this phase:")
    for text in crash.get("general") or []:
        echo(f"  - {text}")
    _nearest(crash)
    click.echo(f"\nTo make a rule of it: triage rules draft {number}")


def _nearest(crash: Mapping[str, Any]) -> None:
    if near := crash.get("nearest"):
        click.echo("\nNearest rules, and why they are not it")
        for rule in near:
            echo(f"  {rule['rule']}: {rule['title']}")
            for why in rule["why"]:
                echo(f"    {why}")


@incidents.command()
@_NUMBER
@JSON
def explain(number: int, as_json: bool) -> None:
    """Why this is the root: the newest crash's failures with their roles, and the lines it rests on."""
    with kept() as (store, _):
        view = store.incident(number, crash_limit=1)
    crash = view.crashes[0] if view.crashes else None
    if as_json:
        names = ("signature", "root", "ranks", "cascades", "failures", "evidence", "end", "matches", "nearest")
        told = {name: crash.document.get(name) for name in names} if crash else {}
        print_json({"schema": 1, "incident": number, "crash": crash.id if crash else None, **told})
        return
    if crash is None:
        click.echo("No crash of it is kept any more.", err=True)
        return
    _explain(crash)


def _explain(row: CrashRow) -> None:
    crash = row.document
    root = crash.get("root") or {}
    echo(f"{row.title}")
    echo()
    echo(f"First failed {root.get('rank') or 'the process'}: {root.get('exception')}: {root.get('message')}")
    if frame := root.get("frame"):
        echo(f"  at {frame['file']}:{frame['line']} in {frame['function']}")
    if root.get("why"):
        echo(f"  because: {root['why']}")
    for link in (root.get("chain") or [])[1:]:
        echo(f"  wrapped by {link['exception']}: {link['message']}")
    followers = [failure for failure in crash.get("failures") or [] if failure.get("role") != "root"]
    if followers:
        click.echo(f"\nWhat followed ({len(followers)})")
        cells = [(f.get("role", ""), f.get("rank") or "-", f.get("exception", ""), f.get("why", "")) for f in followers]
        table(("ROLE", "RANK", "FAILURE", "WHY"), cells)
    _changed((crash.get("context") or {}).get("changed"))
    if end := crash.get("end"):
        asked = "on request" if end.get("requested") else "by itself"
        echo()
        echo(f"The unit ended {asked}: {end.get('result')} ({end.get('code')}, {end.get('status')})")
    parts = (crash.get("signature") or {}).get("parts") or {}
    echo()
    echo(f"Signature {row.signature}")
    for name, value in parts.items():
        echo(f"  {name}: {value}")
    for match in crash.get("matches") or []:
        echo()
        echo(f"Rule {match['rule']} ({match['confidence']:.0%}): {match['title']}")
        for name, value in (match.get("captures") or {}).items():
            echo(f"  {name} = {value}")
    _nearest(crash)
    evidence = crash.get("evidence") or {}
    echo()
    echo(f"Evidence ({evidence.get('grade')})")
    for line in evidence.get("lines", []):
        origin = line.get("origin") or "process"
        writer = (line.get("rank") or "") if origin == "process" else origin
        echo(f"  {line['n'] if line.get('n') is not None else '':>7} {writer:8} {line['text']}")


def _changed(changes: list[dict[str, str | None]] | None) -> None:
    if changes is None:
        return
    echo()
    echo("Since the unit's last good run" + ("" if changes else " nothing of its flags or its release changed"))
    for change in changes:
        before, now = ("unset" if change[when] is None else change[when] for when in ("before", "now"))
        echo(f"  {change['name']}: {before} -> {now}")


@incidents.command()
@_NUMBER
def resolve(number: int) -> None:
    """It is over. A crash of the same kind makes it regressed."""
    with kept() as (store, session):
        store.resolve(number, session.who, _now())
    click.echo(f"Incident {number} is resolved.")


@incidents.command()
@_NUMBER
def reopen(number: int) -> None:
    """It is not over."""
    with kept() as (store, session):
        store.reopen(number, session.who, _now())
    click.echo(f"Incident {number} is open.")


@incidents.command()
@_NUMBER
@click.option("--until", required=True, metavar="T", help="90m, 8h, 3d, or 2026-12-01T08:00 (UTC unless it says).")
@click.option("--why", required=True, metavar="W", help="For the next one who wonders about the silence.")
def mute(number: int, until: str, why: str) -> None:
    """No alerts of it until then. `--until now` ends a mute."""
    now = _now()
    end = moment_of(until, now)
    if end < now and until != "now":
        raise InputError(f"--until {until} has passed: give a time to come, or 'now' to end a mute")
    with kept() as (store, session):
        store.mute(number, end, why, session.who, now)
    click.echo(f"Incident {number} is muted until {moment(end)}." if end > now else f"Incident {number} is not muted.")


@incidents.command()
@_NUMBER
@click.argument("into", metavar="M", type=click.IntRange(min=1))
def merge(number: int, into: int) -> None:
    """N becomes part of M, with the crashes to come."""
    with kept() as (store, session):
        store.merge(number, into, session.who, _now())
    click.echo(f"Incident {number} is part of {into}.")


def moment_of(text: str, now: int) -> int:
    """A span from now, or a point in time; microseconds UTC."""
    if text == "now":
        return now
    if span := re.fullmatch(r"(\d{1,6})([smhdw])", text):
        return now + int(span[1]) * SPANS[span[2]] * 1_000_000
    try:
        point = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' is neither a span (90m, 8h, 3d) nor a time (2026-12-01T08:00)") from None
    point = point if point.tzinfo else point.replace(tzinfo=UTC)
    return int(point.timestamp() * 1_000_000)
