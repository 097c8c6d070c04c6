"""The proof of the rules: folders come in, everything that does not hold goes out, each with its place.

Called by `triage rules check` and by the tests. It runs every sample through the whole pipeline (lines, assembly,
match) and never looks at a regex alone. It changes nothing and needs no server.
"""

from __future__ import annotations

import builtins
import difflib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

import regex

from triage.engine.assemble import Assembler
from triage.frozen import frozen
from triage.model import Crash, CrashEvent, Failure, Line, Link, Outcome, Phase, Role
from triage.rulebase.coverage import gaps
from triage.rulebase.editproof import catalogued, takeable
from triage.rulebase.evidence import Evidence
from triage.rulebase.rule import Mark, Pattern, Proof, Rule, Sample
from triage.rulebase.rulebook import SEARCH_SECONDS, Rulebook
from triage.rulebase.rulefile import Problem, RuleErrors, load_proof, load_rules, rule_files
from triage.rulebase.slowness import HOSTILE_BYTES, slow
from triage.rulebase.trial import furthest, words
from triage.rulebase.unitproof import unfit, units
from triage.shipped import checkout, shipped
from triage.sources import open_source

UNFINISHED = "a TODO of the draft is left"
_BUILTIN = {name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)}
_SAYS_NOTHING = (_BUILTIN - {"MemoryError", "RecursionError"}) | {"CutTraceback", "ErrorLine"}
_WORD = re.compile(r"[A-Za-z]{4,}")
_TODO = re.compile(r"\bTODO\b")
_TODO_NOTE = re.compile(r"#.{0,40}\bTODO\b")  # in the proof only as a note: logs are anybody's text


@frozen
class Report:
    problems: tuple[Problem, ...]
    rules: int
    samples: int
    near_misses: int


def check(
    folders: Iterable[Path], paths: Sequence[Path] = (), progress: Callable[[int, int], None] | None = None
) -> Report:
    """Prove the rules of `paths` (all, where none are given) among all rules of `folders` and `paths`."""
    try:
        rules = load_rules((*folders, *paths))
    except RuleErrors as errors:
        return Report(errors.problems, 0, 0, 0)
    book = Rulebook(rules.rules)
    tree = checkout()
    written = units(tree / "tests" / "units") if tree else ()
    alarmed = _by_healthy_logs(book)
    wanted = {file.resolve() for path in paths for file in rule_files(path)}
    problems = [
        Problem(Mark(str(path), 1, 1), "no rule file is here: name one that ends in .yaml, or a folder of them")
        for path in paths
        if not rule_files(path)
    ]
    problems += _idle(rules.masked, [file for folder in (*folders, *paths) for file in rule_files(folder)], wanted)
    checked = samples = near_misses = 0
    for number, rule in enumerate(rules.rules, 1):
        if progress is not None:
            progress(number, len(rules.rules))
        if paths and rule.path.resolve() not in wanted:
            continue
        proof, bad = load_proof(rule.path)
        bad += _broken(rule)  # with such a pattern no sample can be matched: that would say it twice
        edits = [*takeable(rule)]
        problems += bad or [
            *_patterns(rule),
            *(edits or unfit(rule, written)),
            *_unfinished(rule.path),
            *_bare(rule),
            *_unreferenced(rule),
            *catalogued(rule),
            *_proof(rule, proof, book),
            *_alarmed(rule, alarmed),
        ]
        checked, samples, near_misses = checked + 1, samples + len(proof.samples), near_misses + len(proof.near_misses)
    return Report(tuple(problems), checked, samples, near_misses)


def _unfinished(path: Path) -> Iterator[Problem]:
    """What a draft leaves to a person and nobody did: a rule is not proved while it stands there."""
    body, _, proof = path.read_text(encoding="utf-8").partition("\n---")
    for number, line in enumerate(f"{body}\n---{proof}".splitlines(), 1):
        if found := (_TODO if number <= body.count("\n") + 1 else _TODO_NOTE).search(line):
            yield Problem(Mark(str(path), number, found.start() + 1), f"{UNFINISHED}: do it, then take the word out")


def _bare(rule: Rule) -> Iterator[Problem]:
    """A class that any part of a server raises says nothing: only a rule that steps back may have nothing else."""
    for clause in rule.clauses:
        said = clause.messages or clause.places or clause.frames or clause.lines or clause.flags
        unit = clause.result or clause.code or clause.status
        names = [name for name in clause.exceptions if name in _SAYS_NOTHING]
        if names and not (said or unit) and rule.rank >= 0:
            yield Problem(
                clause.mark,
                f"exception {names[0]} alone means anything: add a message, at or frame, or a rank below 0",
            )


def _idle(masked: Iterable[str], files: Sequence[Path], wanted: Set[Path]) -> Iterator[Problem]:
    """An empty file that switches off nothing: the rule was renamed, or its name is misspelt."""
    known = [file.stem for file in {file.resolve() for file in files} if file.stem not in masked]
    for name in masked:
        there = {file.resolve(): file for file in files if file.stem == name}
        if len(there) == 1 and (not wanted or there.keys() & wanted):
            near = difflib.get_close_matches(name, known, 1)
            mend = f"did you mean {near[0]}?" if near else "name it after a rule of `triage rules list`, or remove it"
            yield Problem(
                Mark(str(*there.values()), 1, 1),
                f"the file is empty and there is no rule '{name}' to switch off: {mend}",
            )


def _unreferenced(rule: Rule) -> Iterator[Problem]:
    """Who says that a rung helps has to say where that was seen: it is what may be applied unasked."""
    for remedy in rule.remedies:
        if remedy.confirmed and not rule.references:
            yield Problem(
                remedy.mark,
                f"the rung {remedy.id} is confirmed, and the rule has no reference: add where it was seen to help"
                " (an issue, a merged fix, a document, a run of yours), or write confirmed: false",
            )


def crashes_of(log: str) -> tuple[Crash, ...]:
    """What the pipeline makes of a little log, the gravest first, as `triage scan` tells it."""
    latest: dict[tuple[str, ...], Crash] = {}
    with tempfile.NamedTemporaryFile("w", suffix=".log", encoding="utf-8") as file:
        file.write(log)
        file.flush()
        source, assembler = open_source(file.name), Assembler()
        try:
            events: list[CrashEvent] = []
            for batch in source.batches():
                for line in batch.lines:
                    events += assembler.feed(line)
            events += assembler.finish()
        finally:
            source.close()
    for event in events:
        latest[event.crash.key] = event.crash
    order = {Outcome.FATAL: 0, Outcome.DEGRADED: 1}
    return tuple(sorted(latest.values(), key=lambda crash: order.get(crash.outcome, 2)))


# ---------------------------------------------------------------- samples


def _proof(rule: Rule, proof: Proof, book: Rulebook) -> Iterator[Problem]:
    if not proof.samples:
        yield Problem(rule.clauses[0].mark, "the rule has no sample: add a second document with `samples:`")
    seen: list[Evidence] = []
    wrong: list[Problem] = []
    for sample in (one for given in proof.samples for one in (given, *given.variants())):
        crashes = crashes_of(sample.log)
        seen += [Evidence.of(crash) for crash in crashes[:1]]
        wrong += _sample(rule, sample, crashes, book)
    yield from wrong
    missed: list[Evidence] = []
    logs = (one.log for sample in proof.samples for one in (sample, *sample.variants()))
    known = {word for log in logs for word in _WORD.findall(log)}
    for miss in (one for given in proof.near_misses for one in (given, *given.variants())):
        if proof.samples and known.isdisjoint(_WORD.findall(miss.log)):
            why = "is near to nothing: no word of its log is in a sample"
            yield Problem(miss.mark, f"the near-miss '{miss.name}' {why}")
        for crash in crashes_of(miss.log):
            missed.append(Evidence.of(crash))
            if any(match.rule == rule.id for match in book.match(crash)):
                yield Problem(miss.mark, f"the near-miss '{miss.name}' is matched: make the rule stricter")
    yield from _unproved_places(rule, proof)
    if proof.samples and not wrong:
        yield from (Problem(gap.mark, str(gap)) for gap in gaps(rule, seen, missed))


def _unproved_places(rule: Rule, proof: Proof) -> Iterator[Problem]:
    """A rung that goes before the others somewhere: a sample has to come from there."""
    proved = {sample.first for sample in proof.samples}
    for remedy in rule.remedies:
        if remedy.first_where and remedy.id not in proved:
            yield Problem(remedy.mark, f"no sample shows where {remedy.id} is first: add one with `first: {remedy.id}`")


def _quiet(path: Path) -> Crash:
    """A crash that nobody has seen before, after all the lines of a healthy server."""
    lines = tuple(Line(text) for text in path.read_text(encoding="utf-8").splitlines())
    root = Failure(Role.ROOT, (Link("NeverSeenError", "nobody has seen this before"),), lines)
    return Crash(path.name, "1", Phase.UNKNOWN, Outcome.FATAL, root, (root,), (), lines)


def _by_healthy_logs(book: Rulebook) -> dict[str, str]:
    """Rule -> the healthy log whose lines are enough for it, whatever the phase."""
    logs = [_quiet(path) for path in sorted((shipped("rules") / "healthy").glob("*.log"))]
    told = ((crash.id, book.match(replace(crash, phase=phase))) for crash in logs for phase in Phase)
    return {match.rule: log for log, matches in told for match in matches}


def _alarmed(rule: Rule, by: Mapping[str, str]) -> Iterator[Problem]:
    if log := by.get(rule.id):
        yield Problem(rule.clauses[0].mark, f"the lines of a healthy server are enough for it ({log})")


def _sample(rule: Rule, sample: Sample, crashes: Sequence[Crash], book: Rulebook) -> Iterator[Problem]:
    if not crashes:
        yield Problem(
            sample.mark, f"in the sample '{sample.name}' no crash is seen: it needs the lines that end a server"
        )
        return
    matches = book.match(crashes[0])
    if not matches:
        said = f"the sample '{sample.name}' is not matched: {_seen(crashes[0])}"
        yield Problem(sample.mark, "\n".join([said, *_reached(rule, crashes[0])]))
        return
    if matches[0].rule != rule.id:
        why = f"the sample '{sample.name}' is won by {matches[0].rule}"
        also = (
            "this rule matches too" if any(match.rule == rule.id for match in matches) else "this rule does not match"
        )
        yield Problem(sample.mark, f"{why}, {also}: make one of them stricter, or set rank ({_seen(crashes[0])})")
        return
    first = matches[0].remedies[0].id if matches[0].remedies else None
    if sample.first is not None and sample.first != first:
        yield Problem(sample.mark, f"the sample '{sample.name}' is offered {first} first, not {sample.first}")
    for name, value in sample.captures:
        if matches[0].captures.get(name) != value:
            got = matches[0].captures.get(name)
            yield Problem(sample.mark, f"the sample '{sample.name}' captures {name}={got!r}, not {value!r}")


def _reached(rule: Rule, crash: Crash) -> Iterator[str]:
    """How far each clause got, the one that came furthest first."""
    for attempt in furthest(rule, crash):
        held = ", ".join(condition.name for condition in attempt.conditions if condition.holds)
        yield f"  the clause in line {attempt.mark.line}: {held or 'nothing'} holds"
        yield from (f"    {words(condition)}" for condition in attempt.failing)


def _seen(crash: Crash) -> str:
    """What was made of a log, so that an author sees which condition to mend."""
    cause = crash.root.cause
    place = f" at {cause.frame.file}:{cause.frame.function}" if cause.frame else ""
    chain = f", in {' in '.join(link.exception for link in crash.root.chain[1:])}" if len(crash.root.chain) > 1 else ""
    end = f", unit {crash.end.result}" if crash.end else ""
    return f"seen: {cause.exception}: {cause.message[:120]!r}{place}{chain}, {crash.phase}, {crash.outcome}{end}"


# ---------------------------------------------------------------- patterns


def _searched(rule: Rule) -> Iterator[Pattern]:
    for clause in (clause for top in rule.clauses for clause in (top, *top.unless)):
        yield from (*clause.messages, *clause.lines)


def _broken(rule: Rule) -> Iterator[Problem]:
    for pattern in _searched(rule):
        try:
            regex.compile(pattern.text, regex.MULTILINE)
        except regex.error as error:
            yield Problem(pattern.mark, f"not a regular expression ({error}): mend it")


def _patterns(rule: Rule) -> Iterator[Problem]:
    for pattern in _searched(rule):
        if slow(pattern):
            yield Problem(
                pattern.mark,
                f"takes more than {SEARCH_SECONDS:g} s on {HOSTILE_BYTES // 1000} kB of hostile text:"
                " bound its repeats ([^\\n]{0,80} for .*)",
            )
