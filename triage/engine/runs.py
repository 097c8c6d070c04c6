"""One invocation of a unit, read: its lines, the manager's words, time that passes, its end.

In come the lines and the manager's words of one invocation (or of a plain file or a container, which have none); out
come `CrashEvent`s. Called by `engine.assemble`, which owns the clock. It must not look at other invocations, nor gather
failures itself (engine.burst). What it holds, and what others ask of it, is `engine.invocation`.
"""

from __future__ import annotations

from dataclasses import replace

from triage.engine import signs, starters
from triage.engine.aside import Aside
from triage.engine.burst import GROUP_QUIET
from triage.engine.crashes import MAX_TEXT, corrected, kept
from triage.engine.endings import Ending
from triage.engine.entries import sign_entry
from triage.engine.flow import WINDOW, Flow
from triage.engine.hang import ANSWERED, ASKED, served
from triage.engine.invocation import Invocation
from triage.engine.kinds import Kind, Sign
from triage.engine.lanes import Lanes
from triage.engine.lines import Parsed, is_progress, parse
from triage.engine.manager import KERNEL_WORDS, Word, dumped, read_kernel
from triage.engine.milestones import STARTS, STOP_TEXTS, Progress, milestone
from triage.engine.roles import AFTER
from triage.engine.starters import Starter
from triage.engine.tracelines import header_lead, stack_line
from triage.engine.verdict import PATIENCE
from triage.model import Change, CrashEvent, Grade, Line, Outcome, Phase, Role

_STEPS = ("Decode batch", "Prefill batch")


class Run(Invocation):
    """One invocation, fed."""

    __slots__ = ()

    # ------------------------------------------------------------ lines

    def healthy(self, line: Line) -> bool:
        """The cheap way out for the mass of lines: a step of the scheduler, a request answered."""
        text = line.text
        time = line.time
        if time is not None:
            self._burst.time = time
            if time >= self._flow.due:
                self._flow.mark(time, self.lanes.serial)
        if self.crashing and (text.endswith('" 200 OK') or " batch, #" in text[:80] or " batch. #" in text[:80]):
            self._worked_on(line, parse(line.text))
        if not self.lanes.idle or self._verdict.pending:
            return False
        if not text.endswith('" 200 OK'):
            if text.find(" batch, #", 0, 80) < 0 and text.find(" batch. #", 0, 80) < 0:
                return False
            if self._hang.expecting:
                self._hang.work(step=True)
            self.progress.work(line)
            self._spoke, self._excerpt = True, None
        else:
            self.progress.answer(text)
            if self._hang.expecting and served(text):
                self._hang.work()
            if ASKED in text:
                self._hang.asked(text, self._burst.time)
            if self.progress.expecting or (self.plain and not self._spoke):
                self.progress.answered(line)
        self.lanes.pass_by()
        if self.strange is not False:
            self._note_form(line, parse(text))
        return True

    def _note_form(self, line: Line, parsed: Parsed) -> None:
        """Whether anything stands before a line that tells what it is."""
        known = parsed.headed or parsed.stamp or parsed.ident or parsed.writer or line.unit
        self.strange = not known and line.time is None and not is_progress(parsed.text)

    def _worked_on(self, line: Line, parsed: Parsed) -> None:
        """Something was done for a client while a crash is open. That its health is checked in vain is over once such
        a check is answered; any other page is, by the front end alone. A container that answers has not ended."""
        if (self._burst.hangs and ANSWERED in line.text) or self._gone():
            self.progress.work(line)
        step = '" 200 OK' not in line.text or '"POST ' in line.text
        pid = line.pid if line.pid is not None else parsed.pid
        self._burst.worked(
            pid if not self.lanes.shared(pid) else None, parsed.rank, serial=self.lanes.serial, step=step
        )
        if self._burst.handled:
            self.lanes.forgive()

    def feed(self, line: Line) -> list[CrashEvent]:
        """One line of one of the unit's processes."""
        if self.ended:
            return []
        parsed = parse(line.text)
        if self._margin is not None:
            parsed = self._margin.without(parsed, line.text)
        if parsed.task and parsed.writer and self.progress.flags.get("nnodes", "1") == "1":
            parsed = parsed._replace(rank=self.lanes.task(parsed.task, parsed.rank))
        text = parsed.text
        if self.strange is not False and text.strip():
            self._note_form(line, parsed)
        time, serial = self._burst.time, self.lanes.serial
        if self._records.piece(line, parsed, time, serial):
            self.lanes.pass_by()
            if self._records.flags:
                self.progress.note(self._records.flags, line)
                self._records.flags = ""
            return []
        if not text.strip() or is_progress(text):
            if line.cut:
                self.lanes.damage(line.pid)
            self.lanes.pass_blank()
            return []
        held = self._records.text(line, parsed, time, serial)
        if held is not None:
            return self._doubtful(held)
        if self._burst.empty and self.lanes.idle:
            self._records.forget_quotations()  # what was raised is dealt with
        for since in (
            self._records.ended_again(line, parsed, serial),
            self._records.quoted_since(line, parsed, time, serial),
        ):
            if since is not None:
                self.lanes.doubt(since)
                self._burst.doubt(since)
        return self._read(line, parsed)

    def feed_record(self, lines: list[Line]) -> list[CrashEvent]:
        """One record of several lines. Where its logger writes no head before what is said, nothing but its end shows
        where an exception's message ends; what a collector put together may go on in the next record."""
        since, first = self.lanes.serial, parse(lines[0].text)
        events = [event for line in lines for event in self.feed(line)]
        if not (lines[-1].cut or first.headed or header_lead(first.text) == ""):
            self.lanes.record_over(since)
        return events

    def _doubtful(self, lines: list[Line]) -> list[CrashEvent]:
        """A request's text without an end: it may have been the log itself, and nobody can tell."""
        self._burst.quoted = True
        events = [event for line in lines for event in self._read(line, parse(line.text))]
        self._burst.quoted = False
        return events

    def _read(self, line: Line, parsed: Parsed) -> list[CrashEvent]:
        """One line that is the process's own."""
        text = whole = parsed.text
        line = kept(line)
        if len(text) > MAX_TEXT:
            text = text[:MAX_TEXT]
            parsed = parsed._replace(text=text)
        pid = line.pid if line.pid is not None else parsed.pid
        if pid is not None and pid == self._elder and parsed.headed:
            self._burst.lower(Grade.MIXED, None)  # two servers in one text: whose the other lines are is not told
            self._elder = None
        events: list[CrashEvent] = []
        if parsed.headed and text.startswith(_STEPS):
            events += self._verdict.settle(lived=True)
            self.progress.work(line)
            if self.crashing:
                self._worked_on(line, parsed)
        elif self._verdict.pending and text.endswith('" 200 OK'):
            events += self._verdict.settle(lived=True)
        answered = text.endswith('" 200 OK') and served(text)
        if self._hang.expecting and (parsed.rank or answered or text.startswith(_STEPS)):
            self._hang.work(step=text.startswith(_STEPS))
        if self._excerpt is not None and not self._excerpt.note(line, parsed):
            self._excerpt = None
        taken, reports = self.lanes.feed(line, parsed, pid)
        if taken and self.lanes.told:
            self._records.raised(line.pid, text, self._burst.time, self.lanes.serial)
        if self.lanes.idle:
            self._half = None
        elif reports or self._half is None or (taken and self.lanes.waiting):
            self._half = self._burst.time
        events += [event for report in reports for event in self._burst.report(report)]
        if taken:
            return events
        if parsed.headed and text.startswith(STOP_TEXTS):
            self._stop_text(line)
            return events
        if parsed.headed:
            self._spoke = True
        elif self.plain and (parsed.kernel or not self._spoke) and any(word in text for word in KERNEL_WORDS):
            kernel = read_kernel(text)  # a copy of the kernel's log, or one pasted into this one
            return events + self.add_sign(line, kernel, text, doubtful=self._spoke) if kernel is not None else events
        sign = signs.read(text) or (None if self.failing else self._hang.note(text, self._burst.time, self.progress))
        if sign is not None and sign.name in starters.SAID:
            self._excerpt = None if sign.name == starters.STOP else self._excerpt
            sign = self._starter.heard(sign, self._burst.time, self.lanes.serial)
        elif sign is not None and sign.name == "check" and parsed.level != "CRITICAL":
            sign = None  # glog marks it; without its mark it is a part of some exception's message
        elif sign is not None and sign.name == "usage" and parsed.headed and self.progress.started:
            sign = None  # argparse writes no records, and nothing once the flags are known: this quotes somebody
        elif sign is not None and sign.name == "container" and self.progress.started and not self.plain:
            sign = None  # the engine's client speaks before anything of the server does
        elif sign is not None and sign.name == signs.CODE:
            dead = self._burst.dead() if parsed.headed else None
            sign = replace(sign, rank=dead.rank or "") if dead is not None else None
        if sign is not None:
            if sign.name == "usage" and self.alone and self.progress.stopping is not None:
                events += self._restart()  # only a program that starts reads its arguments
            events += self.add_sign(line, sign, text, pid, parsed)
        elif self._burst.aside.note(line, text, self.lanes.serial, headed=parsed.headed):
            return events
        elif (frame := stack_line(text)) is not None:
            self._burst.stack(frame)
        elif not text.startswith(" "):
            events += self._milestone(line, whole, parsed.rank)
        return events

    def _milestone(self, line: Line, text: str, rank: str | None) -> list[CrashEvent]:
        mark, events = milestone(text), []
        if mark is not None and rank is not None and self.crashing:
            self._burst.passed.add(rank)
        if mark == "server_args":
            self._another(line, text)
        if self.alone and self._next_start(mark):
            events = self._verdict.hold(self._restart(), self._burst.time)
        if mark == "server_args":
            self.lanes.meet(line.pid)
        if self.progress.note(text, line):
            self._burst.came(self.lanes.serial)
        if text.startswith("Update "):
            self._hang.asked(text, self._burst.time)
        return events if mark in (None, "server_args") else events + self._verdict.settle()

    def _another(self, line: Line, text: str) -> None:
        """A server's flags under another pid than those before it. It takes the place of the one that printed those,
        or there are two in one text: then that one will write again."""
        pid = line.pid if line.pid is not None else parse(line.text).pid
        if self.plain and ("nnodes=" not in text or "nnodes=1," in text or "nnodes=1)" in text):
            self._elder = self._front if self._front != pid else self._elder
            self._front = pid

    def _next_start(self, mark: str | None) -> bool:
        """A plain file goes on with another start of the server: what was before has ended. Where its flags are not
        printed, the one that was up and told its own end does not load again."""
        if mark == "server_args":
            return self.progress.reached(mark) or self._burst.ends_server
        return mark in STARTS and self.progress.up and self._burst.ends_server

    def _restart(self) -> list[CrashEvent]:
        self._burst.over = True
        events = self._burst.killed() if not self.crashing and self.progress.stopping is None else []
        events += self._close(None)
        self._burst.over = False
        self._fresh()
        return events

    def _fresh(self) -> None:
        """A plain file goes on with the next start."""
        before = self.progress
        self.ending, self.progress, self.lanes, self._flow = Ending(), Progress(), Lanes(whole=True), Flow()
        self._hang.work(step=True)
        self._starter = Starter()
        self.progress.inherit(before)
        self._burst.ending, self._burst.progress = self.ending, self.progress
        self._burst.tags, self._burst.aside = self.lanes.tags, Aside()

    def _stop_text(self, line: Line) -> None:
        """SGLang was asked to stop: by its own word, where no manager tells it."""
        if not self.crashing and not self._burst.quoted:
            self._burst.told = line.time
        if self.progress.stopping is None and self.alone and not self.crashing and not self.ending.overdue:
            self.progress.stopping = line.time if line.time is not None else -1

    # ------------------------------------------------------------ failures

    def add_sign(
        self,
        line: Line,
        sign: Sign,
        text: str,
        pid: int | None = None,
        parsed: Parsed | None = None,
        *,
        doubtful: bool = False,
    ) -> list[CrashEvent]:
        """A failure that one line tells. `doubtful`: a request's text may look like that."""
        rank = parsed.rank if parsed is not None else None
        rank = self.lanes.rank_of(sign.pid) or self._numbered(sign.rank) or self.lanes.tag(pid, rank)
        if sign.kind in (Kind.CASCADE, Kind.EXIT) and sign.pid is None:
            rank = None if rank is None or rank.startswith("rank") else rank
        entry = sign_entry(sign, line, text, rank)
        if entry.pid is None and sign.kind not in (Kind.CASCADE, Kind.EXIT):
            entry.pid = pid
        entry.start, entry.own = self.lanes.serial, self.lanes.own(entry.pid)
        if entry.time is None:
            entry.time = self._burst.time
        if parsed is not None:
            entry.front = self.lanes.fronted(pid, parsed.rank)
        entry.quoted = doubtful or (entry.front and parsed is not None and self.lanes.foreign(pid, parsed.rank))
        return self._burst.add(entry)

    def _numbered(self, rank: str) -> str | None:
        """The rank that a parent means by a number: on several nodes each parent counts its own children."""
        told = self.lanes.tag(None, rank or None) if self.progress.flags.get("nnodes", "1") == "1" else None
        return None if told is None or told.startswith("rank") else told

    # ------------------------------------------------------------ manager

    def manager(self, line: Line, word: Word, text: str) -> list[CrashEvent]:
        """What the manager says about this invocation."""
        if line.time is not None:
            self._burst.time = line.time
        if word.name == "starting":
            self._late, self.lanes.whole = None, True
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
        if word.name == "dump" and line.pid is not None:
            sign = dumped(line.pid, word.status or "", text)
            return self.add_sign(kept(line), sign, sign.message)
        if word.name == "overdue" and word.result is not None:
            self.ending.foretell(word.result)
            if word.result == "watchdog":  # whatever the process writes then, it was told to end
                why = "the unit's own watchdog ended it"
                return self.add_sign(
                    line, Sign("overdue", Kind.COLLECTIVE, Role.ROOT, "WatchdogTimeout", text, why), text
                )
        if word.name == "hindered":
            self.ending.hinder(line)
        if word.name == "failed" and self._is_late():
            return self._corrected(line, word)
        if word.name in ("exited", "failed", "deactivated"):
            self._late = None
            self.ending.note(line, word, requested=self.progress.stopping is not None)
        return []

    def _start_limit(self, line: Line, text: str) -> list[CrashEvent]:
        """The manager gives up: a failure of its own, whatever the runs before died of."""
        known = self.ending.known is not None and not self.ending.final
        events = self._end_now() if known else self._close(None)
        self.ending.final = False
        self.ending.give_up(line.time)
        sign = Sign("start-limit", Kind.FATAL, Role.ROOT, "StartLimit", text, "started too often in a short time")
        events += self._burst.add(sign_entry(sign, kept(line), text, None))
        events += self._close(line.time)
        self.ending.close()
        self._late = None
        return events

    def _end_now(self) -> list[CrashEvent]:
        """The invocation is over and its last lines had time to come."""
        events = self._verdict.settle() + self._last_reports()
        end, promoted = self.ending.known, []
        if end is not None and not self.crashing and self._long_quiet(end.time):
            self._burst.drop()
        alone = self.ending.sign() if not self.crashing and not self._told_elsewhere() else None
        if alone is not None:  # the log names no root: a hint that was held back, else the manager's own word
            promoted = self._burst.promote()
            events += promoted or self._only_ended(*alone)
        events += self._close(end.time if end is not None else None)
        self.ending.close()
        self._burst.drop()
        if end is not None and not self.ending.settled:
            closed = next((event.crash for event in events if event.change is Change.CLOSED), None)
            self._late = (self.ending, closed, alone is not None and not promoted)
        if self.plain:  # the same file goes on with the next start
            self._fresh()
        return events

    def _told_elsewhere(self) -> bool:
        """Whether this node ended with the crash that was told of another node."""
        end = self.ending.known
        if self._shared is None or end is None or end.time is None:
            return False
        return end.time - self._shared <= GROUP_QUIET

    def _long_quiet(self, time: int | None) -> bool:
        """Whether what was held back is so long ago that it is no reason for what happens now."""
        last = self._burst.last
        return time is not None and last is not None and time - last >= GROUP_QUIET

    def _is_late(self) -> bool:
        """Whether the manager's result is of the end that was dealt with. (A plain file has gone on to a next start,
        and knows nothing any more of an end that had looked like none.)"""
        if self._late is None or self.ending.known not in (None, self._late[0].known):
            return False
        ending, crash, _ = self._late
        return not self.plain or crash is not None or (ending.known is not None and ending.known.requested)

    def _corrected(self, line: Line, word: Word) -> list[CrashEvent]:
        """The main process went, its children took long to follow, and only then the manager told why it ended it."""
        assert self._late is not None
        (ending, crash, alone), self._late = self._late, None
        if not ending.late(line, word):
            return []
        sign = ending.sign()
        assert ending.known is not None
        assert sign is not None
        if crash is None:  # it had looked like an end that is none
            events = self._only_ended(*sign)
            return events + self._burst.close(ending.known.time)
        return [
            CrashEvent(Change.CORRECTED, corrected(crash, ending.known, sign_entry(*sign, None) if alone else None))
        ]

    def _only_ended(self, sign: Sign, line: Line, text: str) -> list[CrashEvent]:
        """All that is known is that it ended: because it said nothing, or because journald took no more."""
        flood = self._flow.limited(line.time, self.lanes.serial)
        if flood:
            self._burst.lower(Grade.SUPPRESSED, line.time)
            many = f"{flood} lines in its last {WINDOW // 1_000_000} s"
            sign = replace(sign, why=f"{sign.why}; it wrote {many}, after which journald may have dropped the rest")
        return self._burst.open(sign_entry(sign, line, text, None))

    # ------------------------------------------------------------ closing

    def expire(self, time: int) -> list[CrashEvent]:
        """Log time has passed `due`."""
        if self.ending.at is not None:
            return self._end_now() if time >= self.ending.at else []
        events = self._stale(time)
        events += self._doubtful(self._records.expired(time))
        if self._verdict.due is not None and self.contained and time >= self._verdict.due:
            events += self._verdict.settle()  # a start that says nothing for so long: nobody is there who answers
        if not self._quiet(time):  # a root may still come
            return events
        if not self.crashing:
            events += self._burst.promote() if self.plain else []
            self._burst.drop()
        over, self._burst.over = self._burst.over, self._burst.over or self._gone()
        closed = self._close(self._burst.last)
        self._burst.over = over and not closed
        if any(event.crash.outcome in (Outcome.RECOVERED, Outcome.REQUEST_ERROR) for event in closed[-1:]):
            self.lanes.forgive()
        return events + closed

    def _quiet(self, time: int) -> bool:
        """Failures have been quiet long enough. A plain file may end here: there only a server at work proves it. So it
        is with one that hangs: it goes on doing nothing. An idle one is asked for its health now and then."""
        since = self._since()
        if since is None or time < since + GROUP_QUIET:
            return False
        last = self._burst.last
        waits = last is not None and time < last + PATIENCE
        if waits and self._gone():
            self._asked = time
            return False
        patient = waits and (self._burst.harmless or self.contained)  # no manager tells a container's end
        if (self.plain or self._burst.hangs or patient) and not self._worked():
            self._asked = time
            return False
        return True

    def _gone(self) -> bool:
        """A container's server told its own end, and nothing has been heard of it since."""
        if not self.contained or not self._burst.ends_server or self._burst.over:
            return False
        active, last = self.progress.active, self._burst.last
        return active is None or last is None or active - last < AFTER

    def _stale(self, time: int) -> list[CrashEvent]:
        """A traceback that nobody goes on writing is over, else nothing would ever be idle again."""
        if self._half is None or time < self._half + GROUP_QUIET:
            return []
        return self._ended_lanes()

    def _worked(self) -> bool:
        active, last = self.progress.active, self._burst.last
        return active is not None and (active < 0 or last is None or active > last)

    def finish(self) -> list[CrashEvent]:
        """The input is over."""
        return self._verdict.settle() + self._finish()

    def _finish(self) -> list[CrashEvent]:
        if self.ending.at is not None:
            return self._end_now()
        self.lanes.pasted = self._excerpt is not None
        events = self._last_reports()
        if not self.crashing and self.progress.stopping is None:
            pasted = self._excerpt.sign() if self._excerpt is not None else None
            self._burst.over = True
            events += self._burst.promote(sign_entry(*pasted, None) if pasted is not None else None)
        self._burst.over = True
        return events + self._close(self._burst.time)

    def _close(self, ended: int | None) -> list[CrashEvent]:
        if not self.crashing:
            return []
        return self._last_reports() + self._burst.close(ended)

    def _last_reports(self) -> list[CrashEvent]:
        """Tracebacks that are open are over."""
        return self._doubtful(self._records.rest()) + self._ended_lanes()

    def _ended_lanes(self) -> list[CrashEvent]:
        grew, self._half = self._half, None
        return [event for report in self.lanes.finish() for event in self._burst.report(report, grew)]
