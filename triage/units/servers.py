"""The SGLang units of this machine as they are: state, command, release, files, workarounds in force.

In: a manager, the globs of the units, root's ledger of actions. Out: one `Server` each, secrets masked. Called by
`triage units` and, for the page, by the command line. It reads files and asks the manager; it must not change anything
and must not start a server's program (that takes minutes and memory).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Protocol

from triage.actionmodel import ActionResult, Unit
from triage.frozen import frozen
from triage.model import NotPermitted, Refused
from triage.units.dropin import InForce, mask_argv, mask_value, outdated, standing
from triage.units.flags import flags
from triage.units.launch import find, interpreter
from triage.units.systemctl import State
from triage.units.unitfile import effective, expand, specifiers


@frozen
class Server:
    """One unit. What could not be learned is empty, and `note` says why."""

    name: str
    state: str  # active, activating, deactivating, inactive, failed
    sub: str
    restarts: int = 0
    argv: tuple[str, ...] = ()  # all drop-ins merged, variables put in
    flags: Mapping[str, str] = field(default_factory=dict)  # '--tp-size' -> '8'; '' for a switch
    version: str | None = None  # SGLang's, of the program that the unit starts
    files: tuple[str, ...] = ()  # fragment, then drop-ins
    stale: bool = False  # the files changed since systemd loaded them
    in_force: tuple[InForce, ...] = ()
    note: str = ""


class Manager(Protocol):
    """What is asked of `triage.units.systemctl.Systemd`."""

    def list_units(self, *globs: str) -> tuple[str, ...]: ...
    def read_unit(self, name: str) -> Unit: ...
    def state(self, name: str) -> State: ...


def find_servers(manager: Manager, globs: Iterable[str], results: Iterable[ActionResult] = ()) -> tuple[Server, ...]:
    """Every service that matches, running or only installed, by name. Raises Unreachable without a manager."""
    results = tuple(results)
    return tuple(_server(manager, name, results) for name in manager.list_units(*globs))


def _server(manager: Manager, name: str, results: tuple[ActionResult, ...]) -> Server:
    state, known = manager.state(name), standing(results, name)
    server = Server(name, state.active, state.sub, state.restarts, in_force=known.actions)
    try:
        unit = manager.read_unit(name)
        server = replace(server, files=tuple(file.path for file in unit.files), stale=unit.need_daemon_reload)
        merged = effective(unit, with_drop_in=True)
        launch = find(merged.commands)
    except (Refused, NotPermitted) as reason:
        return replace(server, note=str(reason))
    return replace(
        server,
        argv=mask_argv(expand(launch.command.argv, merged.variables)),
        flags={
            flag.name: mask_value(flag.name, " ".join(expand(texts, merged.variables))) or ""
            for flag in flags(launch, merged.variables)
            if (texts := tuple(word.text for word in flag.values)) or not flag.value
        },
        version=release(interpreter(launch)),
        note=outdated(unit, known),
    )


def installed(unit: Unit, root: str = "") -> str | None:
    """The release of the server that a unit starts, as far as its files tell."""
    with contextlib.suppress(Refused):
        program = interpreter(find(effective(unit, with_drop_in=True).commands))
        return release(root + (specifiers(program, unit.name, unit.owner) if unit.owner else program))
    return None


def stamp(program: str) -> str:
    """Changes when another SGLang is installed beside that program; '' where that cannot be looked at from here."""
    with contextlib.suppress(OSError):
        beside = Path(program).parent.parent / "lib"
        there = [Path(program), *sorted(beside.glob("python3*/*-packages/sglang-*.dist-info"))]
        return " ".join(f"{path.name}:{path.stat().st_mtime_ns}" for path in there)
    return ""


def release(program: str) -> str | None:
    """SGLang's release by the metadata beside the interpreter, without starting it: 0.5.12, or None.

    `program` is .../bin/python or .../bin/sglang of a virtual environment, not followed through its link."""
    lib = Path(program).parent.parent / "lib"
    with contextlib.suppress(OSError):
        for folder in sorted(lib.glob("python3*/*-packages/sglang-*.dist-info")):
            return folder.name.removeprefix("sglang-").removesuffix(".dist-info")
    return None
