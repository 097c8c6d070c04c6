"""Rules in force, ready to match: a crash comes in, its matches go out, best first.

Called by `diagnose`. One automaton over all anchors says which rules can match at all; only those run their regexes,
each under a time limit on capped text. A rule that runs out of time is quarantined and told in `notices`.
It reads no log and decides nothing about applying.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import regex

from triage.automaton import Automaton
from triage.model import Crash, Match, Near, Outcome
from triage.rulebase.evidence import Evidence, frames, is_one_of, stands_at
from triage.rulebase.offer import clean, fill, offer
from triage.rulebase.options import flag_holds
from triage.rulebase.releases import covers
from triage.rulebase.rule import Clause, Pattern, Rule
from triage.rulebase.rulecache import read_rules
from triage.rulebase.said import views

SEARCH_SECONDS = 0.1  # `regex` counts the process's CPU time
CAPTURE_CAP = 200
NEAREST = 3  # rules told of an unknown crash


class OutOfTime(Exception):
    """A regex did not finish in time."""


class Rulebook:
    """All rules in force. Its only state is what it learned about slow regexes."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self.quarantined: dict[str, str] = {}  # rule id -> why
        self.notices: list[str] = []
        self._compiled: dict[str, regex.Pattern[str]] = {}
        anchors: dict[str, set[int]] = {}
        for number, rule in enumerate(self.rules):
            for clause in rule.clauses:
                for anchor in clause.anchors:
                    anchors.setdefault(anchor, set()).add(number)
        self._wanted = tuple(anchors.values())
        self._anchors = tuple(anchors)

    @cached_property
    def _automaton(self) -> Automaton:
        """Built for the first crash: a log without one does not pay for it."""
        return Automaton(self._anchors)

    @classmethod
    def load(cls, folders: Iterable[Path]) -> Rulebook:
        """Raises RuleErrors with all that is wrong in the files. The usual folders are read through a cache."""
        return cls(read_rules(tuple(folders)).rules)

    def match(self, crash: Crash) -> tuple[Match, ...]:
        """The rules that mean this crash: by rank, then by how much had to be right, then by confidence.

        Where one request failed and the server is well, those about that go before those about servers.
        A last line alone is looked at with the place where a release says such words, and without."""
        found: dict[str, tuple[tuple[bool, float, float, float, str], Match]] = {}
        for seen in views(crash):
            evidence = Evidence.of(seen)
            for number in self.candidates(evidence):
                rule = self.rules[number]
                hit = None if rule.id in found else self._hit(rule, evidence)
                if hit is not None:
                    clause, captures = hit
                    beside = crash.outcome is Outcome.REQUEST_ERROR and Outcome.REQUEST_ERROR not in clause.outcomes
                    order = (beside, -rule.rank, -clause.specificity, -rule.confidence, rule.id)
                    found[rule.id] = (order, _match(rule, seen, captures))
        return tuple(match for _, match in sorted(found.values(), key=lambda pair: pair[0]))

    def nearest(self, crash: Crash) -> tuple[Near, ...]:
        """For a crash that no rule means: those that came closest, and why they do not mean it."""
        from triage.rulebase.trial import akin, attempts, words  # only an unknown crash pays for it

        evidence = Evidence.of(crash)
        gated = set(self.candidates(evidence))
        found = []
        for number, rule in enumerate(self.rules):
            if number not in gated and not any(akin(clause, evidence) for clause in rule.clauses):
                continue
            best = attempts(rule, evidence)[0]
            if best.near and not best.holds:
                found.append((rule, best))
        found.sort(key=lambda one: (-one[1].score, one[0].id))
        return tuple(
            Near(
                rule.id,
                fill(rule.title, {}),
                tuple(condition.name for condition in best.conditions if condition.holds),
                tuple(words(condition) for condition in best.failing),
            )
            for rule, best in found[:NEAREST]
        )

    def candidates(self, evidence: Evidence) -> list[int]:
        """Numbers of the rules of which an anchor stands in the evidence."""
        return sorted({number for word in self._automaton.which(evidence.gate) for number in self._wanted[word]})

    def _hit(self, rule: Rule, evidence: Evidence) -> tuple[Clause, dict[str, str]] | None:
        """The most specific clause that holds, with its captures."""
        release = evidence.crash.context.sglang_version
        if rule.id in self.quarantined or (release and rule.applies and not covers(rule.applies, release)):
            return None
        try:
            for clause in sorted(rule.clauses, key=lambda c: -c.specificity):
                captures = self.holds(clause, evidence)
                if captures is not None:
                    return clause, captures
        except OutOfTime:
            self._quarantine(rule, "its pattern ran out of time: make it stricter")
        except regex.error as error:
            self._quarantine(rule, f"its pattern is no regular expression ({error}): run `triage rules check`")
        return None

    def _quarantine(self, rule: Rule, why: str) -> None:
        self.quarantined[rule.id] = why
        self.notices.append(f"rule {rule.id} is out of force until the next start, or until rules change: {why}")

    def holds(self, clause: Clause, evidence: Evidence) -> dict[str, str] | None:
        """The captures where all of the clause holds, else None. The cheap conditions come first. Raises OutOfTime."""
        crash, end = evidence.crash, evidence.crash.end
        if clause.phases and crash.phase not in clause.phases:
            return None
        if clause.outcomes and crash.outcome not in clause.outcomes:
            return None
        for wanted, is_ in ((clause.result, "result"), (clause.code, "code"), (clause.status, "status")):
            if wanted and (end is None or getattr(end, is_) not in wanted):
                return None
        if not all(flag_holds(condition, crash.context.flags) for condition in clause.flags):
            return None
        if clause.exceptions and not any(is_one_of(link.exception, clause.exceptions) for link, _ in evidence.chain):
            return None
        if clause.frames and not any(stands_at(clause.frames, f) for link, _ in evidence.chain for f in frames(link)):
            return None
        captures = self._link(clause, evidence)
        if captures is None:
            return None
        if clause.lines:
            found = self._search(clause.lines, evidence.text)
            if found is None:
                return None
            captures |= found
        if any(self.holds(unless, evidence) is not None for unless in clause.unless):
            return None
        return captures

    def _link(self, clause: Clause, evidence: Evidence) -> dict[str, str] | None:
        """The first link of the root's chain for which exception, place and message hold."""
        if not clause.exceptions and not clause.messages and not clause.places:
            return {}
        for link, message in evidence.chain:
            if clause.exceptions and not is_one_of(link.exception, clause.exceptions):
                continue
            if clause.places and not (link.frame and stands_at(clause.places, link.frame)):
                continue
            found = self._search(clause.messages, message) if clause.messages else {}
            if found is not None:
                return found
        return None

    def _search(self, patterns: tuple[Pattern, ...], text: str) -> dict[str, str] | None:
        """The captures of the first pattern found, else None."""
        for pattern in patterns:
            if pattern.needs and not any(literal in text for literal in pattern.needs):
                continue  # it cannot match: most need not even be compiled
            compiled = self._compiled.get(pattern.text)
            if compiled is None:
                compiled = self._compiled[pattern.text] = regex.compile(pattern.text, regex.MULTILINE)
            try:
                found = compiled.search(text, timeout=SEARCH_SECONDS)
            except TimeoutError as error:
                raise OutOfTime from error
            if found is not None:
                return {name: clean(value)[:CAPTURE_CAP] for name, value in found.groupdict().items() if value}
        return None


def _match(rule: Rule, crash: Crash, captures: dict[str, str]) -> Match:
    return Match(
        rule=rule.id,
        rule_digest=rule.digest,
        title=fill(rule.title, captures),
        confidence=rule.confidence,
        cause=fill(rule.cause, captures),
        severity=rule.severity,
        captures=MappingProxyType(captures),
        references=rule.references,
        remedies=offer(rule.remedies, crash, captures),
        verify=rule.verify,
    )
