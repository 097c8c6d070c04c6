"""Records that a logger or a cloud wrote around each line -> lines: as JSON, or as logfmt ('level=error msg="..."').

In come the members of a JSON object, or the bytes of a logfmt log, out go `Line`s. Called by `sources.stream`. It must
not know the journal's entries.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from triage.model import BROKEN_OFF, EMPTY, Line
from triage.sources.bytes import Bytes, Notes, decode
from triage.sources.entry import clean
from triage.sources.text import Times

PIECE = 16 * 1024  # where a container engine breaks a line
# A container engine's name for the text, loggers', Loki's, a cloud's, structlog's, loguru's.
TEXTS = ("log", "message", "msg", "line", "textPayload", "event", "text")
# Where loggers put the traceback that belongs to the text: python-json-logger's, structlog's, ECS'. A stack without an
# exception ('stack_info') is none.
RAISED = frozenset({"exc_info", "exc_text", "exception", "traceback", "stack_trace", "error.stack_trace", "error"})
_HEADER = "Traceback (most recent call last):"
_FRAME = '  File "'
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
_STAMPS = ("time", "timestamp", "ts", "@timestamp")
_FIELD = r'[\w.@-]{1,80}=(?:"(?:[^"\\]|\\.)*"|[^\s"]*) +'
_END = r"(?= *$| +[\w.@-]{1,80}=)"  # what is no more of the value; else its writer leaves quotes as they are, or out
_VALUE = rf'"(?:[^"\\]|\\.)*"{_END}|".*"(?= *$)|[^\s"]+{_END}'
_LOGFMT = re.compile(rf"(?:{_FIELD}){{0,20}}?(?:msg|message|log|line)=(?P<text>{_VALUE})")
_RAISED = re.compile(r' (?:exc_info|exc_text|exception|traceback|stack_trace)=(?P<text>"(?:[^"\\]|\\.)*")')
_STAMP = re.compile(r'(?:^| )(?:time|timestamp|ts|t)="?(?P<stamp>\d{4}-[\dT:.,+Z -]{8,40})')


def records(entry: Any, stamps: Mapping[str, Any] = EMPTY, depth: int = 6) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The members among which a text is, and its name: the object's own, or those of what it holds (an Elastic hit's
    '_source', a cloud's 'jsonPayload', the 'events' of an answer, Loki's pairs of time and line)."""
    if isinstance(entry, dict):
        name = next((name for name in TEXTS if isinstance(entry.get(name), str)), None)
        if name is not None:
            yield {**stamps, **entry}, name
            return
        stamps = {**stamps, **{name: entry[name] for name in _STAMPS if isinstance(entry.get(name), str)}}
    elif isinstance(entry, list) and len(entry) in (2, 3) and all(isinstance(each, str) for each in entry[:2]):
        if entry[0].isdecimal():
            yield {"line": entry[1]}, "line"
        return
    elif not isinstance(entry, list):
        return
    for inner in (entry.values() if isinstance(entry, dict) else entry) if depth else ():
        yield from records(inner, stamps, depth - 1)


def record_lines(entry: Mapping[str, Any], name: str, n: int, times: Times) -> Iterator[Line]:
    """The lines of a container engine's json-file log, or of a logger's record. The engine's has its line end, but one
    that was long comes in pieces, of which only the last has it; loggers that copy it leave the end out."""
    text = entry[name]
    written = next((str(entry[stamp]) for stamp in _STAMPS if stamp in entry), "")
    time = _time(written)
    cut = name == "log" and len(text.encode("utf-8", "replace")) >= PIECE and not text.endswith("\n")
    stream = entry.get("stream")
    if not RAISED.isdisjoint(entry):
        text += raised(entry, text)
    whole = clean(text).rstrip("\r\n")
    parts = [whole] if cut or time is not None else whole.split("\n")
    stamps = [time if time is not None else times.of(part) for part in parts]
    if len(parts) > 1 and _FRAME in whole and stamps.count(None) >= len(parts) - 1:
        parts, stamps = [whole], [next((stamp for stamp in stamps if stamp is not None), None)]  # a traceback's record
    for part, stamp in zip(parts, stamps, strict=True):
        yield Line(
            part,
            n=n,
            time=stamp,
            stream=stream if isinstance(stream, str) else None,
            cut=cut,
            fields={"_LINE_BREAK": BROKEN_OFF} if cut else EMPTY,
        )


def raised(entry: Mapping[str, Any], text: str) -> str:
    """The traceback that stands in a member of its own, as a logger writes it below its text; empty if the text has it
    itself."""
    if _FRAME in text:
        return ""
    for name in sorted(RAISED & entry.keys()):
        value = entry[name]
        if isinstance(value, dict):  # ECS: its frames are kept apart from the exception
            kind, message = value.get("type"), value.get("message")
            value = value.get("stack_trace")
            if isinstance(value, str) and isinstance(kind, str) and kind not in value:
                value = f"{value.rstrip()}\n{kind}: {message}"
        elif name == "error":
            continue  # anybody's words
        elif isinstance(value, list):
            lines = [line.rstrip("\r\n") for line in value if isinstance(line, str)]
            value = "\n".join(lines) if lines else _structured(value)
        if isinstance(value, str) and _FRAME in value:
            value = value.strip("\r\n")
            return f"\n{value}" if "raceback (" in value else f"\n{_HEADER}\n{value}"
    return ""


def _structured(stacks: list[Any]) -> str:
    """structlog's tracebacks in parts, the one that was raised last first, as Python prints them."""
    parts: list[str] = []
    for stack in reversed([stack for stack in stacks[:20] if isinstance(stack, dict)]):
        frames = [frame for frame in stack.get("frames") or () if isinstance(frame, dict)]
        parts += [
            _HEADER,
            *(f'{_FRAME}{f.get("filename")}", line {f.get("lineno")}, in {f.get("name")}' for f in frames),
        ]
        parts += [
            f"{stack.get('exc_type')}: {stack.get('exc_value')}",
            "",
            _CAUSE if stack.get("is_cause") else _CONTEXT,
            "",
        ]
    return "\n".join(parts[:-3])


def _time(written: str) -> int | None:
    with contextlib.suppress(ValueError, OverflowError):
        stamp = re.sub(r"(\.\d{6})\d*", r"\1", written)  # nanoseconds are more than Python reads
        return int(datetime.fromisoformat(stamp).timestamp() * 1_000_000)
    return None


def is_logfmt(head: bytes) -> bool:
    """Whether nearly each line is a record of that form."""
    lines = [line for line in head.decode("utf-8", "replace").split("\n")[:40] if line.strip()]
    lines = lines[:-1] or lines  # the last one may be cut
    return bool(lines) and sum(_LOGFMT.match(line) is not None for line in lines) >= 0.8 * len(lines)


def read_logfmt(data: Bytes, notes: Notes, times: Times) -> Iterator[Line]:
    """What each record's message is; a line that is none is a line."""
    n = 0
    while (raw := data.line()) is not None:
        n += 1
        text = decode(raw, notes).removesuffix("\r")
        match = _LOGFMT.match(text)
        if match is None:
            yield Line(clean(text), n=n, time=times.of(text), cut=notes.ends)
            continue
        message, stamp = _unquoted(match["text"]), _STAMP.search(text[: match.start("text")])
        members = {"message": message, **({"time": stamp["stamp"].strip()} if stamp is not None else {})}
        if "File " in text and (below := _RAISED.search(text)) is not None:
            members["exception"] = _unquoted(below["text"])
        yield from record_lines(members, "message", n, times)


def _unquoted(value: str) -> str:
    if value.startswith('"'):
        with contextlib.suppress(ValueError):
            return str(json.loads(value, strict=False))
        return value[1:-1]
    return value
