"""Files that are written whole or not at all, and folders that are entered without following links.

In: a folder's descriptor, a name, bytes. Out: nothing, once it is on the disk. Called by `spool`, `ledger`, `place`.
Everything goes by descriptor, so that nobody can swap a folder for a link in the middle.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

_ROOM = 1 << 16  # bytes: less is full, since the last small files may have fitted
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextlib.contextmanager
def opened(trusted: Path, *names: str) -> Iterator[int]:
    """The descriptor of a folder: `trusted` is opened as it is, each name below it without following a link."""
    handle = os.open(trusted, _FOLDER)
    try:
        for name in names:
            below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def write(folder: int, name: str, data: bytes, mode: int, prepare: Callable[[int], None] = lambda handle: None) -> None:
    """The whole content under that name, on the disk when this returns; a kill leaves the old file or the new one.

    `prepare` gets the open file before it has its name."""
    part = f".{name}.tmp"  # hidden: neither systemd nor a path unit takes it for the file
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(part, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(handle, mode)
            prepare(handle)
            os.fsync(handle)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:  # a full disk, say: what there is of it goes
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise
    os.fsync(folder)


def full(path: Path) -> str:
    """In words that the disk below a path, or its folder above, has no room for one more file; '' where it has."""
    for place in (path, *path.parents):
        try:
            facts = os.statvfs(place)
        except OSError:
            continue
        if facts.f_bfree * facts.f_frsize < _ROOM or (facts.f_files and not facts.f_ffree):
            return f"the disk of {place} is full, make room on it (df {place}; df -i {place})"
        return ""
    return ""


def remove(folder: int, name: str) -> None:
    """The file is gone, on the disk too, when this returns. Not being there is no error."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    os.fsync(folder)


def read(folder: int, name: str, limit: int = 4 << 20) -> bytes | None:
    """The content of a regular file, None where there is none. A link or a file over the limit raises OSError."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(27, "file too large", name)
    return data
