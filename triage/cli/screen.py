"""Text for terminals and JSON for scripts, out of rows and log text.

Whatever a log wrote may hold control characters that move the cursor, hide text or type for the reader: everything that
is printed goes through `clean`. Called by the commands; knows nothing of the store's inside.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

TIMES = {  # names of columns that hold microseconds
    *("time", "first_seen", "last_seen", "muted_until", "started", "ended", "changed_at", "opened_at", "closed_at"),
    *("requested_at", "effective_at", "watched_at", "created_at", "read_at"),
}
MARKS = {"running": "…", "done": "✓", "failed": "✗", "skipped": "-"}
WIDE = "WF"  # East Asian width: takes two columns
STYLES = {
    "critical": "red",
    "error": "red",
    "warning": "yellow",
    "open": "red",
    "regressed": "red",
    "mitigated": "yellow",
}


def clean(text: str) -> str:
    """One line without control, format and half characters; what was there shows as a space or '?'."""
    return text if text.isprintable() else "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    kind = unicodedata.category(character)
    if character in "\t\n\r\v\f" or kind in ("Zl", "Zp"):
        return " "
    return "?" if kind in ("Cc", "Cf", "Cs", "Co") else character


def echo(text: str = "") -> None:
    """A line that holds text from outside."""
    click.echo(clean(text))


def moment(time: int | None) -> str:
    """As people read it: UTC, to the second."""
    return "-" if time is None else datetime.fromtimestamp(time / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def iso(time: int | None) -> str | None:
    if time is None:
        return None
    return datetime.fromtimestamp(time / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as they need to be, the last one cut at the terminal's edge; no rows, no heading."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not cells:
        return
    widths = [max(_width(row[n]) for row in [list(heading), *cells]) for n in range(len(heading))]
    room = _columns() - sum(widths[:-1]) - 2 * (len(widths) - 1)
    click.echo(click.style(_line(heading, widths, room), bold=True))
    for row in cells:
        click.echo(_line(row, widths, room))


def print_json(document: Mapping[str, Any]) -> None:
    """One document on stdout. Escaped to ASCII: no byte of a log reaches the terminal as itself."""
    click.echo(json.dumps(document, indent=2))


def document(row: Any) -> dict[str, Any]:
    """A row of the store as JSON: times as ISO 8601, enums as text, the same names as the API's."""
    return {
        name: _value(name, getattr(row, field.name)) for field in dataclasses.fields(row) for name in [_name(field)]
    }


def _name(field: dataclasses.Field[Any]) -> str:
    return "muted_until" if field.name == "mute_until" else field.name


def _value(name: str, value: Any) -> Any:
    if name in TIMES:
        return iso(value)
    if dataclasses.is_dataclass(value):
        return document(value)
    if isinstance(value, tuple | list):
        return [_value("", item) for item in value]
    if isinstance(value, Mapping):
        return {key: _value("", item) for key, item in value.items()}
    return value


def _line(cells: Sequence[str], widths: Sequence[int], room: int) -> str:
    padded = [cell + " " * (width - _width(cell)) for cell, width in zip(cells[:-1], widths, strict=False)]
    styled = [click.style(cell, fg=STYLES[cell.strip()]) if cell.strip() in STYLES else cell for cell in padded]
    return "  ".join([*styled, _cut(cells[-1], room)]).rstrip()


def _cut(text: str, room: int) -> str:
    if not sys.stdout.isatty() or _width(text) <= max(room, 20):
        return text
    return text[: max(room, 20) - 1] + "…"


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in WIDE) for c in text)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 120
