"""Files of any kind and any ill will: what is read, what is left out, and that it is told."""

import bz2
import codecs
import gzip
import io
import json
import random
import tracemalloc

import pytest
import zstandard

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from triage.model import InputError, Origin
from triage.sources.bytes import MAX_LINE
from triage.sources.stream import StreamSource, open_stream


def read(data, **options):
    batches = list(StreamSource("f", io.BytesIO(data), **options).batches())
    return [line for batch in batches for line in batch.lines], [text for batch in batches for text in batch.notices]


def test_lines_of_a_plain_file_have_numbers_and_times():
    lines, notices = read(b"[2026-11-29 12:20:28 TP3] a\n  b\r\n\nlast without end", tz="Europe/Vienna")
    assert [(line.n, line.text) for line in lines] == [
        (1, "[2026-11-29 12:20:28 TP3] a"),
        (2, "  b"),
        (3, ""),
        (4, "last without end"),
    ]
    assert lines[0].time == 1_795_951_228_000_000
    assert notices == []


def test_a_json_entry_is_what_the_journal_has():
    lines, _ = read(story.as_json(story.story()))
    kinds = {line.origin for line in lines}
    assert kinds == {Origin.PROCESS, Origin.MANAGER}
    first = lines[1]
    assert (first.unit, first.pid, first.invocation, first.host) == (story.UNIT, story.MAIN, story.RUN, story.HOST)
    assert first.n is None


def test_messages_that_are_bytes_or_missing_are_told():
    entry = story.entry_fields(story.Said("x"))
    raw = (
        json.dumps({**entry, "MESSAGE": list(b"caf\xe9")})
        + "\n"
        + json.dumps({**entry, "MESSAGE": None})
        + "\n{not json\n"
    )
    lines, notices = read(raw.encode())
    assert lines[0].text == "caf\ufffd"
    assert lines[1].cut
    assert any("--all" in text for text in notices)
    assert any("1 entries could not be read" in text for text in notices)


def test_invalid_bytes_and_nuls_are_replaced_and_told():
    lines, notices = read(b"ok\nbad \xff\xfe\nnul \x00 here\n")
    assert [line.text for line in lines] == ["ok", "bad \ufffd\ufffd", "nul \ufffd here"]
    assert any("UTF-8" in text for text in notices)


def test_a_line_without_end_is_cut_and_memory_stays_small():
    data = gzip.compress(b"A" * 60_000_000 + b"\nnext\n")
    tracemalloc.start()
    lines, notices = read(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [len(line.text) for line in lines] == [MAX_LINE, 4]
    assert lines[0].cut
    assert any("cut" in text for text in notices)
    assert peak < 12_000_000


def test_an_export_field_that_claims_to_be_huge_is_no_trap():
    lines, notices = read(b"__REALTIME_TIMESTAMP=1\nMESSAGE\n" + (1 << 60).to_bytes(8, "little") + b"x\n\n")
    assert lines == []
    assert any("could not be read" in text for text in notices)


def test_words_of_another_program_before_an_export_are_left_out_and_told():
    words = b"[2026-11-29 12:00:00] connected\n\ngpu-ash login: model_path='/m'\n\n"
    lines, notices = read(words + story.as_export(story.story()))
    assert [line.text for line in lines] == [line.text for line in read(story.as_export(story.story()))[0]]
    assert any("1 entries could not be read" in text for text in notices)


EXPORT = story.as_export(story.story())


@pytest.mark.parametrize(
    "word", [b"OK\n", b"DONE\n\n", b"PATH\n\nWARNING\n", b"Dear all,\n\n" * 9, b"OK\n" + bytes(20) + b"\n"]
)
def test_a_word_of_capitals_is_no_field_of_an_export(word):
    alone = [line.text for line in read(EXPORT)[0]]
    assert [line.text for line in read(word + EXPORT)[0]] == alone
    lines, notices = read(EXPORT + word + EXPORT)
    assert [line.text for line in lines] == 2 * alone
    assert any("could not be read" in text for text in notices)
    lines, notices = read(EXPORT + word)
    assert [line.text for line in lines] == alone
    assert not any("ended early" in text for text in notices)


def test_an_export_with_the_line_ends_of_windows_is_read():
    lines, notices = read(EXPORT.replace(b"\n", b"\r\n"))
    assert [line.text for line in lines] == [line.text for line in read(EXPORT)[0]]
    assert notices == []


@pytest.mark.parametrize("size", [2, 70_000, MAX_LINE - 5, MAX_LINE, 2 * MAX_LINE])
def test_an_export_that_ends_within_a_value_is_broken(size):
    whole = b"__REALTIME_TIMESTAMP=1\nMESSAGE\n" + size.to_bytes(8, "little") + b"\n" * size + b"\n"
    lines, notices = read(EXPORT + whole + b"\n" + EXPORT)
    assert len(lines) == 2 * len(read(EXPORT)[0]) + 1
    assert not any("early" in text for text in notices)
    assert not list(StreamSource("f", io.BytesIO(EXPORT + whole)).batches())[-1].broken
    for cut in (whole[:-2], whole[: -size - 1], whole[: -size - 4]):
        batches = list(StreamSource("f", io.BytesIO(EXPORT + cut)).batches())
        assert batches[-1].broken
        assert any("ends within" in text for text in batches[-1].notices)
        assert [line.cut for batch in batches for line in batch.lines][-1]


@pytest.mark.parametrize("text", [b"-- No entries --\n", b"-- Boot 5c8f2f3e --\n-- No entries --\n"])
def test_what_journalctl_did_not_find_is_told(text):
    assert read(text) == ([], ["f: journalctl found no entries of that unit and time"])


@pytest.mark.parametrize("keep", [400, 900])
def test_a_damaged_archive_gives_what_was_whole_and_says_so(keep):
    data = gzip.compress(story.as_text(story.story()), compresslevel=1)
    _, notices = read(data[:keep])
    assert any("ended early" in text for text in notices)


def test_entries_of_other_units_are_left_out_and_named():
    other = story.Said("hello", 77, 0, {}, "a" * 32, "cron.service")
    lines, notices = read(story.as_export([*story.starting(), other]), units=("sglang*.service",))
    assert "hello" not in [line.text for line in lines]
    assert any("cron.service" in text for text in notices)


def test_a_unit_that_runs_sglang_is_read_whatever_its_name():
    said = story.Said("hello", 77, 0, {"_CMDLINE": "python3 -m sglang.launch_server"}, "a" * 32, "llm.service")
    lines, _ = read(story.as_export([said]), units=("sglang*.service",))
    assert [line.unit for line in lines] == ["llm.service"]


def test_journalctls_own_text_names_manager_and_kernel():
    lines, _ = read(story.as_short([*story.story(), story.Said("NVRM: Xid (PCI:0000:06): 79, x", 0, 13_000)]))
    assert {line.origin for line in lines} == {Origin.PROCESS, Origin.MANAGER, Origin.KERNEL}
    assert lines[1].time == story.START + 900_000


def test_a_process_cannot_play_the_manager_in_a_plain_file():
    plain = [said for said in story.starting() if said.pid != 1]
    text = (
        story.as_text(plain)
        + f"Nov 29 12:00:20 h systemd[1]: {story.UNIT}: Main process exited, code=killed\n".encode()
    )
    lines, _ = read(text)
    assert {line.origin for line in lines} == {Origin.PROCESS}


def test_what_is_no_file_is_an_input_error(tmp_path):
    for spec in (str(tmp_path), str(tmp_path / "none.log")):
        with pytest.raises(InputError):
            open_stream(spec)


def test_a_device_that_never_ends_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="is a device"):
        open_stream("/dev/full")


# ---------------------------------------------------------------- newest first


def reversed_entries(data, separator):
    return separator.join(reversed(data.rstrip(b"\n").split(separator))) + separator


BACKWARDS = {
    "text": lambda lines: reversed_entries(story.as_text(lines), b"\n"),
    "json": lambda lines: reversed_entries(story.as_json(lines), b"\n"),
    "export": lambda lines: reversed_entries(story.as_export(lines), b"\n\n"),
    "short": lambda lines: reversed_entries(story.as_short(lines), b"\n"),
}


@pytest.mark.parametrize("road", BACKWARDS)
def test_an_export_that_begins_with_the_newest_entry_gives_the_same_crash(road):
    forward = {"text": story.as_text, "json": story.as_json, "export": story.as_export, "short": story.as_short}[road]
    (wanted,) = crashes_of(forward(story.story()))
    (crash,) = crashes_of(BACKWARDS[road](story.story()))
    assert (crash.id, crash.root.cause, crash.outcome, crash.phase) == (
        wanted.id,
        wanted.root.cause,
        wanted.outcome,
        wanted.phase,
    )


def test_an_entry_of_many_lines_stays_in_its_order():
    head = "2026-11-29T12:00:{:02}.000000+00:00 ash python3[7]: "
    entries = [f"{head.format(n)}entry {n}\n" for n in range(30, 0, -1)]
    entries[20] += "    more\n    and more\n"
    lines, _ = read("".join(entries).encode())
    texts = [line.text.split(": ")[-1].strip() for line in lines]
    assert texts[8:13] == ["entry 9", "entry 10", "more", "and more", "entry 11"]


def test_a_clock_that_was_set_back_once_does_not_turn_a_file():
    text = "".join(f"[2026-11-29 12:{m:02}:00] line\n" for m in (10, 11, 9, 8, 12))
    lines, _ = read(text.encode(), tz="UTC")
    assert [line.n for line in lines] == [1, 2, 3, 4, 5]


def test_of_a_long_file_that_begins_with_the_newest_only_the_newest_are_read(monkeypatch):
    monkeypatch.setattr("triage.sources.turning.MAX_HELD", 5_000)
    text = "".join(f"[2026-11-29 12:{m // 60:02}:{m % 60:02}] line\n" for m in range(3_000, 0, -1))
    lines, notices = read(text.encode(), tz="UTC")
    assert [line.n for line in lines] == sorted([line.n for line in lines], reverse=True)
    assert 5 < len(lines) < 20
    assert lines[-1].n == 1
    assert "only the newest" in notices[0]


def test_an_archive_that_breaks_off_early_gives_its_crash_and_says_that_it_is_cut() -> None:
    data = gzip.compress(story.as_text(story.story()))[:-40]
    batches = list(StreamSource("x", io.BytesIO(data)).batches())
    lines = [line for batch in batches for line in batch.lines]
    assert any("Traceback" in line.text for line in lines)
    assert any(line.cut for line in lines)
    assert any("ended early" in text for batch in batches for text in batch.notices)


def test_what_cannot_be_read_at_all_is_an_error() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        list(StreamSource("x", io.BytesIO(gzip.compress(b"some lines\n" * 9)[:10])).batches())


TEXT = story.as_text([*story.story(), *story.serving(20_000, 9_000)])


def zstd_frames() -> bytes:
    """One after the other: with and without size and checksum, one to be skipped, one in blocks, an empty one."""
    pieces = [TEXT[:5_000], TEXT[5_000:400_000], TEXT[400_000:]]
    skipped = b"\x50\x2a\x4d\x18" + (9).to_bytes(4, "little") + b"\x00" * 9
    stream = zstandard.ZstdCompressor(level=1, write_checksum=True).compressobj()
    packed = [
        zstandard.ZstdCompressor(write_content_size=False).compress(pieces[0]),
        skipped,
        zstandard.ZstdCompressor(write_checksum=True).compress(pieces[1]),
        zstandard.ZstdCompressor().compress(b""),
        stream.compress(pieces[2]) + stream.flush(),
    ]
    return b"".join(packed)


def test_zstd_of_several_frames_is_read_to_its_end() -> None:
    lines, notices = read(zstd_frames())
    assert len(lines) == TEXT.count(b"\n")
    assert notices == []


@pytest.mark.parametrize("cut", [1, 3, 4, 500, 9_000])
def test_zstd_that_breaks_off_says_so(cut: int) -> None:
    data = zstd_frames()
    batches = list(StreamSource("x", io.BytesIO(data[:-cut])).batches())
    assert any("ended early" in text for batch in batches for text in batch.notices)
    assert batches[-1].broken


def test_a_single_frame_without_its_end_cannot_be_read() -> None:
    with pytest.raises(InputError, match=r"cannot be read: .*before the end"):
        read(zstandard.ZstdCompressor().compress(b"some lines\n" * 9)[:-3])


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-16-le", b""),
        ("utf-16-be", b""),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
def test_utf_16_is_read_as_the_text_it_is(encoding: str, mark: bytes, pack) -> None:  # type: ignore[no-untyped-def]
    text = f"[2026-11-29 12:00:00] gr\u00fc\u00dfe \U0001f600\n{story.as_text(story.story()).decode()}"
    lines, notices = read(pack(mark + text.encode(encoding)))
    assert [line.text for line in lines] == text.split("\n")[:-1]
    assert notices == []


def test_a_log_that_begins_with_nuls_or_is_short_or_in_another_script_is_text() -> None:
    for data in (
        b"\0" * 100_000 + b"line\n",
        b"\xff\x01\x02\n",
        "Fehler: \u00fc\u00f6\n".encode("latin-1") * 99,
        "\u670d\u52a1\u5668\u542f\u52a8\n".encode() * 99,
    ):
        lines, _ = read(data)
        assert lines


@pytest.mark.parametrize("data", [random.Random(5).randbytes(70_000), b"PK\x03\x04" + random.Random(6).randbytes(900)])
def test_bytes_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="no text"):
        read(data)


def test_a_journal_file_in_a_pipe_is_refused_with_what_to_type() -> None:
    with pytest.raises(InputError, match="journal:FILE"):
        read(gzip.compress(b"LPKSHHRH" + b"\0" * 900))


def test_a_container_engines_own_file_is_read() -> None:
    rows = [
        {"log": text.decode() + "\n", "stream": "stderr", "time": "2026-11-29T12:20:28.123456789Z"}
        for text in story.as_text(story.story()).splitlines()
    ]
    data = "\n".join(json.dumps(row) for row in rows).encode()
    [line, *_] = lines = [line for b in StreamSource("x", io.BytesIO(data)).batches() for line in b.lines]
    assert [one.text for one in lines] == story.as_text(story.story()).decode().splitlines()
    assert line.time == 1795954828123456
    assert not line.cut


def pretty(entries, indent, end=""):
    return "".join(json.dumps(entry, indent=indent) + end + "\n" for entry in entries)


JSON_FORMS = {
    "json-pretty": lambda entries: pretty(entries, "\t"),
    "json-sse": lambda entries: "".join(f"data: {json.dumps(entry)}\n\n" for entry in entries),
    "json-seq": lambda entries: "".join(f"\x1e{json.dumps(entry)}\n" for entry in entries),
    "an array": lambda entries: json.dumps(entries) + "\n",
    "an array, an entry a line": lambda entries: "[" + ",\n".join(json.dumps(entry) for entry in entries) + "]\n",
    "an array of jq's": lambda entries: json.dumps(entries, indent=2) + "\n",
}


@pytest.mark.parametrize("form", JSON_FORMS)
def test_all_forms_of_json_give_the_same_lines(form):
    said = [said for said in story.story() if said.text]
    entries = [story.entry_fields(each) for each in said]
    entries[3]["MESSAGE"] = list(entries[3]["MESSAGE"].encode())  # bytes: its own array
    lines, notices = read(JSON_FORMS[form](entries).encode())
    assert (lines, notices) == read(story.as_json(said))


def test_json_that_breaks_off_within_an_entry_is_told():
    entries = [story.entry_fields(said) for said in story.story()[:3]]
    lines, notices = read(pretty(entries, "\t")[:-40].encode())
    assert (len(lines), len(notices)) == (2, 1)


def test_journalctls_verbose_form_is_refused_with_what_is_read():
    text = "Sun 2026-11-29 12:00:00.000000 UTC [s=ab1;i=1;b=2;m=3;t=4;x=5]\n    _BOOT_ID=0123\n    MESSAGE=Starting.\n"
    with pytest.raises(InputError, match="json --all"):
        read(text.encode())


TRACEBACK = [said.text for said in story.rank_crash(12_000, 0)]


@pytest.mark.parametrize("seconds", [(0, 0), (0, 1)])
def test_newest_first_is_seen_where_the_times_hardly_tell(seconds):
    texts = [*[said.text for said in story.starting(1) if said.pid > 1], *TRACEBACK]
    times = [seconds[n >= 2] for n in range(len(texts))]
    lines = [f"Nov 29 12:00:0{time} gpu-ash python3[42]: {text}" for time, text in zip(times, texts, strict=True)]
    found, _ = read("\n".join([*reversed(lines), ""]).encode())
    assert [line.text for line in found] == lines
    found, _ = read("\n".join([*lines, ""]).encode())
    assert [line.text for line in found] == lines
