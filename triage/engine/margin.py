"""What somebody put in front of each line of a traceback: a host's name, a number, a quotation mark, blanks.

In come the lines of a plain file, out go the same without that margin. It is learned from a traceback's own first two
lines, header and frame, that begin alike but for their numbers, or from a frame whose header is missing, and forgotten
with the first line that begins otherwise. A number that stays the same over two records is no line's, but a launcher's
name of a process (`srun -l`). Called by `engine.runs`. It must not know loggers and supervisors:
`engine.lines` takes their words off.
"""

from __future__ import annotations

import re

from triage.engine.lines import Parsed, parse
from triage.engine.tracelines import FRAME, HEADER

MAX = 100
FILE = '  File "'  # as Python writes it
_NUMBER = re.compile(r" *\d+")
_TEXT = re.compile(r"[\"'={(]")  # what a record of a request has before its text is no margin
_LABEL = re.compile(r" *(\d{1,6}): ?")
_BARS = re.compile(r"[ |+-]+$")  # nor is what an exception group has


class Margin:
    """The margin of the traceback that is being read, if it has one."""

    __slots__ = ("_known", "_labelled", "_likely", "_task", "_under")

    def __init__(self) -> None:
        self._known: re.Pattern[str] | None = None
        self._likely: re.Pattern[str] | None = None  # what stood before the last header
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

    def without(self, parsed: Parsed) -> Parsed:
        """The line without its margin, behind which a record's head may stand."""
        if parsed.task and not parsed.writer:
            return self._record(parsed)
        text = self.off(parsed.text)
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
