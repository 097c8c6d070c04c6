"""Units of users (`systemctl --user`): found where users keep them, planned like any other, edited by the user alone.

In: a unit's name that the system's manager does not know. Out: its files and whose it is, and what that user has to do.
Called by `planning`, never by root's side: what lies below a home is its owner's to change, links and pipes included.
"""

from __future__ import annotations

import pwd
import shlex
from pathlib import Path

from triage.actionmodel import Plan, Unit
from triage.model import TriageError
from triage.units.unitfile import DROP_IN
from triage.units.unitsearch import search

_SHARED = ("/etc/systemd/user", "/run/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user")


def find_user_unit(name: str) -> tuple[Unit, str] | None:
    """The unit and its user, '' for one of all users. A user's own comes first; what may not be read is passed over."""
    template = f"{name.partition('@')[0]}@.service"
    for entry in pwd.getpwall():
        kept = Path(entry.pw_dir) / ".config/systemd/user"
        if any(_is_there(kept / fragment) for fragment in (name, template)):
            unit = _read(name, (str(kept), *_SHARED))
            if unit is not None:
                return unit, entry.pw_name
    unit = _read(name, _SHARED)
    return (unit, "") if unit else None


def instruct(plan: Plan, owner: str) -> str:
    """What the user does instead of `triage apply`, word for word, and how it is taken back."""
    lines = [line for line in plan.drop_in_text.splitlines() if not line.startswith("#")]
    folder = shlex.quote(f"{plan.unit}.d")
    into_force = f"systemctl --user daemon-reload && systemctl --user restart {shlex.quote(plan.unit)}"
    return "\n".join(
        (
            f"{plan.unit} is a unit of {_user(owner)} (systemctl --user), which triage does not edit. That user types:",
            "",
            f"mkdir -p ~/.config/systemd/user/{folder}",
            f"cat > ~/.config/systemd/user/{folder}/{DROP_IN} <<'END'",
            *lines,
            "END",
            into_force,
            "",
            f"and to take it back: rm ~/.config/systemd/user/{folder}/{DROP_IN} && {into_force}",
        )
    )


def _user(owner: str) -> str:
    return f"user {owner}" if owner else "whoever enables it"


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _read(name: str, folders: tuple[str, ...]) -> Unit | None:
    try:
        return search(name, tuple(Path(folder) for folder in folders))
    except (TriageError, OSError):
        return None
