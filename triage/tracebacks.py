"""The text of one process, line by line -> its exceptions with frames and chain.

In come lines that belong to one process (the lanes decide that), prefixes already taken off; out comes, as soon as the
exception line is read, a chain of links. Called by `triage.lanes`. It must not know of crashes, ranks or time, must
keep a bounded number of lines whatever it is fed, and must never raise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

from triage.model import Frame, Line, Link

HEADER = "raceback (most recent call last):"  # the first letter gets lost in pasted logs
CUT = "CutTraceback"  # triage's word for frames without their exception
MAX_LINES = 600  # of one traceback, chain included
MAX_FRAMES = 300  # of one link
MAX_MESSAGE_LINES = 40
MAX_MESSAGE = 8_000

FRAME = re.compile(r'\s*(?:\|\s+)*File "(?P<path>[^"\n]{1,512})", line (?P<line>\d{1,9})(?:,? in ?(?P<function>.*))?$')
# A frame that lost its head, or was typed down: 'pool.py", line 87, in __init__', 'pool.py, line 87, in alloc'.
_LOOSE = re.compile(r'\s*(?P<path>[\w./-]{1,300}\.py)"?,? line (?P<line>\d{1,9}),? in (?P<function>[\w.<>]+)$')
_EXCEPTION = re.compile(
    r"(?P<name>[A-Za-z_]\w{0,120}(?:\.[A-Za-z_]\w{0,120}){0,12})(?:(?P<args>\(.*\))|: ?(?P<message>.*)|\s*)$", re.DOTALL
)
# Without a header and frames above it only names that say so themselves count as exceptions.
_PLAIN_NAME = re.compile(r"(?:Error|Exception|Interrupt|OutOfResources|ExceptionGroup|Timeout|Exit|Failure)$")
# Behind frames also other class names: dotted, or written in capitals and humps. 'Try: pip install ...' is a message.
_CLASS_NAME = re.compile(r"_?[A-Z]\w*[a-z]\w*[A-Z]\w*$|Stop\w+$|Empty$|Again$|Full$")
_LEAD = re.compile(r"[^\"'={}<>]{0,160}$")
_CAUSE = "The above exception was the direct cause of the following exception"
_CONTEXT = "During handling of the above exception, another exception occurred"
_GROUP_EDGE = re.compile(r"\s*(?:\|\s*)*\+-[+-]*(?:-+ .* -+)?-*$")
_GROUP_BAR = re.compile(r"\s*(?:\|\s)+\s?")
_ENDS_MESSAGE = (
    "terminate called",
    "Fatal Python error",
    "usage: ",
    "Possible solutions",
    "Exception raised from",
    "Exception in thread",
    "Process SpawnProcess",
    "Process ForkProcess",
    "Killed",
    "Current thread 0x",
    "Thread 0x",
    "frame #",
    "  what():",
)
_WARNING = re.compile(r"\S+:\d+: \w*Warning: ")


class Fate(Enum):
    """What a line was to a traceback."""

    TAKEN = auto()
    RAISED = auto()  # taken, and it was the exception line
    ALIEN = auto()  # not of this traceback, which goes on
    ENDED = auto()  # not of this traceback, which is over


class _Joint(Enum):
    CAUSE = auto()  # raise ... from ...
    CONTEXT = auto()  # during handling
    INNER = auto()  # a member of an exception group


@dataclass(slots=True)
class _Part:
    """One exception as it is being read."""

    joint: _Joint | None = None
    frames: list[Frame] = field(default_factory=list)
    name: str = ""
    message: list[str] = field(default_factory=list)


def header_lead(text: str) -> str | None:
    """What stands before 'Traceback (most recent call last):' if the line ends with it and may be believed, else None.

    A logged request that quotes a traceback has quotes, braces or an equals sign before it; a lead-in has not.
    """
    bare = text.rstrip()
    if not bare.endswith(HEADER):
        return None
    lead = bare[: -len(HEADER)]
    lead = lead.removesuffix("T").removesuffix("Exception Group ").strip(" |+")
    return lead if _LEAD.match(lead) else None


def frame_match(text: str) -> re.Match[str] | None:
    """A line that names a frame, as Python prints it or without its head."""
    return FRAME.match(text) or (_LOOSE.match(text) if ".py" in text else None)


def read_frame(match: re.Match[str]) -> Frame:
    return Frame(match["path"], (match["function"] or "").strip(), int(match["line"]))


def exception_line(text: str, *, plain: bool = False) -> tuple[str, str] | None:
    """Name and message if this can be the line a traceback ends with; `plain`: nothing stands above it to prove it."""
    match = _EXCEPTION.match(text)
    if match is None:
        return None
    name = match["name"]
    last = name.rsplit(".", 1)[-1]
    if last.endswith("Warning"):
        return None
    if plain:
        if not _PLAIN_NAME.search(last) or not last[0].isupper():
            return None
    elif not (
        _PLAIN_NAME.search(last)
        or _CLASS_NAME.match(last)
        or ("." in name and last[0].isupper())
        or last.endswith(("error", "exception", "timeout"))
    ):
        return None
    message = match["message"]
    if message is None:
        message = match["args"][1:-1] if match["args"] else ""
        if match["args"] and plain and last == "Exit":
            return None
    return name, message[:MAX_MESSAGE]


class Traceback:
    """One traceback with its chain, read line by line. `done` once an exception line was read."""

    __slots__ = (
        "_aliens",
        "_dead",
        "_message_size",
        "_parts",
        "_place",
        "_state",
        "damaged",
        "lead",
        "lines",
        "lost",
        "opened",
        "start",
        "texts",
    )

    def __init__(self, lead: str = "") -> None:
        self.lead = lead
        self.start = 0  # serial of its first line; the lanes set it
        self.lines: list[Line] = []
        self.texts: list[str] = []  # of the same lines, prefixes off
        self.opened = 0  # how many of `texts` there were when the first exception line was read
        self.lost = False  # ended in the middle of frames
        self.damaged = False  # a line of it came without its text
        self._parts = [_Part()]
        self._state = "frames"
        self._place = ""
        self._aliens = 0
        self._dead = False
        self._message_size = 0

    @property
    def place(self) -> str:
        """Where it stands: how deep, its last frame and line. Who runs the same code writes the same line next."""
        return f"{len(self._parts)}.{len(self.frames)} {self._place}\n{self.last}"

    @property
    def done(self) -> bool:
        return bool(self._parts[0].name)

    @property
    def waiting(self) -> bool:
        """In the middle of something: frames, or a chain that has to go on."""
        return not self._dead and self._state != "message"

    @property
    def frames(self) -> list[Frame]:
        return self._parts[-1].frames

    @property
    def last(self) -> str:
        return self.texts[-1] if self.texts else ""

    def keep(self, line: Line, text: str) -> None:
        if len(self.lines) < MAX_LINES:
            self.lines.append(line)
            self.texts.append(text)

    def header(self, line: Line, text: str) -> bool:
        """A header line; True if it goes on with this chain."""
        if self._state == "chain" or (self._state == "frames" and not self.texts):
            self._state = "frames"
            self.keep(line, text)
            return True
        return False

    def feed(self, line: Line, text: str, *, headed: bool) -> Fate:
        """One line that is no header. `headed`: it began a log record of its own."""
        bare = text.rstrip()
        if not bare:
            return Fate.TAKEN
        if self._dead:
            return Fate.ENDED
        if self._state == "frames":
            return self._frames(line, bare, headed=headed)
        if self._state == "chain":
            return self._alien() if not headed else self.end()
        return self._after(line, bare, headed=headed)

    def accepts(self, text: str) -> bool:
        """Whether an untagged line could be of this traceback, judged by its form alone."""
        bare = text.rstrip()
        if not bare or self._dead:
            return False
        if self._state == "frames":
            return bool(FRAME.match(bare)) or bare[0] in " \t^~|+" or exception_line(bare) is not None
        if self._state == "chain":
            return False
        return not FRAME.match(bare)

    def end(self) -> Fate:
        self.lost = self.lost or (self._state == "frames" and not self._parts[-1].name)
        self._dead = True
        return Fate.ENDED

    # ------------------------------------------------------------ states

    def _frames(self, line: Line, text: str, *, headed: bool) -> Fate:
        part = self._parts[-1]
        match = frame_match(text)
        if match is not None and not headed:
            self.keep(line, text)
            self._place = text
            if len(part.frames) < MAX_FRAMES:
                part.frames.append(read_frame(match))
            return Fate.TAKEN
        if headed:
            return self._alien()
        unbarred = _GROUP_BAR.sub("", text, count=1) if text.lstrip()[:1] == "|" else text
        if unbarred[:1] in (" ", "\t", "^", "~"):
            self.keep(line, text)
            return Fate.TAKEN
        found = exception_line(unbarred)
        if found is None:
            return self._alien()
        part.name, first = found
        part.message = [first]
        self._message_size = len(first)
        self._state = "message"
        self._aliens = 0
        self.keep(line, text)
        self.opened = self.opened or len(self.texts)
        return Fate.RAISED

    def _after(self, line: Line, text: str, *, headed: bool) -> Fate:
        joint = _Joint.CAUSE if _CAUSE in text else _Joint.CONTEXT if _CONTEXT in text else None
        if joint is None and _GROUP_EDGE.match(text) and "-" in text:
            joint = _Joint.INNER if text.strip(" |+-").isdigit() else None
            if joint is None:
                return Fate.TAKEN
        if joint is None and not headed and self._below(line, text):
            return Fate.TAKEN
        if joint is not None:
            self.keep(line, text)
            if len(self._parts) < 20:
                self._parts.append(_Part(joint))
            self._state = "chain"
            self._aliens = 0
            return Fate.TAKEN
        if not headed and self._goes_on(line, text):
            return Fate.TAKEN
        if headed or text.startswith(_ENDS_MESSAGE) or FRAME.match(text) or _WARNING.match(text):
            if text.startswith("Possible solutions"):  # advice: seen, never part of the message
                self.keep(line, text)
                self._state = "advice"
                return Fate.TAKEN
            return self.end()
        part = self._parts[-1]
        if len(part.message) >= MAX_MESSAGE_LINES or self._message_size + len(text) > MAX_MESSAGE:
            return Fate.TAKEN
        if self._state == "message":
            part.message.append(text)
            self._message_size += len(text)
        self.keep(line, text)
        return Fate.TAKEN

    def _below(self, line: Line, text: str) -> bool:
        """A stack typed down below its exception, innermost frame first."""
        match = _LOOSE.match(text) if ".py" in text and self._state in ("message", "stack") else None
        if match is None or (self._state == "message" and self.frames):
            return False
        self._state = "stack"
        self.keep(line, text)
        if len(self.frames) < MAX_FRAMES:
            self.frames.insert(0, read_frame(match))
        return True

    def _goes_on(self, line: Line, text: str) -> bool:
        """A log that was cut or pasted in part: frames whose header is missing, bare exceptions one below the other."""
        if len(self._parts) >= 20 or self._state != "message":
            return False
        frame = FRAME.match(text)
        if frame is not None:
            self._parts.append(_Part(_Joint.CAUSE))
            self._state = "frames"
            self._frames(line, text, headed=False)
            return True
        found = exception_line(text, plain=True) if not self._parts[-1].frames else None
        if found is None or found[0] == self._parts[-1].name:
            return False
        self._parts.append(_Part(_Joint.CAUSE, [], found[0], [found[1]]))
        self.keep(line, text)
        return True

    def _alien(self) -> Fate:
        self._aliens += 1
        return self.end() if self._aliens > 200 else Fate.ALIEN

    # ------------------------------------------------------------ what it says

    def chain(self) -> tuple[Link, ...]:
        """Deepest cause first. A context joins only where it belongs: a fallback that was tried first is no cause."""
        parts = [part for part in self._parts if part.name]
        rest = self._parts[-1]
        if parts and rest.frames and not rest.name and self._dead:
            parts.append(_Part(rest.joint, rest.frames, CUT))
        links: list[_Part] = []
        for n, part in enumerate(parts):
            if n == 0:
                links = [part]
            elif part.joint is _Joint.INNER:
                links.insert(0, part)
            elif part.joint is _Joint.CAUSE or part.name == CUT or belongs(links[-1], part):
                links.append(part)
            else:
                links = [part]
        return tuple(_link(part) for part in links)


def belongs(inner: _Part, outer: _Part) -> bool:
    """Whether `outer`, raised while `inner` was being handled, only passes it on.

    Two marks: it quotes the inner message; or it was raised by the very function that had caught the inner one (a
    wrapper), not by something that function called instead (a fallback that failed in its turn).
    """
    quote = (inner.message[0] if inner.message else "").strip()
    if len(quote) >= 8 and quote[:200] in "\n".join(outer.message):
        return True
    if not inner.frames or not outer.frames:
        return True
    caught, raised = inner.frames[0], outer.frames[-1]
    return (caught.path, caught.function) == (raised.path, raised.function)


def engine_frame(frames: list[Frame] | tuple[Frame, ...]) -> Frame | None:
    """The innermost frame in the engine's own code, else the innermost."""
    for frame in reversed(frames):
        if is_engine(frame.path):
            return frame
    return frames[-1] if frames else None


def is_engine(path: str) -> bool:
    """Whether a file is SGLang's own. A virtual environment below /opt/sglang does not make torch a part of it."""
    parts = path.replace("\\", "/").split("/")[:-1]
    for n in range(len(parts) - 1, -1, -1):
        if parts[n] in ("site-packages", "dist-packages"):
            return parts[n + 1 : n + 2] in (["sglang"], ["sgl_kernel"])
    if any(part.startswith("python3") for part in parts):
        return False
    return "sglang" in parts or "sgl_kernel" in parts


def _link(part: _Part) -> Link:
    message = "\n".join(part.message).strip()
    return Link(part.name, message, engine_frame(part.frames), tuple(part.frames))
