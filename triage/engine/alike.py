"""Tracebacks that took turns without names: did all of them print the same, and what?

In come the tracebacks of one mix as they were read, line by line to whom it seemed best; out goes the one story that
explains every line in its order, or None. Called by `engine.mixing`. It must not guess: a story that leaves one line
unexplained is none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise

from triage.engine.tracebacks import CAUSE, CONTEXT, Traceback
from triage.engine.tracelines import HEADER, frame_match
from triage.frozen import frozen
from triage.model import Line

Step = tuple[
    str, str
]  # 'frame', 'source', 'marks', 'joint', 'header' or 'text' (an exception, its message), and its line

MAX_STEPS = 8_000
MAX_EARLY = 600  # where not all have come to their end: much can be guessed then, and little be known
WIDTH = 64  # stories that are kept in view
MARGIN = 5  # how much more unlikely than the likeliest: two unlikely steps, and some

_BEHIND = {"frame": "source", "source": "marks"}
_NEVER = 1 << 60

Cost = Callable[[str, str, str], int]  # frame, its source line, the next frame or exception -> how unlikely


class _Story:
    """Steps in their order. There is one object for each story, so that it is compared and hashed at no cost; it knows
    where each step stands in it."""

    __slots__ = ("_longer", "places", "steps")

    def __init__(self, before: _Story | None = None, step: Step = ("", "")) -> None:
        self.steps: tuple[Step, ...] = ()
        self.places: dict[Step, tuple[int, ...]] = {}
        if before is not None:
            self.steps = (*before.steps, step)
            self.places = before.places.copy()
            self.places[step] = (*self.places.get(step, ()), len(before.steps))
        self._longer: dict[Step, _Story] = {}

    def then(self, step: Step) -> _Story:
        longer = self._longer.get(step)
        if longer is None:
            longer = self._longer[step] = _Story(self, step)
        return longer


@frozen
class _Guess:
    """A story so far, and how many tracebacks stand at each of its steps."""

    story: _Story
    here: tuple[int, ...]
    cost: int


def common_story(
    bodies: list[Traceback], cost: Cost, *, whole: bool
) -> tuple[tuple[Step, ...], Mapping[str, str]] | None:
    """The story all tell: the `whole` one, or as far as the first has told it to its end; and what stands behind its
    lines: source lines, marks."""
    kind = cache(_kind)  # the same lines come once from each
    heard = _heard(bodies, kind)
    steps = [item for item in heard if item[1][0] not in ("source", "marks")]
    copies = Counter(step for _, step in (heard if whole else steps))
    if len(steps) > (MAX_STEPS if whole else MAX_EARLY) or (whole and any(n % len(bodies) for n in copies.values())):
        return None
    most = {step: count // len(bodies) if whole else MAX_STEPS for step, count in copies.items()}
    sources = _behind(bodies, kind)
    likely = cache(lambda frame, text: cost(frame, sources.get(frame, ""), text))
    starts = sorted(body.start for body in bodies)
    story = _straight(steps, starts, most if whole else None, likely)
    if story is not None:
        return story.steps, sources
    road = _Road(steps, most)
    guesses = [_Guess(_Story(), (0,), 0)]
    begun = 0
    for serial, step in steps:
        new = bisect_right(starts, serial) - begun
        begun += new
        following: dict[tuple[_Story, tuple[int, ...]], _Guess] = {}
        for guess in guesses:
            here = (guess.here[0] + new, *guess.here[1:]) if new else guess.here
            for child in _children(guess.story, here, guess.cost, step, road, likely):
                key = (child.story, child.here)
                if key not in following or child.cost < following[key].cost:
                    following[key] = child
        limit = min((guess.cost for guess in following.values()), default=0) + MARGIN
        guesses = sorted((g for g in following.values() if g.cost <= limit), key=lambda guess: guess.cost)[:WIDTH]
        if not guesses:
            return None
    least = len(bodies) if whole else 1  # so many have to stand at the story's end
    told = [guess for guess in guesses if guess.story.steps and guess.here[-1] >= least]
    best = told[0] if told else None
    if best is None or any(guess.cost == best.cost and guess.story is not best.story for guess in told[1:]):
        return None
    return best.story.steps, sources


def _straight(
    steps: list[tuple[int, Step]], starts: list[int], most: Mapping[Step, int] | None, likely: Callable[[str, str], int]
) -> _Story | None:
    """The story in which no step comes twice, or None where it leaves a line unexplained.

    Whoever writes a step first has written all before it, so the steps stand in the order in which they were first
    seen, and nobody may have passed one more often than the one before. Where each comes once (`most`), there is no
    other story; where not all have come to their end, any other has more steps.
    """
    if most is not None and any(n != 1 for n in most.values()):
        return None
    story, passed = _Story(), list[int]()
    for serial, step in steps:
        at = story.places[step][0] if step in story.places else len(passed)
        if at == len(passed):
            if _further(story, step, likely) is None:
                return None
            story = story.then(step)
            passed.append(0)
        passed[at] += 1
        if passed[at] > (passed[at - 1] if at else bisect_right(starts, serial)):
            return None
    return story if story.steps and (most is None or passed[-1] == len(starts)) else None


def _heard(bodies: list[Traceback], kind: Callable[[str], str]) -> list[tuple[int, Step]]:
    """All their lines in the order in which they were written, without the headers that began them."""
    lines = sorted(
        (serial, text) for body in bodies for serial, text, _ in body.heard if serial != body.start or not _heads(text)
    )
    return [(serial, (kind(text), text)) for serial, text in lines]


def _heads(text: str) -> bool:
    return text.rstrip().endswith(HEADER)


def _kind(text: str) -> str:
    if frame_match(text) is not None:
        return "frame"
    if text[:1] in (" ", "\t", "^", "~"):
        return "source" if text.strip(" \t^~") else "marks"
    if _heads(text):
        return "header"
    return "joint" if CAUSE in text or CONTEXT in text else "text"


class _Road:
    """What is known before the search: how often a step comes in the story, and when those that come once were written.

    Where a step has several places in the story, the traceback is moved that is needed first: so many must have passed
    the place before the next line that comes only once can be written by the next of them.
    """

    def __init__(self, steps: list[tuple[int, Step]], most: dict[Step, int]) -> None:
        self.most = most
        self._written: dict[Step, list[int]] = {}
        for serial, step in steps:
            if most[step] == 1:
                self._written.setdefault(step, []).append(serial)
        self._next = dict(pairwise(self._written))  # once in each story, so the first of all wrote them in its order

    def deadline(self, story: tuple[Step, ...], here: tuple[int, ...], at: int) -> int:
        passed = sum(here[at + 1 :])
        for step in story[at + 1 :]:
            if step in self._written:
                return _nth(self._written[step], passed)
        last = next((step for step in reversed(story) if step in self._written), None)
        coming = self._next.get(last) if last is not None else None
        return _nth(self._written[coming], passed) if coming is not None else _NEVER


def _nth(serials: list[int], n: int) -> int:
    return serials[n] if n < len(serials) else _NEVER


def _children(
    story: _Story, here: tuple[int, ...], spent: int, step: Step, road: _Road, likely: Callable[[str, str], int]
) -> list[_Guess]:
    """Who may have written this step: one that stands before the same step of the story, or the first of all."""
    found = []
    known = story.places.get(step, ())
    places = [at for at in known if here[at]]
    if places:
        at = places[0] if len(places) == 1 else min(places, key=lambda at: road.deadline(story.steps, here, at))
        found.append(_Guess(story, _moved(here, at), spent))
    if here[-1] and len(known) < road.most[step]:
        more = _further(story, step, likely)
        if more is not None:
            longer = story.then(step)
            found.append(_Guess(longer, _moved((*here, 0), len(story.steps)), spent + more))
    return found


def _moved(here: tuple[int, ...], at: int) -> tuple[int, ...]:
    return (*here[:at], here[at] - 1, here[at + 1] + 1, *here[at + 2 :])


def _further(story: _Story, step: Step, likely: Callable[[str, str], int]) -> int | None:
    """What it costs to believe that `step` follows the last one; None: it cannot."""
    kind, text = step
    last = story.steps[-1] if story.steps else None
    before = last[0] if last is not None else "header"
    if last is None or before == "header":
        return 0 if kind == "frame" else None
    if before == "joint":
        return 0 if kind == "header" else None
    if before == "text":
        if kind not in ("text", "joint"):
            return None
        known = story.places[last][0] + 1  # a message that comes again goes on as it did
        return 0 if known == len(story.steps) or story.steps[known] == step else 2
    return likely(last[1], text) if kind in ("frame", "text") else None


def _behind(bodies: list[Traceback], kind: Callable[[str], str]) -> dict[str, str]:
    """For each frame its source line, for each source line its marks.

    Where all print the same, a line that is seen for the first time stands behind the one that was new before it. A
    line that had been seen in another place is found by what stood behind most often.
    """
    behind: dict[str, str] = {}
    new: set[str] = set()
    last = {"frame": "", "source": ""}
    for _, (form, text) in _heard(bodies, kind):
        if text in new:
            continue
        new.add(text)
        before = last["frame"] if form == "source" else last["source"] if form == "marks" else ""
        if before:
            behind.setdefault(before, text)
        last = {"frame": text, "source": ""} if form == "frame" else {**last, form: text}
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for body in bodies:
        for (_, (form, text)), (_, (next_form, next_text)) in pairwise([*_heard([body], kind), (0, ("", ""))]):
            if _BEHIND.get(form) is not None:
                votes[text][next_text if next_form == _BEHIND[form] else ""] += 1
    return {text: counts.most_common(1)[0][0] for text, counts in votes.items()} | behind


def retell(
    mates: list[Traceback], bodies: list[Traceback], story: tuple[Step, ...], behind: Mapping[str, str], *, whole: bool
) -> bool:
    """Some of them get the story as their own, with what stands behind; False where it comes to no exception."""
    pool: dict[str, list[Line]] = defaultdict(list)
    for body in bodies:
        for _, text, line in body.heard:
            pool[text].append(line)
    for body in mates:
        told = Traceback(body.lead)
        told.header(body.lines[0], body.texts[0])
        for kind, text in story:
            line = _taken(pool[text]) or body.lines[0]  # its own line was one too many to be kept
            if kind == "header":
                told.header(line, text)
            else:
                told.feed(line, text, headed=False)
            for _ in range(2):  # the source line, its marks
                text = behind.get(text, "")
                if text:
                    told.feed(_taken(pool[text]) or line, text, headed=False)
        if not told.done:
            return False
        body.become(told, whole=whole)
    return True


def _taken(lines: list[Line]) -> Line | None:
    """The next of equal lines, the last of them as often as it is asked for."""
    return lines.pop(0) if len(lines) > 1 else lines[0] if lines else None
