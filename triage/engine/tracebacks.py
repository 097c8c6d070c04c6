"""The text of one process, line by line -> its exceptions with frames and chain.

In come lines that belong to one process (the lanes decide that), prefixes already taken off; out comes, as soon as the
exception line is read, a chain of links. Called by `engine.lanes`. It must not know of crashes, ranks or time, must
keep a bounded number of lines whatever it is fed, and must never raise.
"""

from __future__ import annotations

import re
from enum import IntEnum, auto

from triage.engine import signs
from triage.engine.links import CUT, Joint, Part, chain_of, handled
from triage.engine.tracelines import (
    BOX,
    FRAME,
    HEADER,
    LOOSE,
    MAX_MESSAGE,
    Form,
    cut_class,
    ends_message,
    exception_line,
    frame_match,
    is_logging,
    quotes,
    read_frame,
)
from triage.model import Frame, Line, Link

HEADER_TEXT = "T" + HEADER
MAX_LINES = 600  # of one traceback, chain included
MAX_KEPT = 500_000  # characters of them
MAX_FRAMES = 300  # of one link
MAX_MESSAGE_LINES = 40
MAX_ALIENS = 20_000  # lines of others amid a traceback that takes turns with them

CAUSE = "The above exception was the direct cause of the following exception"
CONTEXT = "During handling of the above exception, another exception occurred"
ABOVE = "he above exception"  # in both
REMOTE = "terminated with the following error:"  # the text of another process's traceback follows
# Ray's own exceptions hold the text of what a task or an actor raised.
_RAY = ("RayTaskError", "RayActorError", "ActorDiedError")
# torchrun's hold a list of its processes with what they raised, a little indented; the first to fail comes last.
_TORCHRUN = "ChildFailedError"
_TORCHRUN_TRACE = "  traceback : "
_TORCHRUN_FIRST = "Root Cause (first observed failure):"
_SIGNAL = re.compile(r"Signal \d+ \((?P<word>SIG[A-Z]+)\) received by PID")
_GROUP_EDGE = re.compile(r"\s*(?:\|\s*)*\+-[+-]*(?:-+ .* -+)?-*$")
_GROUP_BAR = re.compile(r"\s*(?:\|\s)+\s?")
_NAME = re.compile(r"[\w.<>]*$")  # a function as a frame names it
_PIECE = re.compile(r'File "[^"]*(?:", line \d|$)|\.py", line \d|\[\d{4}-\d\d-\d\d \d\d:|raceback \(most recent')
TORN = re.compile(r'raceback \(most r|File "[^"]*(?:", line \d|$)|\.py", line \d')
_CALL_STACK, _ARGUMENTS = "Call stack:", "Arguments: "  # what logging writes behind what it met with a record
_USER_CODE = "from user code:"  # torch's compiler goes on with the frames of what it compiled
# A class whose name says nothing, right behind frames. Python prints such a line, and others might.
_PLAIN_CLASS = re.compile(r"(?P<name>[A-Z][a-z]\w{0,60})(?:: (?P<message>.*))?$")
_NO_CLASS = frozenset(
    {"Killed", "Aborted", "Terminated", "Warning", "Info", "Note", "Hint", "Loading", "Error", "Debug"}
)


class Fate(IntEnum):
    """What a line was to a traceback."""

    TAKEN = auto()
    RAISED = auto()  # taken, and it was the exception line
    ALIEN = auto()  # not of this traceback, which goes on
    ENDED = auto()  # not of this traceback, which is over


class Stage(IntEnum):
    """What a traceback's last line was."""

    HEADER = auto()
    FRAME = auto()
    SOURCE = auto()
    MARKS = auto()
    EXCEPTION = auto()


class Traceback:
    """One traceback with its chain, read line by line. `done` once an exception line was read."""

    __slots__ = (
        "_aliens",
        "_dead",
        "_kept",
        "_margin",
        "_message_size",
        "_nameless",
        "_parts",
        "_stack",
        "_state",
        "at",
        "damaged",
        "glued",
        "headed",
        "headless",
        "heard",
        "late",
        "lead",
        "lines",
        "lost",
        "mix",
        "opened",
        "said",
        "sealed",
        "serial",
        "source",
        "stage",
        "start",
        "texts",
    )

    def __init__(self, lead: str = "") -> None:
        self.lead = lead
        self.start = 0  # serial of its first line; the lanes set it
        self.serial = 0  # of the line it is given; the lanes set it
        self.lines: list[Line] = []
        self.texts: list[str] = []  # of the same lines, prefixes off
        self.heard: list[tuple[int, str, Line]] = []  # when it was given which line, whatever it is told later
        self.opened = 0  # how many of `texts` there were when the first exception line was read
        self.lost = False  # ended in the middle of frames, or where its chain had to go on
        self.headed = False  # whoever logged it put a record's head before each of its lines
        self.glued = False  # a line of it holds pieces of two
        self.damaged = False  # a line of it came without its text, or is missing
        self.late = False  # its exception was known only when it was over
        self.said: tuple[str, str, Line, str] | None = None  # the exception, if it stood above its first frame
        self.sealed = False  # its message ends with the record it stands in; only its chain may go on in the next
        self.headless = False  # its first frames came without a header: what stood above them is missing
        self._parts = [Part()]
        self.at = ""  # the last frame's line
        self.source = ""  # and its source line
        self.stage = Stage.HEADER
        self.mix: object | None = None  # the tracebacks it took turns with, where nobody can tell whose lines are whose
        self._state = "frames"
        self._aliens = 0
        self._margin = ""  # stands before each line of a traceback that torchrun quotes
        self._dead = False
        self._message_size = 0
        self._kept = 0
        self._stack: list[Frame] | None = None  # where the frames go that its message is quoting
        self._nameless: tuple[str, str, Line, str] | None = None  # what may be its exception, if no frame follows

    @property
    def place(self) -> str:
        """Where it stands: how deep, its last frame and line. Who runs the same code writes the same line next."""
        return f"{len(self._parts)}.{len(self.frames)} {self.at}\n{self.last}"

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
    def outermost(self) -> list[Frame]:
        """Where what was raised first began; empty while no frame was read."""
        return self._parts[0].frames[:1]

    @property
    def last(self) -> str:
        return self.texts[-1] if self.texts else ""

    def keep(self, line: Line, text: str) -> None:
        if len(self.lines) < MAX_LINES and self._kept < MAX_KEPT:
            self._kept += len(text)
            self.lines.append(line)
            self.texts.append(text)
            self.heard.append((self.serial, text, line))

    def become(self, told: Traceback, *, whole: bool) -> None:
        """Take another's story; where that is not the `whole` one, keep the rest of the message."""
        last, mine = told._parts[-1], self._parts[-1]
        if not whole and last.name and mine.message[: len(last.message)] == last.message:
            last.message = mine.message
        self._parts, self.lines, self.texts, self.opened = told._parts, told.lines, told.texts, told.opened

    def header(self, line: Line, text: str) -> bool:
        """A header line; True if it goes on with this chain."""
        if self._state == "chain" or (self._state == "frames" and not self.texts):
            self._state, self.stage = "frames", Stage.HEADER
            self.at = self.source = ""
            self.keep(line, text)
            return True
        if self._state in ("message", "advice") and text.startswith(_TORCHRUN_TRACE) and self._is(_TORCHRUN):
            self._quoted()
            self._state, self.stage, self._margin = "frames", Stage.HEADER, "  "
            self.keep(line, text)
            return True
        return False

    def _is(self, *names: str) -> bool:
        return self._parts[0].name.endswith(names)

    def _quoted(self) -> Part:
        """The next process in torchrun's list: one stands for all until the list comes to the first that failed."""
        first = len(self._parts) == 1 or any(text == _TORCHRUN_FIRST for text in self.texts[-8:])
        part = Part(Joint.INNER if first else Joint.NEXT)
        if len(self._parts) < 20:
            self._parts.append(part)
        return part

    def feed(self, line: Line, text: str, *, headed: bool) -> Fate:
        """One line that is no header. `headed`: it began a log record of its own."""
        if self._margin and not text.startswith(self._margin) and self._state == "message":
            self._state, self._margin = "advice", ""  # torchrun goes on in its list
        bare = text.removeprefix(self._margin).rstrip()
        if not bare:
            return Fate.TAKEN
        if self._dead:
            return Fate.ENDED
        headed = headed and not (self.headed and (self._state == "frames" or CAUSE in bare or CONTEXT in bare))
        if self._state == "frames":
            return self._frames(line, bare, headed=headed)
        if self._state == "chain":
            return self._alien() if not headed else self.end()
        return self._after(line, bare, headed=headed)

    def accepts(self, form: Form) -> bool:
        """Whether an untagged line could be of this traceback, judged by its form alone."""
        if self._dead or self._state == "chain":
            return False
        if self._state in ("frames", "logged"):
            return form is not Form.OTHER or self._state == "logged"
        return form is not Form.FRAME or self._stack is not None

    @property
    def story(self) -> tuple[object, ...]:
        """Its frames and exceptions so far, in order."""
        told: list[object] = []
        for part in self._parts:
            told.extend(part.frames)
            if part.name:
                told.append((part.name, *part.message))
        return tuple(told)

    def end(self) -> Fate:
        if self._nameless is not None and self._state == "frames" and self.mix is None:
            name, message, line, text = self._nameless
            self.late = self.damaged = True  # it is likely, no more
            self._raise(name, message, line, text)
        if self.said is not None and self._state == "frames" and self.mix is None and not self.done:
            self.late = self.damaged = True
            self._raise(*self.said)
        self.lost = self.lost or not self._parts[-1].name
        self._dead = True
        return Fate.ENDED

    # ------------------------------------------------------------ states

    def _frames(self, line: Line, text: str, *, headed: bool) -> Fate:
        part = self._parts[-1]
        match = frame_match(text)
        if match is not None:
            if not self.texts and match["function"] is not None:  # the parser's own errors have neither
                self.headless = self.damaged = True
            self.headed = self.headed or headed
            self.keep(line, text)
            self.at, self.source, self.stage = text, "", Stage.FRAME
            frame = read_frame(match)
            self.glued = self.glued or _NAME.match(frame.function) is None
            if len(part.frames) < MAX_FRAMES:
                part.frames.append(frame)
            self._nameless = None
            return Fate.TAKEN
        if headed:
            return self._alien()
        unbarred = _GROUP_BAR.sub("", text, count=1) if text.lstrip()[:1] == "|" else text
        if unbarred[:1] in (" ", "\t", "^", "~"):
            self.keep(line, text)
            self.glued = self.glued or _PIECE.search(text) is not None
            if not unbarred.strip(" \t^~"):
                self.stage = Stage.MARKS
            elif self.stage is Stage.FRAME:
                self.source, self.stage = text, Stage.SOURCE
            return Fate.TAKEN
        found = exception_line(unbarred)
        if found is None or not quotes(unbarred):
            self.glued = self.glued or _PIECE.search(text) is not None
        else:
            self._stack = []
        if found is None:
            plain = _PLAIN_CLASS.match(text) if part.frames and not self._aliens else None
            if plain is not None and plain["name"] not in _NO_CLASS and signs.read(text) is None:
                self._nameless = (plain["name"], plain["message"] or "", line, text)
            return self._alien()
        self._raise(*found, line, text)
        return Fate.RAISED

    def _raise(self, name: str, first: str, line: Line, text: str) -> None:
        part = self._parts[-1]
        part.name, part.message = name, [first]
        self._message_size = len(first)
        self.damaged = self.damaged or (not first and cut_class(name, text))
        self._state, self.stage = "message", Stage.EXCEPTION
        self._aliens = 0
        self.keep(line, text)
        self.opened = self.opened or len(self.texts)

    def _after(self, line: Line, text: str, *, headed: bool) -> Fate:
        if not headed and (self._state == "logged" or text == _CALL_STACK) and is_logging(self.outermost):
            self._state = "logged"
            self._dead = text.startswith(_ARGUMENTS)
            return Fate.TAKEN
        joint = Joint.CAUSE if CAUSE in text else Joint.CONTEXT if CONTEXT in text else None
        if joint is None and text.startswith("-- Process ") and text.endswith(REMOTE):
            joint = Joint.INNER
        if joint is None and "-" in text and _GROUP_EDGE.match(text) and not BOX.match(text):
            number = text.strip(" |+-")
            joint = (Joint.INNER if number == "1" else Joint.NEXT) if number.isdigit() else None
            if joint is None:
                return Fate.TAKEN
        if joint is None and self.sealed:
            return self.end()
        self.sealed = False
        if joint is None and not headed and self._quotes(line, text):
            return Fate.TAKEN
        if joint is None and not headed and self._below(line, text):
            return Fate.TAKEN
        if text.startswith(_TORCHRUN_TRACE) and self._is(_TORCHRUN) and (killed := _SIGNAL.search(text)) is not None:
            part = self._quoted()
            part.name, part.message = killed["word"], [killed.string.removeprefix(_TORCHRUN_TRACE)]
            self._state = "advice"
            self.keep(line, text)
            return Fate.RAISED
        if joint is not None:
            self.keep(line, text)
            if len(self._parts) < 20:
                self._parts.append(Part(joint))
            self._state = "chain"
            self._aliens = 0
            return Fate.TAKEN
        if not headed and self._goes_on(line, text):
            return Fate.TAKEN
        if headed or ends_message(text):
            if text.startswith("Possible solutions"):  # advice: seen, never part of the message
                self.keep(line, text)
                self._state = "advice"
                return Fate.TAKEN
            return self.end()
        if text in ('"""', "```"):  # the end of another process's traceback that was quoted, of a block in a page
            return Fate.TAKEN
        part = self._parts[-1]
        short = len(part.message) < MAX_MESSAGE_LINES and self._message_size + len(text) <= MAX_MESSAGE
        if short and self._state == "message":
            part.message.append(text)
            self._message_size += len(text)
            if text == _USER_CODE:
                self._stack = part.frames
        if short or self.mix is not None:  # what others wrote has to be found again
            self.keep(line, text)
        return Fate.TAKEN

    def _quotes(self, line: Line, text: str) -> bool:
        """A stack within a message: of what torch compiled, or a library's own, which says what failed behind it."""
        if self._stack is None:
            return False
        if text[:1] in (" ", "\t"):
            frame = FRAME.match(text)
            if frame is not None and self._stack is not self.frames:
                self.glued = self.glued or frame["path"].endswith(".py")  # it may be another writer's
            if frame is not None and len(self._stack) < MAX_FRAMES:
                self._stack.append(read_frame(frame))
            self.keep(line, text)
            return True
        part = self._parts[-1]
        if self._stack is not part.frames and part.message == [HEADER_TEXT]:
            part.message = []
        self._stack = None
        return False

    def _below(self, line: Line, text: str) -> bool:
        """A stack typed down below its exception, innermost frame first."""
        match = LOOSE.match(text) if ".py" in text and self._state in ("message", "stack") else None
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
        told = self._parts[-1].name.endswith(_RAY)  # Ray's own word comes before what it passes on
        frame = FRAME.match(text)
        if frame is not None and not told and [read_frame(frame)] == self.outermost:
            self.glued = True  # another process's, whose header got lost on the line of this one's
            return False
        if frame is not None:
            self._parts.append(Part(Joint.INNER if told else Joint.CAUSE))
            self.damaged = self.damaged or not told
            self._state = "frames"
            self._frames(line, text, headed=False)
            return True
        found = exception_line(text, plain=True) if told or not self._parts[-1].frames else None
        if found is None or (found[0] == self._parts[-1].name and not told):
            return False
        self._parts.append(Part(Joint.INNER if told else Joint.CAUSE, [], found[0], [found[1]]))
        self.keep(line, text)
        return True

    def _alien(self) -> Fate:
        self._aliens += 1
        return self.end() if self._aliens > (200 if self.mix is None else MAX_ALIENS) else Fate.ALIEN

    # ------------------------------------------------------------ what it says

    @property
    def handled(self) -> Link | None:
        """What was being handled when the root of its chain was raised."""
        return handled([part for part in self._parts if part.name], headless=self.headless)

    def chain(self) -> tuple[Link, ...]:
        """Deepest cause first."""
        parts = [part for part in self._parts if part.name]
        rest = self._parts[-1]
        if parts and rest.frames and not rest.name and self._dead:
            if len(parts) == 1 and not parts[0].frames:  # somebody wrote them below, innermost first
                return chain_of([Part(None, rest.frames[::-1], parts[0].name, parts[0].message)], headless=False)
            parts.append(Part(rest.joint, rest.frames, CUT))
        return chain_of(parts, headless=self.headless)
