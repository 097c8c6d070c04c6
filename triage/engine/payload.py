"""The text of a request, printed over many lines into the log: kept apart until its record ends.

SGLang's request log writes prompts and answers as they are, newlines too. What stands in such a record (a traceback, a
rank tag, a kernel's line) was written by a client or by the model and proves nothing. In come the lines behind a record
that was opened and not closed; they are dropped with its end, or given back where no end comes or they are too many to
hold. An exception's message may quote a request in the same way (`Quotation`): its lines are read, but doubted where an
end of the quotation shows. Called by `engine.runs` and `engine.records`, one of each per writer. It must not judge what
it holds.
"""

from __future__ import annotations

import re

from triage.frozen import frozen
from triage.model import Line

MAX_LINES = 500  # that are held; more are read at once, and doubted
WAIT = 5_000_000  # log time; a record is written at once
_REQUEST = re.compile(r"(?:Receive|Finish)[\w ]{0,20}: obj=")
# The HTTP server's own record: one line whatever the client sent, and what the client sent in it, quotes too.
_ACCESS = re.compile(r"(?:\w+: +)?\S{1,80} - (?:- )?\"[A-Z]+ ")
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
_END_OF = {"[": "]", "{": "}"}
_FIELD = re.compile(r"[\"'], ?[\"']?\w+[\"']?[=:] ?[\w\[{(\"'-]")
# An exception's message that quotes what it was given: the mark that opens it; one within a word is an apostrophe.
_MARK = re.compile(r"(?:^|(?<=[\s=:(\[{,]))[bu]?(?P<mark>['\"]|```)")
_CLOSED = re.compile(r"(?P<mark>['\"]|```)[\])}.,;:!?]*$")
_REMOTE = ('"""', "'''")  # alone on a line they enclose another process's traceback
MESSAGE_LINES = 40  # so far a message may go on that seems to close what it quotes on its first line


class Payload:
    """One open record and what stands behind it."""

    __slots__ = ("_held", "count", "since")

    def __init__(self, time: int | None) -> None:
        self.since = time
        self.count = 0  # lines behind the first
        self._held: list[Line] = []

    def add(self, line: Line) -> list[Line]:
        """One more line of it; those that are too many to be held."""
        self.count += 1
        if self.count < MAX_LINES:
            self._held.append(line)
            return []
        return [*self.rest(), line]

    def rest(self) -> list[Line]:
        """The lines that are held still."""
        held, self._held = self._held, []
        return held


def is_request(text: str) -> bool:
    """Whether this is the beginning of a record of SGLang's request log."""
    return _REQUEST.match(text) is not None


def closes(text: str) -> bool:
    """Whether a record ends with this line: a closing quote, further fields, brackets. The line of a record that
    begins with it ends no other."""
    if text[-1:] not in ("]", ")", "}") or is_request(text):
        return False
    fields = len(_FIELD.findall(text[-4000:]))
    if fields:
        return fields > 1 or not text.startswith((" ", "\t"))  # indented it may be code
    return text.strip("\"'])}") == ""


def ends_text(text: str) -> bool:
    """Whether a line has a request's last word and the record's end behind it: a quote that nothing opened."""
    quote = min((at for at in (text.find("'"), text.find('"')) if at >= 0), default=-1)
    return quote >= 0 and text[:quote].rstrip()[-1:] not in ("=", ":", "(", "[", "{", ",") and closes(text)


def opens(text: str) -> bool:
    """Whether a record holds the beginning of a request's text, but not its end."""
    head = text[:400]
    if ("'" not in head and '"' not in head) or _ACCESS.match(head) is not None:
        return False
    if _REQUEST.match(head) is None:
        fields = list(_OPENS.finditer(head))
        if not fields:
            return False
        start = fields[-1].end()
        return _END_OF.get(text[start - 1], text[start - 1]) not in text[start:]
    last = max(text.rfind("'"), text.rfind('"'))
    tail = text[last + 1 :]
    if not tail:  # a quote at the very end: it opens if it stands behind '=' or the like
        return text[last - 1 : last] in ("=", ":", "[", "{", "(", " ")
    return not (tail[0] in "])},:" and tail[-1] in "])}")


@frozen
class Quotation:
    """What an exception's message began to quote: a request may go on over lines that look like any others."""

    mark: str
    text: str  # the line that opens it: whoever writes the same once more ends nothing
    serial: int  # of that line
    time: int | None
    lines: int  # within so many its end counts
    open: bool  # that line does not end it itself

    def over(self, serial: int, time: int | None) -> bool:
        late = time is not None and self.time is not None and time >= self.time + WAIT
        return late or serial - self.serial > self.lines


def quotations(text: str, serial: int, time: int | None) -> list[Quotation]:
    """What a line of an exception's message quotes: one for each mark that it opens."""
    if text.strip() in _REMOTE:
        return []
    found: dict[str, int] = {}
    for match in _MARK.finditer(text[:2000]):
        found.setdefault(match["mark"], match.start())
    marks = [(mark, _odd(text[at:], mark)) for mark, at in found.items()]
    return [Quotation(mark, text, serial, time, MAX_LINES if odd else MESSAGE_LINES, odd) for mark, odd in marks]


def closes_quotation(text: str, quoted: Quotation) -> bool:
    """Whether a line has a mark that nothing on it opened: as its end, where the first line left nothing open."""
    if quoted.mark not in text or text == quoted.text or not _odd(text, quoted.mark):
        return False
    found = _CLOSED.search(text.rstrip()[-40:])
    return quoted.open or (found is not None and found["mark"] == quoted.mark)


def _odd(text: str, mark: str) -> bool:
    return len(re.findall(rf"(?<!\w){mark}|{mark}(?!\w)", text[-4000:])) % 2 == 1
