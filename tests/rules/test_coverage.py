"""What of a rule no sample hits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.crashes import rule, write
from triage.rulebase.coverage import gaps
from triage.rulebase.evidence import Evidence
from triage.rulebase.rulecheck import crashes_of
from triage.rulebase.rulefile import load_rule

LOG = """\
[2026-06-01 12:00:55] The server is fired up and ready to roll!
[2026-06-01 12:00:58] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/llm/sglang/srt/managers/scheduler.py", line 22, in event_loop
    raise ValueError
  File "/opt/llm/sglang/srt/managers/moon.py", line 7, in rise
    raise ValueError
ValueError: the moon is full

[2026-06-01 12:00:59] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
"""


def evidence(text: str = "the moon is full") -> Evidence:
    return Evidence.of(crashes_of(LOG.replace("the moon is full", text))[0])


def told(tmp_path: Path, match: str, seen: list[str], missed: list[str] | None = None) -> list[str]:
    read, problems = load_rule(write(tmp_path, "moon", rule(match)))
    assert (problems, read is None) == ([], False)
    assert read is not None
    return [gap.what for gap in gaps(read, [*map(evidence, seen)], [*map(evidence, missed or [])])]


@pytest.mark.parametrize(
    ("pattern", "seen", "gaps"),
    [
        ("the moon is full", ["the moon is full"], []),
        ("the (?:moon|sun)s? is", ["the moon is full"], ["sun"]),
        ("the (?:moon|sun)s? is", ["the moon is full", "the sun is up"], []),
        (
            "(?:all|half) the moon|sun(?:s are|[ ]is)",
            ["all the moon"],
            ["sun(?:s are|[ ]is)", "half"],
        ),  # not what is in it
        ("the (?:very (?:old|new) )?moon", ["the moon is full"], ["old", "new"]),  # nobody saw them, optional or not
        ("the(?: moon| sun)+ is", ["the moon sun is full"], []),  # both were part of the match
        ("the moon|is full", ["the moon is full"], []),  # either would do
        ("the moon(?: is full|$)", ["the moon is full"], []),  # an end is no side
        ("the moon is(?! new| old)", ["the moon is full"], []),
        ("(?i)THE (?:moon|sun)", ["the moon is full"], ["sun"]),
    ],
)
def test_a_side_counts_where_it_was_part_of_a_match(
    tmp_path: Path, pattern: str, seen: list[str], gaps: list[str]
) -> None:
    match = f"{{message: '{pattern}', exception: ValueError}}"
    assert told(tmp_path, match, seen) == [f"the alternative {gap!r} of {pattern!r}" for gap in gaps]


def test_a_pattern_beside_one_that_is_true_is_not_hit(tmp_path: Path) -> None:
    assert told(tmp_path, "{message: [the moon, the sun]}", ["the moon is full"]) == ["'the sun'"]
    assert told(tmp_path, "{message: [the moon], lines: [full, new moon]}", ["the moon is full"]) == ["'new moon'"]


def test_an_entry_is_hit_only_where_its_clause_holds(tmp_path: Path) -> None:
    """The sample shows a ValueError, but not with this wording."""
    match = "[{message: the moon}, {exception: [ValueError, KeyError], message: the sun}]"
    assert told(tmp_path, match, ["the moon is full"]) == ["this clause"]
    assert told(tmp_path, match, ["the moon is full", "the sun is up"]) == ["exception KeyError"]


def test_places_and_frames_are_asked_one_by_one(tmp_path: Path) -> None:
    match = "{at: ['moon.py:rise', 'moon.py:set'], frame: ['scheduler.py', 'sun.py']}"
    assert told(tmp_path, match, ["the moon is full"]) == ["at moon.py:set", "frame sun.py"]


def test_what_is_to_keep_out_keeps_out_a_near_miss(tmp_path: Path) -> None:
    match = "{message: the moon, unless: [{message: [at noon, 'in (?:May|June)']}]}"
    seen = ["the moon is full"]
    assert told(tmp_path, match, seen, []) == ["this clause"]
    assert told(tmp_path, match, seen, ["the sun at noon"]) == ["this clause"]  # the rest of the clause has to hold
    assert told(tmp_path, match, seen, ["the moon at noon"]) == ["'in (?:May|June)'"]
    assert told(tmp_path, match, seen, ["the moon at noon", "the moon in May"]) == [
        "the alternative 'June' of 'in (?:May|June)'"
    ]
    assert told(tmp_path, match, seen, ["the moon at noon", "the moon in May", "the moon in June"]) == []


def test_a_sample_that_another_clause_wins_shows_what_keeps_out(tmp_path: Path) -> None:
    match = "[{message: the moon, unless: [{message: at noon}]}, {message: at noon}]"
    assert told(tmp_path, match, ["the moon is full", "the moon at noon"]) == []
