"""A remedy and a unit as it is -> a plan, or the reason why not.

In: the unit's files, the remedy of a match, what is in force already, the policy. Out: `Plan`, whose text and digest
root will render again from the same edits (`dropin`). Called by `planning` for command line, pages and worker. Pure:
no file is read or written here, and having a plan changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from triage.actionmodel import Plan, Unit
from triage.actions.policy import Policy
from triage.model import EMPTY, Edit, Refused, Remedy
from triage.units.arithmetic import satisfied
from triage.units.directives import Value, held_as, in_words
from triage.units.dropin import (
    InForce,
    Rendered,
    Standing,
    check_own_file,
    diff,
    mask_argv,
    mask_value,
    own_text,
    render,
    still_runs,
    told,
)
from triage.units.edits import DoesNotFit, Draft, apply_edits, draft, with_present
from triage.units.launch import find
from triage.units.unitfile import Command, digest, drop_in_path, effective, own_drop_in, unit_digest


def plan(
    unit: Unit,
    incident: int,
    rule: str,
    remedy: Remedy,
    known: Standing,
    *,
    action: str,
    now: int,
    policy: Policy | None = None,
    present: Mapping[str, str] = EMPTY,
    held: Mapping[str, Value] = EMPTY,
    root: str = "",
) -> Plan:
    """Work the remedy out. `present`: the flags that the server logged, for values the command leaves to SGLang.
    `held`: the directives as the manager has them, its own defaults included.

    Raises Refused (DoesNotFit where there is nothing to change) with one sentence for the operator.
    """
    if not remedy.edits:
        raise Refused(f"{remedy.id} cannot be carried out by triage: {remedy.title}")
    if remedy.blocked_by:
        raise Refused(f"{remedy.id} does not fit here: {remedy.blocked_by}")
    check_own_file(unit, known, root)
    new = InForce(action, incident, rule, remedy.id, now, remedy.edits)
    try:
        rendered = render(unit, known.actions, new, root=root)
    except DoesNotFit as reason:
        edits = _with_logged_values(unit, known, remedy, present)
        if edits == remedy.edits:
            raise DoesNotFit(f"{remedy.id} changes nothing in {unit.name}: {reason}") from None
        new = InForce(action, incident, rule, remedy.id, now, edits)
        rendered = render(unit, known.actions, new, root=root)
    if policy is not None:
        policy.check(unit.name, rendered.changes)
    rendered = _beside_defaults(unit, remedy, rendered, held)
    result = _plan(unit, new, rendered, remedy.title, remedy.cost, root)
    if not rendered.draft.command_changed:
        return result
    others = ", ".join(file.path.rsplit("/", 1)[-1] for file in unit.files if not own_drop_in(file.path))
    note = f"its ExecStart= will hide later changes of the command in {others}: undo it first for those"
    return replace(result, notes=(*result.notes, note))


def _beside_defaults(unit: Unit, remedy: Remedy, rendered: Rendered, held: Mapping[str, Value]) -> Rendered:
    """With what the manager has in force for the directives. Raises DoesNotFit where all of it is so already."""
    there = {change.name: held[change.name] for change in rendered.changes if change.name in held}
    for edit in remedy.edits:  # a default of the manager's may be beyond it, though no file says so
        if edit.name in there and (why := satisfied(edit, in_words(edit.name, there[edit.name]))):
            raise DoesNotFit(f"{remedy.id} changes nothing in {unit.name}: {why}")
    same = [
        change for change in rendered.changes if there.get(change.name, "") == held_as(change.name, change.after or "")
    ]
    if same and len(same) == len(rendered.changes):
        said = ", ".join(f"{change.name} is {in_words(change.name, there[change.name])} already" for change in same)
        raise DoesNotFit(f"{remedy.id} changes nothing in {unit.name}: {said}")
    notes = tuple(f"{name} is {in_words(name, value)} now" for name, value in there.items())
    return replace(rendered, notes=(*rendered.notes, *notes))


def plan_rollback(unit: Unit, known: Standing, target: str, *, action: str, now: int, root: str = "") -> Plan:
    """The file without the target. Raises Refused where it is not in force or the file is no longer triage's."""
    gone = next((item for item in known.actions if item.action == target), None)
    if gone is None:
        standing = ", ".join(item.action for item in known.actions) or "none"
        raise Refused(f"{target} is not in force on {unit.name} (in force: {standing}): nothing to undo")
    removed = not any(own_drop_in(file.path) for file in unit.files)
    if not removed:
        check_own_file(unit, known, root)
    rest = () if removed else tuple(item for item in known.actions if item.action != target)
    rendered = render(unit, rest, root=root)
    done = InForce(action, gone.incident, gone.rule, gone.remedy, now, ())
    result = _plan(unit, done, rendered, f"undo {target} ({gone.remedy})", "", root)
    if not removed:
        return result
    note = f"the drop-in was removed by hand: {target} and whatever else stood in it is closed, nothing is touched"
    note += still_runs(unit.name, root, unit.owner)
    return replace(result, notes=(*result.notes, note))


def as_it_stands(unit: Unit, known: Standing) -> Draft:
    """The unit with the actions in force."""
    state = draft(effective(unit))
    for item in known.actions:
        state, _, _ = apply_edits(state, item.edits)
    return state


def _with_logged_values(unit: Unit, known: Standing, remedy: Remedy, present: Mapping[str, str]) -> tuple[Edit, ...]:
    state = as_it_stands(unit, known)
    return tuple(with_present(edit, present, state) for edit in remedy.edits)


def _plan(unit: Unit, new: InForce, rendered: Rendered, title: str, cost: str, root: str) -> Plan:
    before = own_text(unit)
    path = drop_in_path(unit.name, unit.owner)
    argv_before = _server_argv(effective(unit, with_drop_in=True).commands)
    argv_after = _server_argv(rendered.draft.commands)
    environment = tuple(
        (change.name, mask_value(change.name, change.before), mask_value(change.name, change.after))
        for change in rendered.changes
        if change.kind == "env"
    )
    return Plan(
        unit=unit.name,
        incident=new.incident,
        rule=new.rule,
        remedy=new.remedy,
        title=title,
        cost=cost,
        edits=rendered.fitted,
        drop_in_path=path,
        drop_in_text=rendered.text,
        diff=diff(before, rendered.text, path, argv_before, argv_after),
        seen_digest=unit_digest(unit),
        result_digest=digest(rendered.text) if rendered.text else "",
        argv_before=mask_argv(argv_before),
        argv_after=mask_argv(argv_after),
        env_changes=environment,
        changes=tuple((change.name, told(change)) for change in rendered.changes),
        notes=(*unit.notes, *rendered.unfit, *rendered.notes),
        action=new.action,
        time=new.time,
        root=root,
        owner=unit.owner.uid if unit.owner else None,
    )


def _server_argv(commands: tuple[Command, ...]) -> tuple[str, ...]:
    try:
        return find(commands).command.argv
    except Refused:  # only the environment is edited, of a unit whose command is not understood
        return commands[0].argv if commands else ()
