"""One edit of one command line or environment.

In: the effective unit (`unitfile.Effective`) and the edits of a remedy. Out: a `Draft` that knows what changed, or
`DoesNotFit` with the reason in words, or `Refused` with what a person has to do. Called by `remedy` (to plan) and by
`apply` (root renders again from the same edits). Pure. `launch` knows where the server's
words stand, `flags` what of them is a flag and what its value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace

from triage.frozen import frozen
from triage.model import Edit, Refused
from triage.units.arithmetic import ARITHMETIC, bounded, computed, satisfied, text_of
from triage.units.flags import FLAG, NUMBER, SPELLINGS, Flag, flags, long_name, model_is_loose
from triage.units.launch import Launch, find
from triage.units.unitfile import Command, Effective

OPS = frozenset(("set-flag", "remove-flag", "cap-flag", "scale-flag", "step-flag", "set-env", "unset-env", "set-unit"))
SEARCH = "search-flag"  # worked out before it is asked for: root never sees one
TAKES = ("nothing", "value", "list")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SETTING = re.compile(r"(Unit|Service|Install)\.[A-Za-z]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0080-\u009f\u2028\u2029\ud800-\udfff]")


class DoesNotFit(Refused):
    """This edit has nothing to do here: already there, flag absent, at its bound."""


@frozen
class Change:
    """What one edit came to. `after` is None where something was taken away, '' for a flag without a value."""

    kind: str  # flag env unit
    name: str
    before: str | None
    after: str | None
    also: tuple[str, ...] = ()  # the flag's abbreviations that were taken for it


@frozen
class Draft:
    """The unit with some edits done. `environment`, `settings` hold only what edits touched (None: to be unset)."""

    base: Effective
    commands: tuple[Command, ...]
    environment: Mapping[str, str | None] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()

    @property
    def command_changed(self) -> bool:
        return self.commands != self.base.commands

    @property
    def variables(self) -> dict[str, str]:
        """What `$X` stands for once the edits are done, `%` doubled."""
        ours = {name: value.replace("%", "%%") for name, value in self.environment.items() if value is not None}
        taken = {name for name, value in self.environment.items() if value is None}
        return {name: value for name, value in (self.base.variables | ours).items() if name not in taken}

    def with_command(self, index: int, command: Command) -> Draft:
        return replace(self, commands=(*self.commands[:index], command, *self.commands[index + 1 :]))


def draft(base: Effective) -> Draft:
    return Draft(base, base.commands)


# ---------------------------------------------------------------- edits


def check_edit(edit: Edit) -> None:
    """Raise Refused on an edit that no rule could mean: unknown op, strange name, control characters, huge value."""
    if edit.op not in OPS and edit.op != SEARCH:
        raise Refused(f"unknown edit {edit.op!r}")
    pattern = {"flag": FLAG, "env": _ENV_NAME, "unit": _SETTING}[edit.op.rsplit("-", 1)[-1]]
    if len(edit.name) > 100 or not pattern.fullmatch(edit.name):
        raise Refused(f"{edit.name[:80]!r} is not a name that {edit.op} can take")
    text = "" if edit.value is None else str(edit.value)
    if len(text) > 4096 or _CONTROL.search(text):
        raise Refused(f"the value for {edit.name} is too long or has control characters in it")
    if edit.op in ARITHMETIC and (isinstance(edit.value, str | bool) or edit.value is None):
        raise Refused(f"{edit.op} {edit.name} needs a number")
    if edit.op in ("set-env", "set-unit") and edit.value is None:
        raise Refused(f"{edit.op} {edit.name} needs a value")
    if not all(_abbreviates(short, edit.name) for short in edit.also) or edit.takes not in ("", *TAKES):
        raise Refused(f"the hints for {edit.name} are none")
    if edit.op == "set-unit" and "\\" in text:
        raise Refused(f"a backslash in the value of {edit.name} could swallow the next line")


def apply_edit(state: Draft, edit: Edit) -> Draft:
    """The draft with one more edit. Raises DoesNotFit where it changes nothing, Refused where it cannot be done."""
    check_edit(edit)
    if edit.op in ("set-env", "unset-env"):
        return _edit_environment(state, edit)
    if edit.op == "set-unit":
        return _edit_setting(state, edit)
    if edit.op == SEARCH:
        raise Refused(f"the search for {edit.name} has to be worked out before it is asked for")
    return _edit_flag(state, edit)


def apply_edits(state: Draft, edits: tuple[Edit, ...]) -> tuple[Draft, tuple[Edit, ...], tuple[str, ...]]:
    """(draft, the edits that fitted, why the others did not). None fitting is for the caller to judge."""
    fitted, reasons = [], []
    for edit in edits:
        try:
            state = apply_edit(state, edit)
        except DoesNotFit as reason:
            reasons.append(str(reason))
        else:
            fitted.append(edit)
    return state, tuple(fitted), tuple(reasons)


def with_present(edit: Edit, present: Mapping[str, str], state: Draft) -> Edit:
    """Arithmetic on a value that the command does not tell: take the one that the server itself logged.

    `present` are the flags of the log's server_args line, by field name. The result is an edit that needs no log.
    """
    if edit.op not in ARITHMETIC or _told(edit, state):
        return edit
    logged = present_value(edit, state, present)
    if not NUMBER.fullmatch(logged):
        return edit
    wanted = computed(edit, logged)
    return (
        edit if float(wanted) == float(logged) else replace(edit, op="set-flag", value=wanted, floor=None, ceiling=None)
    )


def present_value(edit: Edit, state: Draft, logged: Mapping[str, str]) -> str:
    """The flag's value by the command, else by the log; '' where neither tells."""
    return _told(edit, state) or next((logged[field] for field in fields(edit.name) if field in logged), "")


def given(edit: Edit, state: Draft) -> tuple[Flag, ...]:
    """Where the flag stands in the command."""
    try:
        launch = find(state.commands)
    except Refused:
        return ()
    names = spellings(edit)
    return tuple(flag for flag in flags(launch, state.variables, names, edit.takes) if flag.name in names)


def _told(edit: Edit, state: Draft) -> str:
    """The value that stands in the command, if it does and is no variable."""
    found = given(edit, state)
    return _value(found[-1]) if found and found[-1].value is not None and not found[-1].value.opaque else ""


def instruction(edit: Edit) -> str:
    """The edit in words, for a person who has to make it."""
    value = "" if edit.value is None else text_of(edit.value)
    match edit.op:
        case "set-flag" | "set-env" | "set-unit":
            joint = " " if edit.op == "set-flag" else "="
            return f"set {edit.name}{joint}{value}" if value else f"add {edit.name}"
        case "cap-flag":
            return f"lower {edit.name} to at most {value}"
        case "scale-flag":
            return f"multiply {edit.name} by {value}"
        case "search-flag":
            return f"lower {edit.name} halfway to a value that worked"
        case "step-flag":
            return f"add {value} to {edit.name}"
        case _:
            return f"take {edit.name} away"


def spellings(edit: Edit) -> frozenset[str]:
    """The long names that mean the flag here."""
    return frozenset(long_name(name) or name for name in (edit.name, *edit.also))


def fields(name: str) -> tuple[str, ...]:
    """What a flag is called in server_args: short spellings there come from the name of the field."""
    long = long_name(name)
    same = [spelling for group in SPELLINGS if group[0] == long for spelling in group]
    return tuple(spelling.lstrip("-").replace("-", "_") for spelling in (name, *same))


def _abbreviates(short: str, name: str) -> bool:
    """argparse takes the beginning of a flag for the flag, where only one flag begins so."""
    long = long_name(name)
    same = [name, *(spelling for group in SPELLINGS if group[0] == long for spelling in group)]
    return FLAG.fullmatch(short) is not None and any(one.startswith(short.replace("_", "-")) for one in same)


def _edit_flag(state: Draft, edit: Edit) -> Draft:
    launch = _launch(state, edit)
    if any(word.text == "--" for word in launch.words[launch.start :]):
        raise Refused(f"behind the -- in the command nothing is a flag any more: {_by_hand(state, edit)}")
    names = spellings(edit)
    loose = model_is_loose(launch, state.variables)
    found = [flag for flag in flags(launch, state.variables, names, edit.takes) if flag.name in names]
    if edit.op == "remove-flag":
        return _without(state, launch, found, edit, loose)
    before = _value(found[-1]) if found else None
    after = _wanted(edit, found, before, _absent(state, launch, edit))
    # Where a variable holds it, or may, or where the model may stand behind it, a second one at the end wins.
    last = found[-1] if found else None
    unsure = last is not None and (
        last.followed or last.by_variable or (loose and not edit.takes and last.end > last.start + 1)
    )
    command = _with_flag(launch, None if unsure else last, edit.name, after)
    change = Change("flag", edit.name, before, after, edit.also)
    return replace(state.with_command(launch.index, command), changes=(*state.changes, change))


def _launch(state: Draft, edit: Edit) -> Launch:
    try:
        return find(state.commands)
    except Refused as reason:
        raise Refused(str(reason) if "router" in str(reason) else f"{reason}: {_by_hand(state, edit)}") from None


def _by_hand(state: Draft, edit: Edit, where: str = "there by hand") -> str:
    return f"{instruction(edit)} {where}, then systemctl restart {state.base.unit}"


def _wanted(edit: Edit, present: list[Flag], before: str | None, absent: str) -> str:
    if edit.op == "set-flag":
        after = "" if edit.value is None else text_of(edit.value)
        if present and (not after or before == after):
            raise DoesNotFit(f"{edit.name}{' ' + after if after else ''} is already there")
        if present and bounded(edit):
            if before is None or present[-1].value is None or present[-1].value.opaque:
                raise DoesNotFit(f"the value of {edit.name} comes from a variable: change it there by hand")
            if (why := satisfied(edit, before)) is not None:
                raise DoesNotFit(why)
        return after
    if not present:
        raise DoesNotFit(absent)
    if before is None or present[-1].value is None or present[-1].value.opaque:
        raise DoesNotFit(f"the value of {edit.name} comes from a variable: change it there by hand")
    if not NUMBER.fullmatch(before):
        raise DoesNotFit(f"{edit.name} has the value {before[:40]!r}, which is no number")
    after = computed(edit, before)
    if float(after) == float(before):
        raise DoesNotFit(f"{edit.name} {before} is already at its bound")
    return after


def _value(flag: Flag) -> str:
    return "" if flag.value is None else flag.value.text if flag.value.opaque else flag.value.literal


def _with_flag(launch: Launch, at: Flag | None, name: str, value: str) -> Command:
    """The last occurrence takes the new value (argparse: the last wins); a new flag goes to the end."""
    if at is None:
        end = len(launch.words)
        return launch.replaced(end, end, (name, value) if value else (name,))
    if at.joined and value:
        return launch.replaced(at.start, at.end, (f"{at.spelled}={value}",))
    return launch.replaced(at.start, at.end, (at.spelled, value) if value else (at.spelled,))


def _without(state: Draft, launch: Launch, found: list[Flag], edit: Edit, loose: bool) -> Draft:
    """All occurrences go, or an earlier one would come into force."""
    if not found:
        raise DoesNotFit(_absent(state, launch, edit))
    for flag in found:
        if flag.followed or (flag.by_variable and not flag.variable):
            hand = _by_hand(state, edit, "by hand")
            raise Refused(f"a variable follows {edit.name}, whether it is its value cannot be told: {hand}")
        if loose and not edit.takes and len(flag.tokens) > 1:
            raise Refused(f"what follows {edit.name} may be the model: {_by_hand(state, edit, 'by hand')}")
    values = dict(state.environment)
    for name in {flag.variable for flag in found if flag.variable}:
        values[name] = _cut(state, name, [flag for flag in found if flag.variable == name], edit)
    for flag in reversed([flag for flag in found if not flag.variable]):
        state = state.with_command(launch.index, launch.replaced(flag.start, flag.end, ()))
        launch = find(state.commands)
    change = Change("flag", edit.name, _value(found[-1]), None, edit.also)
    return replace(state, environment=values, changes=(*state.changes, change))


def _cut(state: Draft, name: str, gone: list[Flag], edit: Edit) -> str:
    """The variable's value without these flags, as a plain value. Raises Refused where a drop-in cannot say so."""
    if name in state.base.filed:
        where = f"in {state.base.filed[name][1]}"
        raise Refused(f"{edit.name} stands in {name} {where}, which beats Environment=: {_by_hand(state, edit)}")
    value = state.variables[name]
    tokens = [token for flag in gone for token in flag.tokens]
    if any(token.end < 0 or token.variable != name for token in tokens) or "%" in value.replace("%%", ""):
        raise Refused(f"{edit.name} stands in the variable {name}: {_by_hand(state, edit)}")
    for token in reversed(tokens):
        value = f"{value[: token.begin].rstrip()} {value[token.end :].lstrip()}".strip()
    return value.replace("%%", "%")


def _absent(state: Draft, launch: Launch, edit: Edit) -> str:
    given = flags(launch, state.variables)
    config = next((flag.value.text for flag in given if flag.name == "--config" and flag.value), "")
    if config:
        return f"{edit.name} is not in the command; should it stand in {config} (--config), {instruction(edit)} there"
    unknown = [
        item.text for item in launch.words[launch.start :] if item.splitting and item.text[1:] not in state.variables
    ]
    if unknown:
        return f"{edit.name} is not in the command; should it stand in {unknown[0]}, {instruction(edit)} there"
    return f"{edit.name} is not in the command"


def _edit_environment(state: Draft, edit: Edit) -> Draft:
    after = None if edit.op == "unset-env" else text_of(edit.value if edit.value is not None else "")
    given = _given(state, edit)
    if given:
        return given
    base = state.base
    if edit.name in base.filed:
        path = base.filed[edit.name][1]
        raise Refused(f"{edit.name} is set in {path}, which beats Environment=: {_by_hand(state, edit)}")
    written = None if edit.name in base.unset else base.environment.get(edit.name)
    before = state.environment.get(edit.name, None if written is None else written.replace("%%", "%"))
    if before == after:
        raise DoesNotFit(f"{edit.name} is not set" if after is None else f"{edit.name}={after} is already there")
    if before is not None and (why := satisfied(edit, before)) is not None:
        raise DoesNotFit(why)
    if after is not None and edit.name in base.unset:
        raise Refused(f"UnsetEnvironment={edit.name} in the unit would take it away again: remove that by hand")
    change = Change("env", edit.name, before, after)
    return replace(state, environment={**state.environment, edit.name: after}, changes=(*state.changes, change))


def _given(state: Draft, edit: Edit) -> Draft | None:
    """The variable where the command itself sets it: env NAME=..., NAME=... in a script, a container's --env."""
    try:
        launch = find(state.commands)
    except Refused:
        return None
    words = launch.given(edit.name)
    after = None if edit.op == "unset-env" else text_of(edit.value if edit.value is not None else "")
    before = words[-1].literal.partition(f"{edit.name}=")[2] if words else None
    if not words:
        if not launch.contained:
            if launch.new_environment:
                hand = _by_hand(state, edit, "by hand")
                raise Refused(f"{launch.new_environment} starts SGLang without the unit's variables: {hand}")
            return None
        command = None if after is None else launch.container(edit.name, after)
        if command is None:
            raise DoesNotFit(f"the command does not give {edit.name} to the container")
    elif after is None:
        command = launch.ungiven(words)
        if command is None:
            raise Refused(f"{edit.name} is set in the command itself: {_by_hand(state, edit)}")
    elif before == after and not words[-1].opaque:
        raise DoesNotFit(f"{edit.name}={after} is already there")
    elif bounded(edit) and words[-1].opaque:
        raise DoesNotFit(f"the value of {edit.name} comes from a variable: change it there by hand")
    elif before is not None and (why := satisfied(edit, before)) is not None:
        raise DoesNotFit(why)
    else:
        command = launch.assigned(words[-1], after)
    change = Change("env", edit.name, before, after)
    return replace(state.with_command(launch.index, command), changes=(*state.changes, change))


def _edit_setting(state: Draft, edit: Edit) -> Draft:
    before = state.settings.get(edit.name, state.base.settings.get(edit.name))
    after = text_of(edit.value if edit.value is not None else "")
    if before == after:
        raise DoesNotFit(f"{edit.name}={after} is already there")
    if before is not None and (why := satisfied(edit, before)) is not None:
        raise DoesNotFit(why)
    change = Change("unit", edit.name, before, after)
    return replace(state, settings={**state.settings, edit.name: after}, changes=(*state.changes, change))
