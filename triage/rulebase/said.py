"""Where in SGLang's source a message stands that was pasted without its traceback.

A crash comes in; the same crash goes out, its root given the places that somebody wrote beside the message
(`deepseek_v4_backend.py:432 AssertionError: ...`), or else the place at which a release says such words, where one is
known. Called by `rulebook`, so that rules about a place, and what a ladder tells of it, serve a last line alone. It is
a guess: nothing but matching sees it, never the report. Pure, but for catalogue/messages.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from triage.model import Crash, Failure, Frame
from triage.shipped import shipped

_HEAD = 400  # of a message: behind that it quotes other things
_WORD = re.compile(r"[a-z]{4,}")
# Of Python itself and of others, in whose messages SGLang's words may stand by chance.
_OTHERS = frozenset({"OutOfMemoryError", "AcceleratorError", "ImportError", "ModuleNotFoundError", "CutTraceback"})
_FOLDER = "sglang/"
_LINES = 24  # behind a message, of which each may be a place
_FILE = r"(?P<path>/?(?:[\w.-]{1,60}/){0,12}\w{1,80}\.py)"
# mla.py: ..., mla.py:432: ..., mla.py:432:prepare: ...; before an exception without the colon too
_BEFORE = re.compile(rf"\s{{0,20}}{_FILE}(?::\d{{1,6}})?(?::(?P<function>[A-Za-z_]\w{{0,80}}))?(?P<end>:? )")
# lake/forward_mla.py:432   prepare; at forward_mla.py prepare: ; File ".../forward_mla.py", line ..., in prepare
_BEHIND = re.compile(
    rf"\s{{1,40}}(?:File \"|at |in )?{_FILE}\"?(?::\d{{1,6}}|,? line [\d.]{{1,6}})?,?"
    r"(?:\s{1,40}(?:in )?(?P<function>[A-Za-z_]\w{0,80}):?)?\s{0,40}$"
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,80}(?::|$)")
# What Python says, whose class somebody left out.
_PYTHONS = tuple(
    (re.compile(said), name)
    for said, name in (
        (r"object has no attribute '", "AttributeError"),
        (
            r"cannot unpack non-iterable|object is not (?:callable|iterable|subscriptable)|unsupported operand type|"
            r"got an unexpected keyword argument|missing \d{1,3} required positional",
            "TypeError",
        ),
        (r"(?:list|tuple|string) index out of range", "IndexError"),
        (r"(?:not enough|too many) values to unpack", "ValueError"),
        (r"referenced before assignment|not associated with a value", "UnboundLocalError"),
    )
)


def placed(crash: Crash) -> Crash | None:
    """None where its root has a place already, or its words have none."""
    root = crash.root
    cause = root.cause if root.chain else None
    if cause is None or cause.frames or cause.frame or cause.exception.rsplit(".", 1)[-1] in _OTHERS:
        return None
    frames = tuple(written(root))
    if not frames:
        place = place_of(cause.message)
        if place is None:
            return None
        frames = (Frame(_FOLDER + place[0], place[1], None),)
    found = replace(cause, exception=_class(cause.exception, cause.message), frame=frames[-1], frames=frames)
    return replace(crash, root=replace(root, chain=(found, *root.chain[1:])))


def written(root: Failure) -> Iterator[Frame]:
    """The places that stand before the root's message and in the lines behind it, in the order of the log."""
    cause = root.cause
    first, *others = cause.message.split("\n", _LINES + 1)
    line = next((line.text for line in root.lines if first and first in line.text), "")
    for text, exception in ((line, True), (first, False)):
        found = _BEFORE.match(text[:_HEAD])
        if found and (found["end"] == ": " or (exception and _EXCEPTION.match(text, found.end()))):
            yield _frame(found["path"], found["function"])
            break
    for text in others[:_LINES]:
        if found := _BEHIND.match(text[:_HEAD]):
            yield _frame(found["path"], found["function"])


def _frame(path: str, function: str | None) -> Frame:
    """Below `sglang/` where the name is that of one file there, or its folder is one of those below `sglang/srt/`."""
    inside = path.removeprefix(".../").removeprefix("./")
    of_this_name = _files().get(inside.rsplit("/", 1)[-1], ())
    fitting = [one for one in of_this_name if f"/{one}".endswith(f"/{inside}")]
    if len(fitting) == 1:
        inside = _FOLDER + fitting[0]
    elif inside.rpartition("/")[0] in _folders():
        inside = f"{_FOLDER}srt/{inside}"
    return Frame(inside, function or "", None)


def _class(exception: str, message: str) -> str:
    """Of a message whose class nobody wrote: the one that Python says such words with."""
    if exception != "ErrorLine":
        return exception
    head = message.split("\n", 1)[0][:_HEAD]
    return next((name for words, name in _PYTHONS if words.search(head)), exception)


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
def _known() -> dict[str, dict[str, list[str]]]:
    """File below `sglang/`, function -> groups of words. Read when the first message without a place is looked up."""
    found: dict[str, dict[str, list[str]]] = json.loads(
        (shipped("catalogue") / "messages.json").read_text(encoding="utf-8")
    )["said"]
    return found


@lru_cache(maxsize=1)
def _files() -> dict[str, list[str]]:
    """Name -> files of that name below `sglang/`."""
    index: dict[str, list[str]] = {}
    for path in _known():
        index.setdefault(path.rsplit("/", 1)[-1], []).append(path)
    return index


@lru_cache(maxsize=1)
def _folders() -> frozenset[str]:
    """Those below `sglang/srt/`, but for a name that is anybody's."""
    folders = (path.rpartition("/")[0].removeprefix("srt/") for path in _known() if path.startswith("srt/"))
    return frozenset(folders) - {"srt", "utils"}


@lru_cache(maxsize=1)
def _by_rarest() -> dict[str, list[tuple[tuple[str, ...], tuple[str, str]]]]:
    index: dict[str, list[tuple[tuple[str, ...], tuple[str, str]]]] = {}
    for path, functions in _known().items():
        for function, groups in functions.items():
            for group in groups:
                rarest, *others = group.split()
                index.setdefault(rarest, []).append((tuple(others), (path, function)))
    return index
