"""Is a pattern slow on hostile text? Texts are built from the pattern itself: what it nearly matches costs it most.

Called by `rulecheck`. A search has the time that the rulebook gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from time import process_time

import regex

from triage.rulebase.anchors import literal_runs
from triage.rulebase.rule import Pattern
from triage.rulebase.rulebook import SEARCH_SECONDS
from triage.rulebase.shape import example, repeats

HOSTILE_BYTES = 100_000
_UNFIT = "\x01"
_YARDSTICK = regex.compile(r"reed[^\n]{0,80}heron", regex.MULTILINE)
_YARD_TEXT = "reed " * (HOSTILE_BYTES // 5)
_YARDS = 32  # a pattern may cost so many: 0.1 s where nothing else runs (3 ms each on the box of docs/performance.md)
_FILLERS = ("a", " ", "1", "a ", "a=1, ", "x\n", "('a', ")


def slow(pattern: Pattern) -> bool:
    """Does the pattern take more than SEARCH_SECONDS on some hostile text? Raises regex.error."""
    compiled = regex.compile(pattern.text, regex.MULTILINE)
    return any(_too_slow(compiled, text) for text in dict.fromkeys(hostile_texts(pattern)))


def hostile_texts(pattern: Pattern) -> Iterator[str]:
    """Text that nearly matches, 100 kB of it, with an end that does not fit.

    Each repeat of the pattern goes on for ever behind what leads to it, or what leads to it does; a whole match comes
    over and over; the literals come over and over, all but the last.
    """
    whole = example(pattern.text)
    for piece in (whole, whole[:-1]):
        if piece:
            yield _fill(piece) + _UNFIT
    for lead, units in repeats(pattern.text):
        for unit in units:
            yield lead + _fill(unit) + _UNFIT
            yield lead + _fill(unit) + _UNFIT + whole  # `regex` looks first whether the literals are there at all
        yield _fill(lead + units[0]) + _UNFIT
    runs = [run for branch in pattern.text.split("|") for run in literal_runs(branch)] or ["a"]
    words = re.findall(r"[A-Za-z][\w ]+", re.sub(r"\\[a-zA-Z]|\(\?P<\w+>", "(", pattern.text))  # inside groups too
    for piece in ("".join(runs), *words):
        yield _fill(piece) + _UNFIT
    for filler in _FILLERS:
        yield runs[0] + _fill(filler) + _UNFIT
        if len(runs) > 1:
            yield _fill(filler.join(runs[:-1]) + filler) + _UNFIT
            yield filler.join(runs[:-1]) + _fill(filler) + _UNFIT


def _fill(text: str) -> str:
    return (text * (HOSTILE_BYTES // len(text) + 1))[:HOSTILE_BYTES]


def _too_slow(compiled: regex.Pattern[str], text: str) -> bool:
    """Three times in a row, and each time beside a yardstick: a machine whose cores are shared makes every pattern
    slow, its own shape makes one slow on all."""
    allowed = SEARCH_SECONDS
    for _ in range(3):
        try:
            compiled.search(text, timeout=allowed)
        except TimeoutError:
            allowed = max(SEARCH_SECONDS, _YARDS * _yard())
            continue
        return False
    return True


def _yard() -> float:
    """CPU seconds that a pattern of the usual shape takes here and now."""
    began = process_time()
    _YARDSTICK.search(_YARD_TEXT)
    return process_time() - began
