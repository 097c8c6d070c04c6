"""`triage apply | rollback | actions | verify`: remedies, from the plan to the proof.

Nothing here touches a unit. `triage.request` plans and files; root's one-shot does, and this shows its steps as they
come. Exit codes by what became of the action: 0 in force or undone, 3 refused, 4 rolled back, 5 rollback failed; with
`--wait` by what became of its whole proof, soak and window included.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triage.cli.screen import clean, document, echo, moment, print_json, table

if TYPE_CHECKING:
    from triage.cli.identity import Session
    from triage.model import ActionResult, Plan
    from triage.request import Requester
    from triage.store import ActionRow, IncidentView

Command = Callable[..., None]
ROOT = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read and write unit files below this folder; restart nothing.",
)
DRY = click.option("--dry-run", is_flag=True, help="Show plan and diff, change nothing.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")
WAIT = click.option("--wait", is_flag=True, help="Stay until soak, speed and window have decided too.")
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
STALLED = 300.0  # seconds in which a soak gets at least one answer or gives up
MARKS = {"running": "…", "done": "✓", "failed": "✗", "skipped": "-"}


@contextmanager
def hands_here(root: Path | None = None) -> Iterator[tuple[Requester, Session]]:
    from triage.cli.identity import enter
    from triage.request import Requester
    from triage.store import open_store

    session = enter()
    store = open_store(session.settings)
    try:
        yield Requester(session.settings, store, root=root, uid=session.uid, sudo_uid=session.sudo_uid), session
    finally:
        store.close()


def _now() -> int:
    return time.time_ns() // 1000


# ---------------------------------------------------------------- apply and rollback


@click.command()
@click.argument("incident", type=click.IntRange(min=1))
@click.option(
    "--remedy",
    "wanted",
    metavar="ID",
    help="This one; else the first that fits, unless it is unconfirmed and a better way stands above.",
)
@DRY
@YES
@click.option("--no-verify", is_flag=True, help="Neither wait until the unit is ready nor probe it.")
@WAIT
@ROOT
def apply(
    incident: int, wanted: str | None, dry_run: bool, yes: bool, no_verify: bool, wait: bool, root: Path | None
) -> None:
    """Apply a remedy of INCIDENT: plan, diff, question, drop-in, restart, proof; back if it does not prove itself."""
    with hands_here(root) as (requester, session):
        view = _view(requester, incident)
        plan, passed = _plan(requester, view, wanted)
        for reason in passed:
            echo(f"passed over: {reason}")
        _show_plan(plan)
        if dry_run:
            return
        _ask(yes, f"Apply this to {plan.unit}{' and restart it' if root is None else ''}?")
        requester.apply(plan, plan.action, plan.time, session.who, verify=not no_verify)
        result = follow(requester, plan.action)
        if no_verify:
            return
        if root is None and result is not None and result.state == "unverified":  # somebody stopped the unit meanwhile
            sys.exit(1)
        _go_on(requester, plan, wait)


@click.command()
@click.argument("action")
@DRY
@YES
@ROOT
def rollback(action: str, dry_run: bool, yes: bool, root: Path | None) -> None:
    """Undo ACTION: its edit goes, others on the unit stay; the last one leaves the files as they were before."""
    undo(action, dry_run, yes, root)


def undo(
    action: str,
    dry_run: bool,
    yes: bool,
    root: Path | None,
    *,
    reason: str = "",
    retire: bool = False,
    wait: bool = False,
) -> None:
    """Take an action back; `retire`: because it is needed no more, with the proof of an apply."""
    with hands_here(root) as (requester, session):
        row = requester.store.action(action)
        name = requester.action_name(row.incident)
        plan = requester.plan_rollback(row, name, _now(), retire=retire)
        _show_plan(plan)
        if dry_run:
            return
        _ask(yes, f"Undo {action} on {row.unit}{' and restart it' if root is None else ''}?")
        requester.rollback(row, name, session.who, reason=reason, retire=retire)
        follow(requester, name)
        if retire:
            _go_on(requester, plan, wait)


def _go_on(requester: Requester, plan: Plan, wait: bool) -> None:
    """With what is proved after root's own proof: wait for it, or say where it can be looked at."""
    if wait:
        _wait(requester, plan.action)
    elif plan.verify.soak and not plan.root:
        click.echo(f"The proof goes on in the background: triage actions show {plan.action}", err=True)


def _view(requester: Requester, number: int) -> IncidentView:
    """The incident, or the one it was merged into."""
    view = requester.store.incident(number)
    while view.incident.merged_into is not None:
        click.echo(f"Incident {number} was merged into {view.incident.merged_into}.", err=True)
        view = requester.store.incident(view.incident.merged_into)
    return view


def _plan(requester: Requester, view: IncidentView, wanted: str | None) -> tuple[Plan, tuple[str, ...]]:
    """The plan of the remedy that was asked for, or of the first that fits here, and why those above it do not."""
    from triage.ladder import check_evidence, first_plan
    from triage.planning import newest_document
    from triage.poison import check_poison

    found = newest_document(view)
    name = requester.action_name(view.incident.number)

    def work_out(remedy: str) -> Plan:
        return requester.plan(view.incident, found, remedy, name, _now())

    if wanted:
        return work_out(wanted), ()
    check_evidence(found)
    matches = found.get("matches") or ()
    ladder = matches[0]["remedies"] if matches else ()
    check_poison(view, ladder)
    return first_plan(requester.rungs(ladder, view.incident, found), work_out)


def _ask(yes: bool, question: str) -> None:
    from triage.model import Refused

    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused("not a terminal and no --yes: nothing was changed")
    if not click.confirm(question, default=False, err=True):
        raise Refused("declined, nothing was changed")


def _show_plan(plan: Plan) -> None:
    rows = [
        ("unit", plan.unit),
        ("incident", f"{plan.incident}, rule {plan.rule}"),
        ("remedy", f"{plan.remedy}: {plan.title}"),
        ("cost", plan.cost),
        *(("set" if after is not None else "unset", _assigned(name, after)) for name, _, after in plan.env_changes),
        ("file", f"{plan.root}{plan.drop_in_path}"),
        ("proof", _proof_words(plan) if not plan.root else ""),
        ("action", plan.action),
        *(("note", note) for note in plan.notes),
    ]
    for key, text in rows:
        if text:
            click.echo(f"{click.style(f'{key:>9}', bold=True)}  {clean(text)}")
    click.echo()
    for line in plan.diff.splitlines():
        colour = {"+": "green", "-": "red", "@": "cyan", "#": "yellow"}.get(line[:1])
        click.echo(click.style(clean(line), fg=colour))


def _proof_words(plan: Plan) -> str:
    profile = plan.verify
    if profile.window is None:
        return "ready"
    soak = f"{profile.soak} requests, at least {profile.min_speed or 0:.2f} of the speed before" if profile.soak else ""
    window = f"{profile.window:.0f} s without this crash"
    return ", then ".join(part for part in ("ready and one answer", soak, window) if part)


def _wait(requester: Requester, name: str) -> None:
    """Until the proof has its verdict; then that of the rollback, where it is one against the action."""
    from triage.model import RollbackFailed, Unreachable, VerificationFailed

    told, moved = "", time.monotonic()
    while True:
        row = requester.store.action(name)
        proof = row.proof
        if proof is None or row.state == "unverified":
            return
        if proof.words != told:
            told, moved = proof.words, time.monotonic()
            click.echo(f"  {clean(told)}", err=True)
        answer = _answer(requester, row) if proof.state == "failed" else ""
        if proof.settled and (proof.state != "failed" or answer):
            break
        waiting = proof.state == "failed" and not requester.under_way(row.unit)
        if (proof.state == "soak" or waiting) and time.monotonic() - moved > STALLED:
            raise Unreachable("nobody goes on with the proof: systemctl status triage-worker.service")
        time.sleep(0.5)
    retired = row.kind == "retire"
    if answer == "failed":
        raise RollbackFailed(f"{name}: {proof.text}; and {'putting' if retired else 'taking'} it back failed")
    if answer:
        raise VerificationFailed(f"{f'{row.target} was put' if retired else f'{name} was taken'} back: {proof.text}")
    if proof.state == "ended":
        click.echo(f"triage: the proof of {name} ended without a verdict: {clean(proof.text)}", err=True)
        sys.exit(1)


def _answer(requester: Requester, row: ActionRow) -> str:
    """What became of the undoing that a failed proof asked for (of a retirement: of the putting back): '' while it is
    not over."""
    asked = [one for one in requester.store.incident(row.incident).actions if one.target == row.name]
    if any(one.state in ("rollback-failed", "rolled-back", "refused") for one in asked):
        return "failed"
    done = any(one.in_force for one in asked) if row.kind == "retire" else not row.in_force
    return "done" if done else ""


def _assigned(name: str, after: str | None) -> str:
    return name if after is None else f"{name}={after}"


def follow(requester: Requester, name: str) -> ActionResult | None:
    """Root's steps as they come, on stderr; then the end, and its exit code. None where it has not ended."""
    told: dict[int, str] = {}
    result = None
    try:
        for result in requester.follow(name):
            _tell_steps(result, told)
    except KeyboardInterrupt:
        click.echo(f"\ntriage: {name} goes on without this terminal: triage actions show {name}", err=True)
        sys.exit(130)
    if result is not None:
        _end(result)
    return result


def _tell_steps(result: ActionResult, told: dict[int, str]) -> None:
    for at, step in enumerate(result.steps):
        line = f"{MARKS[step.state]} {step.name}" + (f": {step.text}" if step.text else "")
        progress = step.state == "running"
        if told.get(at) == line or (progress and not sys.stderr.isatty() and at in told):
            continue
        told[at] = line
        click.echo(f"  {clean(line)}", err=True)


def _end(result: ActionResult) -> None:
    from triage.model import ActionState, Refused, RollbackFailed, VerificationFailed

    name = result.request.action
    match result.state:
        case ActionState.REFUSED:
            raise Refused(result.text)
        case ActionState.ROLLED_BACK:
            raise VerificationFailed(f"{name} was taken back: {result.text}")
        case ActionState.ROLLBACK_FAILED:
            raise RollbackFailed(f"{name}: {result.text}")
        case ActionState.UNDONE if result.measured.get("well") == "no":
            raise VerificationFailed(result.text)
        case _:
            echo(f"{name}: {result.state}. {result.text}")


# ---------------------------------------------------------------- reading


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
    with hands_here() as (requester, _):
        page = requester.store.actions(unit=unit, limit=limit, before=before)
        breaker = requester.store.guarded().breaker
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
    with hands_here() as (requester, _):
        row = requester.store.action(action)
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
