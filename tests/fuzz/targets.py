"""What the engine promises of any bytes at all; each target takes bytes and raises where a promise is broken.

Called by the fuzzer (`tests.fuzz.drive`) and, with what it once found and a little chance, by the tests.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace

from triage.diagnose import NoRules, diagnose
from triage.document import finding_document
from triage.engine import lines, manager, payload, signs, tracelines
from triage.engine.assemble import Assembler
from triage.engine.crashes import MAX_ENTRIES, MAX_EVIDENCE, MAX_TEXT
from triage.engine.lanes import Lanes, News
from triage.engine.tracebacks import MAX_LINES
from triage.model import AT_NUL, BROKEN_OFF, LOST, Change, CrashEvent, InputError, Line, Origin
from triage.sources.stream import StreamSource

START = 1_795_953_600_000_000
IDS = (manager.EXITED, manager.FAILED, manager.STOPPING, manager.STARTED, manager.OOM_KILL, manager.RESTART, "")
UNIT = "sglang-k26.service"
BREAKS = {3: "pid-change", 5: BROKEN_OFF, 6: AT_NUL}


def line(data: bytes) -> None:
    """Every reader of a single line answers, and what is left of it is a part of what a terminal shows."""
    for text in data.decode("utf-8", "replace").split("\n"):
        parsed = lines.parse(text)
        assert parsed.text in lines.visible(text)
        if parsed.stamp is not None:
            lines.stamp_time(parsed.stamp, year=2026)
        for each in (text, parsed.text):
            tracelines.form_of(each)
            tracelines.header_lead(each)
            tracelines.stack_line(each)
            found = tracelines.exception_line(each)
            assert found is None or found[0]
            assert tracelines.exception_line(each, plain=True) in (None, found)
            match = tracelines.frame_match(each)
            assert match is None or tracelines.read_frame(match).path
            for sign in (signs.read(each), manager.read_kernel(each)):
                assert sign is None or (sign.exception and sign.why)
            manager.oom_unit(each)
            manager.read_manager(Line(each), each)
            payload.opens(each)
            payload.closes(each)


def traceback(data: bytes) -> None:
    """Lines of up to eight writers: whatever raised says what, and keeps a bounded number of lines."""
    lanes = Lanes()
    reports = []
    for n, raw in enumerate(data.split(b"\n")):
        pid = raw[0] % 9 if raw else 0
        text = raw[1:].decode("utf-8", "replace")
        _, news = lanes.feed(Line(text, n=n), lines.parse(text), pid or None)
        reports += news
    reports += lanes.finish()
    assert lanes.idle
    for report in reports:
        body = report.body
        assert len(body.lines) == len(body.texts) <= MAX_LINES
        assert body.opened <= len(body.texts)
        if report.news is not News.LOST:
            assert body.done
            assert all(link.exception for link in body.chain())
            assert body.chain()


def log(data: bytes) -> None:
    """A file of any kind: the same lines however it is chunked, whole crashes, a document for each."""
    read = _lines(io.BytesIO(data))
    assert _lines(_Slow(data)) == read
    _crashes(read)
    _crashes(read[: len(read) // 2])


def entries(data: bytes) -> None:
    """Entries of a journal: four bytes say who wrote a line and when, the rest is its text."""
    time = START
    said = []
    for raw in data.split(b"\n"):
        step, entry = _entry(raw)
        time += step
        said.append(replace(entry, time=time, host="ash"))
    once = _crashes(said)
    assert [event.crash.key for event in once] == [event.crash.key for event in _crashes(said)]


TARGETS = {"line": line, "traceback": traceback, "log": log, "entries": entries}


# ---------------------------------------------------------------- how


class _Slow(io.RawIOBase):
    """The same bytes, seven at a time."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._data[self._at : self._at + min(7, len(buffer))]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def _lines(raw: io.BytesIO | _Slow) -> list[Line]:
    try:
        source = StreamSource("fuzz", raw, tz="UTC")  # type: ignore[arg-type]
        return [line for batch in source.batches() for line in batch.lines]
    except InputError:  # the head of an archive without one
        return []


def _entry(raw: bytes) -> tuple[int, Line]:
    who, when, what, ident = (*raw[:4], 0, 0, 0, 0)[:4]
    text = raw[4:].decode("utf-8", "replace")
    step = (0, 1_000, 100_000, 2_500_000, 11_000_000, -3_000_000)[when % 6]
    unit, run = UNIT, "0" * 31 + str(who % 3)
    kind = what % 16
    if kind == 0:
        fields = {"MESSAGE_ID": IDS[ident % len(IDS)], "EXIT_CODE": "killed", "EXIT_STATUS": str(ident)}
        return step, Line(text, unit=unit, invocation=run, pid=1, origin=Origin.MANAGER, fields=fields)
    if kind == 1:
        return step, Line(text, origin=Origin.KERNEL)
    if kind == 2:
        fields = {LOST: "3"} if ident % 2 else {"MESSAGE_ID": manager.SUPPRESSED}
        return step, Line(text, unit=unit, origin=Origin.JOURNALD, fields=fields)
    broken = {"_LINE_BREAK": BREAKS[kind]} if kind in BREAKS else {}
    return step, Line(text, unit=unit, invocation=run, pid=4200 + who % 9, cut=kind == 4, fields=broken)


def _crashes(read: list[Line]) -> list[CrashEvent]:
    """Feed them; each crash is opened once, closed once, bounded, and can be told."""
    assembler = Assembler()
    events: list[CrashEvent] = []
    for n, each in enumerate(read):
        events += assembler.feed(each)
        if n % 64 == 63 and assembler.idle:
            Assembler(assembler.contexts())
    events += assembler.finish()
    opened = Counter(event.crash.key for event in events if event.change is Change.OPENED)
    closed = Counter(event.crash.key for event in events if event.change is Change.CLOSED)
    assert opened == closed, (opened, closed)
    for event in events:
        crash = event.crash
        assert crash.failures[0] == crash.root
        assert crash.id
        assert len(crash.failures) <= MAX_ENTRIES
        assert len(crash.evidence) <= MAX_EVIDENCE
        assert all(len(kept.text) <= MAX_TEXT for failure in crash.failures for kept in failure.lines)
    for event in events[-3:]:
        json.dumps(finding_document(diagnose(event.crash, NoRules()))).encode()
    return events
