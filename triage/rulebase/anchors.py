"""The literals a regular expression cannot match without.

`rulefile` derives a rule's anchors with it, so that one automaton over all anchors says which rules are worth a regex;
`rulecheck` builds hostile texts from them, `trial` says with its pieces how far a pattern got. It reads a pattern's
text only and never compiles it. It understands less than `regex` does, and where it is in doubt it finds nothing: an
anchor too few is an error an author sees, an anchor too many would lose matches.
"""

from __future__ import annotations

import re

SHORTEST = 4  # shorter anchors stand in every log

_CLASSES = frozenset("dDwWsSbBAZzGKRXhHvVmM")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r"}
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d*,?\d*\})[+?]?")
_LONG_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[pP]\{[^}]*\}|g<\w+>)")


def needed(pattern: str) -> tuple[str, ...]:
    """Literals of which every match holds at least one; empty where that cannot be said."""
    best: list[str] = []
    for branch in branches(pattern):
        runs = literal_runs(branch)
        longest = max(runs, key=len, default="")
        if len(longest) < SHORTEST:
            return ()
        best.append(longest)
    return tuple(dict.fromkeys(best))


def literal_runs(branch: str) -> list[str]:
    """The runs of plain characters at the top level of a pattern without a top-level `|`."""
    if "(?i" in branch or "(?x" in branch or "(?s-" in branch:
        return []  # inline flags change what the characters mean
    runs: list[str] = []
    run: list[str] = []

    def end() -> None:
        if run:
            runs.append("".join(run))
            run.clear()

    i = 0
    while i < len(branch):
        char = branch[i]
        if char == "\\":
            escaped = branch[i + 1 : i + 2]
            if escaped in _CONTROL:
                run.append(_CONTROL[escaped])
            elif escaped in _CLASSES:
                end()
            elif escaped.isalnum() or not escaped:
                return []  # \x41, \u2026, \p{L}, back-references: more characters belong to it
            else:
                run.append(escaped)
            i += 2
        elif char == "[":
            end()
            i = after_class(branch, i)
        elif char == "(":
            end()
            i = after_group(branch, i)
        elif char in "?*{":  # the character before is optional, or may be
            if run:
                run.pop()
            end()
            i = branch.find("}", i) + 1 or len(branch) if char == "{" else i + 1
        elif char in "+.^$":
            end()
            i += 1
        else:
            run.append(char)
            i += 1
    end()
    return runs


def pieces(branch: str) -> list[str]:
    """The atoms of a pattern without a top-level `|`, each with its quantifier: any run of the first is a pattern."""
    found: list[str] = []
    i = 0
    while i < len(branch):
        start, char = i, branch[i]
        i = after_class(branch, i) if char == "[" else after_group(branch, i) if char == "(" else i + 1
        if char == "\\":
            longer = _LONG_ESCAPE.match(branch, start)
            i = longer.end() if longer else start + 2
        quantifier = _QUANTIFIER.match(branch, i)
        i = quantifier.end() if quantifier else i
        found.append(branch[start:i])
    return found


def branches(pattern: str) -> list[str]:
    """Split at the top-level `|`."""
    found, start, i = [], 0, 0
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            i += 2
        elif char == "[":
            i = after_class(pattern, i)
        elif char == "(":
            i = after_group(pattern, i)
        else:
            if char == "|":
                found.append(pattern[start:i])
                start = i + 1
            i += 1
    return [*found, pattern[start:]]


def after_class(pattern: str, i: int) -> int:
    """The position after the `[...]` that begins at i."""
    i += 1
    if pattern[i : i + 1] == "^":
        i += 1
    if pattern[i : i + 1] == "]":
        i += 1
    while i < len(pattern) and pattern[i] != "]":
        i += 2 if pattern[i] == "\\" else 1
    return i + 1


def after_group(pattern: str, i: int) -> int:
    """The position after the `(...)` that begins at i."""
    depth = 0
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            i += 2
            continue
        if char == "[":
            i = after_class(pattern, i)
            continue
        depth += (char == "(") - (char == ")")
        i += 1
        if depth == 0:
            return i
    return len(pattern)
