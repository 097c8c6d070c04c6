"""The literals a regular expression cannot match without.

`rulefile` derives a rule's anchors with it, so that one automaton over all anchors says which rules are worth a regex;
`rulecheck` builds its hostile texts from them. It reads the pattern's text only and never compiles it. It understands
less than `regex` does, and where it is in doubt it finds nothing: an anchor too few is an error an author sees, an
anchor too many would lose matches.
"""

from __future__ import annotations

SHORTEST = 4  # shorter anchors stand in every log

_CLASSES = frozenset("dDwWsSbBAZzGKRXhHvVmM")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r"}


def needed(pattern: str) -> tuple[str, ...]:
    """Literals of which every match holds at least one; empty where that cannot be said."""
    best: list[str] = []
    for branch in _branches(pattern):
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
            i = _after_class(branch, i)
        elif char == "(":
            end()
            i = _after_group(branch, i)
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


def _branches(pattern: str) -> list[str]:
    """Split at the top-level `|`."""
    branches, start, i = [], 0, 0
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            i += 2
        elif char == "[":
            i = _after_class(pattern, i)
        elif char == "(":
            i = _after_group(pattern, i)
        else:
            if char == "|":
                branches.append(pattern[start:i])
                start = i + 1
            i += 1
    return [*branches, pattern[start:]]


def _after_class(pattern: str, i: int) -> int:
    """The position after the `[...]` that begins at i."""
    i += 1
    if pattern[i : i + 1] == "^":
        i += 1
    if pattern[i : i + 1] == "]":
        i += 1
    while i < len(pattern) and pattern[i] != "]":
        i += 2 if pattern[i] == "\\" else 1
    return i + 1


def _after_group(pattern: str, i: int) -> int:
    """The position after the `(...)` that begins at i."""
    depth = 0
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            i += 2
            continue
        if char == "[":
            i = _after_class(pattern, i)
            continue
        depth += (char == "(") - (char == ")")
        i += 1
        if depth == 0:
            return i
    return len(pattern)
