"""In which file SGLang says what: for each `raise` and `assert` that has a message, some words of it and its place.
`build.py` writes it to messages.json.

In: folders that hold an unpacked `sglang/`, older releases first. Out: file -> function -> groups of words, each group
the three rarest of one message: a last line that was pasted without its traceback is found by them. Source is parsed,
never run, and no message is kept.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import conditions

WORDS = 3  # of a message: fewer would stand in anybody's
_RARE = (20, 120)  # in so many messages at most stand the rarest of them, and the next one
_CLIENTS = ("/test/", "/tests/", "/entrypoints/openai/", "/function_call/", "/parser/", "/debug_utils/")
_STAND_INS = "/hardware_backend/"  # for other machines: a wrong guess would be very wrong


def document(folders: list[Path]) -> dict[str, dict[str, list[str]]]:
    """Of a message that moved, the place in the last release counts; one that stands in several files has no place,
    unless they lie in one folder."""
    places: dict[str, tuple[str, str]] = {}
    for folder in folders:
        here: dict[str, set[tuple[str, str]]] = {}
        for path, function, text in _messages(folder):
            here.setdefault(text, set()).add((path, function))
        for text, found in here.items():
            if len({path.rsplit("/", 1)[0] for path, _ in found}) == 1:
                places[text] = min(found)
            else:
                places.pop(text, None)
    often = Counter(word for text in places for word in set(conditions.words_of(text)))
    out: dict[str, dict[str, list[str]]] = {}
    for text, (path, function) in sorted(places.items(), key=lambda one: one[1]):
        rare = sorted(set(conditions.words_of(text)), key=lambda word: (often[word], word))[:WORDS]
        known = out.setdefault(path, {}).setdefault(function, [])
        told = all(often[word] <= most for word, most in zip(rare, _RARE, strict=False))
        if len(rare) == WORDS and told and (group := " ".join(rare)) not in known:
            known.append(group)
    kept = {path: {name: sorted(said) for name, said in found.items() if said} for path, found in out.items()}
    return {path: found for path, found in kept.items() if found}


def _messages(folder: Path) -> Iterator[tuple[str, str, str]]:
    for path in sorted((folder / "sglang" / "srt").rglob("*.py")):
        inside = path.relative_to(folder / "sglang").as_posix()
        if any(part in "/" + inside for part in (*_CLIENTS, _STAND_INS)):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for text, _ in conditions.raised(node.body, ()):
                    if text:
                        yield inside, node.name, text
