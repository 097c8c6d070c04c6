"""Bytes of a file or of stdin -> lines and fields of bounded size, whatever it is packed in and whatever it holds.

In comes a binary stream, out go pieces of it. Called by `sources.stream` only. It must never hold more than a bounded
part of its input: a packed bomb or a line without end costs time, not memory.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import sys
import zlib
from typing import IO, Any, cast

from triage.model import InputError

CHUNK = 1 << 17
MAX_LINE = 1 << 20  # bytes of one line or field that are kept
LOOK = 1 << 16

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
)
JOURNAL = b"LPKSHHRH"  # how journald's own files begin
_STRANGE = re.compile(r"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
SOME = 256  # bytes from which on it can be told what they are


class Notes:
    """What was left out or mended on the way."""

    def __init__(self) -> None:
        self.undecodable = self.long = self.nulls = self.malformed = 0
        self.broken = ""
        self.unturned = False
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
        if self.unturned:
            found.append(f"{name}: it begins with the newest line and is long; only the newest lines were read")
        if self.broken:
            found.append(f"{name}: reading ended early: {self.broken}")
        return found


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


def unpacked(raw: IO[bytes]) -> IO[bytes]:
    """The stream behind gzip, xz, zstd or bzip2, or itself, as UTF-8; archives may be stacked twice."""
    stream: IO[bytes] = raw
    for layers in range(3):
        buffered: Any = stream if hasattr(stream, "peek") else io.BufferedReader(cast(io.RawIOBase, stream), CHUNK)
        head: bytes = buffered.peek(64)[:64]
        kind = next((name for magic, name in _MAGIC if head.startswith(magic) and layers < 2), None)
        if kind == "gzip":
            stream = cast(IO[bytes], gzip.GzipFile(fileobj=buffered))
        elif kind == "xz":
            stream = lzma.open(buffered)  # noqa: SIM115
        elif kind == "zstd":
            stream = _zstd(buffered)
        elif kind == "bzip2":
            stream = bz2.open(buffered)  # noqa: SIM115
        else:
            break
    wide = _wide(head)
    return cast(IO[bytes], io.BufferedReader(_Wide(buffered, wide), CHUNK) if wide else buffered)


def no_text(head: bytes) -> bool:
    """Whether these first bytes are no log. NULs do not count: a log that was cut while it was written begins so."""
    text = head.decode("utf-8", "replace")
    return len(head) >= SOME and 4 * len(_STRANGE.findall(text)) > len(text)


def _wide(head: bytes) -> str:
    """UTF-16, as PowerShell writes what is redirected to a file: by its mark, or by every other byte being NUL."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16" if head[2:4] != b"\0\0" else ""
    first, second = head[::2].count(0), head[1::2].count(0)
    if len(head) < 16 or min(first, second) > len(head) // 32 or max(first, second) < len(head) * 3 // 8:
        return ""
    return "utf-16-le" if second > first else "utf-16-be"


class _Wide(io.RawIOBase):
    """UTF-16 on its way in, as UTF-8."""

    def __init__(self, raw: Any, encoding: str) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = b"some"
        while not self._rest and chunk:
            chunk = self._raw.read1(CHUNK)
            self._rest = self._decoder.decode(chunk, final=not chunk).encode("utf-8", "replace")
        piece = self._rest[: len(buffer)]
        buffer[: len(piece)] = piece
        self._rest = self._rest[len(piece) :]
        return len(piece)


def _zstd(raw: IO[bytes]) -> IO[bytes]:
    try:
        import zstandard
    except ImportError as error:
        raise InputError("this file is zstd: `pip install zstandard`, or unpack it first") from error
    frames = _Frames(raw)
    reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
        cast(IO[bytes], frames), read_across_frames=True
    )
    return io.BufferedReader(_Zstd(reader, frames), CHUNK)


class _Frames:
    """zstd's bytes on their way to the library, which does not tell where they break off: whether they end with a frame
    (RFC 8878: a header, blocks with their sizes before them, a checksum)."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._next, self._need = self._magic, 4  # what reads the next header, and its size
        self._head = b""
        self._skip = 0
        self._checksum = 0

    @property
    def whole(self) -> bool:
        return self._next == self._magic and not self._head and not self._skip

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        at = 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
            else:
                step = min(self._need - len(self._head), len(data) - at)
                self._head += data[at : at + step]
                if len(self._head) == self._need:
                    head, self._head = self._head, b""
                    self._next(head)
            at += step
        return data

    def _magic(self, head: bytes) -> None:
        packed = head == b"\x28\xb5\x2f\xfd"  # else one that is to be skipped
        self._next, self._need = (self._described, 1) if packed else (self._skipped, 4)

    def _skipped(self, head: bytes) -> None:
        self._skip = int.from_bytes(head, "little")
        self._next, self._need = self._magic, 4

    def _described(self, head: bytes) -> None:
        single, self._checksum = head[0] >> 5 & 1, head[0] & 4
        size = (single, 2, 4, 8)[head[0] >> 6]
        self._skip = (1 - single) + (0, 1, 2, 4)[head[0] & 3] + size
        self._next, self._need = self._block, 3

    def _block(self, head: bytes) -> None:
        about = int.from_bytes(head, "little")
        self._skip = 1 if about >> 1 & 3 == 1 else about >> 3
        if about & 1:
            self._skip += self._checksum
            self._next, self._need = self._magic, 4


class _Zstd(io.RawIOBase):
    """What the library unpacks, with an error where its input ends too early."""

    def __init__(self, reader: Any, frames: _Frames) -> None:
        self._reader = reader
        self._frames = frames

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._reader.readinto(buffer)
        if not count and not self._frames.whole:
            raise EOFError("Compressed file ended before the end of a frame was reached")
        return count


def archive_errors() -> tuple[type[Exception], ...]:
    """What reading raises where a disk fails or an archive is damaged or cut."""
    module = sys.modules.get("zstandard")
    zstd: tuple[type[Exception], ...] = (module.ZstdError,) if module is not None else ()
    return (OSError, EOFError, zlib.error, lzma.LZMAError, *zstd)


def decode(raw: bytes, notes: Notes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        notes.undecodable += 1
        text = raw.decode("utf-8", "replace")
    return text
