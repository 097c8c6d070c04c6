"""The ways in. `open_source` turns a SPEC of the command line into a `Source`; the libraries behind each are imported
only when that one is asked for, so that scanning a file works without systemd-python."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from triage.model import Gate, InputError, Source

UNITS = ("sglang*.service",)


def open_source(
    spec: str,
    *,
    units: Iterable[str] = UNITS,
    cursor: str | None = None,
    since: int | None = None,
    tz: str | None = None,
    follow: bool = False,
    gate: Gate | None = None,
) -> Source:
    """SPEC: `journal:` (live), `journal:FILE-or-FOLDER`, a file, or `-` for stdin.

    `cursor` goes on after what was read before; `since` (microseconds UTC) leaves out what is older; `tz` is the zone
    of a text's times that carry none; `follow`: a folder of journals (of other machines, say) is read on as it grows;
    `gate`: lines that cannot matter to whoever reads are only counted, where the source can pass them over.
    A file of the journal needs no 'journal:'. Raises InputError where there is nothing to read, Unreachable without the
    journal's library."""
    if _is_journal(spec):
        spec = f"journal:{spec}"
    if spec.startswith("journal:"):
        from triage.sources.journal import JournalSource

        where = spec.removeprefix("journal:")
        place = Path(where) if where else None
        if place is not None and not place.exists():
            raise InputError(f"{where} does not exist: give a journal file or folder after 'journal:'")
        follows = place is None or (follow and place.is_dir())
        if place is not None and not follows and place.is_dir() and not any(place.rglob("*.journal*")):
            raise InputError(f"{where} holds no journal that can be read: give its folder, or read as root")
        return JournalSource(spec, place=place, units=units, cursor=cursor, since=since, follow=follows, gate=gate)
    from triage.sources.stream import open_stream

    return open_stream(spec, units=units, since=since, tz=tz, gate=gate)


def _is_journal(spec: str) -> bool:
    from triage.sources.bytes import JOURNAL

    path = Path(spec)
    try:
        with path.open("rb") if path.is_file() else io.BytesIO() as file:
            return file.read(len(JOURNAL)) == JOURNAL
    except (OSError, ValueError):  # ValueError: a NUL in its name
        return False
