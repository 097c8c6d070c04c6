"""One invocation of a unit: its progress, its writers, the crash that is open, how it ended.

In come the lines and the manager's words of one invocation (or of a plain file, which has none); out come
`CrashEvent`s. Called by `triage.assemble`, which owns the clock. It must not look at other invocations.
"""

from __future__ import annotations

from triage import signs
from triage.crashes import Held, OpenCrash, kept
from triage.endings import Ending
from triage.entries import Entry, lost_entry, refresh, report_entry, sign_entry
from triage.lanes import Lanes, News, Report
from triage.lines import Parsed, is_progress, parse
from triage.manager import Word, read_kernel
from triage.milestones import STOP_TEXTS, Progress
from triage.model import Change, Context, CrashEvent, Grade, Line, Phase, Role
from triage.roles import Signs
from triage.signs import Kind, Sign

Group = tuple[str | None, str | None, str | None]  # host, unit, invocation

GROUP_QUIET = 10_000_000  # a crash is over when its failures have been quiet so long


class Run:
    """One invocation."""

    __slots__ = (
        "_crash",
        "_half",
        "_held",
        "_last",
        "_over",
        "_spoke",
        "_suppressed_at",
        "_time",
        "ending",
        "group",
        "lanes",
        "named",
        "plain",
        "progress",
    )

    def __init__(self, group: Group, *, plain: bool = False) -> None:
        self.group = group
        self.plain = plain  # a file: its own end tells, and no time passes but that of its lines
        self.progress = Progress()
        self.lanes = Lanes()
        self.ending = Ending()
        self.named: str | None = None  # the unit, where only the manager's text names it
        self._crash: OpenCrash | None = None
        self._held = Held()  # cascades and hints that wait for a root
        self._time: int | None = None
        self._last: int | None = None  # time of the last failure
        self._half: int | None = None  # when a half traceback last grew
        self._over = False  # the log of this server ends here
        self._suppressed_at: int | None = None
        self._spoke = False  # a record with SGLang's own head was read

    @property
    def key(self) -> str:
        return "|".join(part or "" for part in self.group)

    @property
    def ended(self) -> bool:
        """Its end was dealt with; what comes later is late."""
        return self.ending.final

    @property
    def crashing(self) -> bool:
        return self._crash is not None

    @property
    def idle(self) -> bool:
        return self._crash is None and not self._held.entries and self.ending.at is None and not self.lanes.waiting

    @property
    def due(self) -> int | None:
        """When something is to be closed, in log time."""
        if self.ending.at is not None:
            return self.ending.at
        open_since = self._last if self._crash is not None or self._held.entries else None
        dues = [since + GROUP_QUIET for since in (open_since, self._half) if since is not None]
        return min(dues, default=None)

    def near(self, time: int | None, tolerance: int) -> bool:
        return time is None or self._last is None or abs(time - self._last) <= tolerance

    def resume(self, context: Context) -> None:
        self.progress = Progress(context)

    def suppressed(self, time: int | None) -> None:
        """journald dropped lines of this unit."""
        self._suppressed_at = time if time is not None else -1
        if self._crash is not None:
            self._crash.grade = Grade.SUPPRESSED

    # ------------------------------------------------------------ lines

    def healthy(self, line: Line) -> bool:
        """The cheap way out for the mass of lines: a step of the scheduler, a request answered."""
        text = line.text
        if line.time is not None:
            self._time = line.time
        if " batch, #" in text[:80] or " batch. #" in text[:80]:
            if self.lanes.idle:
                self.progress.work(line)
                return True
            return False
        return text.endswith('" 200 OK') and self.lanes.idle

    def feed(self, line: Line) -> list[CrashEvent]:
        """One line of one of the unit's processes."""
        if self.ended:
            return []
        parsed = parse(line.text)
        text = parsed.text
        if not text.strip() or is_progress(text):
            if line.cut:
                self.lanes.damage(line.pid)
            return []
        line = kept(line)
        pid = line.pid if line.pid is not None else parsed.pid
        if parsed.headed and text.startswith(("Decode batch", "Prefill batch")):
            self.progress.work(line)
        taken, reports = self.lanes.feed(line, parsed, pid)
        self._half = self._time if self.lanes.waiting else None
        events: list[CrashEvent] = []
        for report in reports:
            events += self._report(report)
        if taken:
            return events
        if parsed.headed and text.startswith(STOP_TEXTS):
            self._stop_text(line, text)
            return events
        if parsed.headed:
            self._spoke = True
        elif self.plain and (parsed.kernel or not self._spoke) and ("NVRM" in text or "ut of memory: Kill" in text):
            kernel = read_kernel(text)  # a copy of the kernel's log, or one pasted into this one
            return events + self.add_sign(line, kernel, text) if kernel is not None else events
        sign = signs.read(text)
        if sign is not None:
            events += self.add_sign(line, sign, text, pid, parsed)
        elif not text.startswith(" "):
            events += self._milestone(line, text)
        return events

    def _milestone(self, line: Line, text: str) -> list[CrashEvent]:
        again = text.startswith("server_args=ServerArgs(") and self.plain and self._was_up()
        events = self._restart() if again else []
        self.progress.note(text, line)
        return events

    def _was_up(self) -> bool:
        """A plain file goes on with another start of the server: what was before has ended."""
        return any(name == "server_args" for name, _ in self.progress.context().milestones)

    def _restart(self) -> list[CrashEvent]:
        self._over = True
        events = self._close(None)
        self._over = False
        self.progress = Progress()
        self.lanes = Lanes()
        return events

    def _stop_text(self, line: Line, text: str) -> None:
        """SGLang was asked to stop: by its own word, where no manager tells it."""
        if self.progress.stopping is None and self.plain and self._crash is None:
            self.progress.stopping = line.time if line.time is not None else -1

    # ------------------------------------------------------------ failures

    def _report(self, report: Report) -> list[CrashEvent]:
        body = report.body
        entry = self._entry_of(body)
        if report.news is News.OVER:
            if entry is not None:
                self._grown(entry, report)
            return []
        if report.news is News.LOST:
            return self._add(lost_entry(report, self._time))
        if entry is not None:  # a further link of its chain
            self._grown(entry, report)
            return self._amended()
        return self._add(report_entry(report, self._time))

    def _grown(self, entry: Entry, report: Report) -> None:
        refresh(entry, report)
        crash = self._crash
        if crash is not None and crash.root is entry and crash.phase is Phase.UNKNOWN:
            crash.phase = self._phase(entry)

    def _entry_of(self, body: object) -> Entry | None:
        known = [*self._held.entries, *(self._crash.entries if self._crash is not None else ())]
        return next((entry for entry in known if entry.body is body), None)

    def add_sign(
        self, line: Line, sign: Sign, text: str, pid: int | None = None, parsed: Parsed | None = None
    ) -> list[CrashEvent]:
        """A failure that one line tells."""
        rank = parsed.rank if parsed is not None else None
        rank = self.lanes.rank_of(sign.pid) or self.lanes.tag(pid, rank)
        if sign.kind in (Kind.CASCADE, Kind.EXIT) and sign.pid is None:
            rank = None if rank is None or rank.startswith("rank") else rank
        entry = sign_entry(sign, line, text, rank)
        if entry.pid is None and sign.kind not in (Kind.CASCADE, Kind.EXIT):
            entry.pid = pid
        if entry.time is None:
            entry.time = self._time
        return self._add(entry)

    def _add(self, entry: Entry) -> list[CrashEvent]:
        if self.ended and entry.kind is not Kind.HARDWARE:
            return []
        if self.progress.stopping is not None and entry.kind >= Kind.EXIT and self._crash is None:
            return []  # teardown after a requested stop
        events: list[CrashEvent] = []
        crash = self._crash
        self._touch(entry)
        if crash is None:
            if entry.kind in (Kind.HINT, Kind.CASCADE):
                self._held.add(entry)
                return []
            return self._open(entry)
        if crash.requests_only and entry.kind not in (Kind.REQUEST, Kind.CASCADE, Kind.HINT):
            events += self._close(None)
            return events + self._open(entry)
        if crash.add(entry):
            crash.open()
            events += self._amended()
        return events

    def _touch(self, entry: Entry) -> None:
        time = entry.time if entry.time is not None else self._time
        if time is not None and (self._last is None or time > self._last):
            self._last = time

    def _open(self, entry: Entry) -> list[CrashEvent]:
        crash = OpenCrash(self._name(), self._phase(entry))
        if self._suppressed_at is not None and self._fresh(self._suppressed_at):
            crash.grade = Grade.SUPPRESSED
        for waiting in self._held.take():
            crash.add(waiting)
        crash.add(entry)
        self._crash = crash
        crash.open()
        return [self._event(Change.OPENED)]

    def _name(self) -> Group:
        """Under which a crash is known: fixed when it opens, since it is part of its key."""
        host, unit, invocation = self.group
        return (host, unit or self.named, invocation)

    def _fresh(self, time: int) -> bool:
        return time < 0 or self._time is None or self._time - time < GROUP_QUIET

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

    # ------------------------------------------------------------ manager

    def manager(self, line: Line, word: Word, text: str) -> list[CrashEvent]:
        """What the manager says about this invocation."""
        if line.time is not None:
            self._time = line.time
        if word.name == "starting":
            if self.progress.phase is Phase.UNKNOWN and not self.progress.started:
                self.progress.phase = Phase.ARGUMENTS
            return []
        if word.name == "stopping":
            if word.job in (None, "stop", "restart", "try-restart"):
                self.progress.stopping = line.time if line.time is not None else -1
            return []
        if word.name == "start-limit":
            return self._start_limit(line, text)
        if word.name == "oom":
            why = "the manager: killed for want of memory"
            return self.add_sign(line, Sign("oom", Kind.HARDWARE, Role.ROOT, "HostOutOfMemory", text, why), text)
        if word.name in ("exited", "failed", "deactivated"):
            self.ending.note(line, word, requested=self.progress.stopping is not None)
        return []

    def _start_limit(self, line: Line, text: str) -> list[CrashEvent]:
        """The manager gives up: a failure of its own, whatever the runs before died of."""
        known = self.ending.known is not None and not self.ending.final
        events = self._end_now() if known else self._close(None)
        self.ending.final = False
        self.ending.give_up(line.time)
        sign = Sign("start-limit", Kind.FATAL, Role.ROOT, "StartLimit", text, "started too often in a short time")
        events += self._add(sign_entry(sign, kept(line), text, None))
        events += self._close(line.time)
        self.ending.close()
        return events

    def _end_now(self) -> list[CrashEvent]:
        """The invocation is over and its last lines had time to come."""
        events: list[CrashEvent] = []
        for report in self.lanes.finish():
            events += self._report(report)
        alone = self.ending.sign() if self._crash is None else None
        if alone is not None:  # the log names no root: a hint that was held back, else the manager's own word
            sign, line, text = alone
            held = self._promote()
            events += [self._event(Change.OPENED)] if held else self._open(sign_entry(sign, line, text, None))
        end = self.ending.known
        events += self._close(end.time if end is not None else None)
        self.ending.close()
        self._held.take()
        if self.plain:  # the same file goes on with the next start
            self.ending, self.progress, self.lanes = Ending(), Progress(), Lanes()
        return events

    def _promote(self) -> bool:
        """Open with the best of what was held back; False if nothing there can be a root."""
        crash = OpenCrash(self._name(), self.progress.phase)
        for entry in self._held.entries:
            crash.add(entry)
        if not crash.open_anyway():
            return False
        self._crash = crash
        self._held.take()
        return True

    # ------------------------------------------------------------ closing

    def expire(self, time: int) -> list[CrashEvent]:
        """Log time has passed `due`."""
        if self.ending.at is not None:
            return self._end_now() if time >= self.ending.at else []
        events = self._stale(time)
        if self._crash is None:
            if not self._quiet(time):  # a root may still come
                return events
            if not self.plain or not self._promote():
                self._held.take()
                return events
            return [*events, self._event(Change.OPENED), *self._close(self._last)]
        return events + self._close(self._last) if self._quiet(time) else events

    def _quiet(self, time: int) -> bool:
        """Failures have been quiet long enough. A plain file may end here: there only a server at work proves it."""
        if self._last is None or time < self._last + GROUP_QUIET:
            return False
        if self.plain and not self._worked():
            self._last = time
            return False
        return True

    def _stale(self, time: int) -> list[CrashEvent]:
        """A traceback that nobody goes on writing is over, else nothing would ever be idle again."""
        if self._half is None or time < self._half + GROUP_QUIET:
            return []
        self._half = None
        return [event for report in self.lanes.finish() for event in self._report(report)]

    def _worked(self) -> bool:
        active = self.progress.active
        return active is not None and (active < 0 or self._last is None or active > self._last)

    def finish(self) -> list[CrashEvent]:
        """The input is over."""
        if self.ending.at is not None:
            return self._end_now()
        events: list[CrashEvent] = []
        for report in self.lanes.finish():
            events += self._report(report)
        if self._crash is None and self.progress.stopping is None and self._promote():
            events.append(self._event(Change.OPENED))
        self._over = True
        return events + self._close(self._time)

    def _close(self, ended: int | None) -> list[CrashEvent]:
        crash = self._crash
        if crash is None:
            return []
        events: list[CrashEvent] = []
        for report in self.lanes.finish():
            events += self._report(report)
        crash.end = self.ending.known
        events.append(self._event(Change.CLOSED, ended if ended is not None else self._last))
        self._crash = None
        self._held.take()
        return events

    def _amended(self) -> list[CrashEvent]:
        crash = self._crash
        if crash is None or not crash.opened:
            return []
        crash.open()
        return [self._event(Change.AMENDED)]

    def _event(self, change: Change, ended: int | None = None) -> CrashEvent:
        crash = self._crash
        assert crash is not None
        closed = change is Change.CLOSED
        seen = Signs(
            plain=self.plain,
            stopping=self.progress.stopping,
            end=self.ending.known if closed else None,
            active=self.progress.active,
            last=self._last,
            ends_server=crash.ends_server,
            over=self._over,
        )
        return CrashEvent(change, crash.snapshot(self.progress.context(), seen, ended, closed=closed))
