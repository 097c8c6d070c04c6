"""One invocation of a unit, as others see it: who it is, what is open, when that is due, what passes to the next one.

The state that `engine.runs` feeds, and the questions that may be asked of it without a line: by `engine.assemble`,
which owns the clock, by the gate, by the unit's next start, by the unit's other nodes. It must not read lines.
"""

from __future__ import annotations

from dataclasses import replace

from triage.engine.aftermath import cluster
from triage.engine.burst import GROUP_QUIET, Burst, Group
from triage.engine.endings import END_WAIT, Ending
from triage.engine.excerpt import Excerpt
from triage.engine.flow import Flow
from triage.engine.hang import Hang
from triage.engine.lanes import Lanes
from triage.engine.margin import Margin
from triage.engine.milestones import Progress
from triage.engine.records import Records
from triage.engine.starters import Starter
from triage.engine.verdict import Verdict
from triage.model import Change, Context, Crash, CrashEvent, Grade


class Invocation:
    """What one invocation is and holds open."""

    __slots__ = (
        "_asked",
        "_burst",
        "_elder",
        "_excerpt",
        "_flow",
        "_front",
        "_half",
        "_hang",
        "_late",
        "_margin",
        "_named",
        "_records",
        "_shared",
        "_spoke",
        "_starter",
        "_verdict",
        "contained",
        "ending",
        "group",
        "lanes",
        "plain",
        "progress",
        "strange",
    )

    def __init__(self, group: Group, *, plain: bool = False, contained: bool = False) -> None:
        self.group = group
        self.plain = plain  # a file: its own end tells, and no time passes but that of its lines
        self.contained = contained  # a container of docker's, in the journal: no manager writes of it
        self.progress = Progress()
        self.lanes = Lanes()
        self.ending = Ending()
        self._burst = Burst(group, self.progress, self.ending, plain=self.alone)
        self._burst.tags = self.lanes.tags
        self._asked: int | None = None  # when a plain file was last seen to be quiet, but no server at work
        self._half: int | None = None  # when an open traceback last grew
        self._excerpt = Excerpt() if plain else None
        self._margin = Margin() if plain else None
        self._records = Records()
        self._named: set[str] = set()
        self._front: int | None = None  # in a plain file: who printed its flags last
        self._elder: int | None = None  # in a plain file: who printed flags before that one
        self._flow = Flow()
        self._hang = Hang()
        self._starter = Starter()
        self._verdict = Verdict()
        self._late: tuple[Ending, Crash | None, bool] | None = None  # an end whose result the manager did not tell yet
        self._shared: int | None = None  # when a crash ended that was told of another node of the unit
        self.strange: bool | None = None  # none of its lines has a form that is known; None: it had none
        self._spoke = False  # a record with SGLang's own head was read

    @property
    def key(self) -> str:
        host, unit, invocation, owner = self.group
        parts = (host, unit, owner, invocation) if owner else (host, unit, invocation)
        return "|".join(part or "" for part in parts)

    @property
    def alone(self) -> bool:
        """No manager tells how it ends: its own lines have to."""
        return self.plain or self.contained

    @property
    def ended(self) -> bool:
        """Its end was dealt with; what comes later is late."""
        return self.ending.final

    @property
    def crashing(self) -> bool:
        return self._burst.crash is not None

    @property
    def holding(self) -> bool:
        """It has failures that cannot be a root, and no root."""
        return not self.crashing and not self._burst.empty

    @property
    def last(self) -> int | None:
        """When something failed last."""
        return self._burst.last

    @property
    def name(self) -> str | None:
        """The unit, by its lines' fields or the manager's text."""
        return self.group[1] or self._burst.named

    def lives_in(self, unit: str) -> bool:
        """Whether a control group's unit is its own; that of a container holds its id."""
        return unit == self.name or (self.contained and self.group[2] is not None and self.group[2] in unit)

    @property
    def failing(self) -> bool:
        """More than a request has failed, or the manager saw an end that nobody asked for."""
        crash = self._burst.crash
        if crash is not None and not crash.requests_only:
            return True
        return self.ending.at is not None and self.ending.sign() is not None

    @property
    def failed(self) -> int | None:
        """When, last."""
        end, last = self.ending.known, self._burst.last
        return max(end.time, last or 0) if end is not None and end.time is not None else last

    @property
    def idle(self) -> bool:
        quiet = self.ending.at is None and not self.lanes.waiting and not self._records.waiting
        return quiet and self._burst.empty and not self._verdict.pending

    def counting(self, now: int | None) -> bool:
        """Whether health checks that failed are counted, which is in no context."""
        return self._hang.counting(now) and not self.ended and self.progress.stopping is None

    @property
    def quiet(self) -> bool:
        """Nothing is open and nothing announced: see `engine.gate`, which passes over lines while this is so."""
        return self.ended or (
            self.lanes.idle
            and self._burst.empty
            and not self._records.waiting
            and not self._verdict.pending
            and self.ending.at is None
            and not self.lanes.expecting
            and not self.progress.expecting
            and not self._hang.expecting
            and not self._burst.aside.expecting
            and not (self._margin is not None and self._margin.expecting)
            and (not self.plain or (self._spoke and self._excerpt is None))
        )

    @property
    def due(self) -> int | None:
        """When something is to be closed, in log time."""
        if self.ending.at is not None:
            return self.ending.at
        due = self._records.due if self._records.waiting else None
        held = self._verdict.due if self.contained else None
        if held is not None and (due is None or held < due):
            due = held
        for since in (None if self._burst.empty else self._since(), self._half):
            if since is not None and (due is None or since + GROUP_QUIET < due):
                due = since + GROUP_QUIET
        return due

    def _since(self) -> int | None:
        """Since when it may have been quiet: the last failure, or the last time that this was asked in vain."""
        last = self._burst.last
        return last if last is None or self._asked is None else max(last, self._asked)

    def near(self, time: int | None, tolerance: int) -> bool:
        last = self._burst.last
        return time is None or last is None or abs(time - last) <= tolerance

    def resume(self, context: Context) -> None:
        """Another process knew that of it."""
        self.progress = self._burst.progress = Progress(context)
        self.lanes.whole = True
        self.lanes.recall(context.front)
        ended = context.ended
        if ended is not None:
            self.ending = self._burst.ending = Ending.of(ended)
            self._late = None if ended.settled else (self.ending, ended.crash, ended.crash is not None)

    def context(self) -> Context:
        """For `resume`. A crash with a root of its own is not carried along: a late result changes little."""
        late = None if self._late is None or (self._late[1] is not None and not self._late[2]) else self._late
        ended = self.ending.told(late[1] if late is not None else None, settled=late is None)
        return replace(self.progress.context(), ended=ended, front=self.lanes.front)

    def after(self, other: Invocation) -> None:
        """The unit was started again: this run comes after that one."""
        self._burst.before = other._burst.before
        other._hang.work()
        self.progress.inherit(other.progress)
        if self.contained and self.group[2] != other.group[2]:  # two containers never have one name
            other._burst.over = True

    @property
    def cluster(self) -> tuple[str | None, str, str] | None:
        """Unit, number of nodes and meeting point where the server runs on several nodes."""
        return cluster(self.group[1], self.progress.flags)

    def told(self, other: Invocation, events: list[CrashEvent]) -> list[CrashEvent] | None:
        """Another node of this unit has something to tell; what is to be told instead, if it is of our open crash."""
        for event in events:
            if event.change is Change.OPENED and event.crash.host == other.group[0]:
                if self.crashing and other.crashing and self.near(event.crash.started, GROUP_QUIET):
                    own = [each for each in events if each.crash.key != event.crash.key]
                    return own + other._burst.join(self._burst)
                self._burst.sibling = event.crash
            elif event.change is Change.CLOSED and self._burst.crash is not None:
                if self._burst.crash.group[0] == event.crash.host:
                    self._burst.crash = None
                    self._shared = event.crash.ended
                self._burst.sibling = event.crash
        return None

    def join(self, other: Invocation) -> list[CrashEvent]:
        """Our failures that wait for a root have it on another node of the unit, whose crash is open."""
        return (
            self._burst.join(other._burst)
            if self.holding and other.crashing and other.near(self.last, GROUP_QUIET)
            else []
        )

    def call(self, unit: str) -> None:
        """The unit's name, where only the manager's text tells it. Of two units' lines in one text nobody can tell
        whose they are."""
        self._named.add(unit)
        self._burst.named = unit if len(self._named) == 1 else None
        if len(self._named) > 1:
            self._burst.lower(Grade.MIXED, None)

    def part(self, unit: str) -> None:
        """That unit's lines can be told from ours, as it turns out."""
        self._named.discard(unit)
        if len(self._named) == 1:
            self._burst.named = next(iter(self._named))
            self._burst.lift(Grade.MIXED)

    def grown(self) -> list[CrashEvent]:
        """What is open, if it has grown since this was asked last."""
        return self._burst.grown()

    def miss(self, crash: Crash) -> None:
        """Something failed beside it that it may wait for."""
        self._burst.miss(crash)

    def lower(self, grade: Grade, time: int | None) -> None:
        """The journal told that lines of this unit are missing."""
        self._burst.lower(grade, time)

    def pass_over(self, count: int, time: int | None) -> None:
        """So many lines of its processes were not handed on; `time`: when, about."""
        if time is not None and count and time >= self._flow.due:
            self._flow.mark(time, self.lanes.serial)
        self.lanes.pass_by(count)

    def set_back(self, time: int) -> None:
        """The clock was: what is open was last heard of now, else it would stay open until the clock is there again."""
        self._flow = Flow()
        if self.plain:  # writers of several time zones do that from line to line, and nothing waits for a file
            return
        if self.ending.at is not None:
            self.ending.at = min(self.ending.at, time + END_WAIT)
        if self._half is not None:
            self._half = min(self._half, time)
        self._burst.set_back(time)
        self._records.set_back(time)
