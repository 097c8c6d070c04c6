"""What a file is packed in, taken off: gzip, xz, zstd, bzip2, two deep, and UTF-16.

In comes a binary stream, out goes one of UTF-8 that unpacks as it is read. Called by `sources.stream`. It must hold no
more of its input than a block, and must tell where an archive breaks off.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zlib
from typing import IO, Any, cast

from triage.model import InputError

CHUNK = 1 << 17
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
)


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
