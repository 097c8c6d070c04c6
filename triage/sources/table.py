"""A log as a table (CSV): what Grafana's Explore and other viewers of Loki save.

In come the bytes of such a file, out go `Line`s: the text of one column, the time of another. Called by
`sources.stream`. It must not keep more than a row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import NamedTuple

from triage.engine.lines import parse, stamp_time
from triage.model import Line
from triage.sources.bytes import MAX_LINE, Bytes, Notes, decode
from triage.sources.entry import clean

ROWS = 40  # that are looked at
_TEXTS = ("line", "message", "log", "msg", "_msg", "content", "body")
_TIMES = ("time", "timestamp", "date", "ts", "tsns", "@timestamp", "_time")
_UNITS = {10: 1_000_000, 13: 1_000, 16: 1}  # digits of a number of seconds, milliseconds, microseconds


class Table(NamedTuple):
    """Which column holds what."""

    text: int
    time: int | None
    named: bool  # its first row is their names
    columns: int


def table(head: bytes) -> Table | None:
    """What the first bytes of a file show of a table of log lines; None if they are none."""
    first, _, _ = head.partition(b"\n")
    if b"," not in first or parse(first.decode("utf-8", "replace")).headed:
        return None
    rows = _rows(head)
    columns = len(rows[0]) if rows else 0
    if columns < 2 or len(rows) < 2 or any(len(row) != columns for row in rows):
        return None
    names = [name.strip().lower() for name in rows[0]]
    text, time = (next((names.index(name) for name in known if name in names), None) for known in (_TEXTS, _TIMES))
    if text is not None and time is not None:
        return Table(text, time, True, columns)
    heads = [sum(parse(row[n]).headed for row in rows) for n in range(columns)]
    best = max(range(columns), key=heads.__getitem__)
    if heads[best] * 4 < len(rows):  # a traceback has many lines without a head
        return None
    times = (n for n in range(columns) if n != best and all(_micros(row[n]) is not None for row in rows[1:]))
    return Table(best, next(times, None), False, columns)


def read_table(data: Bytes, notes: Notes, shape: Table) -> Iterator[Line]:
    """Each row's text. What is no such row is counted."""
    csv.field_size_limit(MAX_LINE)
    reader = csv.reader(decode(raw, notes).replace("\0", "\ufffd") + "\n" for raw in iter(data.line, None))
    try:
        for n, row in enumerate(reader):
            if len(row) != shape.columns:
                notes.malformed += bool(row)
            elif n or not shape.named:
                text = clean(row[shape.text]).rstrip("\r\n")
                time = _micros(row[shape.time]) if shape.time is not None else None
                yield Line(text, n=reader.line_num, time=time, cut=len(text) >= MAX_LINE)
    except csv.Error:  # a quotation that does not end
        notes.malformed += 1


def _rows(head: bytes) -> list[list[str]]:
    """The first rows; the last may be a part of one."""
    text = head.decode("utf-8-sig", "replace").replace("\0", "\ufffd")
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text)):
            if row:
                rows.append(row)
            if len(rows) > ROWS:
                break
    except csv.Error:
        return rows
    return rows[:-1] if len(rows) > 2 else rows


def _micros(cell: str) -> int | None:
    """A time as numbers since 1970 or as text with its zone -> microseconds UTC."""
    cell = cell.strip()
    if cell.isascii() and cell.isdigit():
        return int(cell) // 1_000 if len(cell) == 19 else int(cell) * _UNITS[len(cell)] if len(cell) in _UNITS else None
    return stamp_time(cell) if cell[:2] == "20" else None
