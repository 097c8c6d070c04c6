"""Tracebacks that took turns without names: did all of them print the same, and what?

In come the tracebacks of one mix as they were read, line by line to whom it seemed best; out goes the one story that
explains every line in its order, or None. Called by `engine.mixing`. It must not guess: a story that leaves one line
unexplained is none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from triage.engine.tracebacks import HEADER_TEXT, Step, Traceback
from triage.model import Line

MAX_STEPS = 8_000
WIDTH = 48  # stories that are kept in view

_BEHIND = {"frame": "source", "source": "marks"}

Cost = Callable[[str, str, str], int]  # frame, its source line, the next frame or exception -> how unlikely


@dataclass(slots=True, frozen=True)
class _Guess:
    """A story so far, and how many tracebacks stand at each of its steps."""

    story: tuple[Step, ...]
    here: tuple[int, ...]
    cost: int


def common_story(bodies: list[Traceback], cost: Cost) -> tuple[Step, ...] | None:
    """The story all tell, as far as the first has told it to its end."""
    steps = sorted(item for body in bodies for item in body.steps if item[1][0] not in ("source", "marks"))
    starts = sorted(body.start for body in bodies)
    if len(steps) > MAX_STEPS:
        return None
    whole = not any(body.waiting for body in bodies)
    copies = Counter(step for _, step in steps)
    if whole and any(count % len(bodies) for count in copies.values()):
        return None
    most = {step: count // len(bodies) if whole else MAX_STEPS for step, count in copies.items()}
    sources = _behind(bodies)
    guesses = [_Guess((), (0,), 0)]
    begun = 0
    for serial, step in steps:
        new = sum(1 for start in starts if start <= serial) - begun
        begun += new
        following: dict[tuple[tuple[Step, ...], tuple[int, ...]], _Guess] = {}
        for guess in guesses:
            here = (guess.here[0] + new, *guess.here[1:])
            longer = cost if guess.story.count(step) < most[step] else None
            for child in _children(guess.story, here, guess.cost, step, sources, longer):
                key = (child.story, child.here)
                if key not in following or child.cost < following[key].cost:
                    following[key] = child
        guesses = sorted(following.values(), key=lambda guess: guess.cost)[:WIDTH]
        if not guesses:
            return None
    least = len(bodies) if whole else 1  # so many have to stand at the story's end
    told = [guess for guess in guesses if guess.story and guess.here[-1] >= least]
    best = told[0] if told else None
    if best is None or any(guess.cost == best.cost and guess.story != best.story for guess in told[1:]):
        return None
    return best.story


def _children(
    story: tuple[Step, ...], here: tuple[int, ...], spent: int, step: Step, sources: dict[str, str], cost: Cost | None
) -> list[_Guess]:
    """Who may have written this step: one that stands before the same step of the story, or the first of all."""
    found = []
    for at, known in enumerate(story):
        if here[at] and known == step:
            found.append(_Guess(story, _moved(here, at), spent))
    if here[-1] and cost is not None:
        more = _further(story[-1] if story else None, step, sources, cost)
        if more is not None:
            found.append(_Guess((*story, step), _moved((*here, 0), len(story)), spent + more))
    return found


def _moved(here: tuple[int, ...], at: int) -> tuple[int, ...]:
    return (*here[:at], here[at] - 1, here[at + 1] + 1, *here[at + 2 :])


def _further(last: Step | None, step: Step, sources: dict[str, str], cost: Cost) -> int | None:
    """What it costs to believe that `step` follows `last`; None: it cannot."""
    kind, text = step
    if last is None or last[0] == "joint":
        return 0 if kind == "frame" else None
    if last[0] == "exception":
        return 1 if kind == "joint" else None
    return cost(last[1], sources.get(last[1], ""), text) if kind != "joint" else None


def _behind(bodies: list[Traceback]) -> dict[str, str]:
    """For each frame its source line, for each source line its marks.

    Where all print the same, a line that is seen for the first time stands behind the one that was new before it. A
    line that had been seen in another place is found by what stood behind most often.
    """
    behind: dict[str, str] = {}
    new: set[str] = set()
    last = {"frame": "", "source": ""}
    for _, (kind, text) in sorted(item for body in bodies for item in body.steps):
        if text in new:
            continue
        new.add(text)
        before = last["frame"] if kind == "source" else last["source"] if kind == "marks" else ""
        if before:
            behind.setdefault(before, text)
        last = {"frame": text, "source": ""} if kind == "frame" else {**last, kind: text}
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for body in bodies:
        for (_, (kind, text)), (_, (next_kind, next_text)) in pairwise([*body.steps, (0, ("", ""))]):
            if _BEHIND.get(kind) is not None:
                votes[text][next_text if next_kind == _BEHIND[kind] else ""] += 1
    return {text: counts.most_common(1)[0][0] for text, counts in votes.items()} | behind


def retell(bodies: list[Traceback], story: tuple[Step, ...]) -> None:
    """Those that have raised get the story as their own, with source lines and marks."""
    behind = _behind(bodies)
    pool: dict[str, list[Line]] = defaultdict(list)
    for body in bodies:
        for line, text in zip(body.lines, body.texts, strict=True):
            pool[text].append(line)
    for body in bodies:
        if not body.done:
            continue
        told = Traceback(body.lead)
        told.header(body.lines[0], body.texts[0])
        for kind, text in story:
            lines = pool[text] or [body.lines[0]]  # its own line was one too many to be kept
            told.feed(lines.pop(0) if len(lines) > 1 else lines[0], text, headed=False)
            if kind == "joint":
                told.header(body.lines[0], HEADER_TEXT)
            for _ in range(2):  # the source line, its marks
                text = behind.get(text, "")
                if text:
                    told.feed((pool[text] or [body.lines[0]])[0], text, headed=False)
        body.become(told)
