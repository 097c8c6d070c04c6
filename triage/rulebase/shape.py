"""How a regular expression is built: its groups, the alternatives in them, its repeats, and texts that nearly match it.

Called by `coverage` (is every alternative hit?) and `slowness` (is it slow on hostile text?). It reads a pattern's text
by hand, as `anchors` does: no parser knows the syntax of `regex`.
"""

from __future__ import annotations

import itertools
import math
import re
import string
from collections.abc import Iterator

import regex

from triage.frozen import frozen
from triage.rulebase.anchors import after_class, after_group

_OPENING = re.compile(r"\((?:\?(?:P?<[A-Za-z_]\w*>|[aimsuxfLV01]*(?:-[imsx]+)?:|>|\||=|<=))?")
_FLAGS = re.compile(r"\(\?[aimsuxfLV01]+\)")
_LONG_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[pP]\{[^}]*\}|g<\w+>)")
_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d*)(,?)(\d*)\})[+?]?")
_KINDS = ("a", " ", "1", "\n", "-", "(", "=", ",", ".")  # what repeats take, the commonest first
_MANY = 20  # a repeat of fewer costs little


@frozen
class Alternative:
    """One side of an `a|b`: `pattern[start:end]` within the group whose content is `pattern[first:last]`."""

    pattern: str
    first: int
    last: int
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.pattern[self.start : self.end]

    def marked(self, name: str) -> str:
        """The whole pattern, with this side as a named group."""
        return f"{self.pattern[: self.start]}(?P<{name}>{self.text}){self.pattern[self.end :]}"

    def alone(self, name: str) -> str:
        """The whole pattern with this side only, as a named group."""
        flags = "".join(_FLAGS.findall(self.pattern[self.first : self.start]))
        return f"{self.pattern[: self.first]}{flags}(?P<{name}>{self.text}){self.pattern[self.last :]}"

    def inner(self) -> Iterator[Alternative]:
        """Those of the groups inside it."""
        return _below(self.pattern, self.start, self.end)


def alternatives(pattern: str) -> Iterator[Alternative]:
    """The sides of the outermost `|`, of the pattern and of its groups. None for what takes no character: `$`, nothing.

    What stands in a negative lookaround or a condition is left out: it is part of no match, or no choice.
    """
    yield from _sides(pattern, 0, len(pattern))


def example(pattern: str, *, least: bool = False) -> str:
    """A text that the pattern is found in, lookarounds aside: each repeat once, or (`least`) as seldom as may be."""
    return _example(pattern, next(_branches(pattern, 0, len(pattern))), least)


def repeats(pattern: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each repeat without a small bound: a text that leads to it, and texts it takes again and again."""
    yield from _repeats(pattern, 0, len(pattern), "")


@frozen
class _Atom:
    """`pattern[start:end]`, without the quantifier behind it."""

    start: int
    end: int
    low: int
    high: float


def _branches(pattern: str, first: int, last: int) -> Iterator[list[_Atom]]:
    cuts = [first - 1, *_bars(pattern, first, last), last]
    for before, cut in itertools.pairwise(cuts):
        atoms, i = [], before + 1
        while i < cut:
            end = min(_after(pattern, i), cut)
            low, high, after = _quantifier(pattern, end)
            atoms.append(_Atom(i, end, low, high))
            i = after
        yield atoms


def _quantifier(pattern: str, i: int) -> tuple[int, float, int]:
    """How often what stands before i may come, at least and at most; where the quantifier ends."""
    found = _QUANTIFIER.match(pattern, i)
    if found is None or found[0] in ("{}", "{,}"):
        return 1, 1, i
    if found[1]:
        low, high = {"*": (0, math.inf), "+": (1, math.inf), "?": (0, 1)}[found[1]]
        return low, high, found.end()
    low = int(found[2] or 0)
    return low, (float(found[4]) if found[4] else math.inf if found[3] else low), found.end()


def _example(pattern: str, atoms: list[_Atom], least: bool) -> str:
    return "".join(_taken(pattern, atom, least) * (atom.low if least else max(atom.low, 1)) for atom in atoms)


def _taken(pattern: str, atom: _Atom, least: bool = False) -> str:
    if pattern[atom.start] != "(":
        return next(_letters(pattern[atom.start : atom.end]), "")
    body = _body(pattern, atom)
    return _example(pattern, next(_branches(pattern, *body)), least) if body else ""


def _letters(atom: str) -> Iterator[str]:
    """The characters that an atom takes; none for `^`, `$`, a word's bound, a back-reference."""
    if len(atom) == 1 and atom not in ".^$":
        yield atom
        return
    try:
        compiled = regex.compile(atom, regex.MULTILINE)
    except regex.error:
        return
    first = (atom[-1],) if atom[0] == "\\" else (" ",) if atom == "." or atom.startswith("[^") else ()
    yield from (letter for letter in (*first, *_KINDS, *string.printable) if compiled.fullmatch(letter))


def _body(pattern: str, atom: _Atom) -> tuple[int, int] | None:
    """What stands in a group; None for a lookaround, flags, a comment."""
    around = pattern.startswith(("(?!", "(?<!", "(?#", "(?=", "(?<=", "(?P=", "(?P>"), atom.start)
    if around or _FLAGS.match(pattern, atom.start):
        return None
    opening = _OPENING.match(pattern, atom.start)
    assert opening is not None  # at worst the bracket alone
    return opening.end(), atom.end - 1


def _repeats(pattern: str, first: int, last: int, before: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for atoms in _branches(pattern, first, last):
        lead = before
        for atom in atoms:
            body = _body(pattern, atom) if pattern[atom.start] == "(" else None
            if body:
                yield from _repeats(pattern, *body, lead)
            if atom.high >= _MANY:
                if body:
                    units = [
                        _example(pattern, inner, least)
                        for inner in _branches(pattern, *body)
                        for least in (False, True)
                    ]
                else:
                    taken = list(itertools.islice(dict.fromkeys(_letters(pattern[atom.start : atom.end])), 20))
                    units = [letter for letter in taken if letter in _KINDS][:4] or taken[:1]
                if units := list(dict.fromkeys(filter(None, units))):
                    yield lead, tuple(units)
            lead += _taken(pattern, atom) * max(atom.low, 1)


def _sides(pattern: str, first: int, last: int) -> Iterator[Alternative]:
    cuts = [first - 1, *_bars(pattern, first, last), last]
    if len(cuts) == 2:
        yield from _below(pattern, first, last)
        return
    for before, cut in itertools.pairwise(cuts):
        one = Alternative(pattern, first, last, before + 1, cut)
        if not _takes_nothing(one.text):
            yield one


def _below(pattern: str, start: int, end: int) -> Iterator[Alternative]:
    i = start
    while i < end:
        at, i = i, _after(pattern, i)
        empty = pattern.startswith(("(?!", "(?<!", "(?#", "(?("), at) or _FLAGS.match(pattern, at)
        if not empty and (opening := _OPENING.match(pattern, at)):
            yield from _sides(pattern, opening.end(), i - 1)


def _bars(pattern: str, first: int, last: int) -> Iterator[int]:
    i = first
    while i < last:
        if pattern[i] == "|":
            yield i
        i = _after(pattern, i)


def _after(pattern: str, i: int) -> int:
    """The position after the character, escape, class or group that begins at i."""
    if pattern[i] == "\\":
        longer = _LONG_ESCAPE.match(pattern, i)
        return longer.end() if longer else i + 2
    return after_class(pattern, i) if pattern[i] == "[" else after_group(pattern, i) if pattern[i] == "(" else i + 1


def _takes_nothing(text: str) -> bool:
    try:
        return any((found := regex.search(text, probe)) and not found.group() for probe in ("", "a", "a b"))
    except regex.error:
        return False
