"""`triage apply | rollback`: a remedy, from the plan to the proof.

Nothing here touches a unit. `triage.request` plans and files; root's one-shot does, and this shows its steps as they
come. Exit codes by what became of the action: 0 in force or undone, 3 refused, 4 rolled back, 5 rollback failed; with
`--wait` by what became of its whole proof, soak and window included.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triage.cli.options import DRY, ROOT, WAIT, YES
from triage.cli.parts import hands_here
from triage.cli.screen import MARKS, clean, echo

if TYPE_CHECKING:
    from triage.actionmodel import ActionResult, Plan
    from triage.request import Requester
    from triage.store import ActionRow, IncidentView

STALLED = 300.0  # seconds in which a soak gets at least one answer or gives up


def _now() -> int:
    return time.time_ns() // 1000


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
    from triage.actionmodel import ActionState
    from triage.model import Refused, RollbackFailed, VerificationFailed

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
