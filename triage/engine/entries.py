"""One failure of an open crash, made from what the lanes report or from a sign, and kept up to date while it grows.

In come reports of `engine.lanes` and signs, out go `Entry`s with their kind and the reason for it. Called by
`engine.runs`. It must not compare failures with each other (triage.engine.roles does).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from triage.engine import leads
from triage.engine.dumps import Dump
from triage.engine.kinds import Kind, Sign, peer_lost
from triage.engine.lanes import Report
from triage.engine.links import CUT, placed, telling
from triage.engine.mixing import Mix
from triage.engine.tracebacks import Traceback
from triage.engine.tracelines import engine_frame, is_engine
from triage.model import Line, Link

_STARTED = re.compile(r"/(?:s?bin/[^/]+|launch_\w+\.py|__main__\.py)$")  # which of the engine's files are programs
# What the parent says of a rank that a signal ended (-3 is the one that SGLang sends itself); gloo's time-outs.
_TOLD_ALL = re.compile(
    r"died during initialization \(exit code: -(?!3\))\d+\)|[Tt]imed out waiting|failed to \w+ monitoredBarrier"
)
# Of the engine's files and of others' those that only the process runs which takes the requests.
_FRONT = (
    *(f"sglang/srt/{part}" for part in ("entrypoints/", "function_call/", "managers/tokenizer_manager", "utils/usage")),
    *(f"sglang/srt/{part}" for part in ("parser/", "multimodal/processors/", "managers/multi_tokenizer_mixin")),
    *("/uvicorn/", "/starlette/", "/fastapi/", "/h11/", "/httptools/", "/socketserver.py", "/asyncio/sslproto.py"),
)
# Who talks to others than ranks: a hub, a store, an object storage, whoever reads metrics.
_SERVICES = (
    *("/huggingface_hub/", "/modelscope/", "/requests/", "/urllib3/", "/httpx/", "/aiohttp/", "/redis/", "/botocore/"),
    *("sglang/srt/connector/", "sglang/srt/mem_cache/storage/", "/lmcache/", "/etcd3/"),
    *("/prometheus_client/", "/socketserver.py"),
)
_LOOP = "handle_loop"  # of the front end: nobody starts it again
_TRACKER = "/multiprocessing/resource_tracker.py"

Key = tuple[str, Kind, int | None, str | None]


@dataclass(slots=True, eq=False)
class Entry:
    """One failure while its crash is open."""

    kind: Kind
    name: str  # entries of one name, kind and process fold into one
    why: str
    lines: list[Line]
    texts: list[str]  # the lines that make up the id, prefixes off
    links: tuple[Link, ...]
    rank: str | None = None
    pid: int | None = None
    time: int | None = None
    ends_server: bool = False
    cut: bool = False
    mixed: bool = False
    quoted: bool = False  # it may be the text of a request
    own: bool = False  # its process is a rank's, and writes for no other
    front: bool = False  # a rank's tag, under the pid of the process that takes the requests
    folded: int = 0
    start: int = 0  # serial of its first line among the invocation's lines
    body: Traceback | Dump | None = None  # what it is read from, while it may still grow
    before: list[Line] = field(default_factory=list)  # beside it in the log, and perhaps its reason
    after: list[Line] = field(default_factory=list)

    @property
    def key(self) -> Key:
        return (self.name, self.kind, self.pid, self.rank)

    def fold(self, again: Entry) -> None:
        """The same once more. Where that line breaks off, what was to follow is missing."""
        self.folded += 1
        self.ends_server |= again.ends_server
        self.cut |= again.cut
        self.quoted &= again.quoted

    @property
    def cause(self) -> Link:
        return self.links[0]

    @property
    def doubtful(self) -> bool:
        """Its lines took turns with those of others, and nobody can tell whose are whose."""
        mix = self.body.mix if isinstance(self.body, Traceback) else None
        return self.mixed or self.quoted or (isinstance(mix, Mix) and (mix.torn or not mix.settled))


def is_child(entry: Entry) -> bool:
    """Whether it tells that a thread or a process ended with its exception."""
    return isinstance(entry.body, Traceback) and leads.is_child(entry.body.lead)


def is_thread(entry: Entry) -> bool:
    return isinstance(entry.body, Traceback) and leads.is_thread(entry.body.lead)


def of_front(link: Link) -> bool:
    """Whether its frames are those of the process that takes the requests."""
    return any(part in frame.path for frame in link.frames for part in _FRONT)


def only_lost(entry: Entry) -> bool:
    """Whether it tells of somebody else's end, and not how that one ended: a signal says that. Who waited in vain for
    one that never came has told all."""
    if entry.kind is not Kind.HINT or entry.name != "traceback":
        return False
    cause = entry.cause
    if any(part in frame.path for frame in cause.frames for part in _SERVICES):
        return False
    return peer_lost(cause.exception, cause.message) and _TOLD_ALL.search(cause.message) is None


def sign_entry(sign: Sign, line: Line, text: str, rank: str | None) -> Entry:
    """A failure that one line tells."""
    links = tuple(Link(word, sign.message[:2000]) for word in (sign.cause, sign.exception) if word)
    return Entry(
        sign.kind, sign.name, sign.why, [line], [text], links, rank, sign.pid, line.time, sign.ends_server, line.cut
    )


def told_of(end: Entry, warning: Entry | None) -> None:
    """All that a log holds of a failure is that a parent was told of it; `warning`: the last line before, long ago."""
    end.why, end.cut = f"{end.why}; what it met is not in this log", True
    if warning is not None:
        end.why, end.before = f"{end.why}, whose last warning before is: {warning.texts[0][:200]}", warning.lines


def report_entry(report: Report, now: int | None) -> Entry:
    """A failure that a traceback or a dump tells, as soon as its exception was read."""
    body, lane = report.body, report.lane
    links = body.chain()
    if isinstance(body, Dump):
        kind, why, ends = (Kind.CASCADE if lane.failed else Kind.NATIVE), body.sign.why, False
    else:
        kind, why, ends = judge_traceback(body, links, bare=report.bare, failed=lane.failed)
        why += _amid(body)
    # Writers without a name may be several, of which one only tells that another is gone.
    if kind is Kind.BARE:
        links = tuple(map(placed, links))
    ended = kind is not Kind.REQUEST and (kind is not Kind.HINT or lane.named)
    lane.failed = lane.failed or (ended and (lane.named or kind is not Kind.PLAIN or not of_front(links[0])))
    entry = Entry(kind, "traceback", why, list(body.lines), body.texts[: body.opened], links, report.rank, report.pid)
    entry.body, entry.ends_server, entry.start = body, ends, body.start
    entry.time = body.lines[0].time if body.lines[0].time is not None else now
    _quality(entry)
    return entry


def lost_entry(report: Report, now: int | None) -> Entry:
    """A traceback that broke off before its exception."""
    body = report.body
    frames = tuple(body.frames)
    link = Link(CUT, "the log ends before the exception", engine_frame(frames), frames)
    kind = Kind.REQUEST if leads.is_request(body.lead) else Kind.HINT
    name = "cut" if kind is Kind.HINT else "cut-request"  # the one must not fold into the other
    entry = Entry(kind, name, "a traceback without its end", list(body.lines), list(body.texts), (link,))
    entry.rank, entry.pid, entry.cut, entry.time, entry.start = report.rank, report.pid, True, now, body.start
    return entry


def refresh(entry: Entry, report: Report) -> None:
    """The chain of a known failure has grown, or its message."""
    body = report.body
    entry.links = body.chain() or entry.links
    entry.rank = entry.rank or report.rank
    entry.lines, entry.texts = list(body.lines), body.texts[: body.opened]
    if isinstance(body, Traceback) and entry.kind <= Kind.HINT:
        kind, why, ends = judge_traceback(body, entry.links, bare=entry.kind is Kind.BARE, failed=False)
        entry.ends_server = entry.ends_server or ends
        entry.kind, entry.why = kind, why + _amid(body)
        if kind is Kind.BARE:
            entry.links = tuple(map(placed, entry.links))
    _quality(entry)


def _amid(body: Traceback) -> str:
    """What was raised before it and is no cause of it, in words: a fallback's first try."""
    first = body.handled
    return f"; raised while {first.exception} was being handled ({first.message[:120]})" if first is not None else ""


def _quality(entry: Entry) -> None:
    damaged = entry.body is not None and (entry.body.damaged or entry.body.lost)
    entry.cut = entry.cut or damaged or any(line.cut for line in entry.lines)
    glued = isinstance(entry.body, Traceback) and entry.body.glued
    entry.mixed = entry.mixed or glued or any(line.fields.get("_LINE_BREAK") == "pid-change" for line in entry.lines)


def judge_traceback(body: Traceback, links: tuple[Link, ...], *, bare: bool, failed: bool) -> tuple[Kind, str, bool]:
    """Kind, reason, and whether the whole server ended with it."""
    last = links[-1]
    main = _main_program(body) and not bare
    if any(peer_lost(link.exception, link.message) for link in telling(links)):
        return Kind.HINT, "it only tells that another process is gone", main
    if leads.is_request(body.lead):
        if leads.is_task(body.lead) and _loop(body):
            return Kind.FATAL, "the loop that takes all answers ended with it", False
        return Kind.REQUEST, "one request failed", False
    if failed:
        return Kind.CASCADE, "the same process had failed before", main
    if _tracker(body):
        return Kind.CASCADE, "Python's cleaner of what dead processes left, which only tells it", False
    if bare:
        return Kind.BARE, "an exception line without its traceback", False
    if leads.FATAL_LEAD.search(body.lead):
        return Kind.FATAL, "the exception that ended the process", main or leads.ends_server(body.lead)
    if main:
        return Kind.FATAL, "uncaught in the main program", True
    if "timeout" in last.exception.lower() and "watchdog" in last.message.lower():
        return Kind.COLLECTIVE, "the scheduler made no step in time", False
    return Kind.PLAIN, "a traceback", False


def _loop(body: Traceback) -> bool:
    """Whether it was raised in the front end's loop, or in that below the wrapper which logs what it raises."""
    called = [frame.function for frame in body.frames[:2]]
    return called[:1] == [_LOOP] or called == ["print_exception_wrapper", _LOOP]


def _main_program(body: Traceback) -> bool:
    if body.lead.strip() or not body.texts:
        return False
    chain_frames = body.frames
    if not chain_frames:
        return False
    first = chain_frames[0]
    started = not is_engine(first.path) or _STARTED.search(first.path) is not None
    return first.path.startswith("<frozen runpy>") or (first.function == "<module>" and started)


def _tracker(body: Traceback) -> bool:
    """multiprocessing's own process, that goes on whatever befalls it."""
    frames = body.frames
    return bool(frames) and frames[0].function == "main" and frames[0].path.endswith(_TRACKER)
