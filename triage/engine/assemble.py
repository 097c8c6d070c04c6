"""Lines -> crashes: the heart. Pure: no I/O and no clock, time comes from the lines.

In come `Line`s of any number of units, in reading order, and now and then the source's present (`tick`); out come
`CrashEvent`s: opened at the first root, amended as ranks and cascades follow, closed by the unit's end or by quiet in
log time. Called by the pipeline and by `triage scan`. Read again, the same lines give the same crashes under the same
keys.

Each invocation of a unit has its own `Run` (engine.runs); here lines find their run, kernel lines their crash, and
deadlines are kept. It must not judge failures (engine.roles) nor read tracebacks (engine.lanes).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from triage.engine import manager
from triage.engine.burst import GROUP_QUIET, Group
from triage.engine.crashes import kept
from triage.engine.kinds import Kind, Sign
from triage.engine.lines import container, parse, server_name
from triage.engine.milestones import FLAGS, Progress
from triage.engine.runs import Run
from triage.model import CONTAINER, LOST, OWNER, Context, Crash, CrashEvent, Grade, Line, Origin

KERNEL_WAIT = 2_000_000  # a kernel line waits this long for the crash it belongs to
DEVICE_WAIT = GROUP_QUIET  # and so long where the GPU is gone: its processes may hang before they die
SET_BACK = 60_000_000  # lines of several writers are never so far out of order: the clock was set back
MAX_RUNS = 256
MAX_KERNEL = 64


@dataclass(slots=True)
class _Waiting:
    """A kernel line that has found no crash yet."""

    line: Line
    sign: Sign
    unit: str | None  # the unit or scope that the kernel named with it
    until: int | None


class Assembler:
    """Feed it lines; it says what crashed. An amended event comes with the crash as it opened; how it has grown tells
    `grown`, for those who look at crashes that are open."""

    def __init__(self, contexts: Mapping[str, Context] | None = None) -> None:
        self._known = dict(contexts or {})
        self._runs: OrderedDict[Group, Run] = OrderedDict()
        self._last: tuple[Group, Run] | None = None
        self._kernel: list[_Waiting] = []
        self._oom_units: dict[int, str] = {}
        self._containers: dict[str, Group] = {}  # of a text: those that each run a server of their own
        self._gap: int | None = None  # when entries were last found missing
        self._now: int | None = None
        self._due: int | None = None

    # ------------------------------------------------------------ in

    def feed(self, line: Line) -> list[CrashEvent]:
        """One line; the events it caused, deadlines that its time has passed first."""
        events: list[CrashEvent] = []
        time = line.time
        if time is not None:
            if self._now is not None and time < self._now - SET_BACK:
                self._set_back(time, line.host)
            self._now = time
            if self._due is not None and time >= self._due:
                events = self._expire(time)
        if line.origin is Origin.PROCESS:
            group = _group(line)
            if line.n is not None and group[1] is None:
                group = self._container(group, line)
            run = self._run(group, line)
            if run.healthy(line):
                return events
            if "\n" in line.text:
                events += run.feed_record([_part(line, text) for text in line.text.split("\n")])
            else:
                events += run.feed(line)
            events = self._nodes(run, events)
            if events:
                events += self._claim(run)
            self._watch(run)
        elif line.origin is Origin.MANAGER:
            events += self._manager(line)
        elif line.origin is Origin.KERNEL:
            events += self._from_kernel(line)
        elif LOST in line.fields:
            self._lost(line)
        elif line.fields.get("MESSAGE_ID") == manager.SUPPRESSED:
            self._suppressed(line)
        return events

    def pass_over(self, passed: Mapping[str | None, int], time: int | None = None) -> None:
        """So many lines of each unit were not handed on, before those that come next (engine.gate)."""
        for run in self._runs.values():
            run.pass_over(passed.get(run.group[1], 0), time if time is not None else self._now)

    def tick(self, time: int) -> list[CrashEvent]:
        """The source's present moved on without a line."""
        if self._now is not None and time < self._now - SET_BACK:
            self._set_back(time)
            self._now = time
        elif self._now is None or time > self._now:
            self._now = time
        return self._expire(time) if self._due is not None and time >= self._due else []

    def grown(self) -> list[CrashEvent]:
        """The open crashes that have grown since this was asked last, as they are now."""
        return [event for run in self._runs.values() for event in run.grown()]

    def finish(self) -> list[CrashEvent]:
        """The input is over: everything open is closed."""
        events = self._kernel_alone(None)
        for run in self._runs.values():
            events += run.finish()
        self._due = None
        return events

    # ------------------------------------------------------------ state

    def contexts(self) -> dict[str, Context]:
        """What is known of each running invocation, and of each unit's last one that ended; give it to the next
        Assembler."""
        newest = {(*group[:2], group[3]): run for group, run in self._runs.items()}
        known = {run.key: run.context() for run in self._runs.values() if not run.ended or run in newest.values()}
        return {**self._known, **{key: context for key, context in known.items() if context != Context()}}

    @property
    def idle(self) -> bool:
        """Nothing is open and no half traceback is being read: here reading may start again."""
        return not self._kernel and all(run.idle and not run.counting(self._now) for run in self._runs.values())

    @property
    def quiet(self) -> bool:
        """Nothing is open anywhere: a process's line that holds none of the gate's words changes nothing."""
        return not self._kernel and bool(self._runs) and all(run.quiet for run in self._runs.values())

    @property
    def strange(self) -> bool:
        """There were lines, and not one of a form that is known, nor any word of a server."""
        seen = [run for run in self._runs.values() if run.strange is not None]
        return bool(seen) and all(run.strange and not run.progress.started for run in seen)

    # ------------------------------------------------------------ runs

    def _run(self, group: Group, line: Line) -> Run:
        last = self._last
        if last is not None and last[0] == group:
            return last[1]
        run = self._runs.get(group)
        if run is None:
            before = (
                [run for known, run in self._runs.items() if known[:2] == group[:2] and known[3] == group[3]]
                if group[1]
                else []
            )
            run = self._runs[group] = Run(group, plain=line.n is not None, contained=CONTAINER in line.fields)
            if before:
                run.after(before[-1])
            if self._gap is not None:
                run.lower(Grade.ROTATED, self._gap)
            self._recall(run, alone=not before)
            if len(self._runs) > MAX_RUNS:
                self._forget()
        else:
            self._runs.move_to_end(group)
        self._last = (group, run)
        return run

    def _container(self, group: Group, line: Line) -> Group:
        """One text of several containers' (or identifiers') lines: a server that such a name tells from another
        is a run of its own, under that name. Ranks and nodes of one server are none."""
        if FLAGS in line.text and len(self._containers) < MAX_RUNS:
            parsed = parse(line.text)
            name = server_name(parsed) if parsed.text.startswith(FLAGS) else ""
            alone = "nnodes=" not in line.text or "nnodes=1," in line.text or "nnodes=1)" in line.text
            if name and alone and name not in self._containers:
                self._containers[name] = (group[0], name, *group[2:]) if self._containers else group
                first = next(iter(self._containers))
                if len(self._containers) == 2 and container(parsed.writer):  # the first one's run has no name yet
                    self._run(self._containers[first], line).call(first)
                elif len(self._containers) > 1:  # an identifier: the manager may have told of the unit before
                    self._run(self._containers[first], line).part(f"{name}.service")
        if len(self._containers) < 2:
            return group
        return self._containers.get(server_name(parse(line.text)), group)

    def _recall(self, run: Run, *, alone: bool) -> None:
        """What the process before this one knew of it, or (`alone`: nothing newer is known) of the unit's run before
        it, which is over now."""
        known = self._known.pop(run.key, None)
        if known is not None:
            run.resume(known)
        unit = run.key.rpartition("|")[0]
        for key in [key for key in self._known if run.group[1] and key.rpartition("|")[0] == unit]:
            context = self._known.pop(key)
            if alone and known is None:
                run.progress.inherit(Progress(context))

    def _forget(self) -> None:
        """Drop the run that was quiet longest; an open one only where all are."""
        for group, run in self._runs.items():
            if run.idle:
                del self._runs[group]
                break
        else:
            self._runs.popitem(last=False)
        self._last = None

    def _watch(self, run: Run) -> None:
        due = run.due
        if due is not None and (self._due is None or due < self._due):
            self._due = due

    def _expire(self, time: int) -> list[CrashEvent]:
        events: list[CrashEvent] = []
        for run in self._runs.values():
            if run.due is not None and time >= run.due:
                events += self._nodes(run, run.expire(time))
        events += self._kernel_alone(time)
        dues = [run.due for run in self._runs.values() if run.due is not None]
        dues += [waiting.until for waiting in self._kernel if waiting.until is not None]
        self._due = min(dues, default=None)
        return events

    def _set_back(self, time: int, host: str | None = None) -> None:
        """The clock of a host (None: nobody knows which) was: no deadline may lie where it had been."""
        for run in self._runs.values():
            if host is None or run.group[0] == host:
                run.set_back(time)
                self._watch(run)
        for waiting in self._kernel:
            if waiting.until is not None and (host is None or waiting.line.host == host):
                waiting.until = min(waiting.until, time + KERNEL_WAIT)
                self._due = min(self._due or waiting.until, waiting.until)

    def _nodes(self, run: Run, events: list[CrashEvent]) -> list[CrashEvent]:
        """A crash of a unit that runs on several nodes is one, seen from each: some only see that others are gone."""
        cluster = run.cluster if (events or run.holding) and run.group[1] else None
        if cluster is None:
            return events
        for other in self._runs.values():
            if other is not run and other.group[0] != run.group[0] and not other.ended and other.cluster == cluster:
                instead = other.told(run, events)
                if instead is not None:
                    return instead
                events = events + run.join(other) + other.join(run)
        return events

    # ------------------------------------------------------------ manager, kernel, journald

    def _manager(self, line: Line) -> list[CrashEvent]:
        text = parse(line.text).text
        word = manager.read_manager(line, text)
        if word is None:
            return []
        if word.name == "dump":
            return self._dumped(line, word, text)
        group, named = _group(line), manager.manager_unit(text) if line.unit is None else None
        if named is not None:
            group = self._containers.get(named.removesuffix(".service"), group)
        run = self._run(group, line)
        if named is not None:  # a text export: its processes' lines name no unit, so the whole file is one run
            run.call(named)
        events = self._nodes(run, run.manager(line, word, text))
        events += self._claim(run)
        self._watch(run)
        return events

    def _dumped(self, line: Line, word: manager.Word, text: str) -> list[CrashEvent]:
        """A process left a core. Its invocation is not always told: whose it is, its own lines tell."""
        for run in reversed(self._here(line)):
            whose = run.group[1], run.group[3]
            if whose == (line.unit, _group(line)[3]) and line.pid is not None and run.lanes.knows(line.pid):
                events = self._nodes(run, run.manager(line, word, text))
                self._watch(run)
                return events
        return []  # a helper that it started, or nobody's

    def _from_kernel(self, line: Line) -> list[CrashEvent]:
        text = parse(line.text).text
        named = manager.oom_unit(text)
        if named is not None:
            if len(self._oom_units) < 1024:
                self._oom_units[named[0]] = named[1]
            return []
        sign = manager.read_kernel(text)
        if sign is None:
            return []
        wait = DEVICE_WAIT if sign.kind is Kind.HARDWARE and sign.name != "oom" else KERNEL_WAIT
        until = line.time + wait if line.time is not None else None
        unit = self._oom_units.pop(sign.pid, None) if sign.pid is not None else None
        said = _Waiting(kept(line), sign, unit, until)
        run = self._kernel_run(said)
        if run is not None:
            events = run.add_sign(said.line, sign, text)
            self._watch(run)
            return events
        if len(self._kernel) < MAX_KERNEL:
            self._kernel.append(said)
            if until is not None and (self._due is None or until < self._due):
                self._due = until
        return []

    def _here(self, line: Line) -> list[Run]:
        return [run for run in self._runs.values() if line.host is None or run.group[0] in (None, line.host)]

    def _kernel_run(self, said: _Waiting) -> Run | None:
        """The run a kernel line is about: by its pid, by the unit the kernel named, else the one that is failing, if it
        may be about that."""
        sign, time, here = said.sign, said.line.time, self._here(said.line)
        for run in reversed(here):
            if sign.pid is not None and (
                run.lanes.knows(sign.pid) or (said.unit is not None and run.lives_in(said.unit) and not run.ended)
            ):
                return run if sign.kind <= Kind.EXIT or run.failing else None
        failing = [run for run in here if run.failing and not _foreign(said, run)]
        if len(failing) != 1:
            return None
        last = failing[0].failed
        if time is None or last is None or time - KERNEL_WAIT <= last <= (said.until or time):
            return failing[0]
        return None

    def _claim(self, run: Run) -> list[CrashEvent]:
        """Waiting kernel lines go to a crash that has just opened, or to an end that is one."""
        events: list[CrashEvent] = []
        for waiting in list(self._kernel) if run.failing else ():
            if self._kernel_run(waiting) is run:
                self._kernel.remove(waiting)
                events += run.add_sign(waiting.line, waiting.sign, parse(waiting.line.text).text)
        return events

    def _kernel_alone(self, time: int | None) -> list[CrashEvent]:
        """Kernel lines whose time is up: a crash may be open by now, else they are crashes of their own."""
        events: list[CrashEvent] = []
        for waiting in list(self._kernel):
            if time is not None and (waiting.until is None or time < waiting.until):
                continue
            self._kernel.remove(waiting)
            run = self._kernel_run(waiting)
            whole = time is None and waiting.line.n is not None  # a copy of the kernel's log, read to its end
            alone = waiting.sign.kind is Kind.HARDWARE and waiting.sign.name != manager.COMPILER
            if run is None and not whole and (not alone or self._elsewhere(waiting)):
                continue
            if run is None:
                run = self._run((waiting.line.host, None, None, ""), waiting.line)
            told = run.add_sign(waiting.line, waiting.sign, parse(waiting.line.text).text)
            for event in told[:1] if run.group[1] is None else ():
                self._missed(run, event.crash)
            events += told
            self._watch(run)
        return events

    def _elsewhere(self, said: _Waiting) -> bool:
        """Whether it is about a process of no server."""
        here = self._here(said.line)
        named = said.unit is not None and said.unit.endswith(".service")
        return all(_foreign(said, run) for run in here) if here else named

    def _missed(self, kernel: Run, crash: Crash) -> None:
        """A device or a process is gone: the servers of that machine may only notice when their time is up."""
        for run in self._runs.values():
            if run is not kernel and run.group[0] == kernel.group[0] and not run.ended:
                run.miss(crash)

    def _lost(self, line: Line) -> None:
        """Entries are gone before they were read, and nobody knows whose: whatever is open now may miss some."""
        self._gap = line.time if line.time is not None else -1
        for run in self._runs.values():
            run.lower(Grade.ROTATED, self._gap)

    def _suppressed(self, line: Line) -> None:
        for run in self._runs.values():
            if run.group[1] == line.unit and (line.invocation is None or run.group[2] == line.invocation):
                run.lower(Grade.SUPPRESSED, line.time)


def _group(line: Line) -> Group:
    """A user may give units the names, and say the invocations, of the system's: they are runs of their own."""
    return line.host, line.unit, line.invocation, line.fields.get(OWNER, "") if line.fields else ""


def _foreign(said: _Waiting, run: Run) -> bool:
    """Whether a kernel line is about a process that is none of this run's: it names another unit, or a pid that the run
    would know. A GPU that is gone is so for all, whoever met it first."""
    if said.unit is not None and run.name is not None:
        apart = said.unit.endswith(".service") or run.contained or run.lanes.apart
        return not run.lives_in(said.unit) and apart
    return said.sign.own and said.sign.pid is not None and run.lanes.apart


def _part(line: Line, text: str) -> Line:
    return Line(
        text,
        line.n,
        line.time,
        line.host,
        line.unit,
        line.invocation,
        line.pid,
        line.stream,
        line.origin,
        line.cut,
        line.fields,
    )
