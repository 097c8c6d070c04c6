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
_STAMPS = ("time", "timestamp", "ts", "@timestamp")
_FIELD = r'[\w.@-]{1,80}=(?:"(?:[^"\\]|\\.)*"|[^\s"]*) +'
_LOGFMT = re.compile(rf'(?:{_FIELD}){{0,20}}?(?:msg|message|log|line)=(?P<text>"(?:[^"\\]|\\.)*"|[^\s"]+)')
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
    whole = clean(text).rstrip("\r\n")
    for part in [whole] if cut or time is not None else whole.split("\n"):
        yield Line(
            part,
            n=n,
            time=time if time is not None else times.of(part),
            stream=stream if isinstance(stream, str) else None,
            cut=cut,
            fields={"_LINE_BREAK": BROKEN_OFF} if cut else EMPTY,
        )


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
        message, stamp = match["text"], _STAMP.search(text[: match.start("text")])
        if message.startswith('"'):
            with contextlib.suppress(ValueError):
                message = json.loads(message, strict=False)
        members = {"message": message, **({"time": stamp["stamp"].strip()} if stamp is not None else {})}
        yield from record_lines(members, "message", n, times)
