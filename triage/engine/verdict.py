"""A plain log's crash that a further start of the server would prove fatal, while that start is not proved itself.

In come the events of a crash that closed because the log goes on with a server's flags; the fatal one is held until the
new server has taken a further step, has failed, or the log ends. If the old one answers before that there was no start:
a request's text may hold such a line. Called by `engine.runs`. It must not judge a crash by anything else.
"""

from __future__ import annotations

from dataclasses import replace

from triage.model import CrashEvent, Outcome


class Verdict:
    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: CrashEvent | None = None

    @property
    def pending(self) -> bool:
        return self._event is not None

    def hold(self, events: list[CrashEvent]) -> list[CrashEvent]:
        """The events without the one that is held back."""
        if not events or events[-1].crash.outcome is not Outcome.FATAL:
            return events
        self._event = events[-1]
        return events[:-1]

    def settle(self, *, lived: bool = False) -> list[CrashEvent]:
        """What was held back; `lived`: the server that was said to have ended works on."""
        event, self._event = self._event, None
        if event is None:
            return []
        return [replace(event, crash=replace(event.crash, outcome=Outcome.RECOVERED))] if lived else [event]
