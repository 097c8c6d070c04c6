"""The failures of one invocation: held back while a better root may come, gathered in one open crash, told.

In come entries (engine.entries) and the news of their growth; out go `CrashEvent`s. Called by `engine.runs`, one
`Burst` per invocation, which reads the lines and knows when something is over. It must not read lines itself, nor judge
one failure beside another (engine.roles).
"""

from __future__ import annotations

import re
from dataclasses import replace

from triage.engine import handled, leads
from triage.engine.aftermath import NEAR, Before, follows, remember, same_moment, waited
from triage.engine.aside import Aside
from triage.engine.crashes import Held, OpenCrash
from triage.engine.endings import Ending
from triage.engine.entries import Entry, is_child, is_thread, lost_entry, only_lost, refresh, report_entry, told_of
from triage.engine.kinds import HANG, Kind
from triage.engine.lanes import News, Report
from triage.engine.milestones import Progress
from triage.engine.roles import AFTER, Signs, serves
from triage.engine.starters import KILLED
from triage.engine.suspects import suspects
from triage.engine.tracebacks import Traceback
from triage.engine.tracelines import engine_frame, is_logging
from triage.model import Change, Crash, CrashEvent, Frame, Grade, Outcome, Phase

MAX_STACK = 40
# Libraries' lines after which a server may go on.
WARNINGS = ("NcclError", "UserWarning", "ImportError")
DEATHS = ("sigquit", "dead", "exit")  # signs by which SGLang's processes tell that one of them died
MANY_STEPS = 50  # without times: no server makes so many that misses one of its processes
GROUP_QUIET = handled.LONG  # a crash is over when its failures have been quiet so long

_CHILD = re.compile(r"Rank (?P<rank>\d{1,4}) scheduler (?:died during initialization|is dead)")

Group = tuple[str | None, str | None, str | None, str]  # host, unit, invocation, uid of a user's unit (else '')


class Burst:
    """What fails together. `progress` is replaced where a plain file goes on with another start."""

    __slots__ = (
        "_checks",
        "_grade_at",
        "_grew",
        "_held",
        "_marks",
        "_stacked",
        "_steps",
        "aside",
        "before",
        "crash",
        "ending",
        "group",
        "handled",
        "last",
        "named",
        "outlived",
        "over",
        "passed",
        "plain",
        "progress",
        "quoted",
        "sibling",
        "silent",
        "step",
        "tags",
        "time",
        "told",
    )

    def __init__(self, group: Group, progress: Progress, ending: Ending, *, plain: bool) -> None:
        self.group = group
        self.progress = progress
        self.ending = ending
        self.plain = plain
        self._grew = False  # what is open has, since somebody looked at it
        self.named: str | None = None  # the unit, where only the manager's text names it
        self.crash: OpenCrash | None = None
        self.time: int | None = None  # of the last line
        self.last: int | None = None  # of the last failure
        self.tags: set[str] = set()  # the ranks that the log has shown
        self.sibling: Crash | None = None  # a crash of the same unit's other node
        self.before: Before | None = None  # the crash of the start before this one
        self.silent: Before | None = None  # a crash in this run, or of a device, that others may wait for still
        self.quoted = False  # what is read now may be the text of a request
        self.over = False  # the log of this server ends here
        self.told: int | None = None  # when the server said that it was asked to end
        self.outlived = False  # the process that failed first works on
        self.step = 0  # serial of the line that showed the server at work last, while a crash was open
        self.handled = False  # so far there is but a traceback, and the server worked on after it
        self._steps = 0  # as many as this were made since
        self._marks = (0, 0)  # serials of the last two milestones that it came to since
        self._checks = 0  # of its health, that were answered since
        self.passed: set[str] = set()  # ranks that came to a milestone since
        self._held = Held()  # cascades and hints that wait for a root
        self._stacked: Entry | None = None  # the last failure, if it was but a library's line
        self.aside = Aside()
        self._grade_at: dict[Grade, int] = {}  # when the journal told that lines are missing

    @property
    def empty(self) -> bool:
        return self.crash is None and not self._held.entries

    @property
    def ends_server(self) -> bool:
        """What is open holds the server's own word that it ends."""
        return self.crash is not None and self.crash.ends_server

    @property
    def hangs(self) -> bool:
        """What is open is that the server answers nobody."""
        return self.crash is not None and self.crash.root is not None and self.crash.root.name == HANG

    @property
    def harmless(self) -> bool:
        """What is open is but what the front end met, or a thread that nobody is served by: the next sign of life tells
        that it goes on."""
        root = self.crash.root if self.crash is not None else None
        if root is None or root.kind not in handled.HANDLED or self.ends_server:
            return False
        return _spare(root) or (not is_child(root) and handled.elsewhere(root, self.tags))

    def lower(self, grade: Grade, time: int | None) -> None:
        """The journal told that lines are missing."""
        self._grade_at[grade] = time if time is not None else -1
        if self.crash is not None:
            self.crash.grade = grade

    def lift(self, grade: Grade) -> None:
        """What was said of the lines does not hold of those that come."""
        self._grade_at.pop(grade, None)

    def set_back(self, time: int) -> None:
        """The clock was: nothing that is known lies in the future."""
        self.time = min(self.time, time) if self.time is not None else None
        self.last = min(self.last, time) if self.last is not None else None

    # ------------------------------------------------------------ in

    def report(self, report: Report, grew: int | None = None) -> list[CrashEvent]:
        """What the lanes say of a traceback. `grew`: when one that broke off last did."""
        body = report.body
        if isinstance(body, Traceback) and (leads.is_ignored(body.lead) or is_logging(body.outermost)):
            return []
        entry = self._entry_of(report.body)
        if report.news is News.OVER:
            return self._grown(entry, report) if entry is not None else []
        if report.news is News.LOST:
            lost = lost_entry(report, grew if grew is not None else self.time)
            lost.before, lost.after = self.aside.cut(report.body.start, lost.time)
            return self.add(lost)
        if entry is not None:  # a further link of its chain
            return self._grown(entry, report) or self._amended()
        entry = report_entry(report, self.time)
        entry.quoted, entry.own, entry.front = report.lane.foreign, report.own, report.front
        return self.add(entry)

    def add(self, entry: Entry) -> list[CrashEvent]:
        """A failure."""
        if self.ending.final and entry.kind is not Kind.HARDWARE:
            return []
        if self.progress.stopping is not None and self.crash is None and (entry.kind >= Kind.EXIT or _spare(entry)):
            return []  # teardown after a requested stop
        entry.quoted = entry.quoted or self.quoted
        if entry.name == "watchdog":
            entry.after = self.aside.stacks  # it grows: some are written behind the watchdog's own line
        events: list[CrashEvent] = []
        crash = self.crash
        if self.empty:
            self.progress.active = None  # only work done after a failure tells that the server outlived it
        self._touch(entry)
        self._stacked = entry if entry.kind is Kind.HINT and entry.body is None else None
        if crash is None:
            if entry.kind in (Kind.HINT, Kind.CASCADE):
                self._held.add(entry)
                return []
            return self.open(entry)
        requests = crash.requests_only and entry.kind not in (Kind.REQUEST, Kind.CASCADE, Kind.HINT)
        unlike = requests or self._unlike(crash, entry)
        since = 0 if unlike else handled.long_before(crash, entry, self._marks[0])
        if requests or since is not None:
            late = [] if requests else crash.give_up(max(self.step, since or 0))
            before = self.before
            elsewhere = crash.root is not None and handled.elsewhere(crash.root, self.tags)
            events += self.close(None, handled=not requests and (self.handled or elsewhere))
            self.before = before if not requests else self.before  # the same process: it left nobody without room
            self.progress.active = None
            for waiting in late:
                self._held.add(waiting)
            return events + self.open(entry)
        if crash.add(entry):
            events += self._amended()
        return events

    def _unlike(self, crash: OpenCrash, entry: Entry) -> bool:
        """Whether what is open is no cause of this, however near."""
        root = crash.root
        if root is None:
            return False
        beside = self.progress.up and handled.beside(root, entry, self.tags)
        passed = entry.rank in self.passed and handled.passed(root, entry)
        return beside or passed or (self.handled and handled.over(root, entry))

    def open(self, entry: Entry) -> list[CrashEvent]:
        """Open a crash with this failure and all that was held back."""
        crash = self._new(self._phase(entry))
        for waiting in self._held.take():
            crash.add(waiting)
        crash.add(entry)
        self.crash = crash
        self.outlived = self.handled = False
        self._steps, self._checks, self._marks = 0, 0, (0, 0)
        self.passed.clear()
        crash.open()
        return [self._event(Change.OPENED)]

    def _new(self, phase: Phase) -> OpenCrash:
        """A crash of which lines may be missing that the journal told of just before."""
        crash = OpenCrash(self._name(), phase)
        for grade, time in self._grade_at.items():
            if time < 0 or self.time is None or self.time - time < GROUP_QUIET:
                crash.grade = grade
        return crash

    def promote(self, entry: Entry | None = None) -> list[CrashEvent]:
        """No root came: open with the best of what was held back, or else with `entry`; nothing if none can be one, or
        if it began with Ctrl-C: then the rest is teardown."""
        first = next((held for held in self._held.entries if held.name != "shutdown"), None)
        if first is not None and first.cause.exception == "KeyboardInterrupt":
            return []
        crash = self._new(self.progress.phase)
        gone, stale = self._stale()
        for held in self._held.entries:
            if held not in stale:
                crash.add(held)
        if not crash.open_anyway():
            died = next((held for held in self._held.entries if held.name in DEATHS), None)
            alone = all(held.name == KILLED for held in self._held.entries)  # one that ends itself is killed by itself
            if died is None and alone and self.progress.active is None:
                died = next(iter(self._held.entries), None)
            if gone is not None and stale and self.over:
                told_of(gone, stale[-1])
                entry = gone
            elif entry is None and self.over and died is not None:
                told_of(died, None)
                entry = died
            if entry is None:
                return []
            if entry not in self._held.entries:
                crash.add(entry)
            crash.open_anyway(entry)
        self.crash = crash
        self._held.take()
        return [self._event(Change.OPENED)]

    def killed(self) -> list[CrashEvent]:
        """It starts anew: if all that was said before is its starter's word that it was killed, that was its end."""
        held, worked = self._held.entries, self.progress.active or 0
        if not held or not all(entry.name == KILLED and worked <= (entry.time or 0) for entry in held):
            return []
        return self.promote(held[-1])

    def _stale(self) -> tuple[Entry | None, list[Entry]]:
        """The server's own word of its end, and the warnings so long before it that they are not its reason: whoever
        wrote them went on."""
        held = self._held.entries
        gone = next((entry for entry in held if entry.kind is Kind.CASCADE and entry.ends_server and entry.time), None)
        until = gone.time - GROUP_QUIET if gone is not None and gone.time is not None else -1
        warnings = [
            entry for entry in held if entry.kind is Kind.HINT and entry.name in WARNINGS and entry.body is None
        ]
        return gone, [entry for entry in warnings if entry.time is not None and entry.time <= until]

    def close(self, ended: int | None, *, handled: bool = False) -> list[CrashEvent]:
        """What is open is over; the lanes have told their last. `handled`: the server worked on after it."""
        crash = self.crash
        if crash is None:
            return []
        if crash.group[0] != self.group[0]:  # another node's: that one closes it
            self.crash = None
            return []
        crash.end = self.ending.known
        event = self._event(Change.CLOSED, ended if ended is not None else self.last, handled=handled)
        self.crash = None
        self.before = remember(event.crash, self.before)
        waits = event.crash.outcome is Outcome.DEGRADED and not self.handled
        hung = crash.root is not None and crash.root.name == HANG
        if waits or (event.crash.outcome is Outcome.UNKNOWN and not hung):
            self.miss(event.crash)
        self._held.take()
        return [event]

    def miss(self, crash: Crash) -> None:
        """Nothing was done since: who works with what failed there may wait for it."""
        known = self.silent.began if self.silent is not None else None
        if crash.started is not None and (known is None or crash.started - known > NEAR):
            self.silent = remember(crash, None)

    def join(self, host: Burst) -> list[CrashEvent]:
        """What failed here is of the crash that is open on another node of the unit: one crash, seen from both."""
        assert host.crash is not None
        for entry in self.crash.entries if self.crash is not None else self._held.take():
            host.crash.add(entry)
        self.crash = host.crash
        return host._amended()

    def doubt(self, since: int) -> None:
        """What failed after this line may be the text of a request."""
        for entry in [*self._held.entries, *(self.crash.entries if self.crash is not None else ())]:
            entry.quoted = entry.quoted or entry.start > since
        if self.crash is not None and self.crash.opened:
            self.crash.open()

    def worked(self, pid: int | None, rank: str | None, *, serial: int, step: bool) -> None:
        """A process did something for a client, while a crash is open. `step`: it was no mere check of its health."""
        root = self.crash.root if self.crash is not None else None
        if root is None:
            return
        self._steps += step
        now, then = self.time, root.time
        late = self._steps >= MANY_STEPS if now is None or then is None else now - then >= AFTER
        same = pid is not None and root.pid == pid
        itself = None in (pid, root.pid) and rank is not None and rank == root.rank
        self.outlived = self.outlived or ((same or itself) and late)
        if root.kind not in handled.HANDLED or self.ends_server:
            return
        if not step:  # a check of its health is answered by the front end: that goes on
            self._checks += 1
            if now is None and self._checks % 2 == 0:  # there are seconds between two
                self.came(serial)
            lives = same or (None in (pid, root.pid) and handled.front(root, self.tags))
            if late and ((lives and not is_child(root)) or _spare(root)):
                self.handled, self.progress.active = True, now if now is not None else -1
            return
        # Whoever is known to have ended a thread, or is another than who works here, may still be missed.
        maybe = same or (None in (pid, root.pid) and root.rank in (None, rank))
        self.handled = self.handled or late or (maybe and not is_child(root))
        self.step = serial

    def came(self, serial: int) -> None:
        """The server reached a further milestone."""
        self._marks = (self._marks[1], serial)

    def dead(self) -> Entry | None:
        """The parent's last word that a rank's process is dead."""
        known = [*(self.crash.entries if self.crash is not None else ()), *self._held.entries]
        return next((entry for entry in reversed(known) if entry.name == "dead"), None)

    def drop(self) -> None:
        """What was held back was nothing."""
        self._held.take()

    def stack(self, frame: Frame) -> None:
        """Below a library's line somebody wrote where it happened, innermost first."""
        entry = self._stacked
        if entry is not None and len(entry.cause.frames) < MAX_STACK:
            frames = (frame, *entry.cause.frames)
            entry.links = (replace(entry.cause, frame=engine_frame(frames), frames=frames), *entry.links[1:])

    # ------------------------------------------------------------ the open crash

    def _entry_of(self, body: object) -> Entry | None:
        known = [*self._held.entries, *(self.crash.entries if self.crash is not None else ())]
        return next((entry for entry in known if entry.body is body), None)

    def _grown(self, entry: Entry, report: Report) -> list[CrashEvent]:
        interrupted = entry.cause.exception == "KeyboardInterrupt"
        refresh(entry, report)
        crash = self.crash
        if crash is not None and crash.root is entry and crash.phase is Phase.UNKNOWN:
            crash.phase = self._phase(entry)
        if crash is None and entry.kind < Kind.HINT and not interrupted:  # what came later in its chain is a root
            self._held.entries.remove(entry)
            return self.open(entry)
        return []

    def _touch(self, entry: Entry) -> None:
        time = entry.time if entry.time is not None else self.time
        if time is not None and (self.last is None or time > self.last):
            self.last = time

    def _name(self) -> Group:
        """Under which a crash is known: fixed when it opens, since it is part of its key."""
        host, unit, invocation, owner = self.group
        return (host, unit or self.named, invocation, owner)

    def _phase(self, entry: Entry) -> Phase:
        if self.progress.stopping is not None:
            return Phase.SHUTDOWN
        phase = self.progress.phase
        if (
            phase is Phase.UNKNOWN
            and entry.kind is Kind.FATAL
            and (entry.ends_server or entry.name in ("usage", "end"))
        ):
            return Phase.ARGUMENTS
        return phase

    def _amended(self) -> list[CrashEvent]:
        crash = self.crash
        if crash is None or not crash.opened:
            return []
        crash.open()
        self._grew = True
        return [CrashEvent(Change.AMENDED, crash.told)] if crash.told is not None else []

    def grown(self) -> list[CrashEvent]:
        """What is open, if it has grown since this was asked last: a picture costs more than to take in a failure."""
        grew, self._grew = self._grew, False
        return [self._event(Change.AMENDED)] if grew and self.crash is not None and self.crash.opened else []

    def _event(self, change: Change, ended: int | None = None, *, handled: bool = False) -> CrashEvent:
        crash = self.crash
        assert crash is not None
        closed = change is Change.CLOSED
        seen = Signs(
            plain=self.plain,
            stopping=self.progress.stopping,
            end=self.ending.known if closed else None,
            active=self.progress.active,
            last=self.last,
            ends_server=crash.ends_server,
            over=self.over,
            told=None if self.ending.overdue else self.told,
            outlived=self.outlived,
            handled=handled,
        )
        picture = self._told(crash, crash.snapshot(self.progress.context(), seen, ended, closed=closed))
        crash.told = crash.told or picture
        return CrashEvent(change, picture)

    def _meant(self, picture: Crash) -> Crash:
        """The picture with the rank that a parent's exception names by its number: on several nodes each counts its
        own."""
        root = picture.root
        match = _CHILD.match(root.cause.message)
        name = f"TP{match['rank']}" if match is not None else ""
        if root.rank is not None or name not in self.tags or self.progress.flags.get("nnodes", "1") != "1":
            return picture
        root = replace(root, rank=name)
        ranks = picture.ranks if name in picture.ranks else (name, *picture.ranks)
        return replace(picture, root=root, failures=(root, *picture.failures[1:]), ranks=ranks)

    def _told(self, crash: OpenCrash, picture: Crash) -> Crash:
        """The picture with what goes beyond the crash itself: whom the ranks waited for, what came before."""
        assert crash.root is not None
        picture = self._meant(picture)
        world = picture.context.flags.get("tp_size", "")
        missing = suspects(crash.root, crash.entries, self.tags, int(world) if world.isdecimal() else 0)
        why, before = picture.root.why, ""
        if missing:
            alone = "'s watchdog alone did not fire" if crash.root.name == "watchdog" else " never reached it"
            why += f"; {', '.join(missing)}{alone}"
        if self.sibling is not None and same_moment(picture, self.sibling):
            before = self.sibling.id
            why += f"; another node, {self.sibling.host}, had failed by then ({self.sibling.root.cause.exception})"
        elif self.before is not None and follows(picture, self.before):
            before = self.before.id
            why += f"; it may only follow the crash before it ({self.before.what}), which left it no room"
        elif self.silent is not None and waited(picture, self.silent, end=crash.root.name == "end"):
            before = self.silent.id
            why += f"; it may only follow the crash before it ({self.silent.what}), which was waited for since"
        grade = picture.grade
        flags = picture.context.flags
        single = world == "1" and all(flags.get(name, "1") == "1" for name in ("pp_size", "dp_size"))
        if not before and grade is Grade.COMPLETE and not single and only_lost(crash.root):
            grade = Grade.CUT  # another rank went first
        elif grade is Grade.COMPLETE and handled.untold(crash.root, crash.entries):
            grade = Grade.MIXED
        if why == picture.root.why and grade is picture.grade:
            return picture
        picture = replace(picture, grade=grade)
        root = replace(picture.root, why=why)
        failures = (root, *picture.failures[1:])
        return replace(picture, root=root, failures=failures, suspects=missing, follows=before)


def _spare(entry: Entry) -> bool:
    """Whether a thread ended with it that nobody is served by."""
    return is_thread(entry) and not serves(entry)
