"""What a value comes to by an edit: capped, scaled, stepped, and the bounds that hold for it.

In: an edit and the present value as text. Out: the new value as text, or why the present one is left alone. Called by
`edits` and by planning. It must not look at a unit.
"""

from __future__ import annotations

import re

from triage.model import Edit
from triage.units.directives import Value, held_as
from triage.units.flags import NUMBER

ARITHMETIC = ("cap-flag", "scale-flag", "step-flag")


def bounded(edit: Edit) -> bool:
    """Whether a value that is set goes one way only: what is beyond it already is left alone."""
    return edit.op.startswith("set-") and (edit.floor is not None or edit.ceiling is not None)


def satisfied(edit: Edit, before: str) -> str | None:
    """Why a present value is left alone by a `set` with a bound: it is at least the floor, at most the ceiling. A value
    that is no number says nothing."""
    if not bounded(edit):
        return None
    bounds = (edit.floor, edit.ceiling)

    def number(text: str) -> Value | float | None:
        if edit.op == "set-unit":
            return held_as(edit.name, text)
        return float(text) if NUMBER.fullmatch(text) else None

    present, low, high = number(before), *(None if bound is None else number(text_of(bound)) for bound in bounds)
    if not isinstance(present, int | float) or present < 0:  # -1 stands for 'without one'
        return None
    if isinstance(low, int | float) and present >= low:
        return f"{edit.name} {before} is enough already"
    if isinstance(high, int | float) and present <= high:
        return f"{edit.name} {before} is low enough already"
    return None


def computed(edit: Edit, before: str) -> str:
    """cap: at most the value. scale: times the value. step: plus the value. Whole numbers stay whole."""
    assert isinstance(edit.value, int | float)
    present = float(before)
    match edit.op:
        case "cap-flag":
            wanted = min(present, float(edit.value))
        case "scale-flag":
            wanted = present * edit.value
        case _:
            wanted = present + edit.value
    if edit.op != "cap-flag":
        # Both bounds hold whatever the direction: 1.2 stepped down comes to the ceiling at most. A bound never turns
        # the direction round, though: below its floor a value that was to go down is left alone, not raised.
        bounded = wanted if edit.floor is None else max(wanted, edit.floor)
        bounded = bounded if edit.ceiling is None else min(bounded, edit.ceiling)
        wanted = min(present, bounded) if wanted < present else max(present, bounded)
    whole = re.fullmatch(r"-?\d+", before) and not (edit.op == "cap-flag" and wanted != int(wanted))
    if whole:  # never cut below its floor: half of 2, but 1.1 at least, is 2; a server may refuse 1.1
        below = edit.floor is not None and int(wanted) < min(edit.floor, present)
        return str(int(wanted) + below)
    return text_of(round(wanted, 4))


def text_of(value: str | float) -> str:
    """A value as it is written: 128.0 is 128."""
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return str(value)
