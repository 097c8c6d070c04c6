"""The values of changing a unit: the unit as it is, a plan, what is asked of root, and root's account of it.

As in `triage.model` everything is frozen and made of the standard library only (root's one-shot imports it). Apart from
it, as `triage scan` and the engine have no use for these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from triage.frozen import frozen
from triage.model import AS_SET, EMPTY, Edit, Verify


@frozen
class UnitFile:
    """One file of a unit as it lies on disk."""

    path: str
    text: str
    mode: int = 0o644
    readers: tuple[str, ...] = ()  # where it is not for all: its group and whom its ACL names, as g:998 and u:997


@frozen
class Owner:
    """The user whose manager (systemctl --user) runs a unit."""

    uid: int
    name: str
    home: str

    @property
    def folder(self) -> str:
        """Where this user's own units and drop-ins lie: they hold for nobody else."""
        return f"{self.home}/.config/systemd/user"

    @property
    def runtime(self) -> str:
        """XDG_RUNTIME_DIR, where the user's manager listens."""
        return f"/run/user/{self.uid}"


@frozen
class Unit:
    """A unit as it is: its fragment, then its drop-ins in the order systemd applies them."""

    name: str
    files: tuple[UnitFile, ...]
    need_daemon_reload: bool = False
    notes: tuple[str, ...] = ()  # what the operator should know: the loaded unit differs from disk, ...
    environment_files: tuple[UnitFile, ...] = ()  # those of EnvironmentFile= that may be read, in order
    owner: Owner | None = None  # None: the system's manager runs it


@frozen
class Plan:
    """A remedy worked out for one unit as it is now. Pure data: nothing is changed by having one."""

    unit: str
    incident: int
    rule: str
    remedy: str
    title: str
    cost: str
    edits: tuple[Edit, ...]
    drop_in_path: str
    drop_in_text: str
    diff: str  # unified, of the drop-in file, then a comment with the effective command before and after
    seen_digest: str  # sha256 of the unit's files that were read
    result_digest: str  # sha256 of drop_in_text
    argv_before: tuple[str, ...]
    argv_after: tuple[str, ...]
    env_changes: tuple[tuple[str, str | None, str | None], ...] = ()  # name, before, after
    changes: tuple[tuple[str, str], ...] = ()  # of flags, variables, directives: name, '0.9 -> 0.81'
    notes: tuple[str, ...] = ()  # what the operator should know: loaded unit differs from disk, ...
    failed_before: str = ""  # the action that changed the same on this unit, and how it failed
    action: str = ""  # the name the action will have, `i3-1`: first action of incident 3
    time: int = 0  # of planning; its day stands in the drop-in
    root: str = ""  # folder of --root; '' for the machine itself
    verify: Verify = AS_SET
    owner: int | None = None  # uid of the user whose unit it is; None: the system's


class Level(StrEnum):
    """How far triage goes unasked about a crash of one rule on one unit."""

    OBSERVE = "observe"  # it is stored and shown
    PROPOSE = "propose"  # the remedy is named, in the timeline and to the channels
    APPROVE = "approve"  # it is planned and waits for a person's yes
    AUTOMATIC = "automatic"  # it is filed, where nothing speaks against it


class StepState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@frozen
class Step:
    """One step of an action: what, when, with what result."""

    name: str  # claim policy read render stage verify write reload compare restart ready probe restore ...
    state: StepState
    time: int
    text: str = ""


class ActionState(StrEnum):
    REQUESTED = "requested"
    RUNNING = "running"
    VERIFIED = "verified"  # in force
    REFUSED = "refused"  # nothing was changed
    ROLLED_BACK = "rolled-back"  # did not prove itself; the old bytes are back and the unit runs on them
    ROLLBACK_FAILED = "rollback-failed"
    UNDONE = "undone"  # taken back on request
    UNVERIFIED = "unverified"  # in force, applied with --no-verify or --root, or stopped by somebody meanwhile


@frozen
class Request:
    """What the unprivileged side asks of root. Root believes nothing in it but what it can check itself."""

    action: str  # the action's name, [a-z0-9._-]{1,64}; also the request's file name
    kind: str  # apply | rollback | retire: a rollback with the proof of an apply
    unit: str
    incident: int
    rule: str
    remedy: str
    edits: tuple[Edit, ...]
    seen_digest: str
    result_digest: str
    uid: int
    sudo_uid: int | None
    time: int
    target: str | None = None  # the action to undo; of an apply that puts something back: what it answers
    verify: bool = True
    reason: str = ""  # who or what asked: operator, window ...
    root: str = ""  # folder of --root; '' for the machine itself. Root's one-shot refuses any but its own
    ready_timeout: int = 0  # seconds; 0: what root's policy says, which is the ceiling in any case
    owner: int | None = None  # uid of the user whose unit it is; None: the system's


@frozen
class ActionResult:
    """Root's account of one action, rewritten after every step; imported by the unprivileged side."""

    request: Request
    state: ActionState
    steps: tuple[Step, ...]
    started: int
    ended: int | None = None
    text: str = ""  # one sentence for the operator
    measured: Mapping[str, str] = field(default_factory=lambda: EMPTY)  # ready_seconds, probe_seconds, ...
    digest: str = ""  # of the drop-in once this action is settled; '' where there is none any more
    kept: Mapping[str, str] = field(default_factory=lambda: EMPTY)  # what root needs to take it up again after a kill


@frozen
class Tried:
    """One remedy that was carried out on a unit, and how that went."""

    action: str
    incident: int
    remedy: str
    state: ActionState
    requested_at: int
    came_back: bool  # its crash came back while the unit ran with it
    release: str | None  # of the server under which it failed; None where it did not, or nobody knows
    edits: tuple[Edit, ...]
    measured: Mapping[str, str]
    unproved: bool = False  # its soak or its speed spoke against it

    @property
    def failed(self) -> bool:
        """Its proof failed, or its crash came back."""
        return self.came_back or self.unproved or self.state in (ActionState.ROLLED_BACK, ActionState.ROLLBACK_FAILED)
