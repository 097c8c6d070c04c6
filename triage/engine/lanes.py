"""Many writers in one stream -> each writer's own tracebacks.

In come the lines of one invocation, parsed; out come `Report`s: something was raised, has grown, or ended unfinished.
Called by the assembler, one `Lanes` per invocation. A writer is known by its pid where the journal gives one, by its
rank tag where the line has one; untagged lines of several open tracebacks are told apart by `engine.mixing`. It must
not judge what is a root.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto

from triage.engine import leads, signs
from triage.engine.dumps import Dump
from triage.engine.kinds import Kind, Sign
from triage.engine.lines import Parsed
from triage.engine.mixing import Mixing
from triage.engine.tracebacks import ABOVE, TORN, Fate, Stage, Traceback
from triage.engine.tracelines import FRAME, announced, exception_line, frame_match, header_lead, quotes
from triage.engine.writers import MAX_PIDS, Writers
from triage.model import Line

MAX_LANES = 512
MAX_SAME = 128  # tracebacks that are open at once under one name and rank
NEXT_LINES = 3  # with lines between them that are no frames: what another process raised is quoted behind its name
LEAD_LINES = 50  # a record announces a traceback that begins at most so many lines below it

Name = tuple[int | None, str]  # pid, and what a supervisor calls the writer
Key = tuple[Name, str | None, int]


class News(Enum):
    RAISED = auto()  # an exception line was read; again for each further link of the chain
    OVER = auto()  # nothing more will come
    LOST = auto()  # a traceback broke off before its exception


@dataclass(slots=True, eq=False)
class Lane:
    """One writer."""

    key: Key
    rank: str | None
    body: Traceback | Dump | None = None
    lead: str = ""  # its last record's text, if that announces a traceback
    led: int = 0  # serial of that record
    fed: int = 0  # serial of the last line it took
    place: str = ""  # where its body stands
    failed: bool = False  # it has raised before: what follows in the same process is a consequence
    joint: int = -LEAD_LINES  # serial of the last line that joins the next traceback to one that was not read
    foreign: bool = False  # the tag is another process's: a request's text may look like that
    name: Name = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.key[0]

    @property
    def pid(self) -> int | None:
        return self.name[0]

    @property
    def named(self) -> bool:
        """Whether anything tells it from other writers."""
        return self.key[:2] != ((None, ""), None)

    def hears(self, name: Name, rank: str | None) -> bool:
        """Whether a line under this name and rank may be its. Torch's own tag tells no more than the name does."""
        if self.name != name:
            return False
        return rank is None or self.rank == rank or (name[1] != "" and rank[:4] == "rank")


@dataclass(slots=True, eq=False)
class Report:
    """Something that the open crash, or nobody yet, has to know."""

    news: News
    lane: Lane
    body: Traceback | Dump
    pid: int | None = None
    rank: str | None = None
    bare: bool = False  # an exception line that nothing stands above
    own: bool = False  # the process is a rank's, and writes for no other
    front: bool = False  # a rank's tag, under the pid of the process that takes the requests


@dataclass(slots=True)
class Lanes(Writers):
    """All writers of one invocation and what each of them is printing."""

    _lanes: OrderedDict[Key, Lane] = field(default_factory=OrderedDict)
    _open: list[Lane] = field(default_factory=list)
    _mixing: Mixing = field(default_factory=Mixing)
    serial: int = 0  # of the last line
    _within: int = 0  # so many lines at the beginning are blank or frames' source lines
    _led: int = -LEAD_LINES  # when a traceback was last announced
    _announcer: Lane | None = None  # by whom; None: by two at once
    whole: bool = False  # what the process wrote first, or what stood before, was read
    _last: tuple[int, Name, Line, str] | None = None  # the last record, or line of no traceback, and its serial
    pasted: bool = False  # it is a few lines without a log: then a single frame counts
    told: bool = False  # the last line that was taken is an exception's, or goes on with its message

    @property
    def idle(self) -> bool:
        return not self._open

    @property
    def waiting(self) -> bool:
        """A half traceback is being read."""
        return any(lane.body is not None and lane.body.waiting for lane in self._open)

    @property
    def expecting(self) -> bool:
        """A record announced a traceback that may still come."""
        return self.serial - self._led < LEAD_LINES

    def pass_blank(self) -> None:
        if self._within == self.serial:
            self._within += 1
        self.serial += 1

    def pass_by(self, count: int = 1) -> None:
        """Lines that say nothing to any lane."""
        self.serial += count

    def feed(self, line: Line, parsed: Parsed, pid: int | None) -> tuple[bool, list[Report]]:
        """Whether a traceback took the line, and the news."""
        self.serial += 1
        text, rank = parsed.text, parsed.rank
        if pid is not None and len(self._pids) < MAX_PIDS:
            self._pids.add(pid)
        if rank is not None and not rank.startswith("rank"):
            if pid is not None and len(self._ranks) < 4096:
                self._ranks[pid] = rank if self._ranks.get(pid, rank) == rank else None
            if len(self.tags) < 4096:
                self.tags.add(rank)
        name = (pid, parsed.writer)
        lead = header_lead(text)
        if lead is not None and not (lead and not parsed.headed and quotes(text.rstrip()) and self._amid(name, rank)):
            return True, self._header(line, parsed, name, lead)
        if parsed.headed and not self._inside(text, name, rank):
            if self._open and TORN.search(text):
                self._tear(name)
            over = self._told(name) if self._open and signs.PARENTS.match(text) is not None else []
            lane, self._last = self._note(text, name, rank), (self.serial, name, line, text)
            if lane is None:
                return False, over
            body = lane.body
            if body is not None and body.waiting and body.feed(line, text, headed=True) is Fate.ALIEN:
                return False, over  # another thread, or a writer whose name is not known: the frames may go on
            return False, over + self._ended(lane)
        native = signs.read(text) if text[:1] in "FtTSPdmcfprs!*" or "signal" in text else None
        if native is not None and native.kind is Kind.NATIVE:
            return True, self._native(line, text, name, rank, native)
        return self._continue(line, parsed, name)

    def _inside(self, text: str, name: Name, rank: str | None) -> bool:
        """Whether a record is but the next line of a traceback: some loggers put their head before each line."""
        for lane in self._open:  # the rank stands before the first line only
            if lane.name == name and rank in (None, lane.rank) and isinstance(lane.body, Traceback):
                begun = lane.body.stage is Stage.HEADER and lane.body.waiting
                if lane.body.headed or (begun and FRAME.match(text) is not None):
                    return True
        return False

    def _amid(self, name: Name, rank: str | None) -> bool:
        """A traceback of this writer has its frames and waits for its exception."""
        amid = (Stage.FRAME, Stage.SOURCE, Stage.MARKS)
        bodies = [lane.body for lane in self._open if lane.hears(name, rank)]
        return any(isinstance(body, Traceback) and body.waiting and body.stage in amid for body in bodies)

    def _tear(self, name: Name) -> None:
        """A record of this writer holds what looks like a piece of a traceback, and one is being read."""
        for lane in self._open:
            if lane.name == name and isinstance(lane.body, Traceback) and lane.body.waiting:
                lane.body.glued = True

    def _told(self, name: Name) -> list[Report]:
        """The parent saw one end: what was just raised under its name is told, and loose words below are a shell's."""
        here = [lane for lane in self._open if lane.name == name and lane.fed >= self.serial - 2]
        told = [lane for lane in here if isinstance(lane.body, Traceback) and lane.body.mix is None]
        return [report for lane in told if not self._reading(lane) for report in self._ended(lane)]

    def doubt(self, since: int) -> None:
        """What began after this line may be the text of a request."""
        for lane in self._open:
            lane.foreign = lane.foreign or (lane.body is not None and lane.body.start > since)

    def forgive(self) -> None:
        """What they raised ended none of them: what comes next is no consequence of it."""
        for lane in self._lanes.values():
            lane.failed = False

    def damage(self, pid: int | None) -> None:
        """A line of this writer came without its text."""
        for lane in self._open:
            if lane.pid == pid and lane.body is not None:
                lane.body.damaged = True

    def record_over(self, since: int) -> None:
        """A record of several lines is, the first of which came after `since`: so are the messages it ends with."""
        for lane in self._open:
            if lane.fed > since and isinstance(lane.body, Traceback) and not lane.body.waiting:
                lane.body.sealed = True

    def finish(self) -> list[Report]:
        """All input is read: what is open is over."""
        news = [report for lane in list(self._open) for report in self._ended(lane)]
        self._open.clear()
        return news

    # ------------------------------------------------------------ kinds of lines

    def _header(self, line: Line, parsed: Parsed, name: Name, lead: str) -> list[Report]:
        text = parsed.text
        if not parsed.headed or self._inside(text, name, parsed.rank):
            # The chain of an open traceback goes on, the one that was fed last first.
            here = [lane for lane in self._open if lane.name == name and isinstance(lane.body, Traceback)]
            for lane in sorted(here, key=lambda lane: -lane.fed):
                if not isinstance(lane.body, Traceback):
                    continue
                lane.body.serial = self.serial
                if lane.body.header(line, text):
                    self._took(lane, text)
                    return []
        lane = self._lane(name, parsed.rank) if parsed.headed or parsed.rank else self._announced(name)
        news = self._ended(lane) if not self._reading(lane) or parsed.headed else []
        if self._reading(lane):  # another writer without a tag of its own
            news += self._make_room(lane)
            lane = self._extra(lane)
        lane.body = Traceback(lead or ("" if parsed.headed else self._lead(lane)))
        if leads.is_request(lane.lead) or leads.is_ignored(lane.lead):
            lane.lead = ""  # it excuses one traceback, and not what its writer raises next
        lane.body.serial = self.serial
        lane.body.damaged = self.serial - lane.joint <= 2
        lane.body.header(line, text)
        self._open.append(lane)
        self._took(lane, text)
        return news

    def _native(self, line: Line, text: str, name: Name, rank: str | None, sign: Sign) -> list[Report]:
        lane = self._mixing.pick(
            [lane for lane in self._open if lane.name == name and isinstance(lane.body, Dump)], text
        )
        if lane is not None and lane.body is not None:
            lane.body.feed(line, text, headed=False)
            self._took(lane, text)
            return []
        lane = self._lane(name, rank)
        news = self._ended(lane)
        lane.body = Dump(sign, line, text)
        self._open.append(lane)
        self._took(lane, text)
        return [*news, self._report(News.RAISED, lane)]

    def _continue(self, line: Line, parsed: Parsed, name: Name) -> tuple[bool, list[Report]]:
        text, rank = parsed.text, parsed.rank
        news: list[Report] = []
        open_here = [lane for lane in self._open if lane.hears(name, rank)]
        while open_here:
            lane = self._mixing.pick(open_here, text)
            if lane is None or lane.body is None:
                break
            lane.body.serial = self.serial
            fate = lane.body.feed(line, text, headed=parsed.headed)
            if fate in (Fate.TAKEN, Fate.RAISED):
                self._took(lane, text)
                if fate is Fate.RAISED:
                    news.extend(self._raised(lane, lane.body))
                return True, news
            open_here.remove(lane)
            if fate is Fate.ENDED:
                news.extend(self._ended(lane))
        return self._bare(line, text, name, rank, news)

    def _bare(
        self, line: Line, text: str, name: Name, rank: str | None, news: list[Report]
    ) -> tuple[bool, list[Report]]:
        """Frames or an exception line that no header announced: logs that were cut, or pasted in part."""
        if frame_match(text):
            lane = self._lane(name, rank)
            news.extend(self._ended(lane))
            lane.body = Traceback(self._lead(lane))
            lane.body.serial = self.serial
            lane.body.said = self._announcement(name)
            lane.body.feed(line, text, headed=False)
        elif exception_line(text, plain=True) is not None:
            lane = self._lane(name, rank)
            news.extend(self._ended(lane))
            lane.body = Traceback(self._lead(lane))
            lane.body.serial = self.serial
            lane.body.feed(line, text, headed=False)
            report = self._report(News.RAISED, lane)
            report.bare = True
            news.append(report)
            lane.body.damaged = self._within == self.serial - 1 and not self.whole
        else:
            self._last = (self.serial, name, line, text)
            if text.strip():
                self._note(text, name, rank)
            if self._within == self.serial - 1 and (
                text[:1] == " " or self.serial == 1
            ):  # a first line may be cut itself
                self._within = self.serial
            if ABOVE in text:
                self._lane(name, rank).joint = self.serial
            return False, news
        self._open.append(lane)
        self._took(lane, text)
        return True, news

    def _raised(self, lane: Lane, body: Traceback | Dump) -> list[Report]:
        """It is told; before it, that those it took turns with are seen in another light."""
        return [*self._retold(lane, body, over=False), self._report(News.RAISED, lane)]

    def _retold(self, lane: Lane, body: Traceback | Dump, *, over: bool) -> list[Report]:
        """The news of those that are told anew with it; one may turn out only now to have raised."""
        if not isinstance(body, Traceback) or body.mix is None:
            return []
        raised = {id(other.body) for other in self._open if other.body is not None and other.body.done}
        lanes = {id(other.body): other for other in self._open}
        news = []
        for mate in self._mixing.settle(body, over=over):
            other = lanes.get(id(mate), lane)
            late = id(mate) in lanes and id(mate) not in raised
            if late or mate is not body:
                news.append(self._report(News.RAISED if late and over else News.OVER, other, mate))
        return news

    # ------------------------------------------------------------ lanes

    def _note(self, text: str, name: Name, rank: str | None) -> Lane | None:
        """A record of this writer: it announces a traceback, or takes back what announced one. None: it is of no
        account, and its writer not known."""
        lead = leads.lead_in(text[:200])
        lane = self._lane(name, rank) if lead else self._lanes.get((name, rank, 0))
        if lane is not None and not (lane.lead and leads.goes_on(lane.lead, text)):
            lane.lead, lane.led = lead, self.serial
        if lead:
            two = self.serial - self._led <= NEXT_LINES and self._announcer is not lane
            self._led, self._announcer = self.serial, None if two else lane
        return lane

    def _announced(self, name: Name) -> Lane:
        """Whose traceback a header without a tag begins: that of the only rank which said so just before."""
        lane = self._announcer
        near = self.serial - self._led <= NEXT_LINES
        return lane if near and lane is not None and lane.name == name and lane.body is None else self._lane(name, None)

    def _announcement(self, name: Name) -> tuple[str, str, Line, str] | None:
        """The exception that this writer's last line was, right above a frame without a header."""
        if self._last is None or self._last[:2] != (self.serial - 1, name):
            return None
        found = announced(self._last[3])
        return (*found, *self._last[2:]) if found is not None else None

    def _lead(self, lane: Lane) -> str:
        return lane.lead if self.serial - lane.led < LEAD_LINES else ""

    def _lane(self, name: Name, rank: str | None) -> Lane:
        key = (name, rank, 0)
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= MAX_LANES:  # before it is in: it has no body yet and would be the one that goes
                self._forget()
            lane = self._lanes[key] = Lane(key, rank, foreign=self.foreign(name[0], rank))
        return lane

    def _extra(self, lane: Lane) -> Lane:
        name, rank, n = lane.key
        while (name, rank, n) in self._lanes and self._reading(self._lanes[(name, rank, n)]) and n < MAX_SAME:
            n += 1
        extra = self._lanes[(name, rank, n)] = Lane((name, rank, n), rank, lead=lane.lead, led=lane.led)
        lane.lead = ""  # it is the other's now
        return extra

    def _make_room(self, lane: Lane) -> list[Report]:
        """However many begin under one name and rank: the one that has been silent longest is over."""
        here = [other for other in self._open if other.key[:2] == lane.key[:2]]
        return self._ended(min(here, key=lambda other: other.fed)) if len(here) >= MAX_SAME else []

    def _forget(self) -> None:
        for key, lane in self._lanes.items():
            if lane.body is None:
                del self._lanes[key]
                return
        _, lane = self._lanes.popitem(last=False)
        self._open = [other for other in self._open if other is not lane]

    def _reading(self, lane: Lane) -> bool:
        return lane.body is not None and lane.body.waiting

    def _took(self, lane: Lane, text: str) -> None:
        lane.fed = self.serial
        body = lane.body
        if body is None:
            return
        if not body.start:
            body.start = self.serial
        else:
            self._mixing.took(lane.place, text)
        self.told = False
        if isinstance(body, Traceback):
            self._mixing.learn(body)
            self.told = body.stage is Stage.EXCEPTION
        lane.place = body.place

    def _ended(self, lane: Lane) -> list[Report]:
        body = lane.body
        if body is None:
            return []
        retold = self._retold(lane, body, over=True)
        body.end()
        lane.body = None
        self._open = [other for other in self._open if other is not lane]
        if not body.done and len(body.lines) < 2 and not self.pasted and not leads.FATAL_LEAD.search(body.lead):
            return retold
        news = News.LOST if not body.done else News.RAISED if body.late else News.OVER
        return [*retold, self._report(news, lane, body)]

    def _report(self, news: News, lane: Lane, body: Traceback | Dump | None = None) -> Report:
        body = body or lane.body
        assert body is not None
        rank = lane.rank or (body.rank if isinstance(body, Dump) else None)
        own, front = self.own(lane.pid), self.fronted(lane.pid, lane.rank)
        return Report(news, lane, body, lane.pid, self.tag(lane.pid, rank), own=own, front=front)
