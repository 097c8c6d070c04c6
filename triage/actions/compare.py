"""Does the manager hold, after a reload, what was planned?

In: the edited command and environment as drafted, what the manager says it has loaded. Out: why they differ, in words,
or ''. Called by `carry` before anything is restarted. Pure.
"""

from __future__ import annotations

import re

from triage.units.directives import held_as, in_words
from triage.units.edits import Draft
from triage.units.systemctl import Loaded


def mismatch(state: Draft, held: Loaded) -> str:
    """Why the manager does not hold what the draft says; '' where it does."""
    wanted = [command.argv for command in state.commands]
    if len(wanted) != len(held.commands):
        return f"{len(held.commands)} commands instead of {len(wanted)}"
    for ours, theirs in zip(wanted, held.commands, strict=True):
        if len(ours) != len(theirs):
            return f"the command has {len(theirs)} words instead of {len(ours)}"
        for our, their in zip(ours, theirs, strict=True):
            if not _loaded_as(our, their):
                return "a word of the command is another one"
    variables = dict(state.base.environment)
    variables |= {name: value.replace("%", "%%") for name, value in state.environment.items() if value is not None}
    loaded = dict(item.partition("=")[::2] for item in held.environment)
    if set(variables) != set(loaded):
        return f"the environment has other names: {sorted(set(variables) ^ set(loaded))[:5]}"
    for name, value in variables.items():
        if not _loaded_as(value, loaded[name]):
            return f"{name} has another value"
    for name, text in state.settings.items():
        planned, there = held_as(name, text), held.settings.get(name)
        if planned is not None and there is not None and planned != there:
            return f"{name} is {in_words(name, there)} instead of {text}"
    unset = {*state.base.unset, *(name for name, value in state.environment.items() if value is None)}
    return "" if unset <= set(held.unset) else "a variable is not taken away"


def _loaded_as(source: str, held: str) -> bool:
    """Whether the manager may have made `held` of `source`: a specifier may stand for anything."""
    parts = re.split(r"(%.)", source)
    pattern = "".join(
        "%" if part == "%%" else ".*" if part.startswith("%") and len(part) == 2 else re.escape(part) for part in parts
    )
    return re.fullmatch(pattern, held, re.S) is not None
