"""The journal as a source: what passes, what does not, and that nothing is lost or doubled over a restart."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triage.model import OWNER, InputError, Line, Origin, Unreachable
from triage.sources import open_source
from triage.sources.beginning import LOADING, RECENT, first_windows
from triage.sources.journal import JournalSource

REMOTE = "/lib/systemd/systemd-journal-remote"
EXPORT = Path(__file__).parent / "journals" / "day.export"
UNIT = "sglang-k26.service"


def make_journal(path: Path, export: str) -> Path:
    """A real journal file of export text; written to again if it is there."""
    text = path.with_suffix(".export")
    text.write_text(export)
    subprocess.run([REMOTE, f"--output={path}", str(text)], check=True, capture_output=True, timeout=60)
    return path


def entry(n: int, message: str, unit: str = UNIT, **fields: str) -> str:
    at = 1_795_953_600_000_000 + n * 1000
    known = {
        "__REALTIME_TIMESTAMP": at,
        "__MONOTONIC_TIMESTAMP": 1_000_000 + n * 1000,
        "_BOOT_ID": "3f0c9a6e51d84b0f8f3f5f6d2b7a9c10",
        "_HOSTNAME": "gpu-a",
        "_PID": 4100,
        "_TRANSPORT": "stdout",
        "_SYSTEMD_UNIT": unit,
        "MESSAGE": message,
        **fields,
    }
    return "".join(f"{k}={v}\n" for k, v in known.items()) + "\n"


def lines_of(place: Path, cursor: str | None = None, **more: object) -> list[Line]:
    source = open_source(f"journal:{place}", cursor=cursor, **more)  # type: ignore[arg-type]
    try:
        return [line for batch in source.batches() for line in batch.lines]
    finally:
        source.close()


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_journal(tmp_path_factory.mktemp("day") / "day.journal", EXPORT.read_text())


def test_only_our_units_and_what_is_said_about_them_pass(day: Path) -> None:
    lines = lines_of(day)
    kinds = " ".join(line.origin.value for line in lines)
    assert kinds == "manager manager " + "process " * 4 + "kernel kernel journald process" + " manager" * 4
    assert not any("nginx" in line.text or "index.html" in line.text for line in lines)
    assert {line.unit for line in lines if line.origin is not Origin.KERNEL} == {UNIT, "sglang-draft.service"}


def test_a_process_that_claims_to_speak_for_a_unit_is_not_believed(day: Path) -> None:
    assert not any("says nothing here" in line.text for line in lines_of(day))


def test_the_lines_carry_what_the_assembler_needs(day: Path) -> None:
    lines = lines_of(day)
    load = next(line for line in lines if "TP1] Load" in line.text)
    assert (load.pid, load.host, load.stream) == (4102, "gpu-a", "77aa77aa77aa77aa77aa77aa77aa77aa")
    assert load.invocation == "5a0d3c1e8f7b4c22a1b0d9e8f7a6b5c4"
    assert load.time == 1_795_953_600_006_000
    end = lines[-1]
    assert (end.fields["UNIT_RESULT"], end.invocation) == ("signal", load.invocation)
    own = [line for line in lines if line.unit == "sglang-draft.service"]  # of a user: one run, with its manager's word
    assert {(line.invocation, line.fields[OWNER]) for line in own} == {("9e" * 16, "1000")}
    assert [line.origin for line in own] == [Origin.PROCESS, Origin.MANAGER]
    assert own[0].stream == "88bb" * 8
    notice = next(line for line in lines if line.origin is Origin.JOURNALD)
    assert (notice.unit, notice.fields["N_DROPPED"]) == (UNIT, "2350")
    kernel = [line.text for line in lines if line.origin is Origin.KERNEL]
    assert kernel[0].startswith("NVRM: Xid")
    assert kernel[1].startswith("Out of memory: Killed process 4101")
    assert next(line for line in lines if line.text.endswith("allo")).fields == {"_LINE_BREAK": "pid-change"}


def test_the_globs_decide_which_units_are_read(day: Path) -> None:
    lines = lines_of(day, units=["nginx.service"])
    assert [line.text for line in lines if line.origin is Origin.PROCESS] == ["GET /index.html 200"]


def test_a_folder_is_read_in_order_over_its_files(tmp_path: Path) -> None:
    make_journal(tmp_path / "b.journal", "".join(entry(n, f"line {n}") for n in range(5, 9)))
    make_journal(tmp_path / "a.journal", "".join(entry(n, f"line {n}") for n in range(5)))
    for export in tmp_path.glob("*.export"):
        export.unlink()
    assert [line.text for line in lines_of(tmp_path)] == [f"line {n}" for n in range(9)]


def test_reading_goes_on_after_the_cursor_and_gives_nothing_twice(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "x.journal", "".join(entry(n, f"line {n}") for n in range(3000)))
    seen: list[str] = []
    cursor = None
    while True:  # a reader that dies after every batch
        source = JournalSource("j", place=journal, units=["sglang*"], cursor=cursor)
        batch = next(b for b in source.batches())
        source.close()
        if not batch.lines:
            break
        seen += [line.text for line in batch.lines]
        cursor = batch.cursor
    assert seen == [f"line {n}" for n in range(3000)]


def test_the_cursor_moves_on_over_entries_of_others(tmp_path: Path) -> None:
    text = "".join(entry(n, "noise", unit="nginx.service") for n in range(50))
    journal = make_journal(tmp_path / "x.journal", text)
    batches = list(open_source(f"journal:{journal}").batches())
    assert not any(batch.lines for batch in batches)
    make_journal(journal, entry(60, "ours"))
    assert [line.text for line in lines_of(journal, cursor=batches[-1].cursor)] == ["ours"]


def test_a_place_whose_entry_is_gone_goes_on_with_what_is_left_and_says_so(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "x.journal", "".join(entry(n, f"line {n}") for n in range(10)))
    other = make_journal(tmp_path / "y.journal", entry(-5, "long ago"))
    cursor = next(iter(open_source(f"journal:{other}").batches())).cursor
    source = open_source(f"journal:{journal}", cursor=cursor)
    batches = list(source.batches())
    gap, *lines = [line for batch in batches for line in batch.lines]
    assert [line.text for line in lines] == [f"line {n}" for n in range(10)]
    assert (gap.origin, gap.fields) == (Origin.JOURNALD, {"LOST": "-1"})
    assert "may be lost" in batches[0].notices[0]


def test_a_place_whose_entry_was_copied_under_another_number_is_found(tmp_path: Path) -> None:
    """What a flush does: the entries of /run stand in /var, after others."""
    run = make_journal(tmp_path / "run.journal", "".join(entry(n, f"line {n}") for n in range(10)))
    cursor = [batch.cursor for batch in open_source(f"journal:{run}").batches()][-1]
    copied = make_journal(tmp_path / "var.journal", "".join(entry(n, f"line {n}") for n in range(-7, 15)))
    source = open_source(f"journal:{copied}", cursor=cursor)
    batches = list(source.batches())
    assert [line.text for batch in batches for line in batch.lines] == [f"line {n}" for n in range(10, 15)]
    assert not any(batch.notices for batch in batches)


def test_a_place_that_is_no_cursor_starts_anew_and_says_so(day: Path) -> None:
    source = JournalSource("j", place=day, units=["sglang*"], cursor="n17")
    batches = list(source.batches())
    assert len([line for batch in batches for line in batch.lines]) == 14
    assert "starting anew" in batches[0].notices[0]


def test_since_leaves_out_what_is_older(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "x.journal", "".join(entry(n, f"line {n}") for n in range(5)))
    assert [line.text for line in lines_of(journal, since=1_795_953_600_003_000)] == ["line 3", "line 4"]


def test_a_long_line_is_whole_and_bad_bytes_do_not_stop_the_reading(tmp_path: Path) -> None:
    long = "x" * 200_000
    path = tmp_path / "x.export"
    raw = entry(1, long).encode() + entry(2, "@").encode().replace(
        b"MESSAGE=@\n", b"MESSAGE\n" + (3).to_bytes(8, "little") + b"a\xffb\n"
    )
    path.write_bytes(raw)
    subprocess.run([REMOTE, f"--output={tmp_path / 'x.journal'}", str(path)], check=True, capture_output=True)
    lines = lines_of(tmp_path / "x.journal")
    assert lines[0].text == long
    assert not lines[0].cut
    assert lines[1].text == "a\ufffdb"


def test_a_missing_or_odd_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        open_source(f"journal:{tmp_path / 'no'}")
    (tmp_path / "odd").write_text("no journal")
    with pytest.raises(InputError, match="no journal that can be read"):
        open_source(f"journal:{tmp_path / 'odd'}")


def test_a_journal_file_is_known_by_its_head_and_from_any_folder(day: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = lines_of(day)
    monkeypatch.chdir(day.parent)
    for spec in (str(day), day.name, f"journal:{day.name}"):
        source = open_source(spec)
        assert [line for batch in source.batches() for line in batch.lines] == every
        source.close()


def test_without_the_library_the_command_that_brings_it_is_told(day: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "systemd", None)
    with pytest.raises(Unreachable, match=r"libsystemd-dev .* pip install systemd-python"):
        open_source(f"journal:{day}")


# ---------------------------------------------------------------- following


class Following(JournalSource):
    """The live reader over a folder of the test: the machine's own journal is not ours to write to."""

    def batches(self) -> Iterator[object]:  # type: ignore[override]
        if self._cursor:
            self._resume()
        else:
            self._seek(0)
        return self._follow()


def followed(folder: Path, count: int, write: object, cursor: str | None = None) -> tuple[list[str], list[str]]:
    """Texts and notices until `count` lines were seen; `write(round)` makes more journal between the batches."""
    source = Following("j", place=folder, units=["sglang*"], cursor=cursor)
    texts: list[str] = []
    notices: list[str] = []
    end = time.monotonic() + 30
    for turn, batch in enumerate(source.batches()):
        texts += [line.text for line in batch.lines]  # type: ignore[attr-defined]
        notices += batch.notices  # type: ignore[attr-defined]
        if len(texts) >= count or time.monotonic() > end:
            break
        write(turn)  # type: ignore[operator]
    source.close()
    return texts, notices


def test_following_sees_what_is_written_later_to_new_files_and_by_new_units(tmp_path: Path) -> None:
    make_journal(tmp_path / "a.journal", entry(0, "line 0"))

    def write(turn: int) -> None:
        if turn < 4:
            unit = UNIT if turn % 2 else f"sglang-new{turn}.service"
            make_journal(tmp_path / f"{'ab'[turn // 2]}.journal", entry(turn + 1, f"line {turn + 1}", unit))

    texts, _ = followed(tmp_path, 5, write)
    assert texts == [f"line {n}" for n in range(5)]


def test_following_goes_on_when_read_files_are_taken_away(tmp_path: Path) -> None:
    make_journal(tmp_path / "a.journal", "".join(entry(n, f"line {n}") for n in range(3)))

    def write(turn: int) -> None:
        if turn == 1:
            make_journal(tmp_path / "b.journal", entry(10, "line 3"))
        if turn == 3:
            (tmp_path / "a.journal").unlink()
        if turn == 6:
            make_journal(tmp_path / "b.journal", entry(11, "line 4"))

    texts, notices = followed(tmp_path, 5, write)
    assert texts == [f"line {n}" for n in range(5)]
    assert notices == []


def test_a_machine_without_such_units_begins_with_the_last_minutes(day: Path) -> None:
    now = 1_795_953_600_000_000
    windows = first_windows(JournalSource("j", place=day, units=[])._open(), lambda unit: False, now)
    assert windows == [(now - 600_000_000, None)]


def test_what_runs_is_read_from_its_start(tmp_path: Path) -> None:
    def manager(n: int, message_id: str, unit: str, invocation: str) -> str:
        return entry(n, "x", "init.scope", _PID="1", UNIT=unit, INVOCATION_ID=invocation, MESSAGE_ID=message_id)

    starting, started, failed = (
        "7d4958e842da4a758f6c1cdc7b36dcc5",
        "39f53479d3a045ac8e11786248231fbf",
        "d9b373ed55a64feb8242e02dbe79a49c",
    )
    text = (
        manager(0, started, UNIT, "a0")
        + manager(1000, failed, UNIT, "a0")
        + manager(2000, starting, UNIT, "a1")
        + manager(3000, started, UNIT, "a1")
        + manager(4000, started, "sglang-gone.service", "b0")
        + manager(5000, failed, "sglang-gone.service", "b0")
        + manager(6000, started, "nginx.service", "c0")
    )
    source = JournalSource("j", place=make_journal(tmp_path / "x.journal", text), units=["sglang*"])
    first = 1_795_953_600_000_000
    now = first + 3600 * 1_000_000
    assert first_windows(source._open(), source._is_ours, now) == [
        (first + 2_000_000, first + 2_000_000 + LOADING),
        (now - RECENT, None),
    ]
    soon = first + 2_000_000 + RECENT + 1_000_000
    assert first_windows(source._open(), source._is_ours, soon) == [
        (first + 2_000_000, soon - RECENT),
        (soon - RECENT, None),
    ]


def test_a_containers_lines_bear_its_name(tmp_path: Path) -> None:
    text = entry(1, "one", "docker.service", CONTAINER_NAME="sglang-a") + entry(2, "dockerd", "docker.service")
    found = lines_of(make_journal(tmp_path / "x.journal", text), units=["docker.service"])
    assert [(line.text, line.unit, line.pid) for line in found] == [
        ("one", "sglang-a", None),
        ("dockerd", "docker.service", 4100),
    ]


def test_a_container_is_read_by_its_own_name(tmp_path: Path) -> None:
    names = ("sglang-a", "redis", "sglang.service", "sglang-b", "sglang-a")
    text = "".join(entry(n, f"by {n}", "docker.service", CONTAINER_NAME=name) for n, name in enumerate(names))
    text += entry(7, "dockerd", "docker.service") + entry(8, "forged", "cron.service", CONTAINER_NAME="sglang-a")
    journal = make_journal(tmp_path / "x.journal", text)
    found = lines_of(journal)
    assert [(line.text, line.unit, line.pid) for line in found] == [
        ("by 0", "sglang-a", None),
        ("by 3", "sglang-b", None),
        ("by 4", "sglang-a", None),
    ]
    assert [line.text for line in lines_of(journal, units=["sglang-b"])] == ["by 3"]
    (*_, last) = JournalSource("j", place=journal, units=["sglang*.service"]).batches()
    assert last.notices == ("j: entries of containers were left out (redis); --unit names one to read",)


@pytest.mark.parametrize(("glob", "wanted"), [("sglang*.service", False), ("sglang-*", True)])
def test_of_the_live_journal_containers_are_read_only_by_their_names(tmp_path: Path, glob: str, wanted: bool) -> None:
    place = make_journal(tmp_path / "x.journal", entry(1, "one", "docker.service", CONTAINER_NAME="sglang-a"))

    class Live(JournalSource):
        def _open(self) -> Any:
            return JournalSource("y", place=place, units=[])._reader

    source = Live("x", place=None, units=[glob], follow=False, since=1)
    assert bool([line for batch in source.batches() for line in batch.lines]) is wanted


def test_a_folder_of_another_machines_journals_is_followed_as_it_grows(tmp_path: Path) -> None:
    folder = tmp_path / "remote"
    folder.mkdir()
    make_journal(folder / "a.journal", entry(1, "first"))
    source = open_source(f"journal:{folder}", follow=True)
    seen: list[str] = []
    for turn, batch in enumerate(source.batches()):
        seen += [line.text for line in batch.lines]
        if seen == ["first"] and not batch.lines:  # the end was reached, and it goes on
            make_journal(folder / "a.journal", entry(2, "second"))
        if "second" in seen or turn > 200:
            source.close()
            break
    assert seen == ["first", "second"]
