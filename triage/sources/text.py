"""Plain text -> lines: one by one, or in blocks of which only the lines that can matter are read.

In come the bytes of a log as a service wrote it, or as journalctl, docker or kubectl printed it; out go `Line`s with
their numbers and times. Called by `sources.stream`. What `Passage` passes over it counts, and nothing else: why that is
enough stands in `engine.gate`.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from io import BytesIO

from triage.engine.gate import CONTEXT
from triage.engine.lines import parse, stamp_time
from triage.engine.manager import manager_unit
from triage.model import Batch, Gate, Line, Origin
from triage.sources.bytes import MAX_LINE, Lines, Notes, decode
from triage.sources.entry import clean

STEP = 128  # lines that are read one by one before the gate is asked again


def read_text(data: Lines, notes: Notes, zone: tzinfo | None, *, journalctl: bool) -> Iterator[Line]:
    """A log as a service wrote it, or as journalctl, docker or kubectl printed it."""
    n = 0
    times = Times(zone)
    while (raw := data.line()) is not None:
        n += 1
        if journalctl:
            yield _journalctl_line(_text(raw, notes), n, times, cut=notes.ends)
        else:
            yield _line(raw, n, notes, times)


def _text(raw: bytes, notes: Notes) -> str:
    return clean(decode(raw.lstrip(b"\0"), notes)).removesuffix("\r")  # a log that was cut while its writer went on


def _line(raw: bytes, n: int, notes: Notes, times: Times) -> Line:
    text = _text(raw, notes)
    return Line(text, n=n, time=times.of(text), cut=len(raw) >= MAX_LINE or notes.ends)


def _journalctl_line(text: str, n: int, times: Times, *, cut: bool) -> Line:
    parsed = parse(text)
    time = times.at(parsed.stamp) if parsed.stamp else None
    if parsed.host is None:
        return Line(text, n=n, time=time, cut=cut)
    if "#012" in text and ("#012Traceback (" in text or '#012  File "' in text):
        text = text.replace("#012", "\n")  # rsyslog's word for it, in a record of many lines
    origin, unit, ident = Origin.PROCESS, None, parsed.ident or ""
    if ident == "kernel":
        origin = Origin.KERNEL
    elif ident == "systemd" or ident.endswith("init.scope"):
        origin = Origin.MANAGER
        unit = manager_unit(parsed.text) if ident != "systemd" else None
    elif ident in ("systemd-journald", "systemd-journald.service"):
        origin = Origin.JOURNALD
    elif ident.endswith(".service"):  # -o with-unit names it, and a user's behind that of the user's manager
        unit = ident.rpartition("/")[2]
    return Line(text, n=n, time=time, host=parsed.host or None, unit=unit, pid=parsed.pid, origin=origin, cut=cut)


class Times:
    """Written times -> microseconds, the last one remembered: a server writes many lines a second."""

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone
        self._now = clock.time()
        self._year = clock.gmtime(self._now).tm_year
        self._last: tuple[str, int | None] = ("", None)

    def of(self, text: str) -> int | None:
        """The time at the head of a line, if there is one."""
        if text[:2] == "[2" and text[5:6] == "-" and (text[20:21] in "] "):
            return self.at(text[1:20])
        if text[:1].isdigit() or "\r" in text or "[20" in text[:400] or text[:1].isalpha():
            stamp = parse(text).stamp if _may_have_time(text) else None
            return self.at(stamp) if stamp else None
        return None

    def at(self, stamp: str) -> int | None:
        if stamp != self._last[0]:
            time = stamp_time(stamp, self._zone, self._year)
            if time is not None and stamp[:1].isalpha() and time > (self._now + 86_400) * 1_000_000:
                time = stamp_time(stamp, self._zone, self._year - 1)
            self._last = (stamp, time)
        return self._last[1]


def _may_have_time(text: str) -> bool:
    head = text[:600]
    return (
        "[20" in head
        or head[:2] == "20"
        or " 20" in head[:12]
        or "| [" in head
        or head[3:4] == head[6:7] == " "
        or head[:1] == "("
    )


class Passage:
    """A text behind a gate. A batch ends where the gate has to be asked anew: behind each line that holds a word."""

    def __init__(self, data: Lines, notes: Notes, zone: tzinfo | None, gate: Gate) -> None:
        self._data = data
        self._notes = notes
        self._times = Times(zone)
        self._gate = gate
        self._n = 0  # number of the last line that was read or passed over
        self._told = 0  # lines that batches have counted
        self._tail = b""  # of earlier blocks: the last lines, where they were passed over
        self._timed: Line | None = None  # of earlier blocks: the last one with a time, where it was passed over

    def batches(self) -> Iterator[Batch]:
        while (block := self._data.block()) is not None:
            yield from self._block(block)
            yield self._batch((), uncounted=CONTEXT + 1)
        yield self._batch(())

    def _block(self, block: bytes) -> Iterator[Batch]:
        at, spots, next_spot = 0, None, 0
        while at < len(block):
            if not self._gate.quiet:
                lines, at = self._read(block, at)
                yield self._batch(lines)
                continue
            if spots is None:
                spots = self._gate.spots(block)
            while next_spot < len(spots) and spots[next_spot] < at:
                next_spot += 1
            if next_spot == len(spots):
                self._pass(block, at, len(block))
                self._timed = self._last_timed(block, at, len(block)) or self._timed
                self._tail = self._recent(block, at, len(block))
                return
            start = max(at, block.rfind(b"\n", at, spots[next_spot]) + 1)
            self._pass(block, at, start)
            end = block.index(b"\n", spots[next_spot]) + 1
            line = _line(block[start : end - 1], self._n + 1, self._notes, self._times)
            before = self._before(block, at, start, line, begins=self._gate.begins(block[start:end]))
            self._n += 1
            yield self._batch([*before, line])
            at = end

    def _batch(self, lines: Sequence[Line], uncounted: int = 0) -> Batch:
        """`uncounted`: so many of the last lines may yet be handed on."""
        passed = max(0, self._n - uncounted - self._told - len(lines))
        self._told += passed + len(lines)
        if lines:
            self._timed, self._tail = None, b""
        time = next((line.time for line in reversed(lines) if line.time is not None), None)
        return Batch(tuple(lines), time=time, passed={None: passed} if passed else {})

    def _read(self, block: bytes, at: int) -> tuple[list[Line], int]:
        """Some lines, and where the next one begins."""
        lines: list[Line] = []
        while at < len(block) and len(lines) < STEP:
            end = block.index(b"\n", at)
            self._n += 1
            lines.append(_line(block[at:end], self._n, self._notes, self._times))
            at = end + 1
        return lines, at

    def _pass(self, block: bytes, at: int, end: int) -> None:
        passed = block[at:end]
        self._n += _count(passed)
        if not passed.isascii():
            self._look_at_bytes(passed)

    def _look_at_bytes(self, lines: bytes) -> None:
        """What cannot be decoded is told, read or not."""
        try:
            lines.decode()
        except UnicodeDecodeError:
            for raw in lines.split(b"\n"):
                decode(raw, self._notes)

    def _before(self, block: bytes, at: int, end: int, line: Line, *, begins: bool) -> list[Line]:
        """What has to be known of the lines that were passed over before this one."""
        timed = (self._last_timed(block, at, end) or self._timed) if line.time is None else None
        if not begins:
            return [timed] if timed is not None else []
        recent = self._recent(block, at, end).split(b"\n")[:-1]
        first = self._n - len(recent) + 1
        lines = [_line(raw, n, Notes(), self._times) for n, raw in enumerate(recent, first)]
        return [timed, *lines] if timed is not None and timed.n is not None and timed.n < first else lines

    def _recent(self, block: bytes, at: int, end: int) -> bytes:
        """The last lines before `end`, of those that were passed over."""
        start = end
        for count in range(CONTEXT):
            if start <= at:
                return b"".join(self._tail.splitlines(keepends=True)[count - CONTEXT :]) + block[at:end]
            start = max(at, block.rfind(b"\n", at, start - 1) + 1)
        return block[start:end]

    def _last_timed(self, block: bytes, at: int, end: int) -> Line | None:
        """The last line before `end` that has a time; `_n` is the number of the last one at all."""
        n = self._n
        while end > at:
            start = max(at, block.rfind(b"\n", at, end - 1) + 1)
            line = _line(block[start : end - 1], n, Notes(), self._times)
            if line.time is not None:
                return line
            end, n = start, n - 1
        return None


def _count(lines: bytes) -> int:
    """How many: `bytes.count` looks at every byte, `readlines` seeks ends of lines with vector instructions."""
    return len(BytesIO(lines).readlines())
