"""One invocation of a unit: its progress, its writers, the crash that is open, how it ended.

In come the lines and the manager's words of one invocation (or of a plain file, which has none); out come
`CrashEvent`s. Called by `triage.assemble`, which owns the clock. It must not look at other invocations.
"""

from __future__ import annotations

from dataclasses import replace

from triage import signs
from triage.crashes import OpenCrash, kept
from triage.entries import Entry, lost_entry, refresh, report_entry, sign_entry
from triage.lanes import Lanes, News, Report
from triage.lines import Parsed, is_progress, parse
from triage.manager import Word, end_sign, read_kernel
from triage.milestones import STOP_TEXTS, Progress
from triage.model import Change, Context, CrashEvent, Grade, Line, Phase, Role, UnitEnd
from triage.roles import Signs
from triage.signs import Kind, Sign

Group = tuple[str | None, str | None, str | None]  # host, unit, invocation

GROUP_QUIET = 10_000_000  # a crash is over when its failures have been quiet so long
END_WAIT = 1_000_000  # the last lines of dying processes may come after the manager's entry
MAX_PENDING = 60


class Run:
    """One invocation."""

    __slots__ = (
        "_crash",
        "_end_at",
        "_end_line",
        "_last",
        "_limit",
        "_over",
        "_pending",
        "_spoke",
        "_suppressed_at",
        "_time",
        "end",
        "ended",
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
        self.end: UnitEnd | None = None
        self.ended = False  # the end was dealt with
        self.named: str | None = None  # the unit, where only the manager's text names it
        self._crash: OpenCrash | None = None
        self._pending: list[Entry] = []  # cascades and hints that wait for a root
        self._time: int | None = None
        self._last: int | None = None  # time of the last failure
        self._end_at: int | None = None
        self._end_line: Line | None = None
        self._limit = False
        self._over = False  # the log of this server ends here
        self._suppressed_at: int | None = None
        self._spoke = False  # a record with SGLang's own head was read

    @property
    def key(self) -> str:
        return "|".join(part or "" for part in self.group)

    @property
    def crashing(self) -> bool:
        return self._crash is not None

    @property
    def idle(self) -> bool:
        return self._crash is None and not self._pending and self._end_at is None and not self.lanes.waiting

    @property
    def due(self) -> int | None:
        """When something is to be closed, in log time."""
        if self._end_at is not None:
            return self._end_at
        if (self._crash is not None or self._pending) and self._last is not None:
            return self._last + GROUP_QUIET
        return None

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
        known = [*self._pending, *(self._crash.entries if self._crash is not None else ())]
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
        if self.ended and self.group[1] is not None and entry.kind is not Kind.HARDWARE:
            return []
        if self.progress.stopping is not None and entry.kind >= Kind.EXIT and self._crash is None:
            return []  # teardown after a requested stop
        events: list[CrashEvent] = []
        crash = self._crash
        self._touch(entry)
        if crash is None:
            if entry.kind in (Kind.HINT, Kind.CASCADE):
                self._hold(entry)
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

    def _hold(self, entry: Entry) -> None:
        for known in self._pending:
            if (known.name, known.pid, known.rank) == (entry.name, entry.pid, entry.rank) and entry.body is None:
                known.folded += 1
                known.ends_server |= entry.ends_server
                return
        if len(self._pending) < MAX_PENDING:
            self._pending.append(entry)

    def _open(self, entry: Entry) -> list[CrashEvent]:
        crash = OpenCrash(self._name(), self._phase(entry))
        if self._suppressed_at is not None and self._fresh(self._suppressed_at):
            crash.grade = Grade.SUPPRESSED
        for waiting in self._pending:
            crash.add(waiting)
        self._pending = []
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
            self._ending(line, word)
        return []

    def _ending(self, line: Line, word: Word) -> None:
        if self.ended or self._limit:
            return
        end = self.end or UnitEnd("success", time=line.time)
        requested = self.progress.stopping is not None
        if word.name == "exited":
            result = end.result
            if result == "success" and not (word.code == "exited" and word.status == "0"):
                result = "exit-code" if word.code == "exited" else "core-dump" if word.code == "dumped" else "signal"
            end = replace(end, code=word.code, status=word.status, result=result)
        elif word.name == "failed":
            end = replace(end, result=word.result or "failed")
        self.end = replace(end, time=line.time, requested=requested)
        if self._end_line is None or word.name == "exited":
            self._end_line = kept(line)
        if line.time is not None:
            self._end_at = line.time + END_WAIT

    def _start_limit(self, line: Line, text: str) -> list[CrashEvent]:
        """The manager gives up: a failure of its own, whatever the runs before died of."""
        events = self._end_now() if self.end is not None and not self.ended else self._close(None)
        self._limit = True
        self.ended = False
        sign = Sign("start-limit", Kind.FATAL, Role.ROOT, "StartLimit", text, "started too often in a short time")
        self.end = UnitEnd("start-limit-hit", time=line.time)
        events += self._add(sign_entry(sign, kept(line), text, None))
        events += self._close(line.time)
        self.ended = True
        self._end_at = None
        return events

    def _end_now(self) -> list[CrashEvent]:
        """The invocation is over and its last lines had time to come."""
        events: list[CrashEvent] = []
        self._end_at = None
        end = self.end
        for report in self.lanes.finish():
            events += self._report(report)
        if end is not None and not end.requested and self._crash is None and end.result != "success":
            events += self._open_at_end(end)
        events += self._close(end.time if end is not None else None)
        self.ended = True
        self._pending = []
        if self.plain:  # the same file goes on with the next start
            self.end, self.ended, self._end_line = None, False, None
            self.progress, self.lanes = Progress(), Lanes()
        return events

    def _open_at_end(self, end: UnitEnd) -> list[CrashEvent]:
        """The log names no root: a hint that was held back, else the manager's own word."""
        if self._pending and self._promote():
            return [self._event(Change.OPENED)]
        line = self._end_line or Line("", time=end.time)
        text = parse(line.text).text
        return self._open(sign_entry(end_sign(end, text), line, text, None))

    def _promote(self) -> bool:
        """Open with the best of what was held back; False if nothing there can be a root."""
        crash = OpenCrash(self._name(), self.progress.phase)
        for entry in self._pending:
            crash.add(entry)
        if not crash.open_anyway():
            return False
        self._crash = crash
        self._pending = []
        return True

    # ------------------------------------------------------------ closing

    def expire(self, time: int) -> list[CrashEvent]:
        """Log time has passed `due`."""
        if self._end_at is not None:
            return self._end_now() if time >= self._end_at else []
        if self._crash is None:
            if self.plain and not self._worked():  # a root may still come, the file may end here
                self._last = time
                return []
            self._pending = [entry for entry in self._pending if entry.body is not None and self.plain]
            if not self._pending or not self._promote():
                self._pending = []
                return []
            return [self._event(Change.OPENED), *self._close(self._last)]
        if self.plain and not self._worked():
            self._last = time
            return []
        return self._close(self._last)

    def _worked(self) -> bool:
        active = self.progress.active
        return active is not None and (active < 0 or self._last is None or active > self._last)

    def finish(self) -> list[CrashEvent]:
        """The input is over."""
        if self._end_at is not None:
            return self._end_now()
        events: list[CrashEvent] = []
        for report in self.lanes.finish():
            events += self._report(report)
        if self._crash is None and self._pending and self.progress.stopping is None and self._promote():
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
        crash.end = self.end
        events.append(self._event(Change.CLOSED, ended if ended is not None else self._last))
        self._crash = None
        self._pending = []
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
            end=self.end if closed else None,
            active=self.progress.active,
            last=self._last,
            ends_server=crash.ends_server,
            over=self._over,
        )
        return CrashEvent(change, crash.snapshot(self.progress.context(), seen, ended, closed=closed))
