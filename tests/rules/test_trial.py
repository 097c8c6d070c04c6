"""How far a rule got on a crash, in words; and that these words agree with the match itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.crashes import book, crash, link, load, rule, write
from triage.diagnose import diagnose
from triage.general import advice
from triage.model import Phase
from triage.rulebase.evidence import Evidence
from triage.rulebase.rulebook import Rulebook
from triage.rulebase.rulecheck import crashes_of
from triage.rulebase.rulefile import load_proof, load_rules
from triage.rulebase.said import views
from triage.rulebase.trial import attempts, reach, words
from triage.shipped import shipped

CRASH = crash(link("ValueError", "the moon is full", "scheduler.py:run", "scheduler.py:event_loop"))


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("the moon is full", ""),
        ("the moon is (?:new|old)", "found 'the moon is', then the text goes on 'full' where '(?:new|old)' is wanted"),
        ("the moon is full now", "found 'the moon is full', then the text ends where 'now' is wanted"),
        (r"the \w+ is [0-9]{2,3}", "found 'the moon is', then the text goes on 'full' where '[0-9]{2,3}' is wanted"),
        ("a sun sets|the moon sets", "found 'the moon', then the text goes on 'is full' where 'sets' is wanted"),
        ("tides", "nothing of it is there"),
        ("the moon (is", "no regular expression (missing ) at position 12)"),
    ],
)
def test_a_pattern_tells_how_far_it_got(pattern: str, said: str) -> None:
    part, words_ = reach(pattern, "the moon is full")
    assert words_ == said
    assert (part == 1) == (said == "")


def test_every_condition_that_failed_says_what_was_there(tmp_path: Path) -> None:
    write(
        tmp_path,
        "moon",
        rule(
            "{exception: KeyError, at: 'worker.py:*', phase: [load], flags: {flag: [tp_size], above: 2},"
            " unit: {status: ['9']}}"
        ),
    )
    (attempt,) = attempts(load(tmp_path).rules[0], Evidence.of(CRASH))
    assert [words(condition) for condition in attempt.failing] == [
        "exception wants KeyError: is ValueError",
        "at wants worker.py: is scheduler.py:event_loop",
        "unit status wants 9: is not told",
        "flags wants tp_size above 2: the log does not tell it",
        "phase wants load: is serving",
    ]


def test_an_unknown_crash_names_the_nearest_rules_and_why_they_are_not_it(tmp_path: Path) -> None:
    write(tmp_path, "close", rule("{exception: ValueError, at: 'scheduler.py:event_loop', message: the moon is new}"))
    write(tmp_path, "far", rule("{exception: ValueError, message: water is wet}"))
    finding = diagnose(CRASH, book(tmp_path))
    assert [near.rule for near in finding.nearest] == ["close"]
    assert finding.nearest[0].holds == ("exception", "at")
    assert finding.nearest[0].why[0].startswith("message wants the moon is new: found 'the moon is'")


def test_a_crash_that_is_known_has_no_nearest(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{exception: ValueError, message: the moon is full}"))
    assert diagnose(CRASH, book(tmp_path)).nearest == ()


@pytest.mark.parametrize("phase", Phase)
def test_there_is_general_advice_for_every_phase(phase: Phase) -> None:
    assert len(advice(phase)) > 1


@pytest.mark.timeout(600)  # every sample, by both ways: more than a minute of computing
def test_what_is_told_agrees_with_what_matches() -> None:
    """`attempts` walks the conditions for people, the rulebook for speed: on every shipped sample both say the same."""
    rules = load_rules([shipped("rules")]).rules
    matcher = Rulebook(rules)
    for owner in rules:
        for sample in load_proof(owner.path)[0].samples:
            for seen in crashes_of(sample.log)[:1]:
                won = {match.rule for match in matcher.match(seen)}
                told = set()
                for evidence in map(Evidence.of, views(seen)):
                    near = [matcher.rules[number] for number in matcher.candidates(evidence)]
                    told |= {one.id for one in near if attempts(one, evidence)[0].holds}
                assert told == won
