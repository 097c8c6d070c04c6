"""A unit, what the manager holds of it and how it runs, as JSON that a user's own process wrote: read back strictly.

In: parsed JSON. Out: values of the model, or Refused. Called by `theirs` (root reads what a user's process says) and by
`views` (the unprivileged side reads what root passed on). Pure. Whatever is longer, more, or of another form than a
unit needs is refused: the user whose process it is may have written anything there.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from triage.actionmodel import Owner, Unit, UnitFile
from triage.model import Refused
from triage.units.systemctl import Loaded, State
from triage.units.unitfile import UNIT_NAME

FILES, TEXT = 64, 512 << 10  # files of a unit, and characters of all of them
_WORDS = 4096
_PATH = re.compile(r"/[^\x00-\x1f\x7f]{1,4095}")
_WORD = re.compile(r"[A-Za-z0-9-]{0,40}")
_INVOCATION = re.compile(r"(?:[0-9a-f]{32})?")
_CGROUP = re.compile(r"(?:/(?!\.\.?/)[^/\x00-\x1f\x7f]+){0,20}")


def plain(value: object) -> Any:
    """Dataclasses and tuples as JSON has them."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def unit_of(value: Any, owner: Owner) -> Unit:
    """`owner` is what the reader knows, whatever stands in the value."""
    facts = _facts(value, "name", "files", "need_daemon_reload", "notes", "environment_files")
    name = text_of(facts["name"], 256)
    if not UNIT_NAME.fullmatch(name) or ".." in name:
        raise Refused("what the user's manager says names no unit")
    files, more = _files(facts["files"]), _files(facts["environment_files"])
    if not files or sum(len(file.text) for file in (*files, *more)) > TEXT:
        raise Refused(f"the files of {name} are none, or longer than {TEXT} characters")
    notes = tuple(said(note) for note in _list(facts["notes"], 8))
    return Unit(name, files, facts["need_daemon_reload"] is True, notes, more, owner)


def _files(value: Any) -> tuple[UnitFile, ...]:
    found = []
    for item in _list(value, FILES):
        facts = _facts(item, "path", "text", "mode")
        path = text_of(facts["path"], 4096)
        if not _PATH.fullmatch(path):
            raise Refused("a file of the unit has no plain path")
        found.append(UnitFile(path, text_of(facts["text"], TEXT), whole(facts["mode"]) & 0o777))
    return tuple(found)


def loaded_of(value: Any) -> Loaded:
    facts = _facts(value, "commands", "environment", "unset", "environment_files", "settings")
    settings = facts["settings"]
    if not isinstance(settings, dict) or len(settings) > 100:
        raise Refused("what the user's manager holds has no settings")
    return Loaded(
        tuple(_texts(command) for command in _list(facts["commands"], 64)),
        _texts(facts["environment"]),
        _texts(facts["unset"]),
        tuple(
            (text_of(path, 4096), optional is True)
            for path, optional in map(_pair, _list(facts["environment_files"], 64))
        ),
        {text_of(name, 60): item if isinstance(item, str) else whole(item) for name, item in settings.items()},
    )


def state_of(value: Any) -> State:
    facts = _facts(value, "active", "sub", "result", "invocation", "restarts", "pid", "job", "cgroup")
    active, sub, result = (_matching(facts[name], _WORD) for name in ("active", "sub", "result"))
    invocation, cgroup = _matching(facts["invocation"], _INVOCATION), _matching(facts["cgroup"], _CGROUP)
    restarts, pid = whole(facts["restarts"]), whole(facts["pid"])
    return State(active, sub, result, invocation, restarts, pid, facts["job"] is True, cgroup)


def flags_of(value: Any) -> dict[str, Any]:
    """Path and values of the file of --config."""
    facts = _facts(value, "path", "values")
    values = facts["values"]
    if not isinstance(values, dict) or len(values) > 1000:
        raise Refused("the flags of the unit's file are no plain flags")
    return {
        "path": text_of(facts["path"], 4096),
        "values": {text_of(name, 100): text_of(item, 4096) for name, item in values.items()},
    }


def said(value: Any, limit: int = 500) -> str:
    """A sentence for people: one line, printable."""
    text = value if isinstance(value, str) else ""
    return "".join(char if char.isprintable() else " " for char in text[:limit])


def text_of(value: Any, limit: int) -> str:
    if not isinstance(value, str) or len(value) > limit or "\0" in value:
        raise Refused(f"what the user's manager says is no text of at most {limit} characters")
    return value


def whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -1 << 65 < value < 1 << 65:
        raise Refused("what the user's manager says is no whole number")
    return value


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e12:
        raise Refused("what the user's manager says is no number")
    return float(value)


def _matching(value: Any, pattern: re.Pattern[str]) -> str:
    text = text_of(value, 4096)
    if not pattern.fullmatch(text):
        raise Refused("what the user's manager says of the unit has not the form of a state")
    return text


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(text_of(item, 128 << 10) for item in _list(value, _WORDS))


def _pair(value: Any) -> list[Any]:
    found = _list(value, 2)
    if len(found) != 2:
        raise Refused("what the user's manager says is no pair")
    return found


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise Refused(f"what the user's manager says is no list of at most {most}")
    return value


def _facts(value: Any, *names: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not set(names) <= set(value):
        raise Refused("what the user's manager says lacks what was asked for")
    return value
