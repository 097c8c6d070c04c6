"""What a line can be to a traceback, judged alone: header, frame, source, exception, the end of a message; and which
frames are the engine's.

In comes the text of one line with its prefixes off. Called by `engine.tracebacks` and all that tell its lines apart. It
must not remember anything between two lines.
"""

from __future__ import annotations

import re
from enum import IntEnum, auto

from triage.engine.signs import PARENTS
from triage.model import Frame

# Ray prints what another process raised without Python's header: 'ray::Engine.run() (pid=77, ip=10.0.0.1)'.
_RAY_HEADER = re.compile(
    r"(?:.{0,60}Unhandled error \(suppress with [^()]*\): )?ray::[\w.<>]+(?:\(\))? \(pid=\d+, ip=.*\)$"
)
HEADER = "raceback (most recent call last):"  # the first letter gets lost in pasted logs
MAX_MESSAGE = 8_000

FRAME = re.compile(
    r'\s*(?:\|\s+)*File ?\\?["“](?P<path>[^"“”\\\n][^"”\n]{0,511})["”], ?'
    r"line (?P<line>\d{1,9})(?:,? in ?(?P<function>.*))?$"
)
# A frame that lost its head, or was typed down: 'pool.py", line 87, in __init__', 'pool.py, line 87, in alloc'.
LOOSE = re.compile(r'\s*(?P<path>[\w./-]{1,300}\.py)"?,? line (?P<line>\d{1,9}),? in (?P<function>[\w.<>]+)$')
_STACK = re.compile(
    r"\s*(?:at )?(?:"
    r"(?P<path>[\w./-]{1,300}\.py):(?P<line>\d{1,9}):? (?:in )?\(?(?P<function>[\w.<>]{1,200})(?:\(\)|\))?|"
    r"(?P<function2>[\w.<>]{1,200}) \((?P<path2>[\w./-]{1,300}\.py):(?P<line2>\d{1,9})\))$"
)
_EXCEPTION = re.compile(
    r"(?P<name>[A-Za-z_]\w{0,120}(?:\.(?:[A-Za-z_]\w{0,120}|<locals>)){0,12})(?:\([\w.]+\)(?=: ))?"
    r"(?:(?P<args>\(.*\))|: ?(?P<message>.*)|\s*)$",
    re.DOTALL,
)
# Without a header and frames above it only names that say so themselves count as exceptions.
_PLAIN_NAME = re.compile(r"(?:Error|Exception|Interrupt|OutOfResources|ExceptionGroup|Timeout|Exit|Failure)$")
# Names that end otherwise and are an exception's all the same: torch's compiler's, a resolver's.
_PLAIN_DOTTED = re.compile(r"\.exc\.[A-Z]\w*$|^socket\.gaierror$")
# Behind frames also other class names: dotted, or written in capitals and humps. 'Try: pip install ...' is a message.
_CLASS_NAME = re.compile(r"_?[A-Z]\w*[a-z]\w*[A-Z]\w*$|Stop\w+$|Empty$|Again$|Full$")
_CUT_NAME = re.compile(r"[a-z](?:Er|Err|Erro|Ex|Exc|Exce|Excep|Except|Excepti|Exceptio)$")
# For the gate: no other line is a header or a frame, or an exception that nothing stands above.
BEGINS = (
    "raceback (most recent call last):",
    "ray::",
    *(f"{end} line " for end in ('",', "”,", ".py", ".py,", '.py"')),
)
WORDS = (
    *BEGINS,
    *("Error", "Exception", "Interrupt", "OutOfResources", "Timeout", "Exit", "Failure", ".exc.", "gaierror"),
)
# What no further line of a message begins with: other records, other tracebacks.
_ENDS_MESSAGE = (
    "terminate called",
    "Fatal Python error",
    "usage: ",
    "Possible solutions",
    "Exception raised from",
    "Exception in thread",
    "Exception in callback",
    "Exception ignored ",
    "Task exception was never retrieved",
    "Killed",
    "Current thread 0x",
    "Thread 0x",
    "frame #",
    "  what():",
)
_LOGGING = re.compile(r"(?:^|/)logging/(?:__init__|handlers)\.py$")
BOX = re.compile(r"\+-{8,}\+$")  # a warning in a box
_WARNING = re.compile(r"\S+:\d+: \w*Warning: ")
_PROCESS = re.compile(r"Process \S{1,100}:$|Process (?:Spawn|Fork)Process")  # multiprocessing's word before a traceback
_ERROR = re.compile(r"(?:ERROR|CRITICAL|FATAL) +")
_LEAD = re.compile(r"[^\"'={}<>\r]{0,160}$")


class Form(IntEnum):
    """What a line can be to a traceback, judged alone."""

    FRAME = auto()
    SOURCE = auto()  # indented: a frame's source line
    MARKS = auto()  # '~~~^^^' below it
    EXCEPTION = auto()
    OTHER = auto()


def header_lead(text: str) -> str | None:
    """What stands before 'Traceback (most recent call last):' if the line ends with it and may be believed, else None.

    A logged request that quotes a traceback has quotes, braces or an equals sign before it; a lead-in has not.
    """
    bare = text.rstrip()
    if not bare.endswith(HEADER):
        return "" if "ray::" in bare and _RAY_HEADER.match(bare) else None
    lead = bare[: -len(HEADER)]
    lead = lead.removesuffix("T").removesuffix("Exception Group ").strip(" |+")
    return lead if _LEAD.match(lead) else None


def stack_line(text: str) -> Frame | None:
    """A frame as tools and people write it below an error: 'worker.py:12 forward', 'forward (worker.py:12)'."""
    match = _STACK.match(text) if ".py:" in text else None
    if match is None:
        return None
    path, line = (match["path"], match["line"]) if match["path"] else (match["path2"], match["line2"])
    return Frame(path, match["function"] or match["function2"], int(line))


def frame_match(text: str) -> re.Match[str] | None:
    """A line that names a frame, as Python prints it or without its head."""
    return FRAME.match(text) or (LOOSE.match(text) if ".py" in text else None)


def form_of(text: str) -> Form:
    if FRAME.match(text):
        return Form.FRAME
    if text[:1] in (" ", "\t", "^", "~", "|", "+"):
        return Form.MARKS if not text.strip(" \t^~|") else Form.SOURCE
    return Form.EXCEPTION if exception_line(text) is not None else Form.OTHER


def read_frame(match: re.Match[str]) -> Frame:
    """A backslash before the quotation mark is whose who quoted the traceback."""
    return Frame(match["path"].removesuffix("\\"), (match["function"] or "").strip(), int(match["line"]))


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
        known = _PLAIN_NAME.search(last) or _PLAIN_DOTTED.search(name)
        if not known or not (last[0].isupper() or "." in name):
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


def announced(text: str) -> tuple[str, str] | None:
    """Name and message, if a record is nothing but an exception, of which the frames may follow."""
    return exception_line(_ERROR.sub("", text, count=1), plain=True)


def cut_class(name: str, text: str) -> bool:
    """Whether the line may break off within the class's name: 'AssertionErr', 'torch.Accelerato'."""
    last = name.rsplit(".", 1)[-1]
    if not text.rstrip().endswith(last):
        return False
    return bool(_CUT_NAME.search(last)) or (
        "." in name and not (_PLAIN_NAME.search(last) or _CLASS_NAME.match(last) or last[0].islower())
    )


def ends_message(text: str) -> bool:
    """Whether a line begins as no further line of a message does."""
    ends = text.startswith(_ENDS_MESSAGE) or PARENTS.match(text) or FRAME.match(text)
    return bool(ends or _PROCESS.match(text) or _WARNING.match(text) or BOX.match(text))


def quotes(text: str) -> bool:
    """Whether an exception's message begins with a traceback of its own, as TVM's do."""
    found = exception_line(text) if text.endswith(f": T{HEADER}") else None
    return found is not None and found[1] == f"T{HEADER}"


def engine_frame(frames: list[Frame] | tuple[Frame, ...]) -> Frame | None:
    """The innermost frame in the engine's own code, else the innermost."""
    for frame in reversed(frames):
        if is_engine(frame.path):
            return frame
    return frames[-1] if frames else None


def is_logging(frames: list[Frame]) -> bool:
    """Whether this begins in Python's logging, which prints what a record's text raised, and goes on."""
    return bool(frames) and frames[0].function.endswith("emit") and _LOGGING.search(frames[0].path) is not None


def is_engine(path: str) -> bool:
    """Whether a file is SGLang's own. A virtual environment below /opt/sglang does not make torch a part of it."""
    parts = path.replace("\\", "/").split("/")[:-1]
    for n in range(len(parts) - 1, -1, -1):
        if parts[n] in ("site-packages", "dist-packages"):
            return parts[n + 1 : n + 2] in (["sglang"], ["sgl_kernel"])
    if any(part.startswith("python3") for part in parts):
        return False
    return "sglang" in parts or "sgl_kernel" in parts
