"""Where the files of a unit lie, found on the disk as systemd would: for --root, and for units that changed since
loading.

In: a unit's name and the folders in systemd's order. Out: `Unit`. Called by `systemctl` alone. Drop-ins come from the
unit's own folder, its template's, the dashed prefixes' and `service.d`; one of each file name, sorted by name over
all.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import replace
from glob import glob
from pathlib import Path

from triage.actionmodel import Unit, UnitFile
from triage.model import NotPermitted, Refused, TriageError
from triage.units.readers import readers
from triage.units.unitfile import drop_in_path, effective, specifiers

_FOLDERS = (
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)


def unit_folders(root: Path) -> tuple[Path, ...]:
    return tuple(root / folder for folder in _FOLDERS)


def search(name: str, folders: tuple[Path, ...]) -> Unit:
    """Raises Refused where the unit is not there or masked, NotPermitted where a file may not be read."""
    drop_in_path(name)  # raises on anything but the name of a service
    fragment = _fragment(name, folders)
    if fragment.name.endswith(".service") and "@" not in fragment.name and fragment.name != name:
        name = fragment.name  # an alias: systemd knows the unit by the name of its file
    found: dict[str, Path] = {}
    for kind in _drop_in_folders(name):
        for folder in folders:
            below = folder / kind
            for path in sorted(below.glob("*.conf")) if below.is_dir() else ():
                found.setdefault(path.name, path)
    drop_ins = [found[key] for key in sorted(found) if os.path.realpath(found[key]) != "/dev/null"]
    return Unit(
        name, read_files((str(fragment.resolve()), *(str(path.resolve().parent / path.name) for path in drop_ins)))
    )


def read_files(paths: tuple[str, ...]) -> tuple[UnitFile, ...]:
    """Their text, bytes that are no UTF-8 kept; and their mode."""
    files = []
    for path in paths:
        try:
            facts = os.stat(path)
            if not stat.S_ISREG(facts.st_mode):
                raise Refused(f"{path} is no plain file")
            data, mode = Path(path).read_bytes(), facts.st_mode & 0o777
        except PermissionError:
            raise NotPermitted(
                f"{path} may not be read by this user: sudo setfacl -m u:triage:r {path} lets triage read it"
            ) from None
        except FileNotFoundError:
            raise Refused(f"{path} is gone: systemctl daemon-reload, then try again") from None
        files.append(UnitFile(path, data.decode("utf-8", "surrogateescape"), mode, readers(path, facts)))
    return tuple(files)


def with_environment_files(unit: Unit, root: Path = Path("/")) -> Unit:
    """The unit with the files of its EnvironmentFile=, as far as they may be read: they are no part of the digest."""
    found: list[UnitFile] = []
    for entry in effective(unit).environment_files:
        name = specifiers(entry.removeprefix("-"), unit.name, unit.owner)
        for path in sorted(glob(f"{root}{name}" if str(root) != "/" else name)):
            with contextlib.suppress(TriageError, OSError):
                found += [replace(file, path=name) for file in read_files((path,))]
    return replace(unit, environment_files=tuple(found))


def _fragment(name: str, folders: tuple[Path, ...]) -> Path:
    template = f"{name.partition('@')[0]}@.service" if "@" in name else ""
    for candidate in (name, template):
        for folder in folders if candidate else ():
            path = folder / candidate
            if not os.path.lexists(path):
                continue
            if os.path.realpath(path) == "/dev/null" or (path.exists() and not path.stat().st_size):
                raise Refused(f"{name} is masked by {path}: systemctl unmask it first")
            return path.resolve()
    raise Refused(f"{name} is in none of {', '.join(str(folder) for folder in folders[2:4])} ...: is the name right?")


def _drop_in_folders(name: str) -> list[str]:
    """The unit's own first: for files of the same name the more special folder wins."""
    stem = name.removesuffix(".service")
    prefix, at, _ = stem.partition("@")
    kinds = [f"{name}.d"]
    if at:
        kinds.append(f"{prefix}@.service.d")
    while "-" in (prefix := prefix.rstrip("-")):
        prefix = prefix[: prefix.rindex("-") + 1]
        kinds.append(f"{prefix}.service.d")
    return [*kinds, "service.d"]
