"""The variables of SGLang that decide whether the code which failed runs at all.

A crash comes in; rungs that turn such a switch the other way go out. Called by `offer`. Two things tell a switch
(catalogue/switches.json): a function that SGLang reaches only where the variable has a value; and two uncommon words in
a row that a function, or a name in the message, has in common with the variable's.
Pure, but for the catalogue. A log names nothing but what the catalogue knows, and nothing that triage never changes.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import pairwise

from triage.model import Crash, Outcome, Phase
from triage.never import NEVER_VARIABLES
from triage.rulebase.evidence import frames, own_words
from triage.rulebase.rule import EditText, Mark, RemedyText
from triage.shipped import shipped

_MOST = 2
_INNERMOST = 6  # frames: what lies further out had many parts to choose from
_HEAD = 600  # of a message: behind that it quotes other things
_NAME = re.compile(r"(?<![\w.-])\w*[A-Za-z]\w*_\w+|(?<=\.)[a-z]\w*_\w+(?!\w)")
_SPEED = 0.4  # share of the tokens/s that is left at least: plain kernels in the place of made ones
_MARK = Mark("catalogue/switches.json", 1, 1)
# Of these no other kernel is the cure.
_NO_CODE = frozenset({"OutOfMemoryError", "MemoryError", "KeyboardInterrupt", "UsageError", "CutTraceback"})
_MEMORY = re.compile(r"(?i:out of memory)|OUT_OF_MEMORY|ALLOC_FAILED")


def switches(crash: Crash) -> tuple[RemedyText, ...]:
    """At most two, those that the innermost frame tells first."""
    found: dict[str, tuple[str, str]] = {}
    if crash.phase != Phase.ARGUMENTS and crash.outcome != Outcome.REQUEST_ERROR:
        for name in _names(crash):
            for variable, value in known()["reached"].get(name, ()):
                found.setdefault(variable, (value, name))
        for name in _names(crash):
            words = name.lower().strip("_").split("_")
            for pair in pairwise(words):
                for variable, value in known()["worded"].get("_".join(pair), ()):
                    found.setdefault(variable, (value, name))
    may = (one for one in found.items() if not any(fnmatchcase(one[0], glob) for glob in NEVER_VARIABLES))
    return tuple(_rung(variable, *told) for variable, told in list(may)[:_MOST])


def _rung(variable: str, value: str, name: str) -> RemedyText:
    other = "0" if value == "1" else "1"
    title = f"Take the other path around {name} ({variable}={other})"
    edit = EditText("set-env", (variable,), _MARK, other)
    cost = "Answers may differ a little: compare some. Usually some speed."
    name_of_rung = f"switch-{variable.lower().replace('_', '-')}"
    return RemedyText(name_of_rung, "env", title, cost, False, _MARK, (edit,), speed=_SPEED)


def _names(crash: Crash) -> list[str]:
    """Of functions and source files in which the root failed, and those that its message names."""
    cause = crash.root.cause if crash.root.chain else None
    if cause is None or cause.exception.rsplit(".", 1)[-1] in _NO_CODE:
        return []
    message = own_words(cause, crash.phase)[:_HEAD]
    if _MEMORY.search(message):
        return []
    inner = list(reversed(frames(cause)))[:_INNERMOST]
    said = _NAME.findall(message)
    return list(dict.fromkeys([*(frame.function.rsplit(".", 1)[-1] for frame in inner), *said]))


@lru_cache(maxsize=1)
def known() -> dict[str, dict[str, list[list[str]]]]:
    """`reached` and `worded`: name -> [variable, value]. Read when the first crash is known."""
    found: dict[str, dict[str, list[list[str]]]] = json.loads(
        (shipped("catalogue") / "switches.json").read_text(encoding="utf-8")
    )
    return found
