"""The flags of one installed server, out of its own --help: a vocabulary as the catalogue is one for its releases.

In: the text that argparse printed (`actions.asking`), wide enough that no line is folded. Called by `request`, where
the edit of a unit is planned. The catalogue is asked only for names that other releases use for the same flag, and for
environment variables, which no --help lists.
"""

from __future__ import annotations

import re

from triage.rulebase.catalogue import Declared, catalogue

_OPTION = re.compile(r"^ {1,8}(-[^\n]*)$", re.M)
_FORM = re.compile(r"(--?[A-Za-z0-9][\w.-]*)((?: \{[^}\n]*\}| \[[^\]\n]*\]| [^\s,\[{-][^\s,]*)*)")


class Parser:
    def __init__(self, text: str, release: str) -> None:
        self.release = release
        self.flags: dict[str, Declared] = {}
        for line in _OPTION.findall(text):
            left = re.split(r" {2,}", line, maxsplit=1)[0]
            forms = _FORM.findall(left)
            takes = next((values for _, values in forms if values), "")
            dest = next((name for name, _ in forms if name.startswith("--")), "")
            choices = re.search(r"\{([^}]*)\}", takes)
            kind = "nothing" if not takes else "list" if "[" in takes or "..." in takes else "value"
            for name, _ in forms:
                if name.startswith("--"):
                    known = tuple(choices[1].split(",")) if choices else ()
                    self.flags[name] = Declared(dest.lstrip("-").replace("-", "_"), kind, known)

    def near(self, release: str | None) -> tuple[str, ...]:
        """Flags it knows itself; only for variables does it matter whom the catalogue would ask."""
        return catalogue().near(release) or (self.release,)

    def knows(self, name: str) -> bool:
        """It has the last word on every flag."""
        return True

    def flag(self, name: str, release: str) -> Declared | None:
        """By its whole name: argparse would take a lone --disable-cuda-graph-padding for --disable-cuda-graph."""
        return self.flags.get(name)

    def successor(self, name: str, release: str) -> tuple[str, str | None] | None:
        """The name that another release uses for it and that this server has."""
        return next((way for way in catalogue().relatives(name) if way[0] in self.flags), None)

    def knows_variable(self, name: str) -> bool:
        return catalogue().knows_variable(name)

    def variable(self, name: str, release: str) -> bool:
        return release not in catalogue().releases or catalogue().variable(name, release)

    def span(self, name: str) -> str:
        return catalogue().span(name)
