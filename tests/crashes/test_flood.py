"""A unit that wrote as much as journald takes and then died: what it said last may be missing, and that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crashes import story
from tests.crashes.story import Said, entry_fields
from tests.sources.test_journal import make_journal
from tests.sources.test_sieve import told
from triage.engine.assemble import Assembler
from triage.model import Change, Crash, Grade
from triage.sources.entry import entry_line

END = 60_000


def flood(count: int, over: int = 8_000, until: int = END - 5_000) -> list[Said]:
    """So many lines in so many milliseconds, the last before `until`."""
    text = "[x TP0] Decode batch, #running-req: 1"
    return [Said(text, story.RANKS[0], until - over + over * n // count) for n in range(count)]


def crash_of(lines: list[Said], end: int = END) -> Crash:
    died = story.unit_failed(end, "exited", "1", "exit-code")
    assembler = Assembler()
    events = [
        event
        for said in [*story.starting(), *lines, *died]
        for event in assembler.feed(entry_line(entry_fields(said), story.START + said.ms * 1000))
    ]
    (crash,) = (event.crash for event in events + assembler.finish() if event.change is Change.CLOSED)
    return crash


def test_an_end_right_after_a_flood_is_graded_suppressed_with_the_reason() -> None:
    crash = crash_of(flood(10_500))
    assert (crash.root.cause.exception, crash.grade) == ("ExitStatus 1", Grade.SUPPRESSED)
    assert "10500 lines in its last 30 s" in crash.root.why


@pytest.mark.parametrize(
    ("count", "over", "end"), [(8_000, 8_000, END), (10_500, 44_000, END), (10_500, 8_000, 99_000)]
)
def test_an_end_after_less_or_long_after_it_is_complete(count: int, over: int, end: int) -> None:
    assert crash_of(flood(count, over), end).grade is Grade.COMPLETE


def test_a_flood_before_a_root_that_is_known_lowers_nothing() -> None:
    assert crash_of([*flood(10_500), *story.rank_crash(END - 100, 0)]).grade is Grade.COMPLETE


def test_a_flood_that_the_gate_passed_over_counts_too(tmp_path: Path) -> None:
    died = story.unit_failed(END, "exited", "1", "exit-code")
    lines = [*story.starting(), *story.serving(10_000, 5), *flood(14_000), *died]
    journal = make_journal(tmp_path / "x.journal", story.as_export(lines).decode())
    for gated in (True, False):
        (events, _, _), read = told(journal, gated=gated)
        assert (read < 5_000) is gated
        assert [event.crash.grade for event in events] == [Grade.SUPPRESSED, Grade.SUPPRESSED]  # type: ignore[attr-defined]
