"""A few lines without any log around them: an error message that a person pasted.

In come the first lines of a plain text, out goes the line that names a failure, as a sign, where the whole text is
that short and nothing better was found in it. Called by `engine.runs` at the end of its input. It must not look at a
log: one record with a head, a supervisor's prefix, or a thirteenth line, and there is no excerpt.
"""

from __future__ import annotations

import re

from triage.engine.kinds import Kind, Sign
from triage.engine.lines import Parsed
from triage.model import Line, Role

MAX_LINES = 12
_WORDS = re.compile(
    r"\b(?:fail(?:ed|ure|s)?|fallen off|can ?not|can't|couldn't|could not|unable to|denied|refused|no such|"
    r"not (?:installed|found|divisible|supported|alive|available|met|enough|implemented|compatible|registered|defined|"
    r"allowed|bundled|eligible|initiali[sz]ed|permitted)|do(?:es)?(?: not|n't) support|unhandled|is blocked|undeclared|"
    r"exited with status|"
    r"timed? ?out|timeout|dead|exceeds?|mismatch\w*|too (?:old|large|many|small|long)|unsupported|invalid|"
    r"unexpected|unbalanced|missing|no (?:GPU )?memory|corrupt\w*|out of (?:memory|bounds|range)|"
    r"illegal|overflow\w*|aborted|"
    r"must (?:be|have)|leak (?:detected|found)|nan detected|NIXL_ERR_[A-Z_]{3,40}|error in function|"
    r"expected|undefined|unrecognized|no module named|Exception raised from|"
    r"object has no attribute|only supports?|can only be used|"
    r"(?:object|of type '\w{1,60}') is not (?:iterable|subscriptable|callable))\b",
    re.I,
)
# How a person shortens a traceback: its place and its last line on one line.
_PLACED = re.compile(
    r"\s*(?:\S{1,200}/)?[\w.-]{1,80}\.py:\d{1,6}:?\s+(?:\(?in \S{1,80}:?\s+)?"
    r"(?P<class>(?:\w{1,40}\.){0,6}[A-Z]\w{1,60}(?:Error|Exception)): (?P<message>\S.{0,2000})"
)
# The system's own number, or a check of compiled code and what it wanted.
_NATIVE = re.compile(r"\[Errno \d{1,3}\] \w|\b\w{1,60}\.(?:cpp|cuh?|hpp|cc):\d{1,6}:?\s+['\"]")
_WARNING = re.compile(r":\d+: \w*Warning: ")  # Python's own: a healthy server begins with some
_XID = re.compile(r"\W*xid\W+(?P<xid>\d{1,3})\b", re.I)


class Excerpt:
    """The lines so far, while they may still be one."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: list[tuple[Line, str]] = []

    def note(self, line: Line, parsed: Parsed) -> bool:
        """Take in a line; False once the text is a log."""
        if parsed.headed or parsed.ident or parsed.stamp or len(self._lines) >= MAX_LINES:
            self._lines.clear()
            return False
        self._lines.append((line, parsed.text))
        return True

    def sign(self) -> tuple[Sign, Line, str] | None:
        """The first line that names a failure."""
        for line, text in self._lines:
            if _WARNING.search(text):
                continue
            xid = _XID.match(text)
            placed = _PLACED.fullmatch(text)
            if xid is not None or placed is not None or _NATIVE.search(text) or _WORDS.search(text):
                word, said = "ErrorLine", text.strip()
                if xid is not None:
                    word = f"Xid {xid['xid']}"
                elif placed is not None:
                    word, said = placed["class"], placed["message"].strip()
                sign = Sign("excerpt", Kind.HINT, Role.ROOT, word, said, "the text holds nothing else")
                return sign, line, text
        return None
