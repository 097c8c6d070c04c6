"""What of a rule no sample hits: clauses, their exceptions, places, patterns, and the alternatives inside a pattern.

Called by `rulecheck` with what the pipeline made of the rule's samples and near-misses. An entry counts as hit where
the clause holds on some sample with this entry alone in the place of its list: a guess beside an entry that is true
proves nothing. Optional groups and character classes are no entries. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import regex

from triage.frozen import frozen
from triage.rulebase.evidence import Evidence
from triage.rulebase.rule import Clause, FramePattern, Mark, Pattern, Rule
from triage.rulebase.rulebook import OutOfTime, Rulebook
from triage.rulebase.shape import alternatives

_HIT = "alternative_that_was_hit"
_SHOWN = 80  # characters of a pattern


@frozen
class Gap:
    """An entry that nothing hits: its place, its key and itself; `miss`: it stands below `unless`."""

    mark: Mark
    what: str
    miss: bool = False

    def __str__(self) -> str:
        if self.miss:
            return f"no near-miss is kept out by {self.what}: add one, or take it out"
        return f"no sample hits {self.what}: add one, or `also` with other words to one, or take it out"


def gaps(rule: Rule, seen: Sequence[Evidence], missed: Sequence[Evidence]) -> Iterator[Gap]:
    """`seen`: the samples; `missed`: the near-misses. An `unless` may be proved by a sample of another clause too."""
    book = Rulebook(())
    for clause in rule.clauses:
        yield from _entries(clause, seen, book)
        kept_out = [one for one in (*missed, *seen) if _holds(book, replace(clause, unless=()), one)]
        for unless in clause.unless:
            for gap in _entries(unless, kept_out, book):
                yield replace(gap, miss=True)


def _entries(clause: Clause, seen: Sequence[Evidence], book: Rulebook) -> Iterator[Gap]:
    """What of one clause is not hit; where it never holds, only that is told."""
    there = [evidence for evidence in seen if _holds(book, clause, evidence)]
    if not there:
        yield Gap(clause.mark, "this clause")
        return

    def hit(group: str | None, **only: Any) -> bool:
        variant = replace(clause, **only)
        return any(_holds(book, variant, evidence, group) for evidence in there)

    for name in clause.exceptions:
        if not hit(None, exceptions=(name,)):
            yield Gap(clause.mark, f"exception {name}")
    for key, places in (("places", clause.places), ("frames", clause.frames)):
        for place in places:
            if not hit(None, **{key: (place,)}):
                yield Gap(clause.mark, f"{'at' if key == 'places' else 'frame'} {_place(place)}")
    for key, patterns in (("messages", clause.messages), ("lines", clause.lines)):
        for pattern in patterns:
            if hit(None, **{key: (pattern,)}):
                yield from _inside(pattern, key, hit)
            else:
                yield Gap(pattern.mark, repr(pattern.text))


def _inside(pattern: Pattern, key: str, hit: Callable[..., bool]) -> Iterator[Gap]:
    """The alternatives that are not hit; of one that is not hit, nothing inside it is told."""
    groups = [alternatives(pattern.text)]
    while groups:
        for one in groups.pop():
            variants = (one.marked(_HIT), one.alone(_HIT))  # `alone`: where another stands further left
            if any(hit(_HIT, **{key: (replace(pattern, text=text),)}) for text in variants):
                groups.append(one.inner())
            else:
                yield Gap(pattern.mark, f"the alternative {one.text!r} of {_short(pattern.text)!r}")


def _holds(book: Rulebook, clause: Clause, evidence: Evidence, group: str | None = None) -> bool:
    """Does the clause hold, and did the group take part in it?"""
    try:
        captures = book.holds(clause, evidence)
    except (OutOfTime, regex.error):  # a variant of a pattern need not be one
        return False
    return captures is not None and (group is None or group in captures)


def _short(pattern: str) -> str:
    return pattern if len(pattern) <= _SHOWN else pattern[:_SHOWN] + "..."


def _place(place: FramePattern) -> str:
    return place.file if place.function == "*" else f"{place.file}:{place.function}"
