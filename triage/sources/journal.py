"""The systemd journal as a source: live, or a journal file or folder that somebody kept.

In: a place, the globs of the units, the cursor to go on from. Out: batches of `Line`s. Called by `sources.open_source`;
the only room that imports systemd. It must not judge lines: it passes on what the units' own processes wrote, what the
manager, the kernel and journald say about them, and nothing else.

Which entries are wanted is found after reading, by one or two cheap fields, and not by journal matches: matches take no
globs, and a unit that appears while we read would not be in them. Without matches the sequence number in the cursor
also tells how many entries a vacuum took away under us.

The reader is libsystemd's, by systemd-python's lowest layer (`journal.Reader` converts every field and costs ten times
as much). Its traps (systemd 252): without `fileno()` before the first read it never sees a file that a rotation makes,
and dies of SIGBUS when an old one is vacuumed; journald wakes its readers up to 250 ms late, and others wake them for
each entry, so we do not wait but look every 50 ms; `seek_cursor` takes any cursor and lands somewhere near, only
`test_cursor` knows; after `seek_tail` one step back comes first; one reader, one thread. journald frees the blocks of a
file that it unlinks, so what is still mapped of one must not be read (SIGBUS): `process()` comes before each look, and
what was unread there is lost by it; the evidence is then graded `rotated`.
"""

from __future__ import annotations

import os
import pwd
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from triage.model import Batch, Gate, InputError, Line, NotPermitted, Origin, Unreachable
from triage.sources.beginning import first_windows
from triage.sources.cursor import lost, moment_of, same_entry
from triage.sources.entry import (
    CONTAINER_FIELDS,
    ENGINES,
    NOTICE_FIELDS,
    PROCESS_FIELDS,
    clean,
    contained,
    entry_line,
    gap_line,
    process_line,
    raw_field,
)
from triage.sources.sieve import Sieve

BATCH = 256  # entries read before the pipeline has its turn
LOOK_SECONDS = 0.05
SOON = 0.01, 5  # seconds, and looks since the last lines, where something is open: its rest is being written
QUIET_SECONDS = 0.2  # an empty batch, so that time moves on
THRESHOLD = 1 << 20  # bytes of one field; longer ones are cut by libsystemd


_DISORDER = (
    "entries of this journal have no order that holds both ways (several files, a clock that was set back?): "
    "all are read one by one from here on, some perhaps twice or not at all"
)
_RUN = ("_SYSTEMD_INVOCATION_ID", "_STREAM_ID", "_LINE_BREAK")  # of what a user's unit writes
_OTHER = ("_PID", "_HOSTNAME", "_TRANSPORT", "_SYSTEMD_USER_UNIT", *_RUN, *NOTICE_FIELDS)
# Where an entry that some other unit's process wrote may name one of ours.
_ABOUT = ("UNIT", "USER_UNIT", "OBJECT_SYSTEMD_UNIT", "COREDUMP_UNIT", "COREDUMP_USER_UNIT", "_SYSTEMD_USER_UNIT")
# Whose entries may be about other units: the manager, users' managers with their units, journald, the dump catcher.
_TELLERS = ("init.scope", "user@", "systemd-journald", "systemd-coredump")


class JournalSource:
    """A `Source`. `cursor` resumes after the entry it names; without one a kept journal is read whole, and the live
    one from where a first start should begin (`sources.beginning`). `since`: nothing older, microseconds UTC."""

    def __init__(
        self,
        name: str,
        *,
        place: Path | None,
        units: Iterable[str],
        cursor: str | None = None,
        since: int | None = None,
        follow: bool | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.name = name
        self._follows = place is None if follow is None else follow
        self._place = place
        self._globs = tuple(units)
        self._contains = place is not None or any(not glob.endswith(".service") for glob in self._globs)
        self._cursor = cursor
        self._since = since
        self._gate = gate
        self._soon = 0  # so many more looks come soon
        self._sieve = Sieve(gate, self._line, self._is_ours, self._may_speak) if gate is not None else None
        self._matched: dict[bytes, bool] = {}
        self._teller: dict[bytes, bool] = {}
        self._streams: dict[tuple[bytes, bytes, bytes], tuple[str | None, str, str | None]] = {}
        self._read = 0  # entries read since the last cursor
        self._shaken = False  # files came or went since the last cursor
        self._notices: list[str] = []
        self._others: set[str] = set()  # containers that no glob is for
        self._gap = 0  # entries that are missing here; -1: some
        self._closed = False
        self._reader = self._open()

    def close(self) -> None:
        self._closed = True
        self._reader.close()

    def batches(self) -> Iterator[Batch]:
        """See `Source`. Of a live journal, `time` is the last entry's until the end is reached, then the clock's."""
        if self._cursor:
            self._resume()
        if not self._cursor:
            yield from self._beginning()
        if self._follows:
            yield from self._follow()
        else:
            yield from self._until(None)
            if self._others:
                shown = ", ".join(sorted(self._others)[:5])
                left_out = f"{self.name}: entries of containers were left out ({shown}); --unit names one to read"
                yield Batch((), self._cursor, None, (left_out,))

    # ---------------------------------------------------------------- reading

    def _beginning(self) -> Iterator[Batch]:
        """Stand where a reader without a cursor begins, after giving what it should know of earlier."""
        windows: list[tuple[int, int | None]] = [(self._since or 0, None)]
        if self._place is None and self._since is None:
            windows = first_windows(self._open(), self._is_ours, _now())
        for start, until in windows[:-1]:
            self._seek(start)
            for batch in self._until(until):  # no cursor here: whoever dies now begins again
                yield replace(batch, cursor=None)
        self._cursor, self._read = None, 0
        self._seek(windows[-1][0])

    def _until(self, limit: int | None) -> Iterator[Batch]:
        """To the end, or to the first entry later than `limit`."""
        ended = False
        while not ended and not self._closed:
            lines, ended = self._collect(limit)
            yield self._batch(lines)

    def _follow(self) -> Iterator[Batch]:
        """For ever; empty batches in quiet."""
        ended, spoke, invalidate = False, 0.0, _systemd().INVALIDATE
        while not self._closed:
            if ended:
                self._wait()
            self._shaken |= self._reader.process() == invalidate
            lines, ended = self._collect(None)
            self._soon = SOON[1] if lines else max(0, self._soon - 1)
            present = time.monotonic()
            if lines or not ended or self._notices or present - spoke >= QUIET_SECONDS:
                spoke = present
                batch = self._batch(lines)
                yield replace(batch, time=_now()) if ended else batch

    def _wait(self) -> None:
        """At the end of the journal: sleep a moment, or let go of files that are gone."""
        if self._shaken:  # all that could be read has been: now let go of the files that are gone
            self._reader.close()
            self._reader = self._open()
            self._resume()
            return
        open_still = self._soon and self._gate is not None and not self._gate.quiet
        time.sleep(SOON[0] if open_still else LOOK_SECONDS)

    def _collect(self, limit: int | None) -> tuple[list[Line], bool]:
        """Up to BATCH entries; whether that was the end."""
        if self._sieve is not None and limit is None:
            sifted = self._sieve.sift(self._reader)
            if sifted is not None:
                self._read += sifted.read
                if sifted.lost:
                    self._notices.append(_DISORDER)
                    self._gap = -1 if sifted.astray else self._gap
                return sifted.lines, sifted.ended
        lines: list[Line] = []
        for _ in range(BATCH):
            if not self._reader._next() or (limit is not None and self._reader._get_realtime() > limit):
                return lines, True
            self._read += 1
            line = self._line() if self._sieve is None or not self._sieve.repeats() else None
            if line is not None:
                lines.append(line)
        return lines, False

    def _line(self) -> Line | None:
        """The entry the reader stands on, if it is wanted."""
        unit = self._raw("_SYSTEMD_UNIT")
        if unit and self._is_ours(unit):
            return self._process_line(unit)
        if _text(unit) in ENGINES:
            return self._container_line(unit)
        if not self._may_tell(unit):
            return None
        if any(self._is_ours(name) for name in map(self._raw, _ABOUT) if name):
            fields = self._fields(_OTHER)
            fields["_SYSTEMD_UNIT"] = _text(unit)
        elif not unit and self._raw("_TRANSPORT") == b"kernel":
            fields = self._fields(("_HOSTNAME", "_TRANSPORT"))
        else:
            return None
        message = self._raw("MESSAGE")
        fields["MESSAGE"] = _text(message)
        line = entry_line(fields, self._reader._get_realtime(), cut=len(message) >= THRESHOLD)
        # A field may name one of our units without the right to: then the entry is some other process's.
        if line.origin is Origin.KERNEL or (line.unit and self._is_ours(line.unit.encode())):
            return line
        return None

    def _container_line(self, unit: bytes) -> Line | None:
        """What docker wrote for a container, where a glob is for its name; in a kept journal also for its name with a
        unit's ending, as in an export. Not in the live one: there such a glob means units, and one that runs an
        attached container wrote the same lines. A container that calls itself like a unit is none of ours: what is done
        to a unit must not hang on its words."""
        name = self._raw("CONTAINER_NAME") if self._contains else b""
        if not name or name.endswith(b".service"):
            return None
        if self._is_ours(name) or (self._place is not None and self._is_ours(name + b".service")):
            return self._process_line(unit)
        if len(self._others) < 100:
            self._others.add(_text(name))
        return None

    def _process_line(self, unit: bytes) -> Line:
        """The way of nearly every entry: few fields, since each costs a walk over the entry's objects. What one unit
        writes into one stream has one host and one invocation."""
        reader = self._reader
        message, stream, pid = raw_field(reader, "MESSAGE"), raw_field(reader, "_STREAM_ID"), raw_field(reader, "_PID")
        known = self._streams.get((unit, stream, pid)) if stream else None
        if known is None and _text(unit) in ENGINES:
            fields = self._fields((*PROCESS_FIELDS, *CONTAINER_FIELDS))
            return contained(entry_line(fields, reader._get_realtime(), cut=len(message) >= THRESHOLD), fields)
        if known is None:
            host, invocation = self._raw("_HOSTNAME"), self._raw("_SYSTEMD_INVOCATION_ID")
            known = (_text(host) or None, _text(unit), _text(invocation) or None)
            if len(self._streams) > 4096:
                self._streams.clear()
            self._streams[unit, stream, pid] = known
        return process_line(
            clean(_text(message)),
            reader._get_realtime(),
            host=known[0],
            unit=known[1],
            invocation=known[2],
            pid=int(pid or 0) or None,
            stream=_text(stream) or None,
            broken=_text(raw_field(reader, "_LINE_BREAK")),
            cut=len(message) >= THRESHOLD,
        )

    def _raw(self, name: str) -> bytes:
        return raw_field(self._reader, name)

    def _fields(self, names: Iterable[str]) -> dict[str, str]:
        return {name: _text(value) for name in names if (value := self._raw(name))}

    def _is_ours(self, unit: bytes) -> bool:
        known = self._matched.get(unit)
        if known is None:
            if len(self._matched) > 4096:  # transient units have endless names
                self._matched.clear()
            name = _text(unit)
            known = self._matched[unit] = any(fnmatchcase(name, glob) for glob in self._globs)
        return known

    def _may_speak(self, unit: bytes) -> bool:
        """Whether each entry of a unit that is not ours has to be looked at: docker's, as any may be a container's."""
        return self._may_tell(unit) or (self._contains and _text(unit) in ENGINES)

    def _may_tell(self, unit: bytes) -> bool:
        if not unit:  # the kernel; and made journals, where the manager has no unit
            return True
        known = self._teller.get(unit)
        if known is None:
            if len(self._teller) > 4096:
                self._teller.clear()
            known = self._teller[unit] = _text(unit).startswith(_TELLERS)
        return known

    # ---------------------------------------------------------------- where we stand

    def _batch(self, lines: list[Line]) -> Batch:
        """Takes the cursor, once a batch, and counts what is missing if files went away meanwhile."""
        moment = None
        if self._read:
            cursor: str = self._reader._get_cursor()
            moment = self._reader._get_realtime()
            if self._shaken:
                self._tell_lost(self._lost(cursor))
            self._cursor, self._read = cursor, 0
        if self._gap:
            lines.insert(0, gap_line(self._gap, lines[0].time if lines else moment))
            self._gap = 0
        notices, self._notices = tuple(self._notices), []
        passed = self._sieve.passed() if self._sieve is not None else {}
        return Batch(tuple(lines), self._cursor, moment, notices, passed)

    def _resume(self) -> None:
        """Stand on the cursor's entry, so that the next one follows. If it is gone, say what is missing; if it is no
        cursor at all, forget it."""
        self._shaken = False
        before = self._cursor
        if before is None:
            return
        try:
            self._reader.seek_cursor(before)
        except (OSError, ValueError):
            self._notices.append(f"the saved place in the journal cannot be read, starting anew: {before[:80]}")
            self._cursor = None
            return
        if not self._reader._next() or self._reader.test_cursor(before) or self._stand_on_copy(before):
            return
        self._reader.seek_cursor(before)
        self._reader._next()
        landed = self._reader._get_cursor()  # the nearest one that is still there: new, so the next step must give it
        if not self._reader._previous() or self._reader._get_cursor() == landed:
            self._reader.seek_head()
        gone = lost(before, landed, 1)
        if gone is None:
            self._gap = -1
            self._notices.append("the last journal entry that was read is gone: some may be lost")
        else:
            self._tell_lost(gone)

    def _stand_on_copy(self, cursor: str) -> bool:
        """Whether the cursor's entry is there under another sequence number; if so, stand on it."""
        moment = moment_of(cursor)
        if moment is None:
            return False
        self._reader.seek_realtime(moment)
        while self._reader._next() and self._reader._get_realtime() <= moment:
            if same_entry(cursor, self._reader._get_cursor()):
                return True
        return False

    def _lost(self, cursor: str) -> int:
        """How many entries went away unread since the last cursor, up to this one. The numbers also skip where journald
        copied entries; but a vacuum takes the oldest: where the last one we read still is, nothing after it is gone."""
        count = lost(self._cursor, cursor, self._read) or 0
        if count <= 0 or self._cursor is None:
            return 0
        fresh = JournalSource(self.name, place=self._place, units=self._globs)
        try:
            return 0 if fresh._stand_on_copy(self._cursor) else count
        finally:
            fresh.close()

    def _tell_lost(self, count: int) -> None:
        if count > 0:
            self._gap = count
            self._notices.append(f"{count} journal entries were lost before they could be read (vacuumed)")

    def _seek(self, moment: int) -> None:
        if moment > 0:
            self._reader.seek_realtime(moment)
        else:
            self._reader.seek_head()

    # ---------------------------------------------------------------- opening

    def _open(self) -> Any:
        systemd = _systemd()
        try:
            if self._place is None:
                reader = systemd._Reader(flags=systemd.LOCAL_ONLY)
            elif self._place.is_dir():
                reader = systemd._Reader(flags=0, path=str(self._place))
            else:
                reader = systemd._Reader(flags=0, files=[str(self._place.absolute())])
        except PermissionError:
            raise _not_permitted(self._place) from None
        except (OSError, ValueError) as error:
            raise InputError(f"{self._place or 'the journal'} is no journal that can be read: {error}") from None
        if self._place is None and not (reader.has_persistent_files() or reader.has_runtime_files()):
            # libsystemd opens what it may read and says nothing of the rest: without rights that is nothing at all.
            raise (
                _not_permitted(None) if os.geteuid() else Unreachable("there is no journal here: is journald running?")
            )
        reader.data_threshold = THRESHOLD
        reader.fileno()
        return reader


def _not_permitted(place: Path | None) -> NotPermitted:
    user = pwd.getpwuid(os.geteuid()).pw_name
    return NotPermitted(
        f"{place or 'the journal'} may not be read by user {user}: sudo usermod -a -G systemd-journal {user}, "
        "then log in anew"
    )


def _systemd() -> Any:
    """systemd-python's lowest layer: an extra of ours, as it has to be compiled."""
    try:
        from systemd import _reader
    except ImportError:
        raise Unreachable(
            "the journal cannot be read without systemd-python: apt-get install -y libsystemd-dev pkg-config gcc "
            f"python3-dev && {sys.executable} -m pip install systemd-python"
        ) from None
    return _reader


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _now() -> int:
    return time.time_ns() // 1000
