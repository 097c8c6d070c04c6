"""Which settings SGLang's own checks read: for each `raise` and `assert` that has a message, the flags and variables of
the conditions above it. `build.py` writes it to checks.json.

In: folders that hold an unpacked `sglang/`, older releases first. Out: place (file:function) -> [words, settings] for
each check there: some words of its message by which it is told from its neighbours, and what its conditions read, the
innermost first. Source is parsed, never run.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_WORDS = 3  # of a message, the rarest
_SETTINGS = 4
_FREQUENT = frozenset({"that", "this", "with", "when", "must", "have", "should", "from", "only", "because"})
_WORD = re.compile(r"[A-Za-z]{4,}")
_VARIABLE = re.compile(r"(?:SGLANG|SGL)_[A-Z0-9_]+")
_ASKED = re.compile(r"(?:.*[._])?(?:server_args|args|cfg|spec|view)|get_\w+\(\)(?:\.\w+)*|resolved_view\(.*\)")
_DECLARING = re.compile(r"srt/(?:server_args\.py|arg_groups/)")
_CLIENTS = re.compile(r"/(?:test|tests|entrypoints/openai|function_call|parser|debug_utils|configs)/")
_NO_SETTING = {"model_path", "tokenizer_path", "host", "port", "device", "node_rank", "dist_init_addr", "base_gpu_id"}


class Check(NamedTuple):
    """One check: its place, the literal text of its message, what its conditions read."""

    place: str
    text: str
    settings: tuple[str, ...]


def document(folders: list[Path], fields: frozenset[str]) -> dict[str, list[list[list[str]]]]:
    """`fields`: the names that `server_args=` has for the flags. Of a check in several releases the last one counts."""
    found = {(one.place, one.text): one for folder in folders for one in _checks(folder, fields - _NO_SETTING)}
    often = Counter(word for one in found.values() for word in set(words_of(one.text)))
    out: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {}
    for one in found.values():
        words = tuple(sorted(sorted(set(words_of(one.text)), key=lambda word: (often[word], word))[:_WORDS]))
        if words:
            out.setdefault(one.place, {})[words] = one.settings
    return {
        place: [[list(words), list(settings)] for words, settings in sorted(checks.items())]
        for place, checks in sorted(out.items())
    }


def words_of(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in _FREQUENT]


def _checks(folder: Path, fields: frozenset[str]) -> Iterator[Check]:
    for path in sorted((folder / "sglang" / "srt").rglob("*.py")):
        if _CLIENTS.search(path.as_posix()):
            continue
        tree = ast.parse(path.read_bytes())
        ours = frozenset({"self"}) if _DECLARING.search(path.as_posix()) else frozenset[str]()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                told = _told(node, fields, ours)
                for text, conditions in raised(node.body, ()):
                    read = dict.fromkeys(
                        name for test in reversed(conditions) for name in _read(test, fields, told, ours)
                    )
                    if text and read:
                        yield Check(f"{path.name}:{node.name}", text, tuple(read)[:_SETTINGS])


def raised(body: list[ast.stmt], above: tuple[ast.expr, ...]) -> Iterator[tuple[str, tuple[ast.expr, ...]]]:
    """The message of each check in these statements, with the conditions above it, the outermost first."""
    for node in body:
        if isinstance(node, ast.Raise):
            if isinstance(node.exc, ast.Call) and node.exc.args:
                yield _literal(node.exc.args[0]), above
        elif isinstance(node, ast.Assert):
            yield _literal(node.msg), (*above, node.test)
        elif isinstance(node, ast.If):
            yield from raised(node.body, (*above, node.test))
            yield from raised(node.orelse, (*above, node.test))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                yield from raised(getattr(node, part, []), above)
            for handler in getattr(node, "handlers", []):
                yield from raised(handler.body, above)


def _literal(node: ast.expr | None) -> str:
    """What of a message stands in the source; values that are put in are spaces."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return " ".join(_literal(part) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{_literal(left)} {_literal(right)}"
        case ast.BinOp(left=left, op=ast.Mod()) | ast.Call(func=ast.Attribute(value=left, attr="format")):
            return re.sub(r"%[-.\d]*\w|\{[^}]*\}", " ", _literal(left))
    return ""


def _told(node: ast.AST, fields: frozenset[str], ours: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """The names of a function that stand for settings: `backend = server_args.attention_backend`."""
    told: dict[str, tuple[str, ...]] = {}
    for one in ast.walk(node):
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            told[one.targets[0].id] = tuple(_read(one.value, fields, {}, ours))
    return told


def _read(
    test: ast.expr, fields: frozenset[str], told: Mapping[str, tuple[str, ...]], ours: frozenset[str]
) -> Iterator[str]:
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute):
            base = ast.unparse(node.value)
            if (node.attr in fields and (base in ours or _ASKED.fullmatch(base))) or _VARIABLE.fullmatch(node.attr):
                yield node.attr
        elif isinstance(node, ast.Name):
            if told.get(node.id):
                yield from told[node.id]
            elif node.id in fields and "_" in node.id:
                yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _VARIABLE.fullmatch(node.value):
            yield node.value
