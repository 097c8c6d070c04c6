"""How far a server has come, and what its log says about itself: phase, flags, release.

In come the texts of one invocation, prefixes off; out goes a `Context`. Called by the assembler, which keeps one
`Progress` per running invocation and saves its `context()` with the cursor. It must not remember a secret: of the
flags, keys, tokens and passwords are dropped before anything else sees them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from triage.engine.pace import Speedometer
from triage.masking import is_secret
from triage.model import Context, Line, Phase, with_version

_ORDER = (Phase.UNKNOWN, Phase.ARGUMENTS, Phase.LOAD, Phase.MEMORY, Phase.CAPTURE, Phase.WARMUP, Phase.SERVING)
_RANK = {phase: n for n, phase in enumerate(_ORDER)}

FLAGS = "server_args=ServerArgs("
# What a healthy server says, with the name we keep and the phase that begins there. A draft model loads and captures in
# its turn, after the target's capture: so the phase only ever goes forward within one run.
_MARKS: tuple[tuple[str, str, Phase], ...] = (
    (FLAGS, "server_args", Phase.LOAD),
    ("Init torch distributed begin", "distributed", Phase.LOAD),
    ("Load weight begin", "load-begin", Phase.LOAD),
    ("Load weight end", "load-end", Phase.MEMORY),
    ("KV Cache is allocated", "kv-cache", Phase.MEMORY),
    ("Memory pool end", "memory-pool", Phase.MEMORY),
    ("Capture cuda graph begin", "capture-begin", Phase.CAPTURE),
    ("Capture draft cuda graph begin", "capture-begin", Phase.CAPTURE),
    ("Capture draft extend cuda graph begin", "capture-begin", Phase.CAPTURE),
    ("Capture piecewise CUDA graph begin", "capture-begin", Phase.CAPTURE),
    ("Capture cuda graph end", "capture-end", Phase.CAPTURE),
    ("max_total_num_tokens=", "scheduler-ready", Phase.WARMUP),
    ("Started server process", "http-up", Phase.WARMUP),
    ("Uvicorn running on", "http-up", Phase.WARMUP),
    ("The server is fired up and ready to roll", "ready", Phase.SERVING),
)
_PHASES = {name: phase for _, name, phase in _MARKS}
STARTS = ("distributed", "load-begin", "http-up")  # a server that is up says none of these again
# A line that shows the server at work: the scheduler made a step, or a generation was answered.
_ACTIVITY = ("Decode batch", "Prefill batch")
STOP_TEXTS = ("SIGTERM received. signum=", "Gracefully exiting...", "Shutting down")
_WARNINGS = ("Ignore import error when loading", "falling back", "Failed to load generation config")
_VERSION = re.compile(
    r"\b(?:sglang|SGLang)(?:[-_ ][Vv]ersion|\[all\])? ?(?:==?|:|[Vv]ersion)? ?['\"]?[Vv]?"
    r"(\d+\.\d+\.\d+(?:\.?(?:post|dev|rc)\d+)?)"
)
_NAMES = ("sglang", "SGLang")
_NEXT = ("-v", "_v", " v", "-V", "_V", " V", "[all]", "=", " =", ":", " :", "'", " '", '"', ' "', "v", "V")
_VERSIONED = tuple(name + after for name in _NAMES for after in (*_NEXT, *"0123456789", *(f" {n}" for n in range(10))))
# For the gate: what a line holds that `note` or STOP_TEXTS can mean.
WORDS = (*(mark for mark, _, _ in _MARKS), *STOP_TEXTS, *_WARNINGS, *_VERSIONED)
_NAME = re.compile(r"([A-Za-z_]\w*)=")
_MAX_FLAGS = 1200
_MAX_VALUE = 300


class Progress:
    """What one invocation has said so far. Small and bounded."""

    __slots__ = (
        "_flags",
        "_good",
        "_milestones",
        "_seen",
        "_warnings",
        "active",
        "meter",
        "phase",
        "stopping",
        "version",
    )

    def __init__(self, context: Context | None = None) -> None:
        context = context or Context()
        self.phase = context.phase
        self.version = context.sglang_version
        self.stopping = context.stopping
        self.active: int | None = None  # time of the last sign of work; -1 where it had none
        self._flags: Mapping[str, str] = context.flags
        self._good = context.good
        self._milestones = list(context.milestones)
        self._seen = {name for name, _ in self._milestones}
        self._warnings = list(context.warnings)
        self.meter = Speedometer(context.answered, context.pace)

    def inherit(self, before: Progress) -> None:
        """The unit's run before this one: how it was started counts if it came up."""
        up = "ready" in before._seen and before._flags
        self._good = with_version(before._flags, before.version) if up else before._good

    def note(self, text: str, line: Line) -> bool:
        """Take in one healthy line; True if it was a milestone that it had not come to yet."""
        name = milestone(text)
        if name is not None:
            new = name not in self._seen
            self._reach(_PHASES[name], name, line)
            if name == "server_args":
                self._flags = read_flags(text)
            return new
        if text.startswith(_ACTIVITY):
            return False
        if len(self._warnings) < 20 and any(word in text for word in _WARNINGS):
            self._warnings.append(line)
        if self.version is None and _RANK[self.phase] < _RANK[Phase.WARMUP] and ("glang" in text or "GLang" in text):
            match = _VERSION.search(text)
            if match is not None:
                self.version = match[1]
        return False

    def work(self, line: Line) -> None:
        """The server did something for a client. One that was started and said nothing of its start, does so now."""
        self.active = line.time if line.time is not None else -1
        if "ready" in self._seen or (self.phase is Phase.ARGUMENTS and not self._seen):
            self._reach(Phase.SERVING, "serving", line)
            self.meter.note(line.text)

    def answer(self, text: str) -> None:
        """A request was answered with 200."""
        if "ready" in self._seen:
            self.meter.answer(text)

    def answered(self, line: Line) -> None:
        """A request was answered: that tells how far it has come where the log level leaves only such lines."""
        if self.started:
            return
        if '"POST ' in line.text:
            self._reach(Phase.SERVING, "serving", line)
        elif self.phase is not Phase.WARMUP:
            self.phase = Phase.WARMUP

    def _reach(self, phase: Phase, name: str, line: Line) -> None:
        if _RANK[phase] > _RANK.get(self.phase, 0):
            self.phase = phase
        if name not in self._seen:
            self._seen.add(name)
            self._milestones.append((name, line.time))

    @property
    def expecting(self) -> bool:
        """It is up, and its first work is a milestone, its first answers are counted; or it was started and has said
        nothing yet."""
        untold = self.phase in (Phase.ARGUMENTS, Phase.WARMUP) and not self._seen
        return untold or ("ready" in self._seen and ("serving" not in self._seen or self.meter.counting))

    @property
    def up(self) -> bool:
        """It has said that it is ready."""
        return "ready" in self._seen

    @property
    def started(self) -> bool:
        return bool(self._seen)

    def reached(self, name: str) -> bool:
        return name in self._seen

    @property
    def flags(self) -> Mapping[str, str]:
        """What the server was started with, as it printed it."""
        return self._flags

    def context(self) -> Context:
        return Context(
            phase=Phase.SHUTDOWN if self.stopping is not None else self.phase,
            sglang_version=self.version,
            flags=self._flags,
            milestones=tuple(self._milestones),
            warnings=tuple(self._warnings),
            answered=self.meter.answered,
            pace=self.meter.pace(),
            stopping=self.stopping,
            good=self._good,
        )


def milestone(text: str) -> str | None:
    """The name of the milestone that a line is."""
    for mark, name, _ in _MARKS:
        if mark in text and _own(text[: text.find(mark)]):
            return name
    return None


def _own(before: str) -> bool:
    """Whether what stands before a milestone is but a logger's head: an address, a quoted text or a field was written
    by a client (uvicorn prints the query of a request as it came)."""
    if before.startswith("("):  # who wrote it: (Worker pid=77)
        before = before.partition(")")[2]
    return len(before) < 60 and not any(mark in before for mark in "'\"=?&{")


def read_flags(text: str) -> dict[str, str]:
    """The fields of 'server_args=ServerArgs(a=1, b="x, y")' as written, secrets left out. Never raises."""
    start = text.find("ServerArgs(")
    flags: dict[str, str] = {}
    at = start + len("ServerArgs(")
    while start >= 0 and at < len(text) and len(flags) < _MAX_FLAGS:
        match = _NAME.match(text, at)
        if match is None:
            break
        value, at = _value(text, match.end())
        if not is_secret(match[1]):
            flags[match[1]] = _unquote(value)[:_MAX_VALUE]
        if text[at : at + 1] != ",":
            break
        at += 1
        while text[at : at + 1] == " ":
            at += 1
    return flags


def _value(text: str, at: int) -> tuple[str, int]:
    """One Python literal or repr from `at` on, and where it ends."""
    start, depth, quote = at, 0, ""
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            if depth == 0:
                break
            depth -= 1
        elif char == "," and depth == 0:
            break
        at += 1
    return text[start:at], at


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value
