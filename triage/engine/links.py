"""The exceptions of one traceback in the order they were read -> its chain, the deepest cause first.

In come parts with what stood between them, out go links. Called by `engine.tracebacks`, which reads them. It must not
look at lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum, auto
from itertools import pairwise

from triage.engine.kinds import peer_lost
from triage.engine.tracelines import engine_frame, stack_line
from triage.model import Frame, Link

CUT = "CutTraceback"  # triage's word for frames without their exception
# What torch's parent of several processes says of one that a signal ended.
_SIGNALLED = re.compile(r"process \d+ terminated with signal (?P<word>SIG[A-Z]+)")
# Functions that are called to clean up, and those that wrap others.
_CLEANUP = re.compile(
    r"_*(?:close|destroy|clean_?up|shut_?down|tear_?down|release|stop|finalize|disconnect|unregister|terminate|free|"
    r"kill|abort)(?:_\w+)?$"
)
_EXITS = ("__exit__", "__aexit__")
_WRAPPERS = ("wrapper", "wrapped", "inner", "decorate_context", "_fn")


def placed(link: Link) -> Link:
    """An exception without frames, below which a person wrote where it was raised: a place a line, innermost first."""
    message, _, below = link.message.partition("\n")
    if link.frames or ".py:" not in below:
        return link
    frames = [frame for line in below.split("\n") if line.strip() and (frame := stack_line(line)) is not None]
    if len(frames) < sum(1 for line in below.split("\n") if line.strip()):
        return link
    outermost = tuple(reversed(frames))
    return Link(link.exception, message, engine_frame(outermost), outermost)


class Joint(IntEnum):
    CAUSE = auto()  # raise ... from ...
    CONTEXT = auto()  # during handling
    INNER = auto()  # the first member of an exception group
    NEXT = auto()  # a further one


@dataclass(slots=True, eq=False)
class Part:
    """One exception as it is being read."""

    joint: Joint | None = None
    frames: list[Frame] = field(default_factory=list)
    name: str = ""
    message: list[str] = field(default_factory=list)


def chain_of(parts: list[Part], *, headless: bool) -> tuple[Link, ...]:
    """A context joins only where it belongs: a fallback that was tried first is no cause. `headless`: what stood above
    the first frames is missing."""
    links, _ = _joined(parts, headless=headless)
    killed = _SIGNALLED.match(links[0].message[0]) if links and links[0].message else None
    if killed is not None and links[0].name.endswith("ProcessExitedException"):
        links.insert(0, Part(None, [], killed["word"], [killed.string]))  # all that there is to know
    return tuple(_link(part) for part in links)


def handled(parts: list[Part], *, headless: bool) -> Link | None:
    """What was being handled when the root was raised, where it is no part of the chain; a lost peer is not told."""
    _, before = _joined(parts, headless=headless)
    link = _link(before) if before is not None else None
    return link if link is not None and not peer_lost(link.exception, link.message) else None


def _joined(parts: list[Part], *, headless: bool) -> tuple[list[Part], Part | None]:
    links: list[Part] = []
    before: Part | None = None
    for n, part in enumerate(parts):
        if n == 0:
            links = [part]
        elif part.joint is Joint.INNER:
            links.insert(0, part)
        elif part.joint is Joint.NEXT:  # the first to fail is the likeliest root
            links.insert(1, part)
        elif part.joint is Joint.CAUSE or part.name == CUT or (n == 1 and headless) or belongs(links[-1], part):
            links.append(part)
        else:
            links, before = [part], links[0]
    return links, before


def belongs(inner: Part, outer: Part) -> bool:
    """Whether `outer`, raised while `inner` was being handled, only passes it on or follows from it.

    Three marks: it quotes the inner message; it was raised by the very function that had caught the inner one (a
    wrapper), not by something that function called instead (a fallback that failed in its turn); or what was called was
    to clean up.
    """
    quote = (inner.message[0] if inner.message else "").strip()
    if len(quote) >= 8 and quote[:200] in "\n".join(outer.message):
        return True
    if not inner.frames or not outer.frames:
        return True
    caught, raised = _place(inner.frames[0]), _place(outer.frames[-1])
    return caught == raised or cleaned_up(_link(inner), _link(outer))


def cleaned_up(failed: Link, then: Link) -> bool:
    """Whether `then` is but a clean-up behind a failure that did not succeed either: at the end of a `with` block, by
    a function whose name says so, or by its own word. A failure that only tells that somebody else is gone is none."""
    if peer_lost(failed.exception, failed.message):
        return False
    if "due to a previous error" in then.message:
        return True
    within = {_place(frame) for frame in failed.frames}
    for caller, frame in pairwise(then.frames):
        if frame.function in _EXITS and _place(caller) in within:
            return True
    caught = _place(failed.frames[0]) if failed.frames else None
    last = max((n for n, frame in enumerate(then.frames) if _place(frame) == caught), default=len(then.frames))
    called = next((frame.function for frame in then.frames[last + 1 :] if frame.function not in _WRAPPERS), "")
    return _CLEANUP.match(called) is not None


def telling(links: tuple[Link, ...]) -> tuple[Link, ...]:
    """The links of a chain that tell of the failure, not of how the clean-up behind it went."""
    behind = (n for n, (inner, outer) in enumerate(pairwise(links), 1) if cleaned_up(inner, outer))
    return links[: next(behind, len(links))]


def _place(frame: Frame) -> tuple[str, str]:
    return frame.path, frame.function


def _link(part: Part) -> Link:
    message = "\n".join(part.message).strip()
    return Link(part.name, message, engine_frame(part.frames), tuple(part.frames))
