"""Bytes of a file or of stdin -> lines and fields of bounded size, whatever it holds.

In comes a binary stream, unpacked (sources.packed), out go pieces of it. Called by `sources.stream` and `sources.text`.
It must never hold more than a bounded part of its input: a packed bomb or a line without end costs time, not memory.
"""

from __future__ import annotations

import re
from typing import IO, Protocol

from triage.sources.packed import CHUNK, archive_errors

MAX_LINE = 1 << 20  # bytes of one line or field that are kept
LOOK = 1 << 16

JOURNAL = b"LPKSHHRH"  # how journald's own files begin
_STRANGE = re.compile(r"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
SOME = 256  # bytes from which on it can be told what they are


class Notes:
    """What was left out or mended on the way."""

    def __init__(self) -> None:
        self.undecodable = self.long = self.nulls = self.malformed = 0
        self.garbled = 0  # of the malformed: no JSON, where a line of text may be lost
        self.broken = ""
        self.empty = False  # journalctl found nothing
        self.unturned = False
        self.fronted = False  # what stands before each line is not known
        self.unended = False  # the last line has no end: more of it may have been written

    @property
    def ends(self) -> bool:
        """The line that was read last is the last one, and need not be whole."""
        return self.unended or bool(self.broken)

    def texts(self, name: str) -> list[str]:
        found = []
        if self.undecodable:
            found.append(f"{name}: {self.undecodable} lines held bytes that are no UTF-8; they were replaced")
        if self.long:
            found.append(f"{name}: {self.long} lines were longer than {MAX_LINE} bytes and were cut")
        if self.nulls:
            found.append(f"{name}: {self.nulls} messages are missing: export with `journalctl -o json --all`")
        if self.malformed:
            found.append(f"{name}: {self.malformed} entries could not be read and were left out")
        if self.empty:
            found.append(f"{name}: journalctl found no entries of that unit and time")
        if self.unturned:
            found.append(f"{name}: it begins with the newest line and is long; only the newest lines were read")
        if self.fronted:
            found.append(
                f"{name}: what stands before each line is not known: little of it is understood (docs/scan.md)"
            )
        if self.broken:
            found.append(f"{name}: reading ended early: {self.broken}")
        return found


class Lines(Protocol):
    """A text, by line or by block."""

    def line(self) -> bytes | None: ...
    def block(self) -> bytes | None: ...


class Bytes:
    """A byte stream read by line or by count, never holding more than a bounded part."""

    def __init__(self, raw: IO[bytes], notes: Notes) -> None:
        self._raw = raw
        self._notes = notes
        self._buffer = b""
        self._at = 0
        self._end = False

    def look(self) -> bytes:
        """The first bytes, without taking them."""
        while len(self._buffer) < LOOK and self._more():
            pass
        return self._buffer[:LOOK]

    def line(self) -> bytes | None:
        """The next line without its end; one that is too long loses its rest."""
        kept: list[bytes] = []
        size = 0
        while True:
            end = self._buffer.find(b"\n", self._at)
            piece = self._buffer[self._at : end if end >= 0 else None]
            if size < MAX_LINE:
                kept.append(piece[: MAX_LINE - size])
            size += len(piece)
            if end >= 0:
                self._at = end + 1
                break
            self._buffer, self._at = b"", 0
            if not self._more():
                if not size:
                    return None
                self._notes.unended = True
                break
        if size > MAX_LINE:
            self._notes.long += 1
        return kept[0] if len(kept) == 1 else b"".join(kept)

    def block(self) -> bytes | None:
        """Whole lines, each with its end, as many as are at hand. No line is longer than MAX_LINE."""
        while (end := self._buffer.rfind(b"\n", self._at)) < 0:
            if len(self._buffer) - self._at > MAX_LINE - CHUNK or not self._more():
                line = self.line()
                return None if line is None else line + b"\n"
        piece = self._buffer[self._at : end + 1]
        self._at = end + 1
        return piece

    def take(self, count: int) -> bytes:
        """The next `count` bytes, of which only the first MAX_LINE are kept."""
        kept: list[bytes] = []
        size = 0
        while count > 0:
            if self._at >= len(self._buffer):
                self._buffer, self._at = b"", 0
                if not self._more():
                    break
            piece = self._buffer[self._at : self._at + count]
            self._at += len(piece)
            count -= len(piece)
            if size < MAX_LINE:
                kept.append(piece[: MAX_LINE - size])
            size += len(piece)
        return b"".join(kept)

    def ahead(self, count: int) -> bytes:
        """The next `count` bytes without taking them, all held; fewer where the input ends."""
        while len(self._buffer) - self._at < count and self._more():
            pass
        return self._buffer[self._at : self._at + count]

    def _more(self) -> bool:
        if self._end:
            return False
        try:
            chunk = self._raw.read1(CHUNK) if hasattr(self._raw, "read1") else self._raw.read(CHUNK)
        except archive_errors() as error:
            # A damaged archive, a disk that fails: what was read before is worth a diagnosis, graded as cut.
            self._notes.broken = str(error) or type(error).__name__
            chunk = b""
        if not chunk:
            self._end = True
            return False
        self._buffer = self._buffer[self._at :] + chunk if self._buffer else chunk
        self._at = 0
        return True


def no_text(head: bytes) -> bool:
    """Whether these first bytes are no log. NULs do not count: a log that was cut while it was written begins so."""
    text = head.decode("utf-8", "replace")
    return len(head) >= SOME and 4 * len(_STRANGE.findall(text)) > len(text)


def decode(raw: bytes, notes: Notes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        notes.undecodable += 1
        text = raw.decode("utf-8", "replace")
    return text
