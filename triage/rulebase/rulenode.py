"""YAML nodes -> plain values, with every error collected and placed.

`ruleread` asks for what a rule may hold; a wrong node gives a problem and a harmless value, so that reading goes on and
all errors of a file are told at once. Knows nodes by their shape (id, tag, value, mark), not PyYAML itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from triage.rulebase.rule import Mark

PLAIN = "tag:yaml.org,2002:"
_DEEPEST = 12
_Enum = TypeVar("_Enum", bound=StrEnum)


class NodeMark(Protocol):
    line: int
    column: int


class Node(Protocol):
    """What a PyYAML node is made of."""

    id: str  # scalar, sequence, mapping
    tag: str
    value: Any
    start_mark: NodeMark


class Reader:
    """Reads the nodes of one file and collects what is wrong with them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[tuple[Mark, str]] = []

    def mark(self, node: Node) -> Mark:
        return Mark(self.path, node.start_mark.line + 1, node.start_mark.column + 1)

    def wrong(self, node: Node, text: str) -> None:
        self.problems.append((self.mark(node), text))

    def sound(self, root: Node) -> bool:
        """Is it plain YAML, fit to be read on: no tags of other types, no aliases, not too deep?"""
        unfit, seen = False, set[int]()
        stack = [(root, 1)]
        while stack:
            node, depth = stack.pop()
            if id(node) in seen:
                self.wrong(node, "YAML anchors and aliases are not taken: write the value out")
                unfit = True
                continue
            seen.add(id(node))
            if depth > _DEEPEST:
                self.wrong(node, f"nested deeper than {_DEEPEST} levels: flatten it")
                unfit = True
                continue
            if not node.tag.startswith(PLAIN) or node.tag.removeprefix(PLAIN) not in _TAGS:
                self.wrong(node, f"the tag {node.tag.removeprefix(PLAIN)} is not taken: write a plain value, quoted")
                unfit = True
                continue
            if node.id == "sequence":
                stack += [(item, depth + 1) for item in node.value]
            elif node.id == "mapping":
                self._keys(node)
                stack += [(item, depth + 1) for pair in node.value for item in pair]
        return not unfit

    def _keys(self, node: Node) -> None:
        first: dict[str, Mark] = {}
        for key, _ in node.value:
            if key.id != "scalar":
                self.wrong(key, "a key has to be a word: write it plainly")
            elif key.value in first:
                self.wrong(key, f"'{key.value}' is given twice (first in line {first[key.value].line}): keep one")
            else:
                first[key.value] = self.mark(key)

    def mapping(
        self, node: Node, allowed: Iterable[str], required: Iterable[str] = (), what: str = "this"
    ) -> dict[str, Node]:
        """Key -> node. Unknown and missing keys are problems."""
        if node.id != "mapping":
            self.wrong(node, f"{what} has to be a mapping (key: value): write it so")
            return {}
        allowed = tuple(allowed)
        pairs = {}
        for key, value in node.value:
            if key.id == "scalar" and key.value in allowed:
                pairs[key.value] = value
            else:
                if key.id != "scalar":
                    continue
                near = difflib.get_close_matches(key.value, allowed, 1)
                mend = f"did you mean '{near[0]}'?" if near else f"{what} takes {', '.join(allowed)}"
                self.wrong(key, f"unknown key '{key.value}': {mend}")
        for name in required:
            if name not in pairs:
                self.wrong(node, f"{what} lacks '{name}': add it")
        return pairs

    def items(self, node: Node | None) -> list[Node]:
        """A list's items; a single value is a list of one; nothing is none."""
        if node is None:
            return []
        if node.id == "sequence":
            if not node.value:
                self.wrong(node, "an empty list says nothing: drop the key or fill it")
            return list(node.value)
        return [node]

    def text(self, node: Node | None, longest: int = 4000) -> str:
        """A non-empty text as it is written; numbers are taken as their digits."""
        if node is None:
            return ""
        kind = node.tag.removeprefix(PLAIN)
        if node.id != "scalar" or kind in ("null", "bool"):
            self.wrong(node, "has to be a text: write one, in quotes if YAML takes it for something else")
            return ""
        value = str(node.value).strip()
        if not value:
            self.wrong(node, "an empty text says nothing: write one")
        elif len(value) > longest:
            self.wrong(node, f"longer than {longest} characters: shorten it")
        return value

    def texts(self, node: Node | None) -> tuple[str, ...]:
        return tuple(self.text(item) for item in self.items(node))

    def number(self, node: Node | None, low: float | None = None, high: float | None = None) -> float | None:
        if node is None:
            return None
        kind = node.tag.removeprefix(PLAIN)
        try:
            value = float(node.value) if node.id == "scalar" and kind in ("int", "float") else None
        except ValueError:  # YAML 1.1's 0x10, 1_000, 1:30
            value = None
        if value is None or value != value:
            self.wrong(node, "has to be a plain number: write one")
            return None
        if (low is not None and value < low) or (high is not None and value > high):
            self.wrong(node, f"has to lie between {low:g} and {high:g}: mend it")
        return value

    def boolean(self, node: Node | None) -> bool | None:
        if node is None:
            return None
        if node.tag != PLAIN + "bool":
            self.wrong(node, "has to be true or false: write one of them")
            return None
        return str(node.value).lower() in ("true", "yes", "on")

    def scalar(self, node: Node | None) -> str | int | float | None:
        """A value of an edit: text, number or null."""
        if node is None:
            return None
        kind = node.tag.removeprefix(PLAIN)
        if node.id != "scalar" or kind == "bool":
            self.wrong(node, "has to be a text, a number or null: put quotes around it")
            return None
        if kind == "null":
            return None
        if kind in ("int", "float"):
            number = self.number(node)
            return None if number is None else int(number) if kind == "int" else number
        return str(node.value)

    def choice(self, node: Node | None, values: type[_Enum]) -> _Enum | None:
        if node is None:
            return None
        name = self.text(node)
        try:
            return values(name)
        except ValueError:
            self.one_of(node, name, [str(v) for v in values])
            return None

    def choices(self, node: Node | None, values: type[_Enum]) -> tuple[_Enum, ...]:
        found = (self.choice(item, values) for item in self.items(node))
        return tuple(value for value in found if value is not None)

    def one_of(self, node: Node, name: str, known: Iterable[str] | Mapping[str, object]) -> bool:
        """Complain unless `name` is known."""
        if name in known:
            return True
        if name:
            self.wrong(node, f"'{name}' is not known here: take one of {', '.join(known)}")
        return False


_TAGS = frozenset({"str", "int", "float", "bool", "null", "map", "seq"})
