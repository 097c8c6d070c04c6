"""A journal behind the gate: the same crashes, numbers and knowledge as without it, and hardly a line read."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.crashes import story
from tests.crashes.story import Said
from tests.crashes.test_gate import but_pace
from tests.sources.test_journal import make_journal
from triage.engine.assemble import Assembler
from triage.engine.gate import Gate
from triage.sources import open_source
from triage.sources.sieve import CHUNK

OTHER = "sglang-embed.service"
THIRD = "b17e" * 8


def told(place: Path, *, gated: bool) -> tuple[tuple[object, ...], int]:
    assembler = Assembler()
    source = open_source(f"journal:{place}", gate=Gate(assembler) if gated else None)
    events, count, read = [], 0, 0
    for batch in source.batches():
        count, read = count + batch.size, read + len(batch.lines)
        assembler.pass_over(batch.passed, batch.time)
        for line in batch.lines:
            events += assembler.feed(line)
    contexts = {run: replace(context, pace=()) for run, context in assembler.contexts().items()}
    return ([but_pace(event) for event in events + assembler.finish()], count, contexts), read


def units_told(place: Path) -> dict[str | None, int]:
    assembler = Assembler()
    units: dict[str | None, int] = {}
    for batch in open_source(f"journal:{place}", gate=Gate(assembler)).batches():
        for unit, count in [*batch.passed.items(), *((line.unit, 1) for line in batch.lines)]:
            units[unit] = units.get(unit, 0) + count
        for line in batch.lines:
            assembler.feed(line)
    return units


def elsewhere(ms: int, count: int) -> list[Said]:
    """Another unit of ours, and one that is none of ours and full of words."""
    lines = []
    for n in range(count):
        lines.append(Said("[x TP0] Decode batch, #running-req: 1", 5100, ms + n, {}, THIRD, OTHER))
        lines.append(Said("RuntimeError: not of this unit", 900, ms + n, {}, "f00d" * 8, "nginx.service"))
    return lines


def day() -> list[Said]:
    """Traffic; half a traceback; a process whose number was another's; the kernel; a crash and its end."""
    traffic = story.serving(10_000, 700)
    cut = story.rank_crash(40_000, 3)[:7]
    later = story.serving(60_000, 400)
    reused = [Said("INFO:     a line of our unit under nginx's number", 900, 77_000)]
    kernel = [Said("NVRM: Xid (PCI:0000:dc:00): 79, pid=4203, name=python3, GPU has fallen off the bus", 0, 78_000)]
    crash = story.interleaved([story.rank_crash(78_100, rank) for rank in range(8)])
    end = [*story.parent_gives_up(78_400), *story.unit_failed(78_600)]
    parts = (traffic, elsewhere(20_000, 200), cut, later, reused, kernel, crash, end, elsewhere(90_000, 300))
    return [*story.starting(), *(said for part in parts for said in part)]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_journal(tmp_path_factory.mktemp("sieve") / "x.journal", story.as_export(day()).decode())


def test_a_journal_is_told_alike_with_and_without_the_gate(journal: Path) -> None:
    (gated, read), (whole, every) = told(journal, gated=True), told(journal, gated=False)
    assert gated == whole
    assert {event.crash.root.cause.exception for event in gated[0]} == {"Xid 79"}
    assert read < every


def test_lines_just_before_a_cut_traceback_are_read_after_all(tmp_path: Path) -> None:
    reason = Said(f"[{story.stamp(39_990)} TP3] the draft's hidden size is 7168", story.RANKS[3], 39_990)
    more = story.serving(39_991, 9)
    cut = story.rank_crash(40_360, 3)[:7]
    lines = [*story.starting(), *story.serving(10_000, 700), reason, *more, *cut, *story.unit_failed(41_000)]
    place = make_journal(tmp_path / "x.journal", story.as_export(lines).decode())
    (gated, _), (whole, _) = told(place, gated=True), told(place, gated=False)
    assert gated == whole
    (last,) = {event.crash.key: event.crash for event in gated[0]}.values()
    assert any("hidden size is 7168" in line.text for line in last.evidence)
    assert gated[1] == len(lines)


def test_healthy_entries_are_passed_over_and_counted(tmp_path: Path) -> None:
    lines = [*story.starting(), *story.serving(10_000, 3000), *elsewhere(60_000, 500)]
    place = make_journal(tmp_path / "x.journal", story.as_export(lines).decode())
    (gated, read), (whole, every) = told(place, gated=True), told(place, gated=False)
    assert gated == whole
    assert every == len(lines) - 500
    assert read < every / 5


def test_what_is_passed_over_is_told_of_each_unit(tmp_path: Path) -> None:
    lines = [*story.starting(), *story.serving(10_000, 300), *elsewhere(60_000, 200)]
    place = make_journal(tmp_path / "x.journal", story.as_export(lines).decode())
    assert units_told(place) == {story.UNIT: len(lines) - 400, OTHER: 200}


def test_what_was_passed_over_is_the_units_that_had_the_number_then(tmp_path: Path) -> None:
    """A process number that goes to another unit, whose first line there has a word."""
    first = [Said(f"[x TP0] Decode batch, #running-req: {n}", 5100, 60_000 + n, {}, THIRD, OTHER) for n in range(100)]
    word = Said("RuntimeError: of the other unit", 5100, 61_000)
    lines = [*story.starting(), *story.serving(10_000, 300), *first, word, *story.serving(62_000, 50)]
    place = make_journal(tmp_path / "x.journal", story.as_export(lines).decode())
    assert units_told(place)[OTHER] == 100


def records(pid: int, ms: int, count: int, run: str, unit: str) -> list[Said]:
    """Of a scheduler, with the head that the scheduler of the unit under test has too."""
    said = (f"[{story.stamp(ms + n)} TP0] Decode batch, #running-req: {n}" for n in range(count))
    return [Said(text, pid, ms + n, {}, run, unit) for n, text in enumerate(said)]


def test_records_of_two_servers_are_soon_told_apart_by_their_processes(tmp_path: Path) -> None:
    """The head of a record is taken for its process's only where one server writes."""
    ours = records(story.RANKS[0], 60_000, 1500, story.RUN, story.UNIT)
    theirs = records(5100, 60_000, 1500, THIRD, OTHER)
    both = [said for pair in zip(ours, theirs, strict=True) for said in pair]
    alone = records(5100, 70_000, 1000, THIRD, OTHER)
    lines = [*story.starting(), *story.serving(10_000, 300), *both, *alone]
    place = make_journal(tmp_path / "x.journal", story.as_export(lines).decode())
    told = units_told(place)
    assert sum(told.values()) == len(lines)
    assert 2500 - CHUNK[1] <= told[OTHER] <= 2500


def test_what_another_program_writes_in_the_same_words_is_soon_not_counted(tmp_path: Path) -> None:
    """uvicorn's line of a request: ours, and of a program that is none of ours."""
    said = 'INFO:     10.0.0.7:40100 - "GET /health HTTP/1.1" 200 OK'
    both = []
    for n in range(1500):
        both.append(Said(said, story.MAIN, 60_000 + n))
        both.append(Said(said, 900, 60_000 + n, {}, "f00d" * 8, "nginx.service"))
    lines = [*story.starting(), *story.serving(10_000, 300), *both]
    place = make_journal(tmp_path / "x.journal", story.as_export(lines).decode())
    ours = len(lines) - 1500
    told = units_told(place)
    assert set(told) == {story.UNIT}
    assert ours <= told[story.UNIT] <= ours + CHUNK[1]


def test_a_manager_line_between_records_is_read(tmp_path: Path) -> None:
    traffic = records(story.RANKS[0], 60_000, 400, story.RUN, story.UNIT)
    end = story.unit_failed(60_400)
    lines = [*story.starting(), *story.serving(10_000, 300), *traffic, *end]
    place = make_journal(tmp_path / "x.journal", story.as_export(lines).decode())
    (gated, _), (whole, _) = told(place, gated=True), told(place, gated=False)
    assert gated == whole
    assert gated[0]


def test_entries_that_tell_no_process_by_their_head_are_counted_once(tmp_path: Path) -> None:
    """Between records: a program's own lines, those of others, and an entry without a message."""
    lines = [*story.starting(), *story.serving(10_000, 300)]
    for n in range(30):
        ms = 60_000 + 1000 * n
        lines += records(story.RANKS[0], ms, 17 * n, story.RUN, story.UNIT)
        lines.append(Said("a line of a plugin", story.RANKS[0], ms + 990))
        lines.append(Said("connection from 10.0.0.9", 900, ms + 991, {}, "f00d" * 8, "nginx.service"))
        lines.append(Said("usb 1-1: new device", 0, ms + 992))
    lines += story.unit_failed(95_000)
    text = story.as_export(lines).decode()
    silent = text.replace("MESSAGE=a line of a plugin\n", "", 5)
    assert silent != text
    place = make_journal(tmp_path / "x.journal", silent)
    (gated, read), (whole, _) = told(place, gated=True), told(place, gated=False)
    assert gated == whole
    assert gated[1] == len([said for said in lines if said.unit == story.UNIT or said.pid == 0])
    assert read < 500


def test_containers_are_told_alike_with_and_without_the_gate(tmp_path: Path) -> None:
    """Two of docker's journald driver, one of them ours, under one pid and beside a unit of ours."""
    parts = (*story.serving(10_000, 300), *story.interleaved([story.rank_crash(30_000, rank) for rank in range(8)]))
    lines = [*story.starting(), *story.serving(10_000, 300)]
    for n, said in enumerate(parts):
        for name in ("sglang-b", "redis"):
            fields = {"CONTAINER_NAME": name, "CONTAINER_ID_FULL": name[0] * 64}
            lines.append(Said(said.text, 700, 30_000 + n, fields, "d0c5" * 8, "docker.service"))
    place = make_journal(tmp_path / "x.journal", story.as_export(lines).decode())
    (gated, _), (whole, _) = told(place, gated=True), told(place, gated=False)
    assert gated == whole
    assert {event.crash.unit for event in gated[0]} == {"sglang-b"}
    assert set(units_told(place)) == {story.UNIT, "sglang-b"}


def test_the_head_of_a_short_line_is_nobodys(tmp_path: Path) -> None:
    """What is cut in a record's time has no head: another program's line of a few letters has none either."""
    ours = [Said("[2", story.RANKS[0], 60_000 + n) for n in range(40)]
    theirs = [Said("[2", 900, 61_000 + n, {}, "f00d" * 8, "nginx.service") for n in range(400)]
    lines = [*story.starting(), *story.serving(10_000, 300), *ours, *theirs]
    place = make_journal(tmp_path / "x.journal", story.as_export(lines).decode())
    assert units_told(place) == {story.UNIT: len(lines) - 400}
