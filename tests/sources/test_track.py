"""Journals whose entries have no order that holds both ways: several files, one microsecond, clocks set back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.crashes import story
from tests.sources.test_journal import UNIT, entry, make_journal
from triage.engine.assemble import Assembler
from triage.engine.gate import Gate
from triage.sources import open_source
from triage.sources.track import MANY, Track, messages

RECORD = "[2026-11-29 12:00:00 TP0] Decode batch, #running-req: {}"
WORD = "[2026-11-29 12:00:00 TP0] a RuntimeError that somebody speaks of"
SUPPRESSED = {
    "_SYSTEMD_UNIT": "systemd-journald.service",
    "_TRANSPORT": "driver",
    "_PID": "50",
    "OBJECT_SYSTEMD_UNIT": UNIT,
    "MESSAGE_ID": "a596d6fe7bfa4994828e72309e95d61e",
}


def texts_of(place: Path, *, gated: bool) -> tuple[int, list[str], list[str]]:
    """How many lines there were, those that were handed on, the notices; no more than three times what there is."""
    assembler = Assembler()
    count, texts, notices = 0, [], []
    for batch in open_source(f"journal:{place}", gate=Gate(assembler) if gated else None).batches():
        count += batch.size
        texts += [line.text for line in batch.lines]
        notices += batch.notices
        assembler.pass_over(batch.passed, batch.time)
        for line in batch.lines:
            assembler.feed(line)
        assert count < 20_000, "it reads the same again and again"
    return count, texts, notices


def two_files(folder: Path, mark: str, *, before: int) -> Path:
    """A server's entries in groups of one microsecond, as journald stamps what it reads in one go; in another file its
    word about them, of the same microsecond as one of the groups, and so many entries before it a line with a word."""
    folder.mkdir()
    lines, stamps = [*(said.text for said in story.starting() if said.text), *map(RECORD.format, range(1000))], []
    tie = len(lines) - 500
    lines[tie - before] = f"{WORD} {mark}"
    for n in range(len(lines)):
        stamps.append(n if n <= tie or n > tie + 20 else tie)
    ours = "".join(entry(stamps[n], text, _PID="4100") for n, text in enumerate(lines))
    theirs = entry(stamps[tie], f"Suppressed 9 messages from {UNIT} {mark}", **SUPPRESSED)
    make_journal(folder / "user-1000.journal", ours)
    make_journal(folder / "system.journal", theirs)
    for path in folder.glob("*.export"):
        path.unlink()
    return folder


@pytest.mark.parametrize("before", [1, 2, 30])
@pytest.mark.parametrize("mark", "abcdef")  # another hash of the entry, by which such are ordered
def test_entries_of_one_microsecond_in_two_files_are_read_once(tmp_path: Path, mark: str, before: int) -> None:
    place = two_files(tmp_path / "j", mark, before=before)
    whole, every, _ = texts_of(place, gated=False)
    count, texts, _ = texts_of(place, gated=True)
    assert texts.count(f"{WORD} {mark}") == every.count(f"{WORD} {mark}") == 1
    assert sum(text.startswith("Suppressed") for text in texts) == sum(text.startswith("Supp") for text in every) == 1
    assert count == whole


def circle(folder: Path, seed: int) -> Path:
    """Three sequences in two boots, whose clocks say another order than their monotonic times."""
    folder.mkdir()
    boots = ("a" * 32, "b" * 32, "a" * 32)
    for at, boot in enumerate(boots):
        shift = (0, -40, 25)[(at + seed) % 3]
        lines = []
        for n in range(300):
            text = f"{WORD} {at} {n}" if n % (17 + seed) == 5 else RECORD.format(n)
            stamp = 1_795_953_600_000_000 + (n + shift * (1 + n // 100)) * 1000
            times = {"__REALTIME_TIMESTAMP": str(stamp), "__MONOTONIC_TIMESTAMP": str(1_000_000 + n * 1000)}
            lines.append(entry(n, text, _BOOT_ID=boot, _PID=str(4100 + at), **times))
        make_journal(folder / f"{at}.journal", "".join(lines))
    for path in folder.glob("*.export"):
        path.unlink()
    return folder


@pytest.mark.parametrize("seed", range(6))
def test_a_circle_of_clocks_is_read_to_its_end(tmp_path: Path, seed: int) -> None:
    place = circle(tmp_path / "j", seed)
    _, every, _ = texts_of(place, gated=False)
    count, _, notices = texts_of(place, gated=True)
    assert count >= len(every) or any("no order" in text for text in notices)


class Reader:
    """Of entries that stand in a list, in two sequences: as libsystemd's."""

    def __init__(self, count: int) -> None:
        self.entries = [f"entry {n}".encode() for n in range(count)]
        self.at = -1
        self.moved = 0  # so far off it lands by a cursor

    def _next(self) -> bool:
        self.at += (more := self.at + 1 < len(self.entries))
        return more

    def _previous(self) -> bool:
        self.at -= 1
        return self.at >= 0

    def _get(self, name: str) -> bytes:
        return self.entries[self.at]

    def _get_cursor(self) -> str:
        if self.at < 0:
            raise OSError(os.strerror(99))
        return f"s={'ab'[self.at // 500 % 2]};i={self.at:x};"

    def seek_cursor(self, cursor: str) -> None:
        self.at = int(cursor.split("i=")[1].rstrip(";"), 16) - 1 + self.moved

    def test_cursor(self, cursor: str) -> bool:
        return bool(cursor == self._get_cursor())


def track(reader: Any, read: int) -> Track:
    known = Track(reader, 64)
    assert known.mark(512) == 1  # it stands on none yet
    assert known.took(messages(reader, 1))
    while read > 1:
        assert known.mark(512) == 512
        assert known.took(messages(reader, min(read - 1, 100)))
        read -= 100
    return known


def test_it_stands_on_what_it_read_before() -> None:
    reader = Reader(9000)
    known = track(reader, 8001)
    assert known.length < MANY
    for count in (0, 7, 99, 150):
        assert known.back(count)
        for _ in range(count):
            assert known.forth()
        assert reader.at == 8000
    assert not known.lost


def test_who_comes_on_elsewhere_is_lost_and_stands_where_it_was_known() -> None:
    reader = Reader(2000)
    known = track(reader, 1001)
    assert known.back(50)
    reader.at += 3  # another order than before
    assert not known.forth()
    assert (known.lost, known.astray, reader.at) == (True, False, 900)
    assert [known.repeats() for reader.at in (898, 900, 901, 902)] == [True, True, False, False]


def test_where_no_cursor_is_found_again_it_is_astray() -> None:
    reader = Reader(2000)
    known = track(reader, 1001)
    reader.moved = 5
    assert not known.back(50)
    assert known.astray
