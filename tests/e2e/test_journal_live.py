"""The journal source against a real journald that rotates and vacuums under it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.box import Box
from triage.model import Batch, Line
from triage.sources.journal import JournalSource


class Following(JournalSource):
    """The live reader, over the journal folder of the box instead of the machine's own."""

    def batches(self) -> Iterator[Batch]:
        if self._cursor:
            self._resume()
        else:
            self._seek(0)
        return self._follow()


def say(box: Box, unit: str, first: int, last: int) -> None:
    box.run(["systemd-run", "-q", "--wait", f"--unit={unit}", "seq", "-f", "line %g", str(first), str(last)])
    box.run(["journalctl", "--sync"])


def rotate(box: Box, *, vacuum: bool = False) -> None:
    box.run(["journalctl", "--rotate", "--quiet", *(["--vacuum-files=1"] if vacuum else [])])


def numbers(lines: list[Line]) -> list[int]:
    return [int(line.text.split()[1]) for line in lines if line.text.startswith("line ")]


def read(source: JournalSource, goal: int) -> tuple[list[int], list[str], str | None]:
    """The numbers up to `goal`, notices and the last cursor."""
    lines: list[Line] = []
    notices: list[str] = []
    cursor = None
    for turn, batch in enumerate(source.batches()):
        lines += batch.lines
        notices += batch.notices
        cursor = batch.cursor or cursor
        if goal in numbers(lines) or turn > 300:
            return numbers(lines), notices, cursor
    raise AssertionError("a live source does not end")


def test_rotations_and_vacuums_lose_nothing_for_a_reader_that_keeps_up(box: Box) -> None:
    source = Following("j", place=box.journal_folder, units=["sglang-keeps*"])
    seen: list[int] = []
    notices: list[str] = []
    say(box, "sglang-keeps0.service", 1, 300)
    turn = 0
    for batch in source.batches():
        seen += numbers(list(batch.lines))
        notices += batch.notices
        if seen and seen[-1] == 300 * (turn + 1):
            turn += 1
            if turn == 5:
                break
            rotate(box, vacuum=turn > 2)
            say(box, f"sglang-keeps{turn}.service", 300 * turn + 1, 300 * turn + 300)
    source.close()
    assert seen == list(range(1, 1501))
    assert notices == []


def test_a_reader_that_comes_back_after_a_vacuum_says_how_much_is_lost(box: Box) -> None:
    say(box, "sglang-back.service", 1, 100)
    source = Following("j", place=box.journal_folder, units=["sglang-back*"])
    seen, _, cursor = read(source, 100)
    source.close()
    assert seen == list(range(1, 101))
    say(box, "sglang-back.service", 101, 400)
    rotate(box, vacuum=True)
    rotate(box, vacuum=True)
    say(box, "sglang-back.service", 401, 500)
    source = Following("j", place=box.journal_folder, units=["sglang-back*"], cursor=cursor)
    seen, notices, _ = read(source, 500)
    source.close()
    assert seen == list(range(401, 501))
    assert len(notices) == 1
    lost = int(notices[0].split()[0])
    assert 300 <= lost <= 330  # the lines, and what the manager and journald said around them


def test_a_reader_that_comes_back_without_a_vacuum_reads_each_line_once(box: Box) -> None:
    say(box, "sglang-once.service", 1, 100)
    source = Following("j", place=box.journal_folder, units=["sglang-once*"])
    first, _, cursor = read(source, 100)
    source.close()
    rotate(box)
    say(box, "sglang-once.service", 101, 200)
    source = Following("j", place=box.journal_folder, units=["sglang-once*"], cursor=cursor)
    second, notices, _ = read(source, 200)
    source.close()
    assert (first, second, notices) == (list(range(1, 101)), list(range(101, 201)), [])
