"""Order of SGLang's release numbers: a text comes in, a comparable value or a yes or no goes out.

Just as much of PEP 440 as release numbers in logs and rules need (0.5.12, 0.4.6.post5, 0.5.4rc1), so that one-shot
commands import nothing for it.
"""

from __future__ import annotations

import re

from triage.frozen import frozen

_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)(?:[.-]?(a|b|rc|dev|post)\.?(\d*))?(?:[.+-].*)?")
_STAGE = {"dev": -4, "a": -3, "b": -2, "rc": -1, "post": 1}
_BOUND = re.compile(r"\s*(>=|<=|==|!=|<|>|~=)\s*(\S+)\s*")


def release_key(text: str) -> tuple[tuple[int, ...], int, int] | None:
    """A value that sorts like the releases do; None where the text is no release number."""
    found = _RELEASE.fullmatch(text.strip())
    if found is None:
        return None
    numbers = [int(part) for part in found[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), _STAGE.get(found[2] or "", 0), int(found[3] or 0)


@frozen
class Specifier:
    """`>=0.5.0,<0.5.14`: bounds that all have to hold."""

    bounds: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Specifier | None:
        """None where the text is no such list."""
        bounds = []
        for part in text.split(","):
            found = _BOUND.fullmatch(part)
            if found is None or release_key(found[2]) is None:
                return None
            bounds.append((found[1], found[2]))
        return cls(tuple(bounds))

    @property
    def possible(self) -> bool:
        """Is there a release number within the bounds? A bound is, or what comes right before or behind one."""
        keys = [key for _, bound in self.bounds if (key := release_key(bound))]
        near = [((0,), _STAGE["dev"], 0), *keys]
        for numbers, stage, number in keys:
            near += [(numbers, _STAGE["dev"], 0), (numbers, stage, number + 1), ((*numbers, 0, 1), 0, 0)]
        return any(all(_holds(key, op, bound) for op, bound in self.bounds) for key in near)

    def holds(self, release: str) -> bool:
        """True too for what is no release number: nothing is ruled out by a build nobody can place."""
        key = release_key(release)
        return key is None or all(_holds(key, op, bound) for op, bound in self.bounds)


def covers(ranges: str, release: str) -> bool:
    """Is the release within the ranges of a rule?"""
    specifier = Specifier.parse(ranges)
    return specifier is None or specifier.holds(release)


def _holds(key: tuple[tuple[int, ...], int, int], op: str, bound: str) -> bool:
    other = release_key(bound)
    assert other is not None
    if op == "~=":
        return key >= other and key[0][: len(other[0]) - 1] == other[0][:-1]
    return {
        ">=": key >= other,
        "<=": key <= other,
        "==": key == other,
        "!=": key != other,
        "<": key < other,
        ">": key > other,
    }[op]
