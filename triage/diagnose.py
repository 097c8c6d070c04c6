"""Crash -> Finding: its signature, the rules that match, how serious it is.

In come a closed or open crash and the rulebook, out goes a `Finding`. Called by the pipeline and by `triage scan`.
Pure: no I/O, no clock. It must not decide what is a root (engine.roles) or what a rule means (rulebase.rulebook).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from triage.engine.signature import sign
from triage.model import Crash, Finding, Match, Near, Outcome, Severity

_BY_OUTCOME = {
    Outcome.FATAL: Severity.CRITICAL,
    Outcome.DEGRADED: Severity.ERROR,
    Outcome.UNKNOWN: Severity.WARNING,
    Outcome.REQUEST_ERROR: Severity.INFO,
    Outcome.RECOVERED: Severity.INFO,
}
_BLOCKED = {
    Outcome.UNKNOWN: "what became of the server is not known: nothing is changed on a guess",
    Outcome.REQUEST_ERROR: "only one request failed, the server is well",
    Outcome.RECOVERED: "the server recovered by itself",
}


class Matcher(Protocol):
    """What diagnosis needs of a rulebook."""

    def match(self, crash: Crash) -> tuple[Match, ...]: ...
    def nearest(self, crash: Crash) -> tuple[Near, ...]: ...


class NoRules:
    """A rulebook without rules: everything is undiagnosed."""

    def match(self, crash: Crash) -> tuple[Match, ...]:
        return ()

    def nearest(self, crash: Crash) -> tuple[Near, ...]:
        return ()


def diagnose(crash: Crash, rulebook: Matcher) -> Finding:
    """Name a crash. Severity is the best rule's, else the outcome's."""
    matches = rulebook.match(crash)
    if not crash.outcome.actionable:
        matches = tuple(_advice_only(match, _BLOCKED[crash.outcome]) for match in matches)
    severity = matches[0].severity if matches and crash.outcome.actionable else _BY_OUTCOME[crash.outcome]
    return Finding(crash, sign(crash), severity, matches, () if matches else rulebook.nearest(crash))


def _advice_only(match: Match, why: str) -> Match:
    """The same match for a crash that may lead to no action: its remedies are told, none can be applied."""
    remedies = tuple(
        replace(remedy, applicable=False, blocked_by=remedy.blocked_by or why) if remedy.applicable else remedy
        for remedy in match.remedies
    )
    return replace(match, remedies=remedies)
