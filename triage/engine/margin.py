"""What somebody put in front of each line of a traceback: a host's name, a number, a quotation mark, blanks.

In come the lines of a plain file, out go the same without that margin. It is learned from a traceback's own first two
lines, header and frame, that begin alike but for their numbers, or from a frame whose header is missing, and forgotten
with the first line that begins otherwise. It is learned too from what stands before SGLang's own head in two records,
and as long as none was read (a usage, a dump of the stacks has none before it) from the text's first lines, if all of
them begin alike. A number that stays the same over two records is no line's, but a launcher's name of a process
(`srun -l`). Called by `engine.runs`. It must not know loggers and supervisors: `engine.lines` takes their words off.
"""

from __future__ import annotations

import re

from triage.engine.lines import Parsed, parse
from triage.engine.tracelines import FRAME, HEADER

MAX = 100
FILE = '  File "'  # as Python writes it
DUMP = "Fatal Python error: "  # begins a dump of the stacks, which no record need stand before
_NUMBER = re.compile(r" *\d+")
_TEXT = re.compile(r"[\"'={(]")  # what a record of a request has before its text is no margin
_LABEL = re.compile(r" *(\d{1,6}): ?")
_FIRST = 4  # lines that tell what all begin with
_TOKEN = re.compile(r"\d+|\D")
_STAMPED = re.compile(r"(.{1,100})\[20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z][A-Z_]*\d+)*\] ")
_END = re.compile(r".*[:|>\]\t ]")  # where such a beginning may end
_BARS = re.compile(r"[ |+-]+$")  # nor is what an exception group has


class Margin:
    """The margin of the traceback that is being read, if it has one."""

    __slots__ = ("_all", "_first", "_known", "_labelled", "_likely", "_once", "_task", "_under")

    def __init__(self) -> None:
        self._known: re.Pattern[str] | None = None
        self._likely: re.Pattern[str] | None = None  # what stood before the last header
        self._all: re.Pattern[str] | None = None  # what all lines begin with, as long as no record was read
        self._once: re.Pattern[str] | None = None  # what stood before the last record's head
        self._first: list[str] | None = []  # the text's first lines, until that is known
        self._task = ""  # number before the last record
        self._under = False  # the last line was a traceback's header, whose own blanks a record's head hid
        self._labelled = False  # that tells processes apart

    @property
    def expecting(self) -> bool:
        """Something is remembered of the last lines."""
        return (self._known is not None and self._known is not _LABEL) or self._likely is not None

    def off(self, text: str) -> str:
        """The line without its margin."""
        at = text.find(HEADER)
        under, self._under = self._under, at >= 0 and text[0] != " "
        if at > 1:
            head = text[: at - 1]
            self._likely = _like(head) if len(head) <= MAX and not _TEXT.search(head) else None
        elif self._likely is not None:
            match = self._likely.match(text)
            if match is not None and text[match.end() :].startswith("  ") and FRAME.match(text, match.end()):
                self._known = self._likely
            self._likely = None
        if self._known is None:
            return self._frame(text, under=under)
        match = self._known.match(text)
        if match is None and text.strip():
            self._known = None
        return text[match.end() :] if match is not None else text

    def without(self, parsed: Parsed, raw: str) -> Parsed:
        """The line (`raw`: as it was written) without its margin, behind which a record's head may stand."""
        if parsed.headed:
            parsed = self._headed(parsed, raw)
        if parsed.task and not parsed.writer:
            return self._record(parsed)
        text = self.off(parsed.text if parsed.headed else self._alike(parsed.text, raw))
        if text is parsed.text:
            return parsed
        label = _LABEL.match(parsed.text) if self._known is _LABEL else None
        if label is not None:
            parsed = parsed._replace(writer=f"/{label[1]}", task=label[1])
        inner = parse(text)
        return parsed._replace(
            text=inner.text,
            headed=parsed.headed or inner.headed,
            rank=inner.rank or parsed.rank,
            level=inner.level or parsed.level,
            stamp=parsed.stamp or inner.stamp,
        )

    def _headed(self, parsed: Parsed, raw: str) -> Parsed:
        """A record: what stands before its head, the lines without one have too. Where that is a head itself (a time in
        brackets) such lines look like records."""
        self._first = None
        if parsed.task or (raw.startswith("[20") and raw.find("[20", 1, MAX + 20) < 0 and self._all is None):
            self._all = self._once = None
            return parsed
        stamped = _STAMPED.match(raw)
        if stamped is not None:
            head = stamped[1]
            if self._once is not None and self._once.fullmatch(head):
                self._all = self._once
            else:
                self._once, self._all = None if _TEXT.search(head) or _wordy(head) else _like(head), None
            return parsed
        match = self._all.match(raw) if self._all is not None else None
        if match is None:
            self._all = None
            return parsed
        inner = parse(raw[match.end() :])
        return parsed if inner.headed else inner._replace(stamp=parsed.stamp)

    def _alike(self, text: str, raw: str) -> str:
        """The line without what all lines begin with."""
        if self._first is not None and (at := text.find(DUMP)) > 1 and _margin(text[:at]):
            self._all, self._first = _like(text[:at]), None
        elif self._first is not None and (FILE in text or HEADER in text):
            self._first = None  # a traceback's own lines tell it, and all are indented
        elif self._first is not None and text.strip():
            self._first.append(text)
            if len(self._first) == _FIRST:
                self._all, self._first = _beginning(self._first), None
        for each in (text, raw) if self._all is not None else ():
            match = self._all.match(each) if self._all is not None else None
            if match is not None:
                return each[match.end() :]
        return text

    def _record(self, parsed: Parsed) -> Parsed:
        """A record behind a number: a launcher's, if the one before it had the same."""
        if HEADER not in parsed.text:  # no change amid a traceback
            self._labelled = self._labelled or parsed.task == self._task
            self._task = parsed.task
        if not self._labelled:
            self.off(parsed.text)
            return parsed._replace(task="")
        self._known, self._likely = _LABEL, None
        return parsed._replace(writer=f"/{parsed.task}")

    def _frame(self, text: str, *, under: bool) -> str:
        """A frame with something before it; right `under` its header blanks are enough."""
        at = text.find(FILE)
        head = text[:at]
        if not 0 < at <= MAX or FRAME.match(text, at) is None or _TEXT.search(head):
            return text
        if _BARS.match(head) and not (under and head.isspace()):
            return text
        self._known = _LABEL if self._labelled and _LABEL.fullmatch(head) else _like(head)
        return text[at:]


def _like(head: str) -> re.Pattern[str]:
    return re.compile(r" *\d+".join(re.escape(part) for part in _NUMBER.split(head)))


def _beginning(texts: list[str]) -> re.Pattern[str] | None:
    """What these lines begin with, but for their numbers, if that is no word of a text."""
    tokens = [_TOKEN.findall(text[:MAX]) for text in texts]
    size = next(
        (n for n, same in enumerate(zip(*tokens, strict=False)) if not all(_same(same[0], other) for other in same)), 0
    )
    end = _END.match("".join(tokens[0][:size]))
    head = end[0] if end is not None else ""
    return _like(head) if _margin(head) else None


def _margin(head: str) -> bool:
    """Whether it may stand before each line: it is no word of a text."""
    fits = 1 < len(head) <= MAX and _END.fullmatch(head) is not None
    return fits and re.search(r"[\d\]|>]", head) is not None and _TEXT.search(head) is None


def _wordy(head: str) -> bool:
    """Whether it is a record's head and a part of its text, which a request can have written."""
    inner = parse(f"{head}.")
    return inner.headed and inner.text != "."


def _same(one: str, other: str) -> bool:
    return one == other or (one.isdecimal() and other.isdecimal())
