"""The journal behind a gate: of most entries two fields are read, and no line is made.

In comes a reader of libsystemd, out go the lines that have to be read, and how many were passed over. Called by
`sources.journal`, which knows what an entry is and whose. It must not pass over anything but a process's line.

Entries of processes that are known are searched many at a time, which costs a tenth of a search in each; where one
holds a word it is gone back to it. Why the others may be passed over stands in `engine.gate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from triage.engine.gate import CONTEXT
from triage.model import Gate, Line, Origin
from triage.sources.entry import raw_field

SIFT = 2048  # entries read before the pipeline has its turn
CHUNK = 16, 256  # entries searched at once: behind a word, and where there was none for long


@dataclass(slots=True)
class Sifted:
    lines: list[Line] = field(default_factory=list)
    read: int = 0  # entries
    ended: bool = False  # that was the end of the journal


class Sieve:
    """`line`: the entry the reader stands on, if it is wanted; `ours`: whether a unit is, `tells`: whether it may speak
    about others."""

    def __init__(
        self,
        gate: Gate,
        line: Callable[[], Line | None],
        ours: Callable[[bytes], bool],
        tells: Callable[[bytes], bool],
    ) -> None:
        self._gate = gate
        self._line = line
        self._ours = ours
        self._tells = tells
        self._passed: Counter[str | None] = Counter()
        self._unread = 0  # entries since the last line that was handed on
        self._seen: set[tuple[bytes, bytes]] = set()  # pid and invocation of processes of which one was handed on
        self._known: dict[bytes, str | None] = {}  # pid -> its unit, if that is one of ours
        self._tally: dict[bytes, int] = {}  # pid -> entries passed over; the keys of `_known`
        self._aged = 0  # entries read since then
        self._chunk = CHUNK[0]

    def passed(self) -> Mapping[str | None, int]:
        """Lines that were passed over since this was asked last, by unit."""
        self._settle()
        passed, self._passed = self._passed, Counter()
        return passed

    def sift(self, reader: Any) -> Sifted | None:
        """The next entries; None where all have to be read. It stops behind a word, where the gate is to be asked anew.
        A process is known for so many entries, or until something starts or ends: its number may be another's then."""
        if not self._gate.quiet:
            self._unread = 0
            self._forget()
            return None
        if self._aged >= SIFT:
            self._forget()
        out = Sifted()
        while out.read < SIFT:
            messages, out.ended, stranger = _gather(reader, self._tally, self._chunk)
            spots = self._gate.spots(b"\n".join(messages)) if messages else []
            last = len(messages) - 1
            at = _entry_at(messages, spots[0]) if spots else last if stranger else last + 1
            self._chunk = CHUNK[0] if spots else min(2 * self._chunk, CHUNK[1])
            self._unread += at
            out.read += min(at, last) + 1
            self._aged += min(at, last) + 1
            if at <= last:
                out.ended = out.ended and at == last
                pid = self._go_back(reader, last - at)
                if self._meet(reader, pid, out.lines, telling=bool(spots)):
                    out.ended = False
                    break
            if out.ended:
                return out
        else:
            self._sample(out.lines)
        return out

    def _forget(self) -> None:
        self._settle()
        self._known.clear()
        self._tally.clear()
        self._aged = 0

    def _settle(self) -> None:
        """What was counted by process, by unit."""
        for pid, unit in self._known.items():
            if unit is not None:
                self._passed[unit] += self._tally[pid]
            self._tally[pid] = 0

    def _sample(self, lines: list[Line]) -> None:
        """One line in so many is handed on all the same: the server's speed is taken from some (engine.pace)."""
        line = self._line()
        if line is not None and line.origin is Origin.PROCESS and (not lines or lines[-1] != line):
            self._passed[line.unit] -= 1
            self._unread = 0
            lines.append(line)

    def _go_back(self, reader: Any, steps: int) -> bytes:
        """Back so many entries, which were counted, as was the one it stands on then; whose that is."""
        pid = raw_field(reader, "_PID")
        for step in range(steps + 1):
            if step:
                reader._previous()
                pid = raw_field(reader, "_PID")
            if pid in self._tally:
                self._tally[pid] -= 1
        return pid

    def _meet(self, reader: Any, pid: bytes, lines: list[Line], *, telling: bool) -> bool:
        """The entry the reader stands on has a word, or is of a process that is not known. True: ask the gate anew."""
        self._unread += 1
        line, new = self._line(), self._learn(reader, pid)
        if line is None:
            return False
        if not telling and not new and line.origin is Origin.PROCESS:
            self._passed[line.unit] += 1
            return False
        if telling and self._gate.begins(line.text.encode("utf-8", "replace")):
            lines += self._before(reader)
        lines.append(line)
        self._unread = 0
        if line.origin is not Origin.PROCESS:
            self._forget()
            return True
        return telling

    def _learn(self, reader: Any, pid: bytes) -> bool:
        """Note whose process wrote this entry; True where its line has to be handed on: it is one of ours and new, or
        nobody can tell."""
        unit = raw_field(reader, "_SYSTEMD_UNIT")
        if not pid or not unit:
            return True
        if not self._ours(unit):
            if not self._tells(unit):
                self._know(pid, None)
            return True
        self._know(pid, unit.decode("utf-8", "replace"))
        process = (pid, raw_field(reader, "_SYSTEMD_INVOCATION_ID"))
        new = process not in self._seen
        if len(self._seen) > 4096:
            self._seen.clear()
        self._seen.add(process)
        return new

    def _know(self, pid: bytes, unit: str | None) -> None:
        if self._known.get(pid, unit) != unit:  # the number is another's now: what was counted is the former's
            self._settle()
        self._known[pid] = unit
        self._tally.setdefault(pid, 0)

    def _before(self, reader: Any) -> list[Line]:
        """The lines of processes that were passed over last: evidence, if what begins here breaks off."""
        back = 0
        while back < min(self._unread - 1, 4 * CONTEXT) and reader._previous():
            back += 1
        found = []
        for _ in range(back):
            line = self._line()
            if line is not None and line.origin is Origin.PROCESS:
                found.append(line)
            reader._next()
        for line in found[-CONTEXT:]:
            self._passed[line.unit] -= 1
        return found[-CONTEXT:]


def _gather(reader: Any, tally: dict[bytes, int], count: int) -> tuple[list[bytes], bool, bool]:
    """Messages of the next entries, each counted for its process, up to the first of one that has no count; was that
    the end, and does the last have none?"""
    step, get = reader._next, reader._get
    messages: list[bytes] = []
    say = messages.append
    for _ in range(count):
        if not step():
            return messages, True, False
        try:
            say(get("MESSAGE"))
        except KeyError:
            say(b"")
        try:
            tally[get("_PID")] += 1
        except KeyError:  # a stranger; and the kernel has no number
            return messages, False, True
    return messages, False, False


def _entry_at(messages: list[bytes], spot: int) -> int:
    """Which of the joined messages holds this place."""
    for at, message in enumerate(messages):
        spot -= len(message) + 1
        if spot < 0:
            return at
    return len(messages) - 1
