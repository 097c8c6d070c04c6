"""Rules that change while triage runs: taken over as a whole, between two batches; a fault keeps what was in force."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.crashes import story
from tests.dashboard.conftest import Clock
from tests.rules.crashes import crash, link, rule, write
from triage.cli import triage
from triage.model import Batch, Line
from triage.rulebase.shelf import LOOK_EVERY, LiveBook, Shelf

CRASH = crash(link("ValueError", "the moon is full"))


def old(path: Path) -> Path:
    """Nobody has written to it lately."""
    os.utime(path, (1, 1))
    return path


def named(book: LiveBook) -> list[str]:
    return [match.rule for match in book.match(CRASH)]


@pytest.fixture
def clock() -> Clock:
    return Clock(0)


@pytest.fixture
def shelf(tmp_path: Path, clock: Clock) -> Shelf:
    old(write(tmp_path, "one", rule("{exception: ValueError}")))
    return Shelf((tmp_path,), clock)


def test_a_new_a_changed_and_a_removed_rule_are_taken_over(shelf: Shelf, clock: Clock, tmp_path: Path) -> None:
    book = LiveBook(shelf)
    old(write(tmp_path, "two", rule("{exception: ValueError, message: moon}")))
    assert (book.follow(), named(book)) == ([], ["one"])  # not looked yet
    clock.time += LOOK_EVERY
    assert named(book) == ["one"]  # diagnosis alone takes nothing over
    assert book.follow() == ["rules were read again: 2 in force"]
    assert named(book) == ["two", "one"]
    (tmp_path / "site/two.yaml").unlink()
    old(write(tmp_path, "one", rule("{exception: KeyError}")))
    clock.time += LOOK_EVERY
    assert book.follow() == ["rules were read again: 1 in force"]
    assert (named(book), book.follow()) == ([], [])


def test_a_file_that_is_being_written_is_left_alone(shelf: Shelf, clock: Clock, tmp_path: Path) -> None:
    """A truncated file is an empty one, and an empty one masks."""
    for text in ("", "title: A", "title: A rule\n", rule("{exception: KeyError}")):
        path = write(tmp_path, "one", text)
        os.utime(path, (2**32, 2**32))  # written to just now, however slow this machine is
        clock.time += LOOK_EVERY
        assert shelf().rules.rules[0].clauses[0].exceptions == ("ValueError",)
    clock.time += LOOK_EVERY  # the same for two looks: whoever wrote it is done
    present = shelf()
    assert present.trouble == ""
    assert [one.clauses[0].exceptions for one in present.rules.rules] == [("KeyError",)]


def test_a_fault_keeps_the_old_rules_and_is_said_once(shelf: Shelf, clock: Clock, tmp_path: Path) -> None:
    book = LiveBook(shelf)
    old(write(tmp_path, "one", rule("{exceptoin: ValueError}")))
    old(write(tmp_path, "two", rule("{exception: ValueError, message: moon}")))
    clock.time += LOOK_EVERY
    (said,) = book.follow()
    assert said.startswith("the rules stay as they were, a file has a fault:\n")
    assert "one.yaml:4:9: " in said
    clock.time += LOOK_EVERY
    assert (book.follow(), named(book)) == ([], ["one"])
    old(write(tmp_path, "one", ""))
    clock.time += LOOK_EVERY
    assert book.follow() == ["rules were read again: 1 in force"]
    assert named(book) == ["two"]


def test_where_there_is_nothing_to_keep_the_sound_rules_count(tmp_path: Path) -> None:
    shipped, site = tmp_path / "shipped", tmp_path / "site"
    for name in ("one", "two"):
        write(shipped, name, rule("{exception: ValueError}"))
    write(site, "one", "title: half a rule\n")  # the shipped one stays
    book = LiveBook(Shelf((shipped, site)))
    (said,) = book.follow()
    assert said.startswith("left out, for a fault: ")
    assert (book.follow(), named(book)) == ([], ["one", "two"])


def test_a_slow_pattern_is_told_by_the_live_book_and_tried_again_when_rules_change(
    shelf: Shelf, clock: Clock, tmp_path: Path
) -> None:
    old(write(tmp_path, "bad", rule("{message: 'moon (is', anchors: [moon]}")))
    clock.time += LOOK_EVERY
    book = LiveBook(shelf)
    named(book)
    assert [text.partition(":")[0] for text in book.follow()] == [
        "rule bad is out of force until the next start, or until rules change"
    ]
    old(write(tmp_path, "bad", rule("{message: 'moon is'}")))
    clock.time += LOOK_EVERY
    book.follow()
    assert "bad" in named(book)


def test_watch_names_the_next_crash_by_the_new_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The source writes a rule between two crashes; the second is named by it."""
    site = tmp_path / "rules.d"
    monkeypatch.setattr("triage.shipped.SITE_RULES", site)
    monkeypatch.setattr("triage.rulebase.shelf.LOOK_EVERY", 0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def lines(run: str) -> tuple[Line, ...]:
        text = 'Traceback (most recent call last):\n  File "/x/sglang/a.py", line 1, in f\nMoonError: full\n'
        return tuple(Line(one, unit=story.UNIT, invocation=run, n=n) for n, one in enumerate(text.splitlines()))

    @dataclass
    class Made:
        name: str = "made"

        def batches(self) -> Iterator[Batch]:
            yield Batch(lines("a"), cursor="1")
            yield Batch((), time=10**12, cursor="2")
            old(write(site, "moon", rule("{exception: MoonError}")))
            yield Batch((), cursor="3")
            yield Batch(lines("b"), cursor="4")

        def close(self) -> None: ...

    monkeypatch.setattr("triage.sources.open_source", lambda *a, **k: Made())
    done = CliRunner().invoke(triage, ["watch", "--source", "made"], catch_exceptions=False)
    assert done.exit_code == 0
    assert [r.getMessage() for r in caplog.records if "read again" in r.getMessage()] != []
    listed = CliRunner().invoke(triage, ["incidents", "list", "--json"], catch_exceptions=False)
    assert "moon" in listed.stdout
