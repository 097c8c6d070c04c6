"""The journal behind a gate: of most entries one field or two are read, and no line is made.

In comes a reader of libsystemd, out go the lines that have to be read, and how many were passed over. Called by
`sources.journal`, which knows what an entry is and whose. It must not pass over anything but a process's line.

Entries of processes that are known are searched many at a time, which costs a tenth of a search in each; where one
holds a word it is gone back to it (`sources.track`); where the way back is not certain, all are read from there on. Why
the others may be passed over stands in `engine.gate`.

Whose an entry is costs as much as what it says. While one unit of ours is all that writes, the head of a record of
SGLang's ('[2026-11-29 12:00:00 TP0] Deco') or uvicorn's ('INFO:     ') that one of its processes was just seen to
write is taken for its word, unless another unit was seen to write it too: neither the kernel nor the manager does, and
of another process that does no line with a word goes unread. A second server shows at the beginning of the next chunk;
till then its records are counted as the first one's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from triage.engine.gate import CONTEXT
from triage.model import Gate, Line, Origin
from triage.sources.entry import raw_field
from triage.sources.track import Track, messages

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
    lost: bool = False  # from here on entries may come twice
    astray: bool = False  # and some may not come at all


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
        self._track: Track | None = None

    def repeats(self) -> bool:
        """Whether the entry that the reader stands on came before: where all are read, since the order broke."""
        return self._track is not None and self._track.lost and self._track.repeats()

    def passed(self) -> Mapping[str | None, int]:
        """Lines that were passed over since this was asked last, by unit."""
        self._settle()
        passed, self._passed = self._passed, Counter()
        return passed

    def sift(self, reader: Any) -> Sifted | None:
        """The next entries; None where all have to be read. It stops behind a word, where the gate is to be asked anew.
        A process is known for so many entries, or until something starts or ends: its number may be another's then."""
        track = self._track
        if track is None or track.reader is not reader:
            track = self._track = Track(reader, 4 * CONTEXT)
        if track.lost or not self._gate.quiet:
            self._unread = 0
            self._forget()
            track.clear()
            return None
        if self._aged >= AGE:
            self._forget()
        out = Sifted()
        while out.read < SIFT:
            if not (count := track.mark(self._chunk)):
                break
            read, writers, told, out.ended = self._gather(reader, count)
            spots = self._gate.spots(b"\n".join(read)) if read else []
            last = len(read) - 1
            word = _entry_at(read, spots[0]) if spots else last + 1
            at = min(word, told)
            if not track.took(read) or not track.back(max(0, last - at)):
                break
            telling = at == word <= last
            self._chunk = CHUNK[0] if telling else min(2 * self._chunk, CHUNK[1])
            self._tally.update(writers[:at])
            if at > len(writers):  # heads tell only while one unit of ours is all that writes
                self._passed[self._alone] += at - len(writers)
            self._unread += at
            out.read += min(at, last) + 1
            self._aged += min(at, last) + 1
            if at <= last:
                out.ended = out.ended and at == last
                if self._meet(track, raw_field(reader, "_PID"), out.lines, telling=telling):
                    break
            if out.ended:
                return out
        else:
            self._sample(out.lines)
        return replace(out, ended=False, lost=track.lost, astray=track.astray)

    def _gather(self, reader: Any, count: int) -> tuple[list[bytes], list[bytes], int, bool]:
        """Messages of the next entries, `count` at most; the pid of each of the first; how many there are before the
        first whose process is not known; was that the end?"""
        step, get, known, head_of = reader._next, reader._get, self._known, self._heads.get
        read: list[bytes] = []
        writers: list[bytes] = []
        say, by = read.append, writers.append
        for n in range(count if self._wary else min(count, ASKED)):
            if not step():
                return read, writers, len(writers), True
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
                    return read, writers, len(writers), False
                if pid not in known:
                    return read, writers, len(writers), False
                if head == _ACCESS or len(head) > len(_ACCESS):  # a whole one: a short line's would be any line's
                    self._wrote(head, pid)
            by(pid)
        if self._wary:
            self._wary -= 1
            return read, writers, len(writers), False
        told, ended = self._rush(reader, read, count)
        return read, writers, told, ended

    def _rush(self, reader: Any, read: list[bytes], count: int) -> tuple[int, bool]:
        """The rest of a chunk, or till there is one whose head tells no process; how many there are before it; was that
        the end?"""
        for left in range(count - ASKED, 0, -PIECE):
            rest = messages(reader, min(left, PIECE))
            told = self._told(rest)
            read += rest
            if told < len(rest):
                self._wary, self._caution = self._caution, min(2 * self._caution or 1, WARY)
                return len(read) - len(rest) + told, False
            if len(rest) < min(left, PIECE):
                return len(read), True
        self._caution //= 2
        return len(read), False

    def _told(self, read: list[bytes]) -> int:
        """How many there are before the first whose head tells no process."""
        # `_head`, without the call: a twelfth of a healthy journal's time is spent here.
        if self._heads.keys() >= {m[_HEAD] if b"[2" < m < b"[3" else m[:10] for m in read}:
            return len(read)
        return next(n for n, message in enumerate(read) if _head(message) not in self._heads)

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

    def _meet(self, track: Track, pid: bytes, lines: list[Line], *, telling: bool) -> bool:
        """The entry the reader stands on has a word, or is of a process that is not known. True: ask the gate anew."""
        self._unread += 1
        line, new = self._line(), self._learn(track.reader, pid)
        if line is None:
            return False
        if not telling and not new and line.origin is Origin.PROCESS:
            self._passed[line.unit] += 1
            return False
        if telling and self._gate.begins(line.text.encode("utf-8", "replace")):
            lines += self._before(track)
            if track.lost:  # it will be read again
                return True
        lines.append(line)
        track.note()
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

    def _before(self, track: Track) -> list[Line]:
        """The lines of processes that were passed over last: evidence, if what begins here breaks off. Empty where the
        way there or back is not certain."""
        back = min(self._unread - 1, 4 * CONTEXT, track.length)
        found = []
        if not track.back(back):
            return []
        for _ in range(back):
            line = self._line()
            if line is not None and line.origin is Origin.PROCESS:
                found.append(line)
            if not track.forth():
                return []
        for line in found[-CONTEXT:]:
            self._passed[line.unit] -= 1
        return found[-CONTEXT:]


def _entry_at(read: list[bytes], spot: int) -> int:
    """Which of the joined messages holds this place."""
    for at, message in enumerate(read):
        spot -= len(message) + 1
        if spot < 0:
            return at
    return len(read) - 1


def _head(message: bytes) -> bytes:
    """What tells its process, where a record or a request's line begins so."""
    return message[_HEAD] if b"[2" < message < b"[3" else message[:10]
