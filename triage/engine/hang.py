"""A server that hangs: health check after health check fails, and no step is made in between.

In come the lines of one invocation that may tell it, and what shows that somebody works; out goes a `Sign`, once, when
there were many over minutes. Called by `engine.runs`. One check that fails, or a dozen while steps go on, tells
nothing: a long prefill does that. Nor does one of a server that is starting or was told to end, to pause or to sleep
(a trainer does that), or that takes over new weights, for so long as that may take.
"""

from __future__ import annotations

import re

from triage.engine.kinds import HANG, Kind, Sign
from triage.engine.milestones import Progress
from triage.model import Phase, Role

WORDS = (  # for the gate
    *("Health check failed", '" 503 Service Unavailable'),
    *("_memory_occupation", "e_generation", "Update engine online from ", "Update weights "),
)
ASKED = "ation"  # whatever a trainer asks for has it, and nothing that a client does
ANSWERED = '"GET /health'  # of an answer with 200
MANY = 8
LONG = 180_000_000
MANY_TIMELESS = 12
REPEATED = 600_000_000  # so soon comes the next one, where somebody checks it
EXCHANGE = 900_000_000  # from the begin of new weights: a trainer's broadcast may hang
_REFUSED = re.compile(r'.{0,80}"GET /health(?:_generate)? HTTP/1\.[01]" 503 Service Unavailable$')
_CALL = r'"POST /(?:[\w./-]{{1,80}}/)?(?:{})(?:[/?]\S{{0,400}})? HTTP/'  # below a root path, with a query
_SLEEP = re.compile(_CALL.format("release_memory_occupation|pause_generation"))
_WAKE = re.compile(_CALL.format("resume_memory_occupation|continue_generation"))
_WEIGHTS = re.compile(r"Update (?:engine online from \w+|weights) (?P<what>begin|end)\b")
_WHY = "{} health checks in a row failed, and no step was made in between"


def served(text: str) -> bool:
    """Whether a request's line is of what needs a scheduler that works: a page of numbers the front end gives alone."""
    return '"POST ' in text or ANSWERED in text


class Hang:
    """The health checks that failed since somebody worked."""

    __slots__ = ("_asleep", "_counts", "_last", "_since", "_told", "_until", "expecting")

    def __init__(self) -> None:
        self._counts = [0, 0]  # told by SGLang; refused: some servers write both of one check, some only one
        self._since: int | None = None
        self._last: int | None = None  # when the last one failed
        self._told = False
        self._asleep = False  # somebody wants it to answer nobody
        self._until: int | None = None  # no longer than this
        self.expecting = False  # a step would matter now

    def counting(self, now: int | None) -> bool:
        """Some have failed, and it is not told yet. What nobody asks again for long is no series."""
        if self._since is None or self._told:
            return False
        return now is None or self._last is None or now - self._last < REPEATED

    def work(self, *, step: bool = False) -> None:
        """A step was made, a request answered; a rank wrote something. `step`: no one that sleeps does that."""
        self._counts, self._since, self._told, self.expecting = [0, 0], None, False, False
        self._asleep = self._asleep and not step

    def asked(self, text: str, time: int | None) -> None:
        """An answer with 200 to what a trainer may have asked for, or a rank's word of its weights."""
        weights = _WEIGHTS.match(text)
        if _SLEEP.search(text) is not None:
            self.work()
            self._asleep, self._until = True, None
        elif weights is not None and weights["what"] == "begin":
            self.work()
            if not self._asleep or self._until is not None:  # one that was told to sleep does so until it is woken
                self._until = time + EXCHANGE if time is not None else None
            self._asleep = True
        elif weights is not None or _WAKE.search(text) is not None:
            self.work(step=True)

    def note(self, text: str, time: int | None, progress: Progress) -> Sign | None:
        """A line that may tell of a failed check."""
        said = text.startswith(WORDS[0])
        if self._told or not (said or (WORDS[1] in text and _REFUSED.match(text))):
            return None
        if progress.phase is not Phase.SERVING:  # one that is starting answers nobody yet
            return None
        self.expecting = True
        if self._asleep and (self._until is None or time is None or time < self._until):
            return None
        self._asleep = False
        self._counts[not said] += 1
        self._since = self._since if self._since is not None else time
        self._last = time
        count = max(self._counts)
        if count < MANY or (
            count < MANY_TIMELESS if time is None or self._since is None else time - self._since < LONG
        ):
            return None
        self._told = True
        message = text.partition(" tic start time")[0] if said else "/health is answered with 503 Service Unavailable"
        return Sign(HANG, Kind.COLLECTIVE, Role.ROOT, "NoAnswer", message, _WHY.format(count))
