"""The journal behind a gate: of most entries one field or two are read, and no line is made.

In comes a reader of libsystemd, out go the lines that have to be read, and how many were passed over. Called by
`sources.journal`, which knows what an entry is and whose. It must not pass over anything but a process's line.

Entries of processes that are known are searched many at a time, which costs a tenth of a search in each; where one
holds a word it is gone back to it. Why the others may be passed over stands in `engine.gate`.

Whose an entry is costs as much as what it says. While one unit of ours is all that writes, the head of a record of
SGLang's ('[2026-11-29 12:00:00 TP0] Deco') or uvicorn's ('INFO:     ') that one of its processes was just seen to
write is taken for its word, unless another unit was seen to write it too: neither the kernel nor the manager does, and
of another process that does no line with a word goes unread. A second server shows at the beginning of the next chunk;
till then its records are counted as the first one's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice, repeat
from operator import itemgetter
from typing import Any

from triage.engine.gate import CONTEXT
from triage.model import Gate, Line, Origin
from triage.sources.entry import raw_field

SIFT = 2048  # entries read before the pipeline has its turn
AGE = 8 * SIFT  # entries for which it is known whose a process is, or till something starts or ends
CHUNK = 16, 512  # entries searched at once: behind a word, and where there was none for long
ASKED = 8  # entries at the beginning of a chunk whose process is asked for in any case
PIECE = 64  # entries of a chunk read in one go: where a head tells nothing, all behind it are read again
WARY = 4  # chunks that are gone through entry by entry, where head after head told nothing
_HEAD = slice(20, 31)  # of a record, which begins with '[2' in this millennium: what stands behind its time
_ACCESS = b"INFO:     "  # begins what uvicorn says of each request


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
        self._heads: dict[bytes, bytes] = {}  # of records, behind the time, and of requests' lines -> pid
        self._shared: set[bytes] = set()  # those that processes of other units write too
        self._alone: str | None = ""  # the one unit of ours; None: there are several
        self._tally: Counter[bytes] = Counter()  # pid -> entries passed over
        self._aged = 0  # entries read since then
        self._chunk = CHUNK[0]
        self._wary = 0  # so many more chunks are gone through entry by entry
        self._caution = 0  # and so many after the next head that tells nothing

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
        if self._aged >= AGE:
            self._forget()
        out = Sifted()
        while out.read < SIFT:
            messages, writers, rushed, out.ended = self._gather(reader)
            spots = self._gate.spots(b"\n".join(messages)) if messages else []
            last = len(messages) - 1
            stranger = len(writers) + rushed <= last
            at = _entry_at(messages, spots[0]) if spots else last if stranger else last + 1
            self._chunk = CHUNK[0] if spots else min(2 * self._chunk, CHUNK[1])
            self._tally.update(writers[:at])
            if at > len(writers):  # heads tell only while one unit of ours is all that writes
                self._passed[self._alone] += at - len(writers)
            self._unread += at
            out.read += min(at, last) + 1
            self._aged += min(at, last) + 1
            if at <= last:
                out.ended = out.ended and at == last
                for _ in range(last - at):
                    reader._previous()
                if self._meet(reader, raw_field(reader, "_PID"), out.lines, telling=bool(spots)):
                    out.ended = False
                    break
            if out.ended:
                return out
        else:
            self._sample(out.lines)
        return out

    def _gather(self, reader: Any) -> tuple[list[bytes], list[bytes], int, bool]:
        """Messages of the next entries, up to the first of a process that is not known; the pid of each of the first;
        how many more are told by their heads; was that the end?"""
        step, get, known, head_of = reader._next, reader._get, self._known, self._heads.get
        messages: list[bytes] = []
        writers: list[bytes] = []
        say, by = messages.append, writers.append
        for n in range(self._chunk if self._wary else ASKED):
            if not step():
                return messages, writers, 0, True
            try:
                message = get("MESSAGE")
            except KeyError:
                message = b""
            say(message)
            head = _head(message)
            pid = head_of(head) if n >= ASKED else None
            if pid is None:
                try:
                    pid = get("_PID")
                except KeyError:  # the kernel has none
                    return messages, writers, 0, False
                if pid not in known:
                    return messages, writers, 0, False
                if head == _ACCESS or len(head) > len(_ACCESS):  # a whole one: a short line's would be any line's
                    self._wrote(head, pid)
            by(pid)
        if self._wary:
            self._wary -= 1
            return messages, writers, 0, False
        ended = self._rush(reader, messages)
        return messages, writers, len(messages) - len(writers), ended

    def _rush(self, reader: Any, messages: list[bytes]) -> bool:
        """The rest of a chunk, up to the first entry whose head tells no process; was that the end? No step of Python's
        is taken for an entry's reading, which is a sixth of a healthy journal's time."""
        read = map(itemgetter(1), zip(iter(reader._next, False), map(reader._get, repeat("MESSAGE")), strict=False))
        for left in range(self._chunk - ASKED, 0, -PIECE):
            rest: list[bytes] = []
            count, told = min(left, PIECE), True
            try:
                rest.extend(islice(read, count))
                ended = len(rest) < count
            except KeyError:  # no message
                reader._previous()
                told = ended = False
            known = self._told(rest)
            if known < len(rest):
                for _ in range(len(rest) - known):
                    reader._previous()
                del rest[known:]
                told = ended = False
            messages += rest
            if ended:
                return True
            if not told:
                self._wary, self._caution = self._caution, min(2 * self._caution or 1, WARY)
                return False
        self._caution //= 2
        return False

    def _told(self, messages: list[bytes]) -> int:
        """How many there are before the first whose head tells no process."""
        # `_head`, without the call: a twelfth of a healthy journal's time is spent here.
        if self._heads.keys() >= {m[_HEAD] if b"[2" < m < b"[3" else m[:10] for m in messages}:
            return len(messages)
        return next(n for n, message in enumerate(messages) if _head(message) not in self._heads)

    def _wrote(self, head: bytes, pid: bytes) -> None:
        """A known process did; what others write too tells nothing."""
        if len(self._shared) + len(self._heads) > 4096:
            self._several()
        elif self._known[pid] is None:
            self._shared.add(head)
            self._heads.pop(head, None)
        elif self._alone is not None and head not in self._shared:
            self._heads[head] = pid

    def _several(self) -> None:
        """No head tells whose a line is."""
        self._alone = None
        self._heads.clear()

    def _forget(self) -> None:
        self._settle()
        self._known.clear()
        self._heads.clear()
        self._aged = 0

    def _settle(self) -> None:
        """What was counted by process, by unit."""
        for pid, count in self._tally.items():
            unit = self._known.get(pid)
            if unit is not None:
                self._passed[unit] += count
        self._tally.clear()

    def _sample(self, lines: list[Line]) -> None:
        """One line in so many is handed on all the same: the server's speed is taken from some (engine.pace)."""
        line = self._line()
        if line is not None and line.origin is Origin.PROCESS and (not lines or lines[-1] != line):
            self._passed[line.unit] -= 1
            self._unread = 0
            lines.append(line)

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
        if unit is not None and self._alone is not None:
            if self._alone not in ("", unit):
                self._several()
            else:
                self._alone = unit

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


def _entry_at(messages: list[bytes], spot: int) -> int:
    """Which of the joined messages holds this place."""
    for at, message in enumerate(messages):
        spot -= len(message) + 1
        if spot < 0:
            return at
    return len(messages) - 1


def _head(message: bytes) -> bytes:
    """What tells its process, where a record or a request's line begins so."""
    return message[_HEAD] if b"[2" < message < b"[3" else message[:10]
