"""One edit of one command line or environment, with its arithmetic.

In: the effective unit (`unitfile.Effective`) and the edits of a remedy. Out: a `Draft` that knows what changed, or
`DoesNotFit` with the reason in words. Called by `remedy` (to plan) and by `apply` (root renders again from the same
edits). Pure. Only a direct command is edited: the words after `python -m sglang.launch_server` or `sglang serve`; a
shell, a container or a wrapper script gets a precise instruction instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from triage.model import Edit, Refused
from triage.units.unitfile import Command, Effective, Word, word

OPS = frozenset(("set-flag", "remove-flag", "cap-flag", "scale-flag", "step-flag", "set-env", "unset-env", "set-unit"))
# Spellings of one and the same flag; the first is the long name.
SPELLINGS = (
    ("--model-path", "--model"),
    ("--tensor-parallel-size", "--tp-size", "--tp"),
    ("--data-parallel-size", "--dp-size", "--dp"),
    ("--pipeline-parallel-size", "--pp-size", "--pp"),
    ("--expert-parallel-size", "--ep-size", "--ep"),
)
_LONG = {short: names[0] for names in SPELLINGS for short in names}
_FLAG = re.compile(r"--[A-Za-z][A-Za-z0-9_-]*")
_NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SETTING = re.compile(r"(Unit|Service|Install)\.[A-Za-z]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0080-\u009f\u2028\u2029\ud800-\udfff]")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "su", "runuser", "sudo", "systemd-run", "screen", "tmux"))
_ENGINES = frozenset(("docker", "podman", "nerdctl", "apptainer", "singularity", "enroot", "srun", "kubectl"))
_SERVER_MODULE = "sglang.launch_server"
_ROUTER_MODULES = frozenset(("sglang_router.launch_router", "sglang.launch_router", "sglang_router.launch_server"))


class DoesNotFit(Refused):
    """This edit has nothing to do here: already there, flag absent, at its bound."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one edit came to. `after` is None where something was taken away, '' for a flag without a value."""

    kind: str  # flag env unit
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Flag:
    """One occurrence in a command: words[start] names it, its values follow up to `end`."""

    name: str  # long, with dashes
    start: int
    end: int
    value: Word | None  # None: bare; of several values the first
    joined: bool  # --flag=value
    followed: bool = False  # a bare $ARGS comes next: its value or more flags, nobody can tell


def draft(base: Effective) -> Draft:
    return Draft(base, base.commands)


# ---------------------------------------------------------------- the server's command


def server(commands: tuple[Command, ...]) -> tuple[int, int]:
    """(which command is SGLang's, index of its first flag word). Raises Refused with what to do by hand."""
    if not commands:
        raise Refused("the unit has no ExecStart= command: nothing to edit")
    for index, command in enumerate(commands):
        start = _first_flag(command)
        if start is not None:
            return index, start
    words = [item.text for command in commands for item in command.words]
    program = commands[0].program.rsplit("/", 1)[-1]
    if program in _SHELLS | _ENGINES:
        raise Refused(
            f"cannot edit inside {program}: SGLang is started through it, so change the flag by hand "
            f"(systemctl edit, copy the ExecStart= line) and restart the unit"
        )
    if any(text in _ROUTER_MODULES for text in words):
        raise Refused("this unit starts the SGLang router, not a server: the server's flags have no place in it")
    raise Refused(f"the command starts {program}, not SGLang directly: change the flag by hand in what it runs")


def _first_flag(command: Command) -> int | None:
    texts = [item.text for item in command.words]
    if command.program.rsplit("/", 1)[-1] in _SHELLS | _ENGINES:
        return None
    for at, text in enumerate(texts):
        previous = command.program if at == 1 else texts[at - 1] if at else ""
        if text == _SERVER_MODULE and previous == "-m":
            return at + 1
        if text == "serve" and at and previous.rsplit("/", 1)[-1] == "sglang":
            return at + 1
        if text.endswith("sglang/launch_server.py"):
            return at + 1
    return None


def long_name(text: str) -> str | None:
    """The flag a word names, spelled long and with dashes; None if it is no flag."""
    found = _FLAG.match(text)
    if not found or (found.end() < len(text) and text[found.end()] != "="):
        return None
    name = found[0].replace("_", "-")
    return _LONG.get(name, name)


def flags(command: Command, start: int) -> tuple[Flag, ...]:
    """All flags from words[start] on, in order, with their values."""
    found = []
    at, words = start, command.words
    while at < len(words):
        name = long_name(words[at].text)
        begin, at = at, at + 1
        if name is None:
            continue
        _, equals, text = words[begin].text.partition("=")
        if equals:
            found.append(Flag(name, begin, at, Word(text, text), True))
            continue
        while at < len(words) and _is_value(words[at]):
            at += 1
        followed = at == begin + 1 and at < len(words) and words[at].splitting
        found.append(Flag(name, begin, at, words[begin + 1] if at > begin + 1 else None, False, followed))
    return tuple(found)


def _is_value(item: Word) -> bool:
    if item.splitting:
        return False
    return not item.text.startswith("-") or item.text == "-" or _NUMBER.fullmatch(item.text) is not None


# ---------------------------------------------------------------- edits


def check_edit(edit: Edit) -> None:
    """Raise Refused on an edit that no rule could mean: unknown op, strange name, control characters, huge value."""
    if edit.op not in OPS:
        raise Refused(f"unknown edit {edit.op!r}")
    pattern = {"flag": _FLAG, "env": _ENV_NAME, "unit": _SETTING}[edit.op.rsplit("-", 1)[-1]]
    if len(edit.name) > 100 or not pattern.fullmatch(edit.name):
        raise Refused(f"{edit.name[:80]!r} is not a name that {edit.op} can take")
    text = "" if edit.value is None else str(edit.value)
    if len(text) > 4096 or _CONTROL.search(text):
        raise Refused(f"the value for {edit.name} is too long or has control characters in it")
    arithmetic = edit.op in ("cap-flag", "scale-flag", "step-flag")
    if arithmetic and (isinstance(edit.value, str | bool) or edit.value is None):
        raise Refused(f"{edit.op} {edit.name} needs a number")
    if edit.op in ("set-env", "set-unit") and edit.value is None:
        raise Refused(f"{edit.op} {edit.name} needs a value")
    if edit.op == "set-unit" and "\\" in text:
        raise Refused(f"a backslash in the value of {edit.name} could swallow the next line")


def apply_edit(state: Draft, edit: Edit) -> Draft:
    """The draft with one more edit. Raises DoesNotFit where it changes nothing, Refused where it cannot be done."""
    check_edit(edit)
    if edit.op in ("set-env", "unset-env"):
        return _edit_environment(state, edit)
    if edit.op == "set-unit":
        return _edit_setting(state, edit)
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
    """Arithmetic on a flag that the command leaves to SGLang: take the value that the server itself logged.

    `present` are the flags of the log's server_args line, by field name. The result is an edit that needs no log.
    """
    if edit.op not in ("cap-flag", "scale-flag", "step-flag"):
        return edit
    try:
        index, start = server(state.commands)
    except Refused:
        return edit
    name = long_name(edit.name)
    if any(flag.name == name for flag in flags(state.commands[index], start)):
        return edit
    logged = present.get(edit.name.lstrip("-").replace("-", "_"), "")
    if not _NUMBER.fullmatch(logged):
        return edit
    wanted = _computed(edit, logged)
    return edit if float(wanted) == float(logged) else Edit("set-flag", edit.name, wanted)


def _edit_flag(state: Draft, edit: Edit) -> Draft:
    index, start = server(state.commands)
    command = state.commands[index]
    name = long_name(edit.name) or edit.name
    present = [flag for flag in flags(command, start) if flag.name == name]
    if edit.op == "remove-flag":
        words, gone = _without(command, present, edit.name)
        change = Change("flag", edit.name, gone, None)
    else:
        before = _value(present[-1]) if present else None
        after = _wanted(edit, present, before)
        # Where a variable follows, a second occurrence at the end wins without touching it.
        at = present[-1] if present and not present[-1].followed else None
        words = _with_flag(command, at, edit.name, after)
        change = Change("flag", edit.name, before, after)
    commands = (*state.commands[:index], Command(words), *state.commands[index + 1 :])
    return replace(state, commands=commands, changes=(*state.changes, change))


def _wanted(edit: Edit, present: list[Flag], before: str | None) -> str:
    if edit.op == "set-flag":
        after = "" if edit.value is None else _text(edit.value)
        if present and (not after or before == after):
            raise DoesNotFit(f"{edit.name}{' ' + after if after else ''} is already there")
        return after
    if not present:
        raise DoesNotFit(f"{edit.name} is not in the command")
    if before is None or present[-1].value is None or present[-1].value.opaque:
        raise DoesNotFit(f"the value of {edit.name} comes from a variable: change it there by hand")
    if not _NUMBER.fullmatch(before):
        raise DoesNotFit(f"{edit.name} has the value {before[:40]!r}, which is no number")
    after = _computed(edit, before)
    if float(after) == float(before):
        raise DoesNotFit(f"{edit.name} {before} is already at its bound")
    return after


def _computed(edit: Edit, before: str) -> str:
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
    if re.fullmatch(r"-?\d+", before) and not (edit.op == "cap-flag" and wanted != int(wanted)):
        return str(int(wanted))
    return _text(round(wanted, 4))


def _text(value: str | float) -> str:
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def _value(flag: Flag) -> str:
    return "" if flag.value is None else flag.value.text if flag.value.opaque else flag.value.literal


def _with_flag(command: Command, at: Flag | None, name: str, value: str) -> tuple[Word, ...]:
    """The last occurrence takes the new value (argparse: the last wins); a new flag goes to the end."""
    variables = ":" not in command.prefix
    if at is None:
        added = (word(name),) if not value else (word(name), word(value, variables=variables))
        return (*command.words, *added)
    spelled = command.words[at.start].text.partition("=")[0]
    if at.joined and value:
        new: tuple[Word, ...] = (word(f"{spelled}={value}", variables=variables),)
    else:
        new = (word(spelled),) if not value else (word(spelled), word(value, variables=variables))
    return (*command.words[: at.start], *new, *command.words[at.end :])


def _without(command: Command, present: list[Flag], name: str) -> tuple[tuple[Word, ...], str]:
    """All occurrences go, or an earlier one would come into force."""
    if not present:
        raise DoesNotFit(f"{name} is not in the command")
    gone: set[int] = set()
    for flag in present:
        if flag.followed:
            raise Refused(f"a variable follows {name}: whether it is its value cannot be told, remove it by hand")
        gone |= set(range(flag.start, flag.end))
    return tuple(item for at, item in enumerate(command.words) if at not in gone), _value(present[-1])


def _edit_environment(state: Draft, edit: Edit) -> Draft:
    base = state.base
    written = None if edit.name in base.unset else base.environment.get(edit.name)
    before = state.environment.get(edit.name, None if written is None else written.replace("%%", "%"))
    if any(item.text.startswith(f"{edit.name}=") for command in base.commands for item in command.words):
        raise Refused(f"{edit.name} is set in the command itself (env {edit.name}=...): change it there by hand")
    after = None if edit.op == "unset-env" else _text(edit.value if edit.value is not None else "")
    if before == after:
        raise DoesNotFit(f"{edit.name} is not set" if after is None else f"{edit.name}={after} is already there")
    if after is not None and edit.name in base.unset:
        raise Refused(f"UnsetEnvironment={edit.name} in the unit would take it away again: remove that by hand")
    change = Change("env", edit.name, before, after)
    return replace(state, environment={**state.environment, edit.name: after}, changes=(*state.changes, change))


def _edit_setting(state: Draft, edit: Edit) -> Draft:
    before = state.settings.get(edit.name, state.base.settings.get(edit.name))
    after = _text(edit.value if edit.value is not None else "")
    if before == after:
        raise DoesNotFit(f"{edit.name}={after} is already there")
    change = Change("unit", edit.name, before, after)
    return replace(state, settings={**state.settings, edit.name: after}, changes=(*state.changes, change))
