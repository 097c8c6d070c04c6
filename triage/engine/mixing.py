"""Lines of several open tracebacks without their writers' names -> the traceback each belongs to, or a doubt.

In come the lanes that could take a line (engine.lanes), out goes the likeliest. Ranks run the same code, so what stood
behind what in one traceback stands there in the others too; and a frame's source line names the function of the next
frame. Where tracebacks that differ took turns, nobody can prove who wrote which line: they share a `Mix`, which is
settled only where all of them came out alike. It must not open or close lanes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from triage.engine.alike import common_story, retell
from triage.engine.dumps import Dump
from triage.engine.tracebacks import Stage, Traceback
from triage.engine.tracelines import Form, form_of, frame_match

MAX_FOLLOWERS = 20_000
MAX_MIX = 512
MAX_FUNCTIONS = 5_000
MAX_LEARNED = 2_000  # characters of a place or line that is remembered
_CALL = re.compile(r"([A-Za-z_]\w*)\(")
# Calls that say nothing of the function behind them, and functions that are reached through such calls.
_ANY_CALL = frozenset(
    {"func", "fn", "forward_call", "f", "callback", "super", "getattr", "wrapped", "method", "handler"}
)
_ANY_FUNCTION = frozenset(
    {"__init__", "__call__", "__new__", "__getattr__", "__enter__", "__exit__", "<lambda>", "_fn"}
)


class Writer(Protocol):
    """What is seen of a lane here."""

    @property
    def body(self) -> Traceback | Dump | None: ...
    @property
    def fed(self) -> int: ...
    @property
    def place(self) -> str: ...


W = TypeVar("W", bound=Writer)


class Mix:
    """Tracebacks that took turns without names."""

    __slots__ = ("_heard", "bodies", "told")

    def __init__(self) -> None:
        self.bodies: list[Traceback] = []
        self.told = False  # all of them, as one story
        self._heard = 0

    def take(self, bodies: list[Traceback]) -> None:
        """These are of it from now on. Beyond its limit they only share its doubt."""
        for body in bodies:
            body.mix = self
            if not self.full:
                self.bodies.append(body)

    def grown(self, *, much: bool) -> bool:
        """Whether lines have come since this was last so: at all, or so `much` that it is worth to ask again."""
        heard = sum(len(body.heard) for body in self.bodies)
        if self.full or heard <= self._heard + (self._heard // 16 if much else 0):
            return False
        self._heard = heard
        return True

    @property
    def full(self) -> bool:
        return len(self.bodies) >= MAX_MIX

    @property
    def torn(self) -> bool:
        """Whether one broke off: what was to be its end may stand in another, or was written into another's line."""
        return any(body.lost for body in self.bodies)

    @property
    def settled(self) -> bool:
        """Whether all came out alike: then it does not matter who wrote which line."""
        if self.full:
            return False
        stories = [body.story for body in self.bodies]
        whole = max(stories, key=len, default=())
        return all(story == whole[: len(story)] for story in stories)


@dataclass(slots=True)
class Mixing:
    """What was learned of one invocation's tracebacks."""

    _follows: dict[str, set[str]] = field(default_factory=dict)
    _followers: int = 0
    _sources: dict[str, str] = field(default_factory=dict)  # frame -> its source line
    _functions: set[str] = field(default_factory=set)

    def pick(self, lanes: Sequence[W], text: str) -> W | None:
        """The open traceback an untagged line belongs to."""
        if len(lanes) < 2:
            return lanes[0] if lanes else None
        bare = text.rstrip()
        form = form_of(bare)
        able = [lane for lane in lanes if lane.body is not None and lane.body.accepts(form)]
        if len(able) < 2:
            return able[0] if able else None
        best, top = able[0], (-1000, 0)
        waiting: list[Traceback] = []
        scores: dict[tuple[object, ...], tuple[int, bool]] = {}  # ranks in step stand at one place: it is judged once
        for lane in able:
            body = lane.body if isinstance(lane.body, Traceback) and lane.body.waiting else None
            at = (lane.place,) if body is None else (lane.place, body.stage, body.at, body.source)
            judged = scores.get(at)
            if judged is None:
                judged = scores[at] = self._score(lane.place, body, bare, form)
            score, known = judged
            # Of those where the line is known to follow, the one that waited longest, else the one that wrote last.
            fit = (score, -lane.fed if known else lane.fed)
            if fit > top:
                best, top = lane, fit
            if body is not None:
                waiting.append(body)
        if len(waiting) > 1 and best.body in waiting:
            _join(waiting)
        return best

    def took(self, place: str, text: str) -> None:
        """A line was taken there."""
        bare = text.rstrip()
        if self._followers < MAX_FOLLOWERS and len(place) + len(bare) < MAX_LEARNED:
            known = self._follows.setdefault(place, set())
            if bare not in known:
                known.add(bare)
                self._followers += 1

    def learn(self, body: Traceback) -> None:
        """What a traceback that took a line shows: which function it is in, which source line a frame has."""
        if body.stage is Stage.FRAME and len(self._functions) < MAX_FUNCTIONS:
            self._functions.add(body.frames[-1].function)
        elif body.stage is Stage.SOURCE and len(self._sources) < MAX_FOLLOWERS and len(body.source) < MAX_LEARNED:
            self._sources.setdefault(body.at, body.source)

    def _score(self, place: str, body: Traceback | None, bare: str, form: Form) -> tuple[int, bool]:
        """How well a line follows at a place, and whether it is known to. `body`: the traceback that waits there."""
        followers = self._follows.get(place)
        known = followers is not None and bare in followers
        score = 16 if known else 0 if followers is None else -8
        if body is not None:
            score += _RULES[form](self, body, bare)
        elif form is not Form.OTHER:  # the rest of a message seldom looks like a traceback's line
            score -= 24
        return (score, known)

    def settle(self, body: Traceback, *, over: bool = False) -> list[Traceback]:
        """It has raised, or is `over`. If it took turns with others, see whether all tell one story; those that were
        retold."""
        mix = body.mix
        if not isinstance(mix, Mix) or mix.told or (not over and mix.settled):
            return []
        waiting = any(mate.waiting for mate in mix.bodies)
        if waiting and not over and sum(1 for mate in mix.bodies if mate.done) > 1:
            return []
        if not mix.grown(much=waiting):
            return []
        if not waiting and all(mate.texts == body.texts for mate in mix.bodies):  # what was read is the one story
            mix.told = over
            return []
        whole = over or not waiting
        found = common_story(mix.bodies, self._cost, whole=whole)
        if found is None:
            return []
        mates = [mate for mate in mix.bodies if whole or mate.done]
        if not retell(mates, mix.bodies, *found, whole=whole):
            return []
        mix.told = over
        return mates

    def _cost(self, _frame: str, source: str, text: str) -> int:
        """How unlikely it is that `text`, a frame or an exception, follows a frame with this source line."""
        calls = set(_CALL.findall(source))
        match = frame_match(text)
        if match is None:
            if "raise " in source:
                return 0 if _exception_name(text) in source else 2
            return 3 if calls & self._functions else 1
        name = (match["function"] or "").strip()
        if name in calls or (name == "__init__" and any(call[:1].isupper() for call in calls)):
            return 0
        return 3 if calls and not calls & _ANY_CALL and name not in _ANY_FUNCTION else 1

    # ------------------------------------------------------------ what a waiting traceback expects

    def _frame(self, body: Traceback, bare: str) -> int:
        match = frame_match(bare)
        name = (match["function"] or "").strip() if match is not None else ""
        if body.stage is Stage.FRAME:
            return -8 if self._sources and body.at in self._sources else -3 if self._sources else 0
        calls = set(_CALL.findall(body.source))
        if name in calls:
            return 7
        if name == "__init__" and any(call[:1].isupper() for call in calls):
            return 6
        return -2 if calls and not calls & _ANY_CALL and name not in _ANY_FUNCTION else 0

    def _source(self, body: Traceback, bare: str) -> int:
        if body.stage is not Stage.FRAME:
            return -4
        known = self._sources.get(body.at)
        return 0 if known is None else 6 if known == bare else -8

    def _marks(self, body: Traceback, bare: str) -> int:
        if body.stage is not Stage.SOURCE:
            return -5
        source = body.source
        end = len(bare)
        begin = end - len(bare.lstrip())
        if end > len(source) or begin >= len(source):
            return -6
        cut = source[end - 1 : end + 1].isidentifier() and len(source) > end
        return -2 if cut else 1

    def _exception(self, body: Traceback, bare: str) -> int:
        if body.stage is Stage.FRAME and self._sources:
            return -8 if body.at in self._sources else -3
        if "raise " in body.source:
            return 5 if _exception_name(bare) in body.source else -1
        return -4 if set(_CALL.findall(body.source)) & self._functions else 0

    def _other(self, _body: Traceback, _bare: str) -> int:
        return 0


_RULES = {
    Form.FRAME: Mixing._frame,
    Form.SOURCE: Mixing._source,
    Form.MARKS: Mixing._marks,
    Form.EXCEPTION: Mixing._exception,
    Form.OTHER: Mixing._other,
}


def _exception_name(text: str) -> str:
    return re.split(r"[:(]", text, maxsplit=1)[0].rsplit(".", 1)[-1].strip()


def _join(bodies: list[Traceback]) -> None:
    """These took turns: from now on they share one `Mix`."""
    first = bodies[0].mix
    if isinstance(first, Mix) and all(body.mix is first for body in bodies):
        return
    # The largest takes the others in, so that many who come one after the other cost no more than few.
    known = {id(body.mix): body.mix for body in bodies if isinstance(body.mix, Mix)}
    mix = max(known.values(), key=lambda each: len(each.bodies), default=Mix())
    mix.told = False
    for body in bodies:
        if body.mix is not mix:
            mix.take(body.mix.bodies if isinstance(body.mix, Mix) else [body])
