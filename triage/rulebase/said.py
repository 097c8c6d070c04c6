"""Where in SGLang's source a message stands that was pasted without its traceback.

A crash comes in; the same crash goes out, its root given the place at which a release says such words, where one is
known. Called by `rulebook`, so that rules about a place, and what a ladder tells of it, serve a last line alone. It is
a guess: nothing but matching sees it, never the report. Pure, but for catalogue/messages.json.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache

from triage.model import Crash, Frame
from triage.shipped import shipped

_HEAD = 400  # of a message: behind that it quotes other things
_WORD = re.compile(r"[a-z]{4,}")
# Of Python itself and of others, in whose messages SGLang's words may stand by chance.
_OTHERS = frozenset({"OutOfMemoryError", "AcceleratorError", "ImportError", "ModuleNotFoundError", "CutTraceback"})
_FOLDER = "sglang/"


def placed(crash: Crash) -> Crash | None:
    """None where its root has a place already, or its words have none."""
    root = crash.root
    cause = root.cause if root.chain else None
    if cause is None or cause.frames or cause.frame or cause.exception.rsplit(".", 1)[-1] in _OTHERS:
        return None
    place = place_of(cause.message)
    if place is None:
        return None
    frame = Frame(_FOLDER + place[0], place[1], None)
    return replace(crash, root=replace(root, chain=(replace(cause, frame=frame, frames=(frame,)), *root.chain[1:])))


def views(crash: Crash) -> tuple[Crash, ...]:
    """The crash as the rules look at it: with the place of its words, where one is known, and as it is."""
    return tuple(filter(None, (placed(crash), crash)))


def place_of(message: str) -> tuple[str, str] | None:
    """File below `sglang/` and function. Where several groups of words stand in the message, their places have to be in
    one folder."""
    words = set(_WORD.findall(message[:_HEAD].lower()))
    found = {place for word in words for group, place in _by_rarest().get(word, ()) if words.issuperset(group)}
    folders = {path.rsplit("/", 1)[0] for path, _ in found}
    return min(found) if len(folders) == 1 else None


@lru_cache(maxsize=1)
def _by_rarest() -> dict[str, list[tuple[tuple[str, ...], tuple[str, str]]]]:
    """Read when the first message without a place is looked up."""
    known = json.loads((shipped("catalogue") / "messages.json").read_text(encoding="utf-8"))["said"]
    index: dict[str, list[tuple[tuple[str, ...], tuple[str, str]]]] = {}
    for path, functions in known.items():
        for function, groups in functions.items():
            for group in groups:
                rarest, *others = group.split()
                index.setdefault(rarest, []).append((tuple(others), (path, function)))
    return index
