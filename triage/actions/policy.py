"""What root may touch: unit globs, flags and variables with patterns for their values, directives.

In: the text of policy.toml (root's own file) and what a request would change in a unit. Out: nothing, or `Refused`
that names the line to add. Called by `apply` before anything is written, and by `remedy` so that a plan already says
so. Pure. What stands in NEVER is refused whatever the file says: those would turn "may edit flags" into "may run code
as root".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from triage.actionmodel import ActionResult, ActionState, Owner, Request
from triage.frozen import frozen
from triage.model import Refused
from triage.never import NEVER_FLAGS, NEVER_SETTINGS, NEVER_VARIABLES
from triage.units.edits import Change
from triage.units.flags import long_name

_TABLES = {"units", "users", "flags", "environment", "directives", "limits"}
_LIMITS = {
    "ready_seconds": 1800.0,
    "probe_seconds": 300.0,
    "steady_seconds": 3.0,
    "unit_per_day": 24.0,
    "host_per_hour": 40.0,
}
_HOUR = 3600 * 1_000_000  # microseconds


@frozen
class Policy:
    """Allow-lists. A name may be a glob; the pattern must match the whole value."""

    units: tuple[str, ...]
    flags: Mapping[str, re.Pattern[str]]
    environment: Mapping[str, re.Pattern[str]]
    directives: Mapping[str, re.Pattern[str]]
    path: str = "/etc/triage/policy.toml"
    ready_seconds: float = _LIMITS["ready_seconds"]
    probe_seconds: float = _LIMITS["probe_seconds"]
    steady_seconds: float = _LIMITS["steady_seconds"]
    unit_per_day: float = _LIMITS["unit_per_day"]
    host_per_hour: float = _LIMITS["host_per_hour"]
    users: tuple[str, ...] = ()  # whose units (systemctl --user) may be touched; nobody's where the file does not say

    @classmethod
    def parse(cls, text: str, path: str = "/etc/triage/policy.toml") -> Policy:
        """Raises Refused on anything that is not understood: a policy half read would be no policy."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise Refused(f"{path} is not valid TOML ({error}): nothing is applied until it is mended") from None
        unknown = set(content) - _TABLES
        if unknown:
            raise Refused(f"{path} has unknown tables {sorted(unknown)}: known are {sorted(_TABLES)}")
        units, users = (_globs(content.get(name, []), name, path) for name in ("units", "users"))
        flags, environment, directives = (
            _patterns(content.get(name, {}), name, path) for name in ("flags", "environment", "directives")
        )
        limits = _limits(content.get("limits", {}), path)
        return cls(units, flags, environment, directives, path, **limits, users=users)

    @classmethod
    def load(cls, path: Path) -> Policy:
        """For the unprivileged side, to say early what root would refuse. Root reads the file through `spool`."""
        try:
            return cls.parse(path.read_text(), str(path))
        except OSError as error:
            raise Refused(f"{path} cannot be read ({error.strerror}): without a policy nothing is applied") from None

    def check_unit(self, unit: str) -> None:
        if not any(fnmatchcase(unit, glob) for glob in self.units):
            raise Refused(f"{unit} is outside the policy: add a glob for it to units in {self.path}")

    def check_user(self, owner: Owner) -> None:
        if not any(fnmatchcase(owner.name, glob) for glob in self.users):
            raise Refused(f"units of user {owner.name} are outside the policy: add a glob to users in {self.path}")

    def check_pace(self, request: Request, results: Iterable[ActionResult], now: int) -> None:
        """The ceiling for whoever files requests, should the guards of the unprivileged side be out of force."""
        done = [
            (result.request.unit, now - result.started)
            for result in results
            if result.request.kind != "rollback"
            and result.state is not ActionState.REFUSED
            and result.request.root == request.root
            and result.request.action != request.action
        ]
        unit = sum(name == request.unit and age < 24 * _HOUR for name, age in done)
        if unit >= self.unit_per_day or sum(age < _HOUR for _, age in done) >= self.host_per_hour:
            raise Refused(f"too much was applied to {request.unit} or this host lately: see [limits] in {self.path}")

    def check(self, unit: str, changes: Iterable[Change]) -> None:
        """Raise Refused unless every change is allowed, with the value that it comes to."""
        self.check_unit(unit)
        for change in changes:
            self._check_change(change)

    def _check_change(self, change: Change) -> None:
        table, allowed = {
            "flag": ("flags", self.flags),
            "env": ("environment", self.environment),
            "unit": ("directives", self.directives),
        }[change.kind]
        for name in (change.name, *change.also):
            check_name(change.kind, name)
        patterns = [pattern for glob, pattern in allowed.items() if fnmatchcase(change.name, glob)]
        if not patterns:
            raise Refused(f"{change.name} is outside the policy: add it to [{table}] in {self.path}")
        if change.after is not None and not any(pattern.fullmatch(change.after) for pattern in patterns):
            raise Refused(f"{change.name} {change.after[:80]} is outside the pattern in [{table}] of {self.path}")


def check_name(kind: str, name: str) -> None:
    """Raise Refused on a flag, variable (`env`) or directive (`unit`) that no policy may give. For `rulecheck` too."""
    if {"flag": _never_flag, "env": _never_variable, "unit": _never_setting}[kind](name):
        raise Refused(f"{name} is never changed by triage, whatever the policy says")


def _never_flag(name: str) -> bool:
    # Abbreviations count: argparse would take --trust-remote for --trust-remote-code.
    flag = long_name(name) or name
    return any(forbidden == flag or forbidden.startswith(flag) for forbidden in NEVER_FLAGS)


def _never_variable(name: str) -> bool:
    return any(fnmatchcase(name.upper(), glob.upper()) for glob in NEVER_VARIABLES)


def _never_setting(name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in NEVER_SETTINGS)


def _patterns(table: object, name: str, path: str) -> dict[str, re.Pattern[str]]:
    if not isinstance(table, dict):
        raise Refused(f"{path}: [{name}] must be a table of name = 'pattern of the value'")
    compiled = {}
    for key, pattern in table.items():
        if not isinstance(pattern, str):
            raise Refused(f"{path}: [{name}] {key} must be a pattern in quotes ('' for a flag without a value)")
        try:
            compiled[key] = re.compile(pattern)
        except re.error as error:
            raise Refused(f"{path}: [{name}] {key}: {error}") from None
    return compiled


def _globs(value: object, name: str, path: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Refused(f"{path}: {name} must be a list of globs")
    return tuple(value)


def _limits(table: object, path: str) -> dict[str, float]:
    if not isinstance(table, dict) or set(table) - set(_LIMITS):
        raise Refused(f"{path}: [limits] takes {', '.join(_LIMITS)}")
    for key, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86400:
            raise Refused(f"{path}: [limits] {key} must be a number above 0 and at most 86400")
    return {**_LIMITS, **table}
