"""What the routes work with: the parts the command line built, in one frozen value, and the seam to what acts.

Made by `create_app`, read by `pages`, `api` and `events`. It holds no request and no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from triage.actionmodel import Plan
from triage.dashboard.auth import Keeper
from triage.dashboard.render import Templates
from triage.frozen import frozen
from triage.rulebase.rule import Rule
from triage.rulebase.shelf import InForce
from triage.settings import Settings
from triage.store import ActionRow, IncidentRow, Store

MICRO = 1_000_000


@frozen
class UnitState:
    """One SGLang unit of this machine as the manager has it. `argv` is empty where it cannot be told."""

    name: str
    state: str  # active, failed, inactive, activating ...
    version: str | None = None
    argv: tuple[str, ...] = ()


class Hands(Protocol):
    """What plans and files requests. The dashboard itself touches no unit and no spool."""

    @property
    def root(self) -> Path | None:
        """The folder whose unit files are edited instead of the machine's; nothing is restarted then."""
        ...

    def listening(self) -> bool:
        """Whether root's side takes requests here; without it pages show the command to type."""
        ...

    def rungs(
        self, ladder: Sequence[Mapping[str, Any]], incident: IncidentRow, document: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """The ladder with what failed on this unit blocked."""
        ...

    def plan(self, incident: IncidentRow, document: Mapping[str, Any], remedy: str, name: str, time: int) -> Plan:
        """The remedy worked out for the unit as it is now. Raises Refused with the reason.

        The drop-in's comments hold the action's name and time (microseconds), so both are fixed when it is shown.
        """
        ...

    def apply(self, plan: Plan, name: str, time: int, who: str) -> None:
        """File the request under that action's name, recorded in the store first."""
        ...

    def plan_rollback(self, action: ActionRow, name: str, time: int) -> Plan:
        """The unit's file without that action, as things are now. Raises Refused with the reason."""
        ...

    def rollback(self, action: ActionRow, name: str, who: str, *, reason: str = "", retire: bool = False) -> None:
        """File the request to take that action back; `retire`: with the proof of an apply."""
        ...

    def release(self, unit: str, owner: int | None = None) -> str | None:
        """Of SGLang, as installed for that unit, of the system or of that user."""
        ...

    def removed_by_hand(self, action: ActionRow) -> bool:
        """Whether the drop-in that holds it is gone."""
        ...


@frozen
class Desk:
    """Everything a route needs."""

    settings: Settings
    store: Store
    keeper: Keeper
    templates: Templates
    hands: Hands
    units: Callable[[], tuple[UnitState, ...]]  # raises Unreachable where there is no manager
    in_force: Callable[[], InForce] = InForce  # the rules, as they are now
    read_only: bool = False
    filing: Lock = field(default_factory=Lock)  # one request at a time: a form sent twice at once is one action

    @property
    def rules(self) -> Mapping[str, Rule]:
        return {rule.id: rule for rule in self.in_force().rules.rules}

    def now(self) -> int:
        """Microseconds UTC."""
        return int(self.templates.clock() * MICRO)
