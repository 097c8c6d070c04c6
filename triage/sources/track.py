"""Where a reader of the journal has been, so that it can be made to stand on an entry once more, for certain.

In comes a reader of libsystemd and what it read, out goes whether it stands where it should. Called by `sources.sieve`.

So many steps forth and as many back do not lead to the same entry: where several files are read, entries of the same
microsecond or of a clock that was set back have no order that holds both ways (a rotated file, a user's journal beside
the system's, two boots), and whoever goes by counting reads some twice, some never, or the same ones for ever. So one
goes back to a cursor and forth again, and each message that is read a second time has to be the one that it was.
"""

from __future__ import annotations

from itertools import islice, repeat
from operator import itemgetter
from typing import Any

from triage.sources.cursor import sequence
from triage.sources.entry import raw_field

MANY = 4_096  # entries after which the first ones are forgotten
TRUSTED = 16_384  # new entries that are read one by one by who was lost


def messages(reader: Any, count: int) -> list[bytes]:
    """Of the next entries, b'' where one has none; fewer than `count` at the end. No step of Python's is taken for an
    entry's reading, which is a sixth of a healthy journal's time."""
    found: list[bytes] = []
    read = map(itemgetter(1), zip(iter(reader._next, False), map(reader._get, repeat("MESSAGE")), strict=False))
    while len(found) < count:
        try:
            found.extend(islice(read, count - len(found)))
            break
        except KeyError:
            found.append(b"")
    return found


class Track:
    """The last entries that `reader` read, `keep` of them or more.

    `lost`: it is not known where it stands among them. Then it stands at the last place that is known, and of what
    comes `repeats` tells what came before, until so many new ones came that it is known anew (whoever goes back only
    then comes on, however often it gets lost); `astray`: no such place was left, so that some may have been missed."""

    __slots__ = ("_ahead", "_keep", "_marks", "_new", "_newest", "_path", "astray", "lost", "reader")

    def __init__(self, reader: Any, keep: int) -> None:
        self.reader = reader
        self.lost = self.astray = False
        self._keep = keep
        self._path: list[bytes] = []  # messages; of the last one it stands on the entry
        self._marks: list[tuple[int, str]] = []  # how many of them were read when it stood on the entry of that cursor
        self._ahead: list[bytes] = []  # what comes next, as it was read before it went back
        self._new = 0  # entries since it was lost
        self._newest: dict[str, int] = {}  # of each sequence of entries, the last number that is known to be behind

    @property
    def length(self) -> int:
        """So far it can go back."""
        return len(self._path) - self._marks[0][0] - 1 if self._marks else 0

    def clear(self) -> None:
        """Somebody else reads."""
        self._path, self._marks, self._ahead = [], [], []

    def mark(self, most: int) -> int:
        """Remember where it stands. So many entries may be read now: one where it stands on none yet, as nothing could
        be gone back to, and none where it is lost."""
        if self._marks and self._marks[-1][0] == len(self._path):
            return most
        try:
            cursor: str = self.reader._get_cursor()
        except OSError:
            return 1
        if len(self._path) > MANY:
            gone = max((count for count, _ in self._marks if len(self._path) - count > self._keep), default=0)
            del self._path[:gone]
            self._marks = [(count - gone, known) for count, known in self._marks if count >= gone]
        self._marks.append((len(self._path), cursor))
        self.lost = self.astray = self._passed(cursor) < 0
        return 0 if self.lost else most

    def note(self) -> None:
        """The entry that it stands on was handed on."""
        self._passed(self.reader._get_cursor())

    def repeats(self) -> bool:
        """Whether the entry that it stands on came before, as far as that is known."""
        new = self._passed(self.reader._get_cursor()) > 0
        self._new += new
        if self._new >= TRUSTED:
            self.lost, self._new = False, 0
        return not new

    def took(self, read: list[bytes]) -> bool:
        """These were read; False, and it is lost, where some had been read before and were others then."""
        self._path += read
        if not self._ahead:
            return True
        known = min(len(self._ahead), len(read))
        same = read[:known] == self._ahead[:known]
        del self._ahead[:known]
        return same or self._lose()

    def back(self, count: int) -> bool:
        """Stand so many entries before the last one that was read; False, and it is lost, where that is not certain."""
        if not count:
            return True
        at = len(self._path) - 1 - count
        marks = [mark for mark in self._marks if mark[0] <= at]
        there = len(self._newest) == 1 and self._step(count)  # one sequence has an order of its own
        if not there and not any(self._again(cursor, begun, at) for begun, cursor in reversed(marks)):
            return self._lose()
        self._ahead = self._path[at + 1 :] + self._ahead
        del self._path[at + 1 :]
        self._marks = marks
        return True

    def forth(self) -> bool:
        """One step; as for `took`."""
        return self.took(messages(self.reader, 1))

    def _passed(self, cursor: str) -> int:
        """Note an entry; so far beyond the last one of its sequence it lies. Within one they come in order."""
        place = sequence(cursor)
        if place is None:
            return 1
        name, number = place
        known = self._newest.get(name, number - 1)
        self._newest[name] = max(known, number)
        return number - known

    def _step(self, count: int) -> bool:
        """So many back, each as it was."""
        return all(
            self.reader._previous() and raw_field(self.reader, "MESSAGE") == message
            for message in self._path[-2 : -count - 2 : -1]
        )

    def _again(self, cursor: str, begun: int, at: int) -> bool:
        """From a mark on, as it was."""
        return self._stand(cursor) and messages(self.reader, at + 1 - begun) == self._path[begun : at + 1]

    def _stand(self, cursor: str) -> bool:
        self.reader.seek_cursor(cursor)
        return bool(self.reader._next() and self.reader.test_cursor(cursor))

    def _lose(self) -> bool:
        self.lost, self._new = True, 0
        if not any(self._stand(cursor) for _, cursor in reversed(self._marks)):
            self.astray = True  # it stands near the last one
            self.reader.seek_cursor(self._marks[-1][1])
            self.reader._next()
        self.clear()
        return False
