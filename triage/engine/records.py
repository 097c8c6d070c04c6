"""Records that are not at their end yet: lines in pieces, requests' texts over many lines.

In comes each line before anything else reads it, out goes whether it belongs to such a record, and what has to be read
after all because no end came. Called by `engine.runs`, one `Records` per invocation; what a piece and what a request's
text is, `engine.pieces` and `engine.payload` know. It must not read what is in a record.
"""

from __future__ import annotations

from dataclasses import replace

from triage.engine.crashes import kept
from triage.engine.lines import Parsed
from triage.engine.milestones import FLAGS
from triage.engine.payload import (
    MAX_LINES,
    MESSAGE_LINES,
    WAIT,
    Payload,
    Quotation,
    closes,
    closes_quotation,
    ends_text,
    is_request,
    opens,
    quotations,
)
from triage.engine.pieces import Pieces, goes_on
from triage.engine.tracelines import frame_match
from triage.model import Line

MAX_PAYLOADS = 64
MAX_DOUBTED = 20_000  # lines of one text, where no time ends it


class Records:
    """The open records of one invocation. `flags`: the server's, where their line came in pieces and is whole now."""

    __slots__ = ("_closed", "_framed", "_payloads", "_pieces", "_quotations", "flags")

    def __init__(self) -> None:
        self._payloads: dict[int | None, Payload] = {}  # by pid
        self._closed: dict[int | None, int] = {}  # by pid: the serial at which the last of them seemed to end
        self._quotations: dict[int | None, dict[str, Quotation]] = {}  # by pid and mark: the first that may be open
        self._framed = -1  # serial of the last frame's line while one is
        self._pieces = Pieces()
        self.flags = ""

    @property
    def waiting(self) -> bool:
        return bool(self._payloads) or self._pieces.waiting

    @property
    def due(self) -> int | None:
        """When one of them is given up, in log time."""
        dues = [payload.since + WAIT for payload in self._payloads.values() if payload.since is not None]
        return min([*dues, *([self._pieces.due] if self._pieces.due is not None else ())], default=None)

    def set_back(self, time: int) -> None:
        """The clock was."""
        self._pieces.set_back(time)
        for payload in self._payloads.values():
            payload.since = min(payload.since, time) if payload.since is not None else None

    def piece(self, line: Line, parsed: Parsed, time: int | None, serial: int) -> bool:
        """Whether it is but the rest of a line. It may be the end of what that began."""
        head = self._pieces.head(line, parsed, time)
        if head is None:
            return False
        if not head or goes_on(line, parsed):
            return True
        text = parsed.text
        if head.startswith(FLAGS):
            self.flags = head + text
        if line.pid not in self._payloads:
            self._open(line.pid, head + text, time)
        elif closes(text):
            self._close(line.pid, serial)
        return True

    def text(self, line: Line, parsed: Parsed, time: int | None, serial: int) -> list[Line] | None:
        """None: it is no further line of a request's text. Else what has to be read all the same, and doubted: a text
        is too long to be held, or the next record began before its end."""
        payload = self._payloads.get(line.pid)
        whole = parsed.headed and is_request(parsed.text)
        if payload is not None and not whole:
            passed_on = payload.add(kept(line))
            if closes(parsed.text):
                self._close(line.pid, serial)
            elif payload.count >= MAX_DOUBTED:
                del self._payloads[line.pid]
            return passed_on
        held = payload.rest() if payload is not None else None
        self._payloads.pop(line.pid, None)
        if parsed.headed and (not line.cut or goes_on(line, parsed)):
            self._open(line.pid, parsed.text, time)
        return held

    def ended_again(self, line: Line, parsed: Parsed, serial: int) -> int | None:
        """Since when all is doubtful, where a record ends that seemed to have ended: a request can write an end, and
        what came since is more of it. The real one may stand behind the request's last word."""
        if not self._closed:
            return None
        closed = self._closed.get(line.pid)
        if closed is None or serial - closed > MAX_LINES:
            self._closed.pop(line.pid, None)
            return None
        return closed if ends_text(parsed.text) else None

    def raised(self, pid: int | None, text: str, time: int | None, serial: int) -> None:
        """A line of an exception's message was read, which may quote a request."""
        for found in quotations(text, serial, time):
            if pid not in self._quotations and len(self._quotations) >= MAX_PAYLOADS:
                return
            marks = self._quotations.setdefault(pid, {})
            known = marks.get(found.mark)
            if known is None or known.over(serial, time):
                marks[found.mark] = found
            elif found.open and not known.open:  # it may be the other's end that seems to begin one
                marks[found.mark] = replace(known, lines=serial - known.serial + found.lines, open=True)

    def forget_quotations(self) -> None:
        self._quotations.clear()

    def quoted_since(self, line: Line, parsed: Parsed, time: int | None, serial: int) -> int | None:
        """Since when all is doubtful, where what a message quotes ends only with this line."""
        marks = self._quotations.get(line.pid) if self._quotations else None
        if marks is None:
            return None
        if frame_match(parsed.text) is not None:
            self._framed = serial
            return None
        source = self._framed == serial - 1 and parsed.text[:1] in (" ", "\t")
        since: int | None = None
        for mark, open_ in list(marks.items()):
            if open_.over(serial, time):
                del marks[mark]
            elif not parsed.headed and not source and closes_quotation(parsed.text, open_):
                # A request can write an end: the real one may come soon.
                marks[mark] = replace(open_, lines=serial - open_.serial + MESSAGE_LINES, open=False)
                since = open_.serial if since is None else min(since, open_.serial)
        if not marks:
            del self._quotations[line.pid]
        return since

    def expired(self, time: int) -> list[Line]:
        """Lines of those that no end came for."""
        self._pieces.expire(time)
        late = [pid for pid, each in self._payloads.items() if each.since is not None and time >= each.since + WAIT]
        return [line for pid in late for line in self._payloads.pop(pid).rest()]

    def rest(self) -> list[Line]:
        """The input is over: lines of all that are open."""
        return [line for pid in list(self._payloads) for line in self._payloads.pop(pid).rest()]

    def _open(self, pid: int | None, text: str, time: int | None) -> None:
        if len(self._payloads) < MAX_PAYLOADS and opens(text):
            self._payloads[pid] = Payload(time)

    def _close(self, pid: int | None, serial: int) -> None:
        del self._payloads[pid]
        if len(self._closed) >= MAX_PAYLOADS:
            self._closed.clear()
        self._closed[pid] = serial
