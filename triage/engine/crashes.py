"""One crash while it is open: its failures, its id, and the picture of it at any moment.

In come entries as the assembler meets them, out go `Crash` values. Called by `engine.assemble`, one `OpenCrash` at a
time per invocation. It must not read lines itself, and keeps a bounded number of failures and lines.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from triage.engine.entries import Entry, Key
from triage.engine.kinds import Kind
from triage.engine.roles import Signs, assign, choose_root, outcome, promote, rank_of, same_failure, worked
from triage.model import Context, Crash, Failure, Grade, Line, Outcome, Phase, Role, UnitEnd

MAX_ENTRIES = 300
MAX_EVIDENCE = 60
MAX_BESIDE = 24  # lines beside the root that are shown
MAX_TEXT = 8_192  # of one line that is kept
MAX_HELD = 60


class Held:
    """Failures that cannot be a root while there may be a better one; they wait for it."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        for known in self.entries:
            if known.key == entry.key and entry.body is None:
                known.fold(entry)
                return
        if len(self.entries) < MAX_HELD:
            self.entries.append(entry)

    def take(self) -> list[Entry]:
        entries, self.entries = self.entries, []
        return entries


class OpenCrash:
    """The failures of one invocation in one burst."""

    __slots__ = (
        "_id",
        "_names",
        "_root",
        "end",
        "entries",
        "grade",
        "group",
        "opened",
        "phase",
        "position",
        "started",
        "told",
    )

    def __init__(self, group: tuple[str | None, str | None, str | None, str], phase: Phase) -> None:
        self.group = group
        self.phase = phase
        self.entries: list[Entry] = []
        self.opened = False
        self.position = ""
        self.started: int | None = None
        self.end: UnitEnd | None = None
        self.told: Crash | None = None  # the picture it opened with
        self.grade = Grade.COMPLETE
        self._id = ""
        self._root: Entry | None = None
        self._names: dict[Key, Entry] = {}

    @property
    def root(self) -> Entry | None:
        return self._root

    @property
    def ends_server(self) -> bool:
        return any(entry.ends_server for entry in self.entries)

    @property
    def requests_only(self) -> bool:
        return self._root is not None and self._root.kind is Kind.REQUEST

    def add(self, entry: Entry) -> bool:
        """Take in a failure; False if it only repeated one that is known."""
        key = entry.key
        known = self._names.get(key) if entry.body is None else None
        if known is not None or len(self.entries) >= MAX_ENTRIES:
            if known is not None:
                known.fold(entry)
                if len(known.lines) < 3:
                    known.lines.extend(entry.lines)
            return False
        if entry.body is None:
            self._names[key] = entry
        self.entries.append(entry)
        return True

    def give_up(self, since: int) -> list[Entry]:
        """What belongs to the crash that comes next: read after this line and not known from before it, or the parents'
        word of an end, which may be read before the failure that it is about."""
        known = [entry for entry in self.entries if entry.start <= since or entry is self._root]
        late = [entry for entry in self.entries if entry.ends_server and entry.kind is Kind.CASCADE]
        late += [
            entry
            for entry in self.entries
            if entry not in known and entry not in late and not any(same_failure(entry, other) for other in known)
        ]
        self.entries = [entry for entry in self.entries if entry not in late]
        return late

    def open(self) -> bool:
        """Choose the root; True the first time there is one. Id and position are fixed then."""
        root = choose_root(self.entries)
        if root is None:
            root = next((entry for entry in self.entries if entry.kind is Kind.REQUEST), None)
        if root is None:
            return False
        return self._fix(root)

    def open_anyway(self, instead: Entry | None = None) -> bool:
        """No root came: take the best there is, or else `instead`."""
        root = promote(self.entries) or instead
        return self._fix(root) if root is not None else False

    def _fix(self, root: Entry) -> bool:
        self._root = root
        if self.opened:
            return False
        self.opened = True
        self._id = crash_id(root.texts)
        line = root.lines[0]
        self.position = (line if line.time is not None else replace(line, time=root.time)).position
        self.started = root.time
        return True

    # ------------------------------------------------------------ the picture

    def snapshot(self, context: Context, seen: Signs, ended: int | None, *, closed: bool) -> Crash:
        """The crash as it is known now. While it is open only the manager's word settles the outcome."""
        root = self._root
        assert root is not None
        roles = assign(root, self.entries)
        first, *others = (_failure(entry, role, why) for entry, role, why in roles)
        failures = (replace(first, rank=rank_of(root, self.entries)), *others)
        result = outcome(root, self.entries, seen)
        if not closed and result is not Outcome.REQUEST_ERROR and seen.end is None:
            result = Outcome.UNKNOWN
        mixed = closed and seen.plain and seen.ends_server and result is Outcome.UNKNOWN and worked(seen)
        # One pid for all, and no word of the manager's: a request may have written it.
        mixed |= closed and root.front and result is Outcome.UNKNOWN and seen.end is None and seen.stopping is None
        host, unit, invocation, owner = self.group
        return Crash(
            id=self._id,
            position=self.position,
            phase=self.phase,
            outcome=result,
            root=failures[0],
            failures=failures,
            ranks=_ranks(failures),
            evidence=_evidence(roles),
            grade=Grade.MIXED if mixed else self._grade(root),
            host=host,
            unit=unit,
            invocation=invocation,
            started=self.started,
            ended=max(ended, self.started)
            if ended is not None and self.started is not None
            else ended,  # a clock set back
            context=context,
            end=self.end,
            owner=int(owner) if owner else None,
        )

    def _grade(self, root: Entry) -> Grade:
        if root.doubtful or any(entry.quoted and entry.start < root.start for entry in self.entries):
            return Grade.MIXED  # what may be a request's may be what failed first, too
        if self.grade is not Grade.COMPLETE:
            return self.grade  # journald says why something is missing: that tells more than that it is
        if root.cut or any(
            entry.cut and (entry.start < root.start or root.kind is Kind.HINT) for entry in self.entries
        ):
            return Grade.CUT  # what was not read whole and came before it, or says more, may be what began it
        return Grade.COMPLETE


def corrected(crash: Crash, end: UnitEnd, alone: Entry | None) -> Crash:
    """A closed crash once the manager says better how the unit ended. `alone`: that end is all that is known of it."""
    root = crash.root if alone is None else replace(crash.root, chain=alone.links, why=alone.why)
    failed = crash.outcome is Outcome.UNKNOWN and end.result != "success" and not end.requested
    return replace(
        crash,
        end=end,
        root=root,
        failures=(root, *crash.failures[1:]),
        outcome=Outcome.FATAL if failed else crash.outcome,
        ended=end.time if end.time is not None else crash.ended,
    )


def crash_id(texts: list[str]) -> str:
    """Hash of the root's own lines. Blanks at both ends do not count: journalctl's text form eats some."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.strip().encode("utf-8", "replace"))
        digest.update(b"\n")
    return digest.hexdigest()[:24]


def kept(line: Line) -> Line:
    """A line as it may be kept: not longer than any page can show."""
    return replace(line, text=line.text[:MAX_TEXT]) if len(line.text) > MAX_TEXT else line


def _failure(entry: Entry, role: Role, why: str) -> Failure:
    if entry.folded:
        why = f"{why}; {entry.folded} more like it"
    lines = (*entry.before, *entry.lines, *entry.after)
    return Failure(role, entry.links, lines, entry.rank, entry.pid, entry.time, why)


def _ranks(failures: tuple[Failure, ...]) -> tuple[str, ...]:
    """Ranks that failed themselves, the root's first."""
    seen: dict[str, None] = {}
    for failure in failures:
        if failure.rank is not None and failure.role in (Role.ROOT, Role.CASCADE):
            seen.setdefault(failure.rank)
    return tuple(seen)


def _evidence(roles: list[tuple[Entry, Role, str]]) -> tuple[Line, ...]:
    """The lines the conclusion rests on: the root's head, innermost frames and exceptions; of each other failure the
    telling ones."""
    chosen: list[Line] = []
    for entry, role, _ in roles:
        lines = entry.lines
        if role is Role.ROOT:
            first = len(entry.texts)  # up to and with the first exception line
            chosen.extend(entry.before)
            chosen.extend(lines[:1])
            chosen.extend(lines[max(1, first - 16) : first + 6])
            chosen.extend(lines[max(first + 6, len(lines) - 12) :])
            chosen.extend(entry.after[:MAX_BESIDE])
        elif len(chosen) < MAX_EVIDENCE:
            chosen.append(lines[0])
            if len(lines) > 1 and entry.body is not None:
                chosen.append(lines[len(entry.texts) - 1])
    unique = {id(line): line for line in chosen}
    return tuple(unique.values())[:MAX_EVIDENCE]
