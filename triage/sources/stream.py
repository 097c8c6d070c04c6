"""Files and stdin as a source: plain text, `journalctl -o json`, `journalctl -o export`, CSV, each also packed.

In comes a path or `-`, out go batches of `Line`s; the kind is found by looking at the first bytes. Called by
`sources.open_source`. It reads as a stream and trusts nothing: a line, a field or a compressed file may be as large
as it likes, only a bounded part is ever held. What it had to leave out it says in a notice.

A plain file's lines have numbers and no unit; where the file is `journalctl`'s own short form, the manager's and the
kernel's lines in it are known by their writer's name.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import tzinfo
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from triage.engine.lines import parse
from triage.model import Batch, Gate, InputError, Line, Origin
from triage.sources.bytes import JOURNAL, MAX_LINE, Bytes, Notes, decode, no_text
from triage.sources.entry import contained, entry_line
from triage.sources.fronts import Fronted, front, strange_front
from triage.sources.logged import TEXTS, is_logfmt, read_logfmt, record_lines, records
from triage.sources.packed import archive_errors, unpacked
from triage.sources.table import Table, read_table, table
from triage.sources.text import Passage, Times, read_text
from triage.sources.turning import newest_first, turned

BATCH = 1024
JSON_EDGE = b"\x1e \r\n\t[,"  # what may stand before an object
MAX_FIELDS = 4096  # of one exported entry
BLOCKS = 24  # among which an export begins: a greeting at login has many


def open_stream(
    spec: str,
    *,
    units: Iterable[str] = (),
    since: int | None = None,
    tz: str | None = None,
    gate: Gate | None = None,
) -> StreamSource:
    """The source of a file or of stdin ('-'). Raises InputError where it cannot be read."""
    if spec == "-":
        return StreamSource(spec, sys.stdin.buffer, units=units, since=since, tz=tz, gate=gate)
    path = Path(spec)
    if path.is_dir():
        raise InputError(f"{spec} is a folder: a folder of journal files is read as 'journal:{spec}'")
    if path.is_block_device() or (path.is_char_device() and str(path) not in ("/dev/null", "/dev/stdin", "/dev/tty")):
        raise InputError(f"{spec} is a device and need not end: give a file, or pipe it into 'triage scan -'")
    try:
        raw = path.open("rb")
    except OSError as error:
        raise InputError(f"{spec} cannot be read: {error.strerror or error}") from error
    return StreamSource(spec, raw, units=units, since=since, tz=tz, gate=gate)


class StreamSource:
    """A `Source` over bytes. `units`: globs, used only where entries carry a unit."""

    def __init__(
        self,
        name: str,
        raw: IO[bytes],
        *,
        units: Iterable[str] = (),
        since: int | None = None,
        tz: str | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.name = name
        self._raw = raw
        self._units = Units(tuple(units))
        self._since = since
        self._zone = _zone(tz)
        self._gate = gate
        self._notes = Notes()
        self._table: Table | None = None

    def batches(self) -> Iterator[Batch]:
        """Batches until the end, or to where it breaks off. Raises InputError where not even one line can be read."""
        some = False
        for batch in self._batches():
            some = some or batch.size > 0
            yield batch
        if self._notes.broken and not some:
            raise InputError(f"{self.name} cannot be read: {self._notes.broken}")
        yield Batch((), notices=self._notices(), broken=bool(self._notes.broken))

    def _notices(self) -> tuple[str, ...]:
        found = self._notes.texts(self.name)
        if self._units.others:
            shown = ", ".join(sorted(self._units.others)[:5])
            found.append(f"{self.name}: entries of other units were left out ({shown}); --unit names one to read")
        return tuple(found)

    def close(self) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def _batches(self) -> Iterator[Batch]:
        try:
            data = Bytes(unpacked(self._raw), self._notes)
        except archive_errors() as error:
            raise InputError(f"{self.name} cannot be read: {error or type(error).__name__}") from error
        head = data.look()
        if head.startswith(JOURNAL):
            raise InputError(f"{self.name} is a journal file: unpack it and give it as 'journal:FILE'")
        if no_text(head):
            raise InputError(
                f"{self.name} is no text: give the log as text or as `journalctl -o export` writes it, plain or packed "
                "by gzip, xz, zstd or bzip2"
            )
        if _NOTHING.fullmatch(head):
            self._notes.empty = True
            return iter(())
        if _VERBOSE.match(head):
            raise InputError(f"{self.name} is `journalctl -o verbose`, which is not read: export it with -o json --all")
        self._table = table(head)
        kind = "table" if self._table is not None else next((kind for kind, test in _KINDS if test(head)), "text")
        text, some = self._behind(data, head) if kind == "text" else (data, Bytes(io.BytesIO(head), Notes()))
        lines = self._read(kind, text, self._units, self._notes)
        if newest_first(
            self._read(kind, some, Units(("*",)), Notes()),
            journal=kind not in ("text", "table", "logfmt"),
        ):
            lines = turned(lines, self._notes, headed=kind == "short")
        elif kind == "text" and self._gate is not None and self._since is None:
            return Passage(text, self._notes, self._zone, self._gate).batches()
        return self._batched(lines)

    def _behind(self, data: Bytes, head: bytes) -> tuple[Bytes | Fronted, Bytes | Fronted]:
        """The text and its first bytes, without what a viewer put before each line."""
        some, form = Bytes(io.BytesIO(head), Notes()), front(head)
        self._notes.fronted = form is None and strange_front(head)
        return (data, some) if form is None else (Fronted(data, form), Fronted(some, form))

    def _batched(self, lines: Iterator[Line]) -> Iterator[Batch]:
        some: list[Line] = []
        last: int | None = None
        for line in lines:
            if line.time is not None:
                if self._since is not None and line.time < self._since:
                    continue
                last = line.time
            some.append(line)
            if len(some) >= BATCH:
                yield Batch(tuple(some), time=last)
                some = []
        yield Batch(tuple(some), time=last)

    def _read(self, kind: str, data: Bytes | Fronted, units: Units, notes: Notes) -> Iterator[Line]:
        if isinstance(data, Fronted):
            return read_text(data, notes, self._zone, journalctl=False)
        if kind == "json":
            return read_json(data, units, notes, Times(self._zone))
        if kind == "logfmt":
            return read_logfmt(data, notes, Times(self._zone))
        if kind == "export":
            return read_export(data, units, notes)
        if self._table is not None:
            return read_table(data, notes, self._table)
        return read_text(data, notes, self._zone, journalctl=kind == "short")


class Units:
    """Which units' entries are wanted: by glob, or because SGLang's own processes are in them."""

    def __init__(self, globs: tuple[str, ...]) -> None:
        self._globs = globs
        self._known: dict[str, bool] = {}
        self.others: set[str] = set()

    def wants(self, line: Line, command: str) -> bool:
        unit = line.unit
        if unit is None or not self._globs:
            return line.origin is not Origin.JOURNALD or unit is not None
        known = self._known.get(unit)
        if known is None or (not known and "sglang" in command):
            known = any(fnmatchcase(unit, glob) for glob in self._globs) or "sglang" in command
            if len(self._known) < 10_000:
                self._known[unit] = known
        if not known and line.origin is Origin.PROCESS and len(self.others) < 100:
            self.others.add(unit)
        if known:
            self.others.discard(unit)
        return known

    def holds(self, line: Line, inner: Line) -> bool:
        """Whether a container's lines are wanted: by its name, with or without a unit's ending, or by docker's unit."""
        name = inner.unit or ""
        known = self._known.get(name)
        if known is None:
            names = (name, f"{name}.service", line.unit or "")
            known = not self._globs or any(fnmatchcase(each, glob) for glob in self._globs for each in names)
            if len(self._known) < 10_000:
                self._known[name] = known
        if not known and len(self.others) < 100:
            self.others.add(name)
        return known


# ---------------------------------------------------------------- kinds


_FIELD = re.compile(rb"[A-Z_][A-Z0-9_]{0,63}")  # the name of a field of the journal
_NOTHING = re.compile(rb"(?:\s|-- (?!No)[^\n]*\n)*-- No entries --\s*")
_VERBOSE = re.compile(rb"[^\n]{10,80} \[s=[0-9a-f]+;i=[^\n]*\n {4}[A-Z_]")


def _is_json(head: bytes) -> bool:
    known = (
        b'"MESSAGE"',
        b'"__REALTIME_TIMESTAMP"',
        *(f'"{name}":'.encode() for name in TEXTS),
        b'"values": [[',
        b'"values":[[',
    )
    first, _, rest = head.lstrip(JSON_EDGE).removeprefix(b"data: ").partition(b"\n")
    if first.strip() == b"{":  # its members stand on lines of their own
        members, after = [*re.split(rb"(?:^|\n)[ \t]*\}", rest, maxsplit=1), b""][:2]
        follows = after.lstrip()[:1] in (b"", b",", b"{", b"]", b"}")  # else a log begins with what it was given
        return follows and any(name in members for name in (*known, b'"_BOOT_ID"'))
    if first.startswith(b'"'):  # each line, or the whole log, as a string of JSON
        after, whole = rest.strip()[:1], first.rstrip().endswith((b'"', b'",', b'"]'))
        return (whole and after in (b'"', b"]", b"")) or (not after and b"\\n" in first)
    if not first.startswith(b"{") and first.rstrip().endswith(b"}"):  # where it was cut, the rest of an entry is first
        first = rest.lstrip(b"\x1e").split(b"\n", 1)[0]
    return first.startswith(b"{") and any(name in first for name in known)


def _is_export(head: bytes) -> bool:
    for block in head.lstrip(b"\n").split(b"\n\n", BLOCKS)[:BLOCKS]:  # of others' words, or the rest of one
        name = block.split(b"=", 1)[0]
        if b"__REALTIME_TIMESTAMP=" in block and name.isascii() and name.replace(b"_", b"").isalnum():
            return True
    return False


def _is_short(head: bytes) -> bool:
    """Whether nearly each line has journalctl's 'time host writer[pid]:' before it."""
    lines = [line for line in head.decode("utf-8", "replace").split("\n")[:60] if line.strip()]
    lines = [line for line in lines[:40] if not line.startswith("-- ")]
    hits = sum(1 for line in lines if parse(line).host is not None)
    return bool(lines) and hits >= 0.8 * len(lines)


_KINDS = (("json", _is_json), ("export", _is_export), ("short", _is_short), ("logfmt", is_logfmt))


def read_json(data: Bytes, units: Units, notes: Notes, times: Times) -> Iterator[Line]:
    """`journalctl -o json`, json-seq, json-sse, json-pretty, also as one array: an object a line, or its members a line
    each; or what `sources.logged` knows; or strings, of a line or of a whole log. Behind one that cannot be read a line
    is cut: what it goes on with may miss that."""
    missed = 0
    for entry, n in _objects(data, notes):
        if "MESSAGE" not in entry and "__REALTIME_TIMESTAMP" not in entry:
            found = list(records(entry))
            notes.malformed += not found
            for record in found:
                for line in record_lines(*record, n, times):
                    yield line if notes.garbled == missed else replace(line, cut=True)
                    missed = notes.garbled
            continue
        cut = "MESSAGE" in entry and entry["MESSAGE"] is None
        notes.nulls += cut
        cut = cut or bool(notes.broken) or notes.garbled != missed
        missed = notes.garbled
        fields = {name: value for name, item in entry.items() if (value := _json_value(item, notes)) is not None}
        yield from _entry(fields, units, cut=cut)


def _objects(data: Bytes, notes: Notes) -> Iterator[tuple[dict[str, Any], int]]:
    """Each object, and the number of the line it ends in. What is none is counted."""
    n = 0
    while (raw := data.line()) is not None:
        n += 1
        margin = raw[: len(raw) - len(raw.lstrip(JSON_EDGE))].strip(b"\x1e[")
        raw = raw.strip(JSON_EDGE).removeprefix(b"data: ").rstrip(b",]")
        if not raw:
            continue
        if raw == b"{":
            raw, n = _pretty(data, margin, n)
        try:
            found = json.loads(b"[" + raw + b"]")  # a line may hold several
        except (ValueError, RecursionError):
            notes.malformed += 1
            notes.garbled += 1
            continue
        for entry in found:
            if isinstance(entry, dict):
                yield entry, n
            elif isinstance(entry, str):
                yield {"message": entry}, n
            else:
                notes.malformed += 1


def _pretty(data: Bytes, margin: bytes, n: int) -> tuple[bytes, int]:
    """The rest of an object whose members stand on lines of their own, and the number of its last line. What is too
    long loses its middle, and cannot be read then."""
    kept, size = [b"{"], 1
    while (raw := data.line()) is not None:
        n += 1
        ends = raw.startswith(margin + b"}")
        if size < MAX_LINE or ends:
            kept.append(b"}" if ends else raw)
            size += len(raw)
        if ends:
            break
    return b"\n".join(kept), n


def _json_value(item: Any, notes: Notes) -> str | None:
    """Text as text, bytes as a list of numbers, several values as a list of those: the first counts."""
    if isinstance(item, str):
        return item
    if isinstance(item, list) and item:
        if all(isinstance(byte, int) and 0 <= byte < 256 for byte in item):
            return decode(bytes(item), notes)
        return _json_value(item[0], notes) if not isinstance(item[0], int) else None
    return str(item) if isinstance(item, (int, float)) else None


def read_export(data: Bytes, units: Units, notes: Notes) -> Iterator[Line]:
    """`journalctl -o export`: NAME=text, or NAME, a length of 8 bytes and that many bytes; then a blank line."""
    fields: dict[str, str] = {}
    spoilt = False  # the entry's message cannot be read
    while (raw := data.line()) is not None:
        raw = raw.removesuffix(b"\r")  # of Windows; the journal's own stands in a value of bytes
        if not raw:
            if not spoilt and ("MESSAGE" in fields or "__REALTIME_TIMESTAMP" in fields):
                yield from _entry(fields, units)
            fields, spoilt = {}, False
            continue
        name, equals, value = raw.partition(b"=")
        if not equals:
            found = _value(data, notes, within=bool(fields)) if _FIELD.fullmatch(raw) else None
            if found is None:  # another program's word
                notes.malformed += 1
                spoilt = spoilt or raw == b"MESSAGE"
                continue
            value = found
        if len(fields) < MAX_FIELDS:
            fields.setdefault(name.decode("ascii", "replace"), decode(value, notes))
    if fields and not spoilt:
        yield from _entry(fields, units, cut=notes.ends)


def _value(data: Bytes, notes: Notes, *, within: bool) -> bytes | None:
    """The value behind a name that stands alone; None, and nothing is taken, where no value follows: any program writes
    "OK". `within`: an entry has begun. An end of the input amid the value is noted."""
    head = data.ahead(8)
    size = int.from_bytes(head, "little")
    if (size > 1 << 40) if len(head) == 8 else not within:  # text is never so small a number
        return None
    if len(head) == 8 and size <= MAX_LINE:
        whole = data.ahead(size + 9)
        if len(whole) == size + 9 and not whole.endswith(b"\n"):
            return None
    data.take(8)
    value = data.take(size)
    amid = len(value) < size if len(head) == 8 else not notes.unended
    if data.take(1) != b"\n" and amid:
        notes.broken = notes.broken or "it ends within a field's value"
    return value


def _entry(fields: dict[str, str], units: Units, *, cut: bool = False) -> Iterator[Line]:
    stamp = fields.get("__REALTIME_TIMESTAMP", "")
    time = int(stamp) if stamp.isascii() and stamp.isdigit() and len(stamp) < 19 else None
    line = entry_line(fields, time, cut=cut)
    if "CONTAINER_NAME" in fields and (inner := contained(line, fields)) is not line:
        if units.holds(line, inner):
            yield inner
        return
    command = fields.get("_CMDLINE", "") if line.origin is Origin.PROCESS else ""
    if units.wants(line, command):
        yield line


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"there is no time zone {name!r}: give one such as Europe/Vienna or UTC") from error
