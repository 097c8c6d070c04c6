"""SGLang's flags on a command line, as argparse would take them: spellings, values, the last of several wins.

In: the words of a `Launch`, what is known of variables, what the release takes (`Edit.takes`). Out: `Flag`s with their
places. Called by `edits`, `servers`, `policy`, `probe`. Pure; which flags a release has is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from triage.frozen import frozen
from triage.model import Refused
from triage.units.launch import Launch, find
from triage.units.shellwords import ShellWord
from triage.units.unitfile import Command, Effective, Word, split_variable

# Spellings of one and the same flag; the first is the long name. A test holds them against the catalogue.
SPELLINGS = (
    ("--model-path", "--model"),
    ("--tensor-parallel-size", "--tp-size", "--tp"),
    ("--data-parallel-size", "--dp-size", "--dp"),
    ("--pipeline-parallel-size", "--pp-size", "--pp"),
    ("--expert-parallel-size", "--ep-size", "--ep"),
    ("--attention-context-parallel-size", "--attn-cp-size"),
    ("--attention-data-parallel-size", "--attn-dp-size"),
    ("--moe-data-parallel-size", "--moe-dp-size"),
    ("--decode-context-parallel-size", "--dcp-size"),
    ("--dist-init-addr", "--nccl-init-addr"),
    ("--enable-hierarchical-cache", "--enable-hicache"),
    ("--speculative-draft-model-path", "--speculative-draft-model"),
    ("--hierarchical-sparse-attention-extra-config", "--hisparse-config"),
)
FLAG = re.compile(r"--[A-Za-z][A-Za-z0-9_-]*")
NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)")
_LONG = {short: names[0] for names in SPELLINGS for short in names}
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SHELL_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


@frozen
class Token:
    """One word as the server gets it. `at`: the word of the launch that it comes from; `variable`: by way of it."""

    word: Word
    at: int
    variable: str = ""
    begin: int = 0  # its place in the variable's value
    end: int = 0


@frozen
class Flag:
    """One occurrence: `tokens` are its name and its values."""

    name: str  # long, with dashes
    tokens: tuple[Token, ...]
    value: Word | None  # None: bare; of several values the first
    joined: bool  # --flag=value
    followed: bool = False  # words that nobody here knows come next: its value or more flags

    @property
    def start(self) -> int:
        return self.tokens[0].at

    @property
    def end(self) -> int:
        return self.tokens[-1].at + 1

    @property
    def variable(self) -> str:
        """The variable it stands in, '' where all of it stands in the command."""
        return self.tokens[0].variable

    @property
    def by_variable(self) -> bool:
        """Whether any part of it does."""
        return any(token.variable for token in self.tokens)

    @property
    def spelled(self) -> str:
        return self.tokens[0].word.text.partition("=")[0]

    @property
    def values(self) -> tuple[Word, ...]:
        if self.joined:
            return (self.value,) if self.value else ()
        return tuple(token.word for token in self.tokens[1:])


def long_name(text: str) -> str | None:
    """The flag a word names, spelled long and with dashes; None if it is no flag."""
    found = FLAG.match(text)
    if not found or (found.end() < len(text) and text[found.end()] != "="):
        return None
    name = found[0].replace("_", "-")
    return _LONG.get(name, name)


def tokens(launch: Launch, variables: Mapping[str, str]) -> tuple[Token, ...]:
    """The words from the first flag on, variables that are known put in."""
    return tuple(token for at in range(launch.start, len(launch.words)) for token in _expanded(launch, at, variables))


def _expanded(launch: Launch, at: int, variables: Mapping[str, str]) -> Iterator[Token]:
    item = launch.words[at]
    name = item.text.strip("${}") if item.opaque else ""
    if isinstance(item, ShellWord):
        found = _SHELL_VARIABLE.fullmatch(item.text)
        set_there = any(
            other.text.startswith(f"{name}=") for other in (*launch.exported, *launch.words[: launch.start])
        )
        if found and name in variables and not set_there:
            pieces = variables[name].split() if item.splits else [variables[name]]
            for piece in pieces:
                yield Token(Word(piece, piece.replace("$", "$$")), at, name, -1, -1)
            return
    elif item.splitting and name in variables:
        for piece, begin, end in split_variable(variables[name]):
            yield Token(Word(piece, piece.replace("$", "$$")), at, name, begin, end)
        return
    elif item.opaque and all(name in variables for name in _BRACED.findall(item.text)):
        text = _BRACED.sub(lambda braced: variables[braced[1]].replace("$", "$$"), item.text)
        yield Token(Word(item.raw, text), at)
        return
    yield Token(item, at)


def flags(
    launch: Launch, variables: Mapping[str, str], names: frozenset[str] = frozenset(), takes: str = ""
) -> tuple[Flag, ...]:
    """All flags in order, with their values. `takes`: what those called one of `names` take, where that is known."""
    found: list[Flag] = []
    given = tokens(launch, variables)
    at = 0
    while at < len(given):
        name = long_name(given[at].word.text)
        begin, at = at, at + 1
        if name is None:
            continue
        _, equals, text = given[begin].word.text.partition("=")
        if equals:
            found.append(Flag(name, given[begin:at], Word(text, text), True))
            continue
        most = {"nothing": 0, "value": 1}.get(takes if name in names else "", len(given))
        while at < len(given) and at - begin <= most and _is_value(given[at].word):
            at += 1
        followed = at == begin + 1 and most > 0 and at < len(given) and given[at].word.splitting
        value = given[begin + 1].word if at > begin + 1 else None
        found.append(Flag(name, given[begin:at], value, False, followed))
    return tuple(found)


def spelled(unit: Effective) -> tuple[str, ...]:
    """The names of the server's flags as they stand in the unit, variables put in; none where it has no server."""
    try:
        launch = find(unit.commands)
    except Refused:
        return ()
    return tuple(flag.spelled for flag in flags(launch, unit.variables))


def served(argv: tuple[str, ...], variables: Mapping[str, str]) -> tuple[str, ...]:
    """The server's own words of an argv as a process has it, out of a shell's script too; else the argv as it is."""
    try:
        launch = started(argv)
    except Refused:
        return argv
    if launch.script is None:
        return argv
    given = tokens(launch, as_written(variables))
    return tuple(item.literal for item in (*launch.words[: launch.start], *(token.word for token in given)))


def started(argv: tuple[str, ...]) -> Launch:
    """Where SGLang starts in an argv as a process has it. Raises Refused where it does not."""
    return find((Command(tuple(Word(text, _source(text)) for text in argv)),))


def as_written(variables: Mapping[str, str]) -> dict[str, str]:
    """A process's variables as a unit would hold them."""
    return {name: value.replace("%", "%%") for name, value in variables.items()}


def _source(text: str) -> str:
    """A script holds its variables yet, other words have been filled in."""
    return (
        text.replace("%", "%%")
        if any(blank in text for blank in " \t\n")
        else text.replace("%", "%%").replace("$", "$$")
    )


def model_is_loose(launch: Launch, variables: Mapping[str, str]) -> bool:
    """Whether the model of `sglang serve` may stand behind any flag: none is named, and none comes first."""
    if not launch.serve:
        return False
    first = next(iter(tokens(launch, variables)), None)
    if first is not None and _is_value(first.word) and not first.word.splitting:
        return False
    return all(flag.name not in ("--model-path", "--config") for flag in flags(launch, variables))


def _is_value(item: Word) -> bool:
    if item.splitting:
        return False
    return not item.text.startswith("-") or item.text == "-" or NUMBER.fullmatch(item.text) is not None
