"""What a rule says, as frozen values.

`rulefile` makes them out of YAML, `rulebook` matches crashes with them, `rulecheck` proves them. Nothing here reads a
file, searches a text or knows YAML.
"""

from __future__ import annotations

import re
from pathlib import Path

from triage.frozen import frozen
from triage.model import AS_SET, Outcome, Phase, Severity, Verify

EDITABLE = ("flag", "env", "unit")  # the kinds of remedies that `triage apply` can carry out
FLAG = r"--[A-Za-z0-9][A-Za-z0-9_.-]*"
PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")


def slots(text: str) -> str:
    """A rule's text with the places that a log fills marked, where there is no log: `{asked}` is ‹asked›."""
    return PLACEHOLDER.sub(r"‹\1›", text)


def printable(name: str) -> str:
    """A file's name in one line of text: what cannot be shown of it (a newline, a byte that is no UTF-8) is escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)


@frozen
class Mark:
    """A place in a rule file, counted from 1."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{printable(self.path)}:{self.line}:{self.column}"


@frozen
class Pattern:
    """A regular expression as written, and the literals of which every text it matches holds at least one."""

    text: str
    mark: Mark
    needs: tuple[str, ...] = ()  # empty: none could be derived

    @property
    def captures(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\(\?P<([a-z][a-z0-9_]*)>", self.text))


@frozen
class FramePattern:
    """A place in a stack: globs over the file's name (with a `/`: over the end of its path) and the function's."""

    file: str
    function: str = "*"


@frozen
class FlagCondition:
    """A condition on the server's own flags (`crash.context.flags`); one of the names has to fulfil it.

    A flag that the log does not tell fulfils nothing, unless `or_unknown` is set.
    """

    names: tuple[str, ...]
    above: float | None = None
    below: float | None = None
    equals: tuple[str, ...] = ()
    present: bool | None = None
    or_unknown: bool = False


@frozen
class Clause:
    """One way in which a rule matches: all that is given has to hold; within a tuple one is enough.

    `exceptions`, `messages` and `places` have to hold for the same link of the root's chain; `places` is the frame that
    names its place, `frames` any frame of the chain; `lines` stand anywhere in the crash's evidence; `result`, `code`
    and `status` are the end of the unit.
    """

    mark: Mark
    exceptions: tuple[str, ...] = ()
    messages: tuple[Pattern, ...] = ()
    frames: tuple[FramePattern, ...] = ()
    places: tuple[FramePattern, ...] = ()
    lines: tuple[Pattern, ...] = ()
    phases: tuple[Phase, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    result: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    flags: tuple[FlagCondition, ...] = ()
    unless: tuple[Clause, ...] = ()
    anchors: tuple[str, ...] = ()  # written by the author, or derived: one of them stands in every crash it matches

    @property
    def specificity(self) -> int:
        """How much has to be right for it to match: a place or a wording says more than a phase."""
        unit = self.result or self.code or self.status
        weights = (
            (self.exceptions, 2),
            (self.messages, 4),
            (self.places, 4),
            (self.frames, 3),
            (self.lines, 3),
            (unit, 3),
            (self.flags, 2),
            (self.phases, 1),
        )
        return sum(weight for given, weight in weights if given)


@frozen
class EditText:
    """One edit as a rule writes it. Several names mean: whichever of these spellings the unit uses."""

    op: str
    names: tuple[str, ...]
    mark: Mark
    value: str | int | float | None = None
    floor: float | None = None
    ceiling: float | None = None


@frozen
class KnownBad:
    """Where a rung is known to make things worse: all that is given has to hold."""

    why: str
    release: str | None = None
    flags: tuple[FlagCondition, ...] = ()


@frozen
class FirstWhere:
    """Where a rung comes before the others: all that is given has to hold, one of the frames is enough."""

    frames: tuple[FramePattern, ...] = ()
    flags: tuple[FlagCondition, ...] = ()


@frozen
class RemedyText:
    """One rung of the ladder, before a crash has filled in its captures."""

    id: str
    kind: str
    title: str
    cost: str
    confirmed: bool
    mark: Mark
    edits: tuple[EditText, ...] = ()
    versions: str | None = None
    requires: tuple[str, ...] = ()  # flags the server has to run with
    conflicts: tuple[str, ...] = ()  # flags it must not run with
    known_bad: tuple[KnownBad, ...] = ()
    phases: tuple[Phase, ...] = ()  # `when`: only in these phases
    outcomes: tuple[Outcome, ...] = ()  # `when`: only where the crash became this
    flags: tuple[FlagCondition, ...] = ()  # `when`: only if the server's flags say so
    release: str | None = None  # `when`: only for these releases, where names of flags changed
    forks: tuple[str, ...] = ()  # flags and variables that only forks have
    speed: float | None = None  # share of the tokens/s that is left at least
    first_where: FirstWhere | None = None  # the crash tells that this rung is the likeliest


@frozen
class Sample:
    """A whole little log. `name` says what it shows; `first` and `captures` are what its match has to offer.

    `also`: (old, new): the same log with other words in it, which has to be won as well.
    """

    name: str
    log: str
    mark: Mark
    first: str | None = None
    captures: tuple[tuple[str, str], ...] = ()
    also: tuple[tuple[str, str], ...] = ()

    def variants(self) -> tuple[Sample, ...]:
        return tuple(
            Sample(f"{self.name}: {new[:60]}", self.log.replace(old, new), self.mark) for old, new in self.also
        )


@frozen
class Rule:
    """One rule file. `digest` is the SHA-256 of the file's text."""

    id: str
    area: str
    file: str  # a `Path` takes longer to come out of the cache than the rest of a rule
    digest: str
    title: str
    cause: str
    severity: Severity
    confidence: float
    rank: int
    clauses: tuple[Clause, ...]
    remedies: tuple[RemedyText, ...]
    references: tuple[str, ...] = ()
    applies: str | None = None  # releases it is about: '>=0.5.0,<0.5.14'
    fixed_in: str | None = None
    stable: bool = False  # proved well enough that its remedies may be applied unasked, where the site wants that
    false_positives: tuple[str, ...] = ()
    verify: Verify = AS_SET

    @property
    def path(self) -> Path:
        return Path(self.file)


@frozen
class Proof:
    """The second document of a rule file: logs the rule has to win, and logs it must not match."""

    samples: tuple[Sample, ...]
    near_misses: tuple[Sample, ...]


@frozen
class Rules:
    """All rules in force, by id, after later folders have overridden earlier ones."""

    rules: tuple[Rule, ...]
    masked: tuple[str, ...] = ()  # ids that an empty file switches off

    def get(self, rule_id: str) -> Rule | None:
        return next((rule for rule in self.rules if rule.id == rule_id), None)
