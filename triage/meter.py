"""What `watch` counts for /metrics: lines and lag of each unit, time spent matching rules.

In: each batch after it was read, each diagnosis. Out: `Counter`s (absolute since this process began) for the store,
every few seconds. Called by `triage.cli.services`.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable

from triage.model import Batch, Crash, Finding
from triage.store import Counter

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)  # seconds
NO_UNIT = ""  # kernel lines and plain text


class Meter:
    """Counts; knows no clock but the one it is given, in microseconds UTC."""

    def __init__(self) -> None:
        self._lines: Tally[str] = Tally()
        self._lag: dict[str, float] = {}
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    @property
    def lines(self) -> int:
        return self._lines.total()

    def saw(self, batch: Batch, now: int) -> None:
        """A batch was read. A unit that was not in it is caught up with."""
        for unit in self._lag:
            self._lag[unit] = 0.0
        last: dict[str, int] = {}
        for line in batch.lines:
            unit = line.unit or NO_UNIT
            self._lines[unit] += 1
            if line.time is not None:
                last[unit] = line.time
        for name, count in batch.passed.items():
            unit = name or NO_UNIT
            self._lines[unit] += count
            if batch.time is not None:
                last.setdefault(unit, batch.time)
        for unit, moment in last.items():
            self._lag[unit] = max(0.0, (now - moment) / 1_000_000)

    def timed(self, diagnose: Callable[[Crash], Finding]) -> Callable[[Crash], Finding]:
        """The same function, its seconds counted."""

        def measured(crash: Crash) -> Finding:
            started = time.perf_counter()
            try:
                return diagnose(crash)
            finally:
                spent = time.perf_counter() - started
                self._buckets[bisect_left(BUCKETS, spent)] += 1
                self._seconds += spent

        return measured

    def counters(self) -> tuple[Counter, ...]:
        """Names as in contracts.md, Metrics, without the prefix."""
        out = [Counter("lines_total", (("unit", unit),), count) for unit, count in self._lines.items()]
        out += [Counter("lag_seconds", (("unit", unit),), lag) for unit, lag in self._lag.items()]
        total = 0
        for edge, count in zip((*BUCKETS, float("inf")), self._buckets, strict=True):
            total += count
            out.append(
                Counter("rule_seconds_bucket", (("le", "+Inf" if edge == float("inf") else f"{edge:g}"),), total)
            )
        out.append(Counter("rule_seconds_sum", (), self._seconds))
        out.append(Counter("rule_seconds_count", (), total))
        return tuple(out)
