"""How one invocation ended, put together from the manager's entries, and when it may be taken as final.

In come the manager's words (engine.manager), out goes a `UnitEnd`. Called by `engine.runs`, one `Ending` per
invocation. It must not open or close crashes.
"""

from __future__ import annotations

from dataclasses import replace

from triage.engine.crashes import kept
from triage.engine.kinds import Sign
from triage.engine.lines import parse
from triage.engine.manager import RUNTIME_LIMIT, Word, end_sign
from triage.model import Crash, Ended, Line, UnitEnd

END_WAIT = 1_000_000  # the last lines of dying processes may come after the manager's entry


class Ending:
    """What the manager said so far. `at`: when its last word has stood long enough, in log time."""

    __slots__ = ("_line", "_overdue", "at", "final", "known", "settled")

    def __init__(self) -> None:
        self.known: UnitEnd | None = None
        self.at: int | None = None
        self.final = False  # it was dealt with; what comes later is late
        self.settled = (
            False  # the manager said what it makes of the end, which may take it until the last process is gone
        )
        self._line: Line | None = None
        self._overdue: str | None = None

    def note(self, line: Line, word: Word, *, requested: bool) -> None:
        """One of the words exited, failed, deactivated."""
        if self.final:
            return
        end = self.known or UnitEnd("success", time=line.time)
        if word.name == "exited":
            result = self._overdue or _result(end.result, word)
            end = replace(end, code=word.code, status=word.status, result=result)
        elif word.name == "failed":
            end = replace(end, result=self._result(word))
        self.settled = self.settled or word.name != "exited"
        self.known = replace(end, time=line.time, requested=requested)
        if self._line is None or word.name == "exited":
            self._line = kept(line)
        if line.time is not None:
            self.at = line.time + END_WAIT

    @property
    def overdue(self) -> bool:
        """The manager has said that it ends it."""
        return self._overdue is not None

    def foretell(self, result: str) -> None:
        """The manager ends it for having taken too long: however the process goes, that is the result."""
        self._overdue = self._overdue or result

    def _result(self, word: Word) -> str:
        """The manager's word for it, but for the one that it has for two things."""
        limit = word.result == "timeout" and RUNTIME_LIMIT in (self._overdue, self.known and self.known.result)
        return RUNTIME_LIMIT if limit else word.result or "failed"

    def hinder(self, line: Line) -> None:
        """Why the manager cannot start it, which its next word does not repeat."""
        self._line = self._line or kept(line)

    def late(self, line: Line, word: Word) -> bool:
        """What the manager makes of an end that was dealt with. True where it is another result than was taken."""
        end, self.settled = self.known, True
        if end is None or end.requested or word.result in (None, "success", end.result):
            return False
        result = self._result(word)
        if result == end.result:
            return False
        self.known = replace(end, result=result, time=line.time if line.time is not None else end.time)
        return True

    def give_up(self, time: int | None) -> None:
        """The manager starts it no more."""
        self.known = UnitEnd("start-limit-hit", time=time)

    def close(self) -> None:
        self.final, self.at = True, None

    def told(self, crash: Crash | None, *, settled: bool) -> Ended | None:
        """What the next process has to know of it. `crash`: what was made of this end alone."""
        return Ended(self.known, settled, self._line, crash) if self.final and self.known is not None else None

    @classmethod
    def of(cls, ended: Ended) -> Ending:
        ending = cls()
        ending.known, ending.settled, ending._line = ended.end, ended.settled, ended.line
        ending.close()
        return ending

    def sign(self) -> tuple[Sign, Line, str] | None:
        """The failure that the end itself is, if it was none that somebody asked for."""
        end = self.known
        if end is None or end.requested or end.result == "success":
            return None
        line = self._line or Line("", time=end.time)
        text = parse(line.text).text
        return end_sign(end, text), line, text


def _result(before: str, word: Word) -> str:
    """systemd's own word for how the main process went; its 'failed' entry, which follows, may know better."""
    if before != "success" or (word.code == "exited" and word.status == "0"):
        return before
    return {"exited": "exit-code", "dumped": "core-dump"}.get(word.code or "", "signal")
