"""A plain log's crashes that a further start of the server would prove fatal, while that start is not proved itself.

In come the events of a crash that closed because the log goes on with a server's flags; fatal ones are held until the
new server says how far its start has come, or the log ends. If a server answers before that there was no start: a
request's text may hold such lines. (That it is ready proves nothing sooner: its own warm-up is answered before.) Called
by `engine.runs`. It must not judge a crash by anything else.
"""

from __future__ import annotations

from dataclasses import replace

from triage.model import CrashEvent, Outcome

MAX_HELD = 64
PATIENCE = 120_000_000  # so long an idle server may go without a check of its health


class Verdict:
    __slots__ = ("_events", "due")

    def __init__(self) -> None:
        self._events: list[CrashEvent] = []
        self.due: int | None = None  # when the first had time enough to be answered

    @property
    def pending(self) -> bool:
        return bool(self._events)

    def hold(self, events: list[CrashEvent], time: int | None) -> list[CrashEvent]:
        """The events that are not held back. `time`: of the further start."""
        if not events or events[-1].crash.outcome is not Outcome.FATAL or len(self._events) >= MAX_HELD:
            return events
        if not self._events:
            self.due = time + PATIENCE if time is not None else None
        self._events.append(events[-1])
        return events[:-1]

    def settle(self, *, lived: bool = False) -> list[CrashEvent]:
        """What was held back; `lived`: the server that was said to have ended works on."""
        events, self._events, self.due = self._events, [], None
        if not lived:
            return events
        return [replace(event, crash=replace(event.crash, outcome=Outcome.RECOVERED)) for event in events]
