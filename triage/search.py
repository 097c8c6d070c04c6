"""The next value to try of a flag that crashes when it is too high: halfway between what worked and what crashed.

In: the value at the crash, and what the store remembers of this unit and signature. Out: a `set-flag` edit, so that
root and the drop-in know of no search. Called by `planning`. Pure. 60 worked and 64 crashed: 62; it ends at the last
that worked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from triage.actionmodel import ActionState, Tried
from triage.model import Edit, Remedy
from triage.units.edits import SEARCH, DoesNotFit, Draft, fields, present_value
from triage.units.flags import NUMBER

_PROVED = (ActionState.VERIFIED, ActionState.UNDONE)

_NEAR = 0.02  # of a fraction: closer than this is not worth a restart


def searched(
    remedy: Remedy,
    state: Draft,
    logged: Mapping[str, str],
    incident: int,
    tried: Iterable[Tried],
    crashed_with: Callable[[int, str], tuple[float, ...]],
) -> Remedy:
    """The remedy with its searches worked out. Of several spellings those that tell no value are left out.

    `crashed_with`: the values of a flag under which this incident came. Raises DoesNotFit where none of them fits."""
    edits: list[Edit] = []
    reasons: list[str] = []
    for edit in remedy.edits:
        if edit.op != SEARCH:
            edits.append(edit)
            continue
        crashed = [value for field in fields(edit.name) for value in crashed_with(incident, field)]
        try:
            edits.append(narrowed(edit, state, logged, crashed, _worked(edit.name, incident, tried)))
        except DoesNotFit as reason:
            reasons.append(str(reason))
    if reasons and not edits:
        raise DoesNotFit(f"{remedy.id} changes nothing: {'; '.join(reasons)}")
    return replace(remedy, edits=tuple(edits))


def _worked(name: str, incident: int, tried: Iterable[Tried]) -> list[float]:
    """The values that were proved against this incident and held."""
    held = [one for one in tried if one.incident == incident and not one.failed and one.state in _PROVED]
    values = [str(edit.value) for one in held for edit in one.edits if edit.op == "set-flag" and edit.name == name]
    return [float(value) for value in values if NUMBER.fullmatch(value)]


def narrowed(
    edit: Edit, state: Draft, logged: Mapping[str, str], crashed: Iterable[float], worked: Iterable[float]
) -> Edit:
    """The edit to make now. Raises DoesNotFit where nothing is left to try, or the present value is not known."""
    text = present_value(edit, state, logged)
    try:
        present = float(text)
    except ValueError:
        raise DoesNotFit(f"neither the command nor the log tells the value of {edit.name}") from None
    wanted = next_value(present, crashed, worked, edit.floor or 0.0)
    if wanted >= present:
        raise DoesNotFit(f"{edit.name} {text} is the lowest there is to try")
    value = int(wanted) if wanted == int(wanted) else round(wanted, 4)
    return replace(edit, op="set-flag", value=value, floor=None, ceiling=None)


def next_value(present: float, crashed: Iterable[float], worked: Iterable[float], floor: float) -> float:
    """Never above what crashed, never below the floor. What worked once and crashed later has crashed."""
    bad = min((present, *(value for value in crashed if value > floor)))
    good = max((value for value in worked if floor <= value < bad), default=floor)
    if bad == int(bad) and good == int(good) and bad > 1:
        return max(good, (bad + good) // 2) if bad - good > 1 else good
    return good if bad - good <= _NEAR * bad else (bad + good) / 2
