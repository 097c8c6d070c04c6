"""What a dying process writes below Python: fault handler dumps, uncaught C++ exceptions, their stacks.

In comes the line that a native sign was read from and then the same process's lines; out goes one chain of links.
Called by `engine.lanes`, with the same shape as a `Traceback`. It must not know of crashes and must keep a bounded
number of lines.
"""

from __future__ import annotations

import re

from triage.engine.kinds import Sign
from triage.engine.tracebacks import MAX_FRAMES, MAX_LINES, Fate
from triage.engine.tracelines import FRAME, MAX_MESSAGE, Form, engine_frame, read_frame
from triage.model import Frame, Line, Link

_RANK = re.compile(r"\[PG [^\]]{1,80} Rank (?P<rank>\d{1,6})\]")
_CXX = re.compile(r"terminate called after throwing an instance of '(?P<name>[^']+)'")
_HANDLER = "__restore_rt"  # the C library's way into a signal's handler: what failed stands behind it
_SECTION = re.compile(r"(?P<current>Current thread|Thread) 0x[0-9a-fA-F]+")


class Dump:
    """A native death: opens with its first line, goes on while the process writes stacks."""

    __slots__ = (
        "_current",
        "_cxx",
        "_frames",
        "_handler",
        "_sections",
        "_told",
        "_what",
        "damaged",
        "lead",
        "lines",
        "lost",
        "opened",
        "serial",
        "sign",
        "start",
        "texts",
    )

    def __init__(self, sign: Sign, line: Line, text: str) -> None:
        self.sign = sign
        self.lead = ""
        self.start = self.serial = 0
        self.lost = False
        self.damaged = False
        self.lines = [line]
        self.texts = [text]
        self.opened = 1
        self._frames: list[Frame] = []  # innermost first, as the fault handler prints them
        self._current = True
        self._sections = 0
        self._handler = text.startswith("Fatal Python error")
        self._told = False  # what the thread that died was at
        self._what = ""
        match = _CXX.match(text)
        self._cxx = match["name"] if match else ""

    @property
    def done(self) -> bool:
        return True

    @property
    def waiting(self) -> bool:
        return False

    @property
    def late(self) -> bool:
        return False

    @property
    def frames(self) -> list[Frame]:
        return self._frames[::-1]

    @property
    def place(self) -> str:
        return self.texts[-1]

    @property
    def rank(self) -> str | None:
        """As torch names it, where the exception's own words do."""
        match = _RANK.match(self._what)
        return f"rank{match['rank']}" if match is not None else None

    def accepts(self, _form: Form) -> bool:
        return True

    def feed(self, line: Line, text: str, *, headed: bool) -> Fate:
        if headed:
            return Fate.ENDED
        bare = text.rstrip()
        if not bare:
            return Fate.TAKEN
        section = _SECTION.match(bare)
        if section is not None:
            self._sections += 1
            self._current = section["current"].startswith("Current")
            if self._current:
                self._frames = []
        elif self._current and self._sections:
            self._told = True
        frame = FRAME.match(bare)
        if frame is not None and (self._current or not self._sections) and len(self._frames) < MAX_FRAMES:
            self._frames.append(read_frame(frame))
            if self._frames[0].function == _HANDLER:
                self._frames.clear()
        if bare.lstrip().startswith("what():") and not self._what:
            self._what = bare.split("what():", 1)[1].strip()[:MAX_MESSAGE]
        if len(self.lines) < MAX_LINES:
            self.lines.append(line)
            self.texts.append(bare)
        return Fate.TAKEN

    def end(self) -> Fate:
        """A fault handler's dump has the frames of the thread that died, and goes on behind them; an exception of a
        library's has its words."""
        self.lost = self._handler and (not self._told or FRAME.match(self.texts[-1]) is not None)
        self.lost = self.lost or ("::" in self._cxx and not self._what)
        return Fate.ENDED

    def chain(self) -> tuple[Link, ...]:
        """The C++ exception, where one was named, is what the signal only carries out."""
        frames = tuple(reversed(self._frames))
        died = Link(self.sign.exception, self.sign.message, engine_frame(frames), frames)
        return (Link(self._cxx, self._what), died) if self._cxx else (died,)
