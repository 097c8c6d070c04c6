"""The rules in force as they were read last time, so that a one-shot command does not read two hundred files of YAML.

Called by `rulebook`. In: the folders of rules. Out: what `rulefile.load_rules` gives, from one file in the user's cache
where nothing has changed since (names, times, sizes of all rule files, and the code that reads them). It is a pickle:
only a file is believed that is this user's own and that nobody else may write. Where it cannot be used or written the
rules are read as ever. `rulecheck` never comes here.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from triage.rulebase.rule import Rules
from triage.shipped import rule_folders

_NAME = "rules.pickle"
_CODE = ("rule.py", "ruleread.py", "rulenode.py", "rulefile.py", "anchors.py", "../model.py")
Stamp = tuple[int, ...]
State = tuple[tuple[int, ...], tuple[Stamp, ...], tuple[tuple[tuple[str, Stamp], ...], ...]]
_BROKEN = (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, TypeError, ValueError)


def load_rules(folders: Iterable[Path]) -> Rules:
    """Read the files. The reader and its YAML are imported only here: a hit in the cache has no use for them."""
    from triage.rulebase import rulefile

    return rulefile.load_rules(folders)


def read_rules(folders: Sequence[Path]) -> Rules:
    """The usual folders are read through the cache; of others there is none."""
    return cached_rules(folders) if tuple(folders) == rule_folders() else load_rules(folders)


def cached_rules(folders: Sequence[Path], cache: Path | None = None) -> Rules:
    """All rules below the folders. Raises RuleErrors as `load_rules` does; faulty rules are never cached."""
    folder = cache or cache_folder()
    if folder is None:
        return load_rules(folders)
    state = files_state(folders)
    found = _read(folder / _NAME, state)
    if found is None:
        found = load_rules(folders)
        if files_state(folders) == state:  # else somebody is writing rules: what was read may be neither old nor new
            with contextlib.suppress(OSError):
                _write(folder, pickle.dumps((state, found), pickle.HIGHEST_PROTOCOL))
    return found


def cache_folder() -> Path | None:
    """The service's own cache, else the user's; None where there is none."""
    given = os.environ.get("CACHE_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or (os.environ["HOME"] + "/.cache" if os.environ.get("HOME") else "")
    return Path(base) / "triage" if base.startswith("/") else None


def files_state(folders: Sequence[Path]) -> State:
    """What the rules depend on: every rule file's path, time and size, and the code that reads them."""
    here = Path(__file__).parent
    code = tuple(_stamp(os.stat(here / name)) for name in _CODE)
    return sys.version_info[:3], code, tuple(tuple(sorted(_files(str(folder)))) for folder in folders)


def changed_at(state: State) -> float:
    """When the youngest of the rule files was written; seconds since 1970. A removal leaves no trace."""
    return max((stamp[0] for files in state[2] for _, stamp in files), default=0) / 1e9


def _files(folder: str) -> list[tuple[str, Stamp]]:
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".yaml", ".yml")):
                try:
                    found.append((entry.path, _stamp(entry.stat())))
                except OSError:
                    continue
            elif entry.is_dir():
                found += _files(entry.path)
    return found


def _stamp(seen: os.stat_result) -> Stamp:
    return seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino


def _read(path: Path, state: State) -> Rules | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            seen = os.fstat(file.fileno())
            own = seen.st_uid == os.geteuid() and not seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not own or not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1:
                return None
            kept, rules = pickle.load(file)  # noqa: S301 - this user's own file, see above
    except _BROKEN:
        return None
    return rules if kept == state and isinstance(rules, Rules) else None


def _write(folder: Path, data: bytes) -> None:
    """Whole or not at all; readable to this user only."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=_NAME, dir=folder)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(name, folder / _NAME)
    except OSError:
        os.unlink(name)
        raise
