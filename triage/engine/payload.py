"""The text of a request, printed over many lines into the log: kept apart until its record ends.

SGLang's request log writes prompts and answers as they are, newlines too. What stands in such a record (a traceback, a
rank tag, a kernel's line) was written by a client or by the model and proves nothing. In come the lines behind a record
that was opened and not closed; they are dropped with its end, or given back where no end comes. Called by
`engine.runs`, one `Payload` per open record. It must not judge what it holds.
"""

from __future__ import annotations

import re

from triage.model import Line

MAX_LINES = 500
WAIT = 5_000_000  # log time; a record is written at once
_REQUEST = re.compile(r"(?:Receive|Finish)[\w ]{0,20}: obj=")
_OPENS = re.compile(r"\b(?:text|prompt|content|messages|inputs?|outputs?)['\"]?[=:] ?['\"\[{]")
# For the gate: no other line opens a record.
WORDS = (
    ": obj=",
    *(
        word + quote + mark
        for word in ("text", "prompt", "content", "messages", "input", "inputs", "output", "outputs")
        for quote in ("", "'", '"')
        for mark in ("=", ":")
    ),
)
_FIELD = re.compile(r"[\"'], ?[\"']?\w+[\"']?[=:] ?[\w\[{(\"'-]")


class Payload:
    """One open record and what stands behind it."""

    __slots__ = ("lines", "since")

    def __init__(self, time: int | None) -> None:
        self.since = time
        self.lines: list[Line] = []

    @property
    def full(self) -> bool:
        return len(self.lines) >= MAX_LINES


def closes(text: str) -> bool:
    """Whether a record ends with this line: a closing quote, further fields, brackets."""
    if text[-1:] not in ("]", ")", "}"):
        return False
    fields = len(_FIELD.findall(text[-4000:]))
    if fields:
        return fields > 1 or not text.startswith((" ", "\t"))  # indented it may be code
    return text.strip("\"'])}") == ""


def opens(text: str) -> bool:
    """Whether a record holds the beginning of a request's text, but not its end."""
    head = text[:400]
    if "'" not in head and '"' not in head:
        return False
    if _REQUEST.match(head) is None and _OPENS.search(head) is None:
        return False
    last = max(text.rfind("'"), text.rfind('"'))
    tail = text[last + 1 :]
    if not tail:  # a quote at the very end: it opens if it stands behind '=' or the like
        return text[last - 1 : last] in ("=", ":", "[", "{", "(", " ")
    return not (tail[0] in "])},:" and tail[-1] in "])}")
