"""SGLang's own file of flags, `--config FILE`: where it lies, what it sets.

In: a command, a file. Out: `FlagFile`, or None where it cannot be read or says more than plain flags. Called by
`planning` for what a plan says, and by `readiness` to know where to ask. SGLang makes `--key value` of each
`key: value` and puts these before the command's own words, of which the last wins: the command line beats the file, but
a switch that the file turns on can be turned off nowhere else. Such files are flat, so they are read by hand: root's
side sees the standard library only, and what is not plain (anchors, maps, block text) is not half read but not at all.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping

from triage.actionmodel import Unit
from triage.frozen import frozen
from triage.model import Refused
from triage.units.flags import as_written, flags, long_name, started
from triage.units.unitfile import effective, expand, specifiers

_LIMIT = 64 << 10
_LINE = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)[ ]*:(?:[ ]+(.*))?")
_QUOTED = re.compile(r"""'((?:[^']|'')*)'|"([^"\\]*)\"""")
_PLAIN = re.compile(r"[^\s\[\]{}&*!|>%@`,#'\"?:-](?:(?!: |:$| #)[^\x00-\x1f])*|-?[0-9.][0-9.eE+_-]*")
_NUMBERLIKE = re.compile(r"[-+.]?[0-9.][\w:.+-]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_ON, _OFF = frozenset(("true", "yes", "on")), frozenset(("false", "no", "off"))
_NO_TEXT = _ON | _OFF | {"null"}  # for YAML these are values; as a key SGLang would make `--True` of one


@frozen
class FlagFile:
    path: str
    values: Mapping[str, str]  # by the flag's long name; '' a switch that is on; several values joined by blanks


def of_unit(unit: Unit, root: str = "") -> FlagFile | None:
    """Of the command that a unit starts, drop-ins included; below `root` where the unit's files lie there."""
    merged = effective(unit, with_drop_in=True)
    variables = {name: value.replace("%%", "%") for name, value in merged.variables.items()}
    for command in merged.commands:
        argv = tuple(specifiers(text, unit.name, unit.owner) for text in expand(command.argv, merged.variables))
        if path := config_path(argv, variables):
            return load(path, root)
    return None


def config_path(argv: tuple[str, ...], variables: Mapping[str, str]) -> str:
    """Where the file lies by an argv as the process gets it; '' where it has none, or has it in a container.

    `--config=FILE` is none: SGLang looks for the bare word."""
    try:
        launch = started(argv)
    except Refused:
        return ""
    if launch.contained:
        return ""
    given = flags(launch, as_written(variables))
    found = [flag.value.literal for flag in given if flag.name == "--config" and flag.value and not flag.joined]
    return found[0] if found and found[0].startswith("/") else ""


def load(path: str, root: str = "") -> FlagFile | None:
    """The file, if it is a regular one of at most 64 kB and holds plain flags alone."""
    try:
        handle = os.open(f"{root}{path}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            data = os.read(handle, _LIMIT + 1)
        finally:
            os.close(handle)
        values = parse(data.decode()) if len(data) <= _LIMIT else None
    except (OSError, UnicodeDecodeError):
        return None
    return None if values is None else FlagFile(path, values)


def parse(text: str) -> dict[str, str] | None:
    """By long name. None where a line is not understood."""
    found: dict[str, list[str]] = {}
    name = ""  # of the list that may go on
    if "\t" in text:
        return None  # where YAML takes one and where it does not is not worth knowing
    for line in text.removeprefix("\ufeff").splitlines():
        if not line.strip() or line.lstrip().startswith("#") or line.rstrip() == "---":
            continue
        entry = re.fullmatch(r"[ ]*-[ ]+(.*)", line)
        values = _values(entry[1]) if entry and name else None
        if entry:
            if values is None or len(values) != 1:
                return None
            found[name] += values
            continue
        key = _LINE.fullmatch(line)
        if key is None or key[1].lower() in _NO_TEXT or (values := _values(key[2] or "")) is None:
            return None
        name = long_name(f"--{key[1]}") or ""
        found[name] = values
        name = name if not values else ""
    if not all(found.values()):
        return None  # nothing behind a key: what SGLang makes of that is no flag
    return {name: _said(words) for name, words in found.items() if words[0].lower() not in _OFF}


def _values(text: str) -> list[str] | None:
    """The scalars behind a colon or a dash: none, one, or those of `[a, b]`."""
    text = text.strip()
    if not text or text.startswith("#"):
        return []
    if text.startswith("["):
        inner = re.fullmatch(r"\[([^\[\]{}'\"#]*)\]\s*(?:#.*)?", text)
        pieces = [_scalar(piece.strip()) for piece in inner[1].split(",")] if inner else [None]
        return None if None in pieces else [text for piece in pieces if piece for text in piece if text]
    quoted = re.fullmatch(rf"(?:{_QUOTED.pattern})\s*(?:\s#.*)?", text)
    if quoted:
        return [quoted[1].replace("''", "'") if quoted[1] is not None else quoted[2]]
    plain = _PLAIN.match(text)
    rest = text[plain.end() :].strip() if plain else ""
    if plain is None or rest[:1] not in ("", "#"):
        return None
    return _scalar(plain[0].strip())


def _scalar(text: str) -> list[str] | None:
    """As it stands, where YAML would make no other number, date or nothing of it."""
    odd = _NUMBERLIKE.fullmatch(text) and not _NUMBER.fullmatch(text)
    return None if odd or text.lower() in ("null", "~") else [text]


def _said(words: list[str]) -> str:
    return "" if len(words) == 1 and words[0].lower() in _ON else " ".join(words)
