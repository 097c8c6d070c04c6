"""Crash -> signature: the versioned key under which crashes count as the same.

In comes a crash, out goes `Signature` with its parts explained. Called by `triage.diagnose`. What differs between two
runs of the same fault must not go in: line numbers, ranks, addresses, sizes, times, paths, pids. A change of what
goes in needs a new VERSION, since incidents are kept under the key.
"""

from __future__ import annotations

import hashlib

import regex

from triage.engine.tracelines import is_engine
from triage.masking import mask
from triage.model import Crash, Frame, Link, Signature

VERSION = 1
MAX_FUNCTIONS = 5
MAX_MESSAGE = 240

# Tried in this order: the larger shapes first, so that a number in a path is not taken for itself.
_SHAPES: tuple[tuple[str, str], ...] = (
    (r"https?://\S+", "<url>"),
    (r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b", "<id>"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?", "<time>"),
    (r"\b\d{1,2}:\d\d:\d\d(?:\.\d+)?\b", "<time>"),
    (r"(?<![\w.])(?:/|\./|\.\./|~/)[^\s'\"`,:;()\[\]]+", "<path>"),
    (r"\b0[xX][0-9a-fA-F]+\b", "<address>"),
    (r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b", "<id>"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b", "<address>"),
    (r"\b\d+(?:\.\d+)? ?(?:[KMGT]i?B|bytes)\b", "<size>"),
    (r"\b(rank|GPU|cuda|device|pid|process|port|scheduler)([ :=#_]*)\d+\b", r"\1\2<n>"),
)
_COMPILED = tuple((regex.compile(shape, regex.IGNORECASE if "rank" in shape else 0), to) for shape, to in _SHAPES)
_NUMBER = regex.compile(r"(?<!Errno )(?<!Xid )(?<![A-Za-z\d])-?\d+(?:\.\d+)?(?:e-?\d+)?")
_LIST = regex.compile(r"<n>(?:, ?<n>)+")
_SECOND = 0.2  # seconds a substitution may take on hostile text


def sign(crash: Crash) -> Signature:
    """The key of what failed first, equal for the same fault read as text, journal, json or export."""
    cause = crash.root.cause
    message = template(cause.message)
    functions = _functions(cause)
    parts = (("exception", cause.exception), ("message", message), ("functions", " < ".join(functions)))
    digest = hashlib.sha256("\n".join([str(VERSION), cause.exception, message, *functions]).encode()).hexdigest()
    return Signature(VERSION, digest[:16], title(cause), parts)


def template(message: str) -> str:
    """The first line of a message with all that varies taken out."""
    text = mask(message.split("\n", 1)[0].strip())[:2000]
    try:
        for shape, to in _COMPILED:
            text = shape.sub(to, text, timeout=_SECOND)
        text = _NUMBER.sub("<n>", text, timeout=_SECOND)
        text = _LIST.sub("<n>", text, timeout=_SECOND)
    except TimeoutError:
        text = text[:80]
    return text[:MAX_MESSAGE]


def title(cause: Link) -> str:
    """One line for a list: what, where, and the beginning of the message."""
    where = f" in {cause.frame.file} {cause.frame.function}".rstrip() if cause.frame else ""
    first = mask(cause.message.split("\n", 1)[0].strip())
    text = f"{cause.exception}{where}" + (f": {first}" if first and first != cause.exception else "")
    return text if len(text) <= 160 else text[:157] + "..."


def _functions(cause: Link) -> list[str]:
    """The innermost functions of the engine, outermost of them first; all frames' where none is the engine's."""
    own = [frame for frame in cause.frames if is_engine(frame.path)] or list(cause.frames)
    names: list[str] = []
    for frame in own:
        name = _name(frame)
        if not names or names[-1] != name:  # recursion, and frames with and without a wrapper's
            names.append(name)
    return names[-MAX_FUNCTIONS:]


def _name(frame: Frame) -> str:
    return f"{frame.file}:{frame.function}"
