"""Directives that remedies set, and what the manager makes of them: `TimeoutStartSec=2min` is held as microseconds.

In: a directive's text as it stands in a file. Out: the value that the manager holds once it is loaded. Called by
`systemctl` (what to ask for), `remedy` (what is so already) and `compare` (was it taken). Pure. Spans and sizes as in
systemd.time(7) and systemd.directives(7); what is not understood here is None and is not compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable

INFINITY = (1 << 64) - 1
Value = int | str
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_UNITS = {"us": 1, "usec": 1, "ms": 1_000, "msec": 1_000, "": 1_000_000, "s": 1_000_000, "sec": 1_000_000}
_UNITS |= {"second": 1_000_000, "seconds": 1_000_000, "m": 60_000_000, "min": 60_000_000, "minute": 60_000_000}
_UNITS |= {"minutes": 60_000_000, "h": 3600_000_000, "hr": 3600_000_000, "hour": 3600_000_000, "hours": 3600_000_000}
_UNITS |= {"d": 86_400_000_000, "day": 86_400_000_000, "days": 86_400_000_000}
_SIZES = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def span(text: str) -> Value | None:
    """Microseconds of `90`, `2min`, `1min 30s`."""
    if text == "infinity":
        return INFINITY
    found = _SPAN.findall(text)
    if not found or _SPAN.sub("", text).strip() or any(unit not in _UNITS for _, unit in found):
        return None
    return int(sum(float(number) * _UNITS[unit] for number, unit in found))


def timeout(text: str) -> Value | None:
    """Of TimeoutStartSec= and its like 0 is no limit."""
    return INFINITY if span(text) == 0 else span(text)


def size(text: str) -> Value | None:
    """Bytes of `8G`; of `soft:hard` the hard one."""
    text = text.rpartition(":")[2]
    found = re.fullmatch(r"(\d+)([BKMGT]?)", text)
    if text == "infinity":
        return INFINITY
    return int(found[1]) * _SIZES[found[2]] if found else None


def whole(text: str) -> Value | None:
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def plain(text: str) -> Value | None:
    return text


# directive -> the property that holds it, how its text is read
HELD: dict[str, tuple[str, Callable[[str], Value | None]]] = {
    **{f"Service.{name}": (name, size) for name in ("LimitNOFILE", "LimitMEMLOCK", "LimitSTACK", "LimitNPROC")},
    **{f"Service.{name}": (name, size) for name in ("LimitCORE", "MemoryMax", "MemoryHigh", "TasksMax")},
    "Service.TimeoutStartSec": ("TimeoutStartUSec", timeout),
    "Service.TimeoutStopSec": ("TimeoutStopUSec", timeout),
    "Service.RestartSec": ("RestartUSec", span),
    "Service.Restart": ("Restart", plain),
    "Service.KillMode": ("KillMode", plain),
    "Service.OOMScoreAdjust": ("OOMScoreAdjust", whole),
    "Unit.StartLimitIntervalSec": ("StartLimitIntervalUSec", span),
    "Unit.StartLimitBurst": ("StartLimitBurst", whole),
}


def held_as(name: str, text: str) -> Value | None:
    """What the manager holds for this text of the directive; None where nobody here can tell."""
    return HELD[name][1](text.strip()) if name in HELD else None


def in_words(name: str, value: Value) -> str:
    """A held value as it would be written in a file."""
    if value == INFINITY:
        return "infinity"
    if HELD[name][0].endswith("USec") and isinstance(value, int):
        return f"{value / 1_000_000:g}s"
    return str(value)
