"""What SGLang's own `--config FILE` means for a remedy: the command line beats the file, but cannot take away from it.

In: a remedy, the unit with what is in force on it, the file as far as it was read. Out: the remedy without the edits
that the file makes needless, the file's values for arithmetic, notes for the plan; Refused with the instruction where
only a hand in that file helps. Called by `planning`. Pure. Root's side never sees it: what is left edits the command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from triage.actionmodel import Plan
from triage.model import Edit, Refused, Remedy
from triage.units.edits import DoesNotFit, Draft, given, instruction, spellings
from triage.units.flagfile import FlagFile
from triage.units.flags import NUMBER


def configured(remedy: Remedy, state: Draft, file: FlagFile) -> Remedy:
    """Raises DoesNotFit where no edit is left, Refused where one has to be made in the file."""
    left: list[Edit] = []
    reasons: list[str] = []
    for edit in remedy.edits:
        try:
            _check(edit, state, file)
        except DoesNotFit as reason:
            reasons.append(str(reason))
        else:
            left.append(edit)
    if reasons and not left:
        raise DoesNotFit(f"{remedy.id} changes nothing in {state.base.unit}: {'; '.join(reasons)}")
    return replace(remedy, edits=tuple(left))


def _check(edit: Edit, state: Draft, file: FlagFile) -> None:
    if not edit.op.endswith("-flag"):
        return
    held = value_of(edit, file)
    if edit.op == "remove-flag" and held is not None:
        key = edit.name.lstrip("-")
        raise Refused(
            f"{edit.name} stands in {file.path} as `{key}`, which is no part of the unit: {instruction(edit)} there by "
            f"hand, then systemctl restart {state.base.unit}"
        )
    if edit.op == "set-flag" and held is not None and not given(edit, state) and _same(edit, held):
        said = f"{edit.name} {held}".strip()
        raise DoesNotFit(f"{said} is already there, in {file.path}")


def value_of(edit: Edit, file: FlagFile) -> str | None:
    """What the file says of the flag, under any of its names."""
    return next((file.values[name] for name in spellings(edit) if name in file.values), None)


def logged_beside(file: FlagFile, state: Draft, logged: Mapping[str, str]) -> dict[str, str]:
    """The flags that the server logged, by field; where the file sets one and the command does not, its word."""
    filed = {name: text for name, text in file.values.items() if not given(Edit("set-flag", name), state)}
    return {**logged, **{name.lstrip("-").replace("-", "_"): text for name, text in filed.items()}}


def noted(plan: Plan, file: FlagFile) -> Plan:
    """With what the file says of the flags that change."""
    held = {edit.name: value for edit in plan.edits if (value := value_of(edit, file))}
    said = (f"{file.path} (--config) sets {name} {text}".strip() for name, text in held.items())
    return replace(plan, notes=(*plan.notes, *(f"{text}: the command line beats it" for text in said)))


def _same(edit: Edit, held: str) -> bool:
    wanted = "" if edit.value is None else str(edit.value)
    if NUMBER.fullmatch(wanted) and NUMBER.fullmatch(held):
        return float(wanted) == float(held)
    return wanted == held
