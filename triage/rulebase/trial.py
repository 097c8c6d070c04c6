"""How far a rule got on a crash: each condition of each clause, whether it held, and what stood there instead.

Called by `rulebook` (the rules nearest to an unknown crash), `rulecheck` (a sample that is not matched) and for `rules
try`. It decides nothing: whether a rule matches is `rulebook`'s word, and a test holds the two together. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import regex

from triage.frozen import frozen
from triage.model import Crash, Frame, Link
from triage.rulebase.anchors import branches, pieces
from triage.rulebase.evidence import Evidence, frames, is_one_of, stands_at
from triage.rulebase.offer import clean
from triage.rulebase.options import flag_holds
from triage.rulebase.releases import covers
from triage.rulebase.rule import Clause, FlagCondition, FramePattern, Mark, Pattern, Rule
from triage.rulebase.said import views

SECONDS = 0.1
_SHOWN = 80  # characters of a pattern or a text
_TELLING = 6  # fewer characters of a pattern are found anywhere


@frozen
class Condition:
    """One key of a clause. `seen` says what was there instead, or how far a pattern got; `part` is 0 to 1."""

    name: str
    wanted: str
    holds: bool
    seen: str = ""
    weight: int = 1
    part: float = 0.0


@frozen
class Attempt:
    """One clause tried."""

    mark: Mark
    conditions: tuple[Condition, ...]

    @property
    def holds(self) -> bool:
        return all(condition.holds for condition in self.conditions)

    @property
    def score(self) -> float:
        """How much was right; a pattern of which half was found counts half."""
        return sum(c.weight if c.holds else c.weight * c.part for c in self.conditions)

    @property
    def near(self) -> bool:
        """Was a place, a wording or an end right, and enough of the rest?"""
        strong = any(c.weight >= 3 and (c.holds or c.part >= 0.5) for c in self.conditions)
        return strong and self.score >= 0.4 * sum(c.weight for c in self.conditions)

    @property
    def failing(self) -> tuple[Condition, ...]:
        return tuple(condition for condition in self.conditions if not condition.holds)


def furthest(rule: Rule, crash: Crash) -> tuple[Attempt, ...]:
    """Its attempts on that view of the crash on which it holds, if it does; on the crash as it is else."""
    return max((attempts(rule, Evidence.of(seen)) for seen in reversed(views(crash))), key=lambda found: found[0].holds)


def attempts(rule: Rule, evidence: Evidence) -> tuple[Attempt, ...]:
    """Every clause of the rule tried on the crash, the one that came furthest first."""
    release = evidence.crash.context.sglang_version
    outside = release and rule.applies and not covers(rule.applies, release)
    before = [Condition("applies", str(rule.applies), False, f"the release is {release}")] if outside else []
    tried = [Attempt(clause.mark, (*before, *_conditions(clause, evidence))) for clause in rule.clauses]
    return tuple(sorted(tried, key=lambda attempt: (not attempt.holds, -attempt.score)))


def akin(clause: Clause, evidence: Evidence) -> bool:
    """Is exception or place right, whatever the wording? Cheap: no regex is tried."""
    return any(
        (clause.exceptions and is_one_of(link.exception, clause.exceptions))
        or (clause.places and link.frame and stands_at(clause.places, link.frame))
        for link, _ in evidence.chain
    )


def words(condition: Condition) -> str:
    """A condition that failed, in one sentence."""
    seen = f": {condition.seen}" if condition.seen else ""
    return f"{condition.name} wants {_short(condition.wanted)}{seen}"


def _conditions(clause: Clause, evidence: Evidence) -> list[Condition]:
    crash, end = evidence.crash, evidence.crash.end
    found = list(_root(clause, evidence))
    if clause.frames:
        there = [frame for link, _ in evidence.chain for frame in frames(link)]
        found.append(
            _condition(
                "frame", _places(clause.frames), any(stands_at(clause.frames, f) for f in there), _stack(there), 3
            )
        )
    if clause.lines:
        found.append(_searched("lines", clause.lines, (evidence.text,), 3))
    for name in ("result", "code", "status"):
        if wanted := getattr(clause, name):
            is_ = getattr(end, name) if end else None
            found.append(_condition(f"unit {name}", " or ".join(wanted), is_ in wanted, f"is {is_ or 'not told'}", 3))
    for condition in clause.flags:
        found.append(
            _condition(
                "flags", _flag(condition), flag_holds(condition, crash.context.flags), _flags(condition, evidence), 2
            )
        )
    if clause.phases:
        found.append(_condition("phase", " or ".join(clause.phases), crash.phase in clause.phases, f"is {crash.phase}"))
    if clause.outcomes:
        held = crash.outcome in clause.outcomes
        found.append(_condition("outcome", " or ".join(clause.outcomes), held, f"is {crash.outcome}"))
    for unless in clause.unless:
        inner = _conditions(unless, evidence)
        held = not all(condition.holds for condition in inner)
        what = ", ".join(f"{condition.name} {condition.wanted}" for condition in inner)
        found.append(_condition("unless", what, held, "all of it holds", 0))
    return found


def _root(clause: Clause, evidence: Evidence) -> tuple[Condition, ...]:
    """Exception, place and message: they have to hold for one link of the chain, so the best link is told."""
    best: tuple[Condition, ...] = ()
    for link, message in evidence.chain:
        here = tuple(_link(clause, link, message))
        if not best or (Attempt(clause.mark, here).holds, _score(here)) > (
            Attempt(clause.mark, best).holds,
            _score(best),
        ):
            best = here
    return best


def _link(clause: Clause, link: Link, message: str) -> Iterable[Condition]:
    if clause.exceptions:
        held = is_one_of(link.exception, clause.exceptions)
        yield _condition("exception", " or ".join(clause.exceptions), held, f"is {link.exception}", 2)
    if clause.places:
        held = link.frame is not None and stands_at(clause.places, link.frame)
        yield _condition(
            "at", _places(clause.places), held, f"is {_stack([link.frame])}" if link.frame else "no frame", 4
        )
    if clause.messages:
        yield _searched("message", clause.messages, (message,), 4)


def _score(conditions: Iterable[Condition]) -> float:
    return sum(c.weight if c.holds else c.weight * c.part for c in conditions)


def _condition(name: str, wanted: str, held: bool, seen: str, weight: int = 1) -> Condition:
    return Condition(name, wanted, held, "" if held else seen, weight)


# ---------------------------------------------------------------- patterns


def _searched(name: str, patterns: tuple[Pattern, ...], texts: tuple[str, ...], weight: int) -> Condition:
    """Of several patterns the one that got furthest is told."""
    told = [(*reach(pattern.text, text), pattern.text) for pattern in patterns for text in texts]
    part, seen, pattern = max(told, key=lambda one: one[0])
    said = part if name == "message" else 0.0  # half a pattern is found somewhere in any log
    return Condition(name, pattern, part == 1, seen, weight, said)


def reach(pattern: str, text: str) -> tuple[float, str]:
    """How much of the pattern is found in the text (1: all of it), and in words where it stopped."""
    try:
        found = [_branch(branch, text) for branch in branches(pattern)]
    except regex.error as error:
        return 0.0, f"no regular expression ({error})"
    except TimeoutError:
        return 0.0, "ran out of time"
    return max(found, key=lambda one: one[0])


def _branch(branch: str, text: str) -> tuple[float, str]:
    """The longest run of the first pieces that is found; a longer one cannot be there where a shorter is not."""
    parts = pieces(branch)
    low, high = 0, len(parts)
    while low < high:
        middle = (low + high + 1) // 2
        if _search("".join(parts[:middle]), text):
            low = middle
        else:
            high = middle - 1
    if low == len(parts):
        return 1.0, ""
    found = _search("".join(parts[:low]), text) if low else None
    if found is None or len(found.group().strip()) < _TELLING:
        return 0.0, "nothing of it is there"
    rest = text[found.end() :].split("\n", 1)[0]
    goes_on = f"goes on {_short(rest)!r}" if rest else "ends"
    said = f"found {_short(found.group(), tail=True)!r}, then the text {goes_on}"
    said += f" where {_short(''.join(parts[low:]))!r} is wanted"
    return low / len(parts), said


def _search(pattern: str, text: str) -> regex.Match[str] | None:
    compiled: Callable[..., regex.Match[str] | None] = regex.compile(pattern, regex.MULTILINE).search
    return compiled(text, timeout=SECONDS)


# ---------------------------------------------------------------- words


def _short(text: str, tail: bool = False) -> str:
    text = clean(text)
    if len(text) <= _SHOWN:
        return text
    return "..." + text[-_SHOWN:] if tail else text[:_SHOWN] + "..."


def _places(patterns: tuple[FramePattern, ...]) -> str:
    return " or ".join(f"{p.file}:{p.function}" if p.function != "*" else p.file for p in patterns)


def _stack(there: Iterable[Frame]) -> str:
    return " > ".join(f"{frame.file}:{frame.function}" for frame in list(there)[-4:]) or "there are no frames"


def _flag(condition: FlagCondition) -> str:
    compared = [
        f"above {condition.above:g}" if condition.above is not None else "",
        f"below {condition.below:g}" if condition.below is not None else "",
        f"is {' or '.join(condition.equals)}" if condition.equals else "",
        "" if condition.present is None else "present" if condition.present else "absent",
    ]
    return f"{' or '.join(condition.names)} {' and '.join(filter(None, compared))}"


def _flags(condition: FlagCondition, evidence: Evidence) -> str:
    known = evidence.crash.context.flags
    told = [f"{name} is {known[name]}" for name in condition.names if name in known]
    return ", ".join(told) or "the log does not tell it"
