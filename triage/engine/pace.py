"""How fast a server decodes and how many requests it answered, by its own lines.

In: the text of one such line. Out: `Pace` per number of running requests. Called by `milestones`, on the way that the
mass of healthy lines goes: so lines are read one in some, and nothing grows.
"""

from __future__ import annotations

import re
from collections import deque

from triage.model import Pace

COUNTED = 25  # answers since the server was ready; more is simply "many" (triage.poison asks for twenty)
_OPENING = 2_000  # lines since then in which they are counted
_ALL, _EACH = 32, 8  # the first lines are all read, then one of so many
_KEPT = 64  # lines of one load
_LOADS = 16
_DECODE = re.compile(
    r"Decode batch[.,].*?#running-req: (\d+)(?:.*?accept len: ([\d.]+))?.*?gen throughput \(token/s\): ([\d.]+)"
)


class Speedometer:
    """Of one invocation. `before`: what was known of it when `watch` was last stopped."""

    __slots__ = ("_heard", "_lines", "_loads", "_old", "_told", "answered")

    def __init__(self, answered: int = 0, before: tuple[Pace, ...] = ()) -> None:
        self.answered = answered
        self._heard = 0
        self._old = before
        self._lines = 0
        self._loads: dict[int, deque[tuple[float, float]]] = {}
        self._told: tuple[Pace, ...] | None = None  # it is asked for with each rank's failure, and is the same then

    @property
    def counting(self) -> bool:
        """Answers are counted: every line has to be heard (engine.gate). Later some lines are enough, for the speed."""
        return self.answered < COUNTED and self._heard < _OPENING

    def note(self, text: str) -> None:
        """One line about a batch."""
        self._heard += 1
        if "Prefill batch" in text:
            return
        self._lines += 1
        if self._lines > _ALL and self._lines % _EACH:
            return
        found = _DECODE.search(text)
        if found is None:
            return
        running = int(found[1][:6])
        if running not in self._loads:
            if len(self._loads) >= _LOADS:
                return
            self._loads[running] = deque(maxlen=_KEPT)
        self._loads[running].append((_number(found[3]), _number(found[2] or "")))
        self._told = None

    def answer(self, text: str) -> None:
        """One line of the access log: a generation, not a look at its health."""
        self._heard += 1
        if self.counting and '"POST /' in text and "/health" not in text:
            self.answered += 1

    def pace(self) -> tuple[Pace, ...]:
        """By load. A load that was seen anew stands for itself, else what was known of it before."""
        if self._told is None:
            known = {one.running: one for one in self._old}
            known |= {running: _pace(running, list(lines)) for running, lines in self._loads.items()}
            self._told = tuple(known[running] for running in sorted(known))
        return self._told


def _pace(running: int, lines: list[tuple[float, float]]) -> Pace:
    speeds = sorted(speed for speed, _ in lines)
    accepted = sorted(length for _, length in lines)
    middle = accepted[len(accepted) // 2]
    return Pace(running, len(lines), speeds[len(speeds) * 3 // 4], middle)


def _number(text: str) -> float:
    try:
        return float(text[:12])
    except ValueError:
        return 0.0
