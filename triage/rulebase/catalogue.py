"""SGLang's flags and environment variables by release: what a remedy may use, and how that release spells it.

Read from catalogue/flags.json, which catalogue/build.py writes out of some fifty releases. Called by `spelling` and
`offer`, where the log tells the release, and by `rulecheck`. For a release between two of its own those two speak, as
far as they agree. Of a newer, a nightly or an unknown build it says nothing (such a server has to be asked itself).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from math import inf
from typing import Any, Protocol

from triage.frozen import frozen
from triage.rulebase.releases import release_key
from triage.shipped import shipped

_RELEASE = re.compile(r"v?\d+(\.\d+)+(\.?post\d+)?")  # no nightly, no local build
_SUCCESSOR = re.compile(r"(--[a-z0-9-]+)(?:=([a-z0-9_]+))?")
_WHOLE = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)")
# Numbers of things of which a server needs one at least; 0 ends it later, with an error that does not say so.
_AT_LEAST_ONE = frozenset(
    [
        "tp_size",
        "tensor_parallel_size",
        "dp_size",
        "data_parallel_size",
        "pp_size",
        "pipeline_parallel_size",
        "ep_size",
        "expert_parallel_size",
        "nnodes",
        "page_size",
        "context_length",
        "max_running_requests",
        "max_total_tokens",
        "max_prefill_tokens",
        "max_micro_batch_size",
        "pp_max_micro_batch_size",
        "cuda_graph_max_bs",
        "cuda_graph_max_bs_decode",
        "cuda_graph_bs",
        "cuda_graph_bs_decode",
        "torch_compile_max_bs",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "stream_interval",
        "num_continuous_decode_steps",
        "tokenizer_worker_num",
        "max_loras_per_batch",
        "max_lora_rank",
    ]
)
_SWITCH = {"enable", "disable", "no"}  # words that turn a flag's meaning round


@frozen
class Declared:
    """A flag as one release declares it."""

    dest: str
    takes: str  # nothing, value, list
    choices: tuple[str, ...] = ()  # empty: any value, or none that could be learned
    deprecated: bool = False
    use: str | None = None  # what the release says to write instead
    number: str = ""  # int, float; empty: a text, or the one who was asked does not tell
    least: float = -inf
    most: float = inf

    def refusal(self, value: str | float | None) -> str | None:
        """Why the flag cannot be given this value (None: bare): 'takes a whole number from 0 up, not moon'."""
        if self.takes == "nothing":
            return None if value is None else "takes no value"
        if value is None:
            return "needs a value" if self.takes == "value" else None
        words = str(value).split() if self.takes == "list" else [str(value)]
        if self.choices:
            return None if set(words) <= set(self.choices) else f"takes no {value}"
        return None if all(map(self._counts, words)) else f"takes {self._range()}, not {value}"

    def _counts(self, word: str) -> bool:
        if not self.number:
            return True
        if not (_WHOLE if self.number == "int" else _NUMBER).fullmatch(word):
            return False
        return self.least <= float(word) <= self.most

    def _range(self) -> str:
        kind = "a whole number" if self.number == "int" else "a number"
        return f"{kind} from {self.least:g} {'up' if self.most == inf else f'to {self.most:g}'}"


class Vocabulary(Protocol):
    """Who says which flags there are: the catalogue for its releases, an installed server for itself."""

    def near(self, release: str | None) -> tuple[str, ...]: ...
    def knows(self, name: str) -> bool: ...
    def flag(self, name: str, release: str) -> Declared | None: ...
    def successor(self, name: str, release: str) -> tuple[str, str | None] | None: ...
    def knows_variable(self, name: str) -> bool: ...
    def variable(self, name: str, release: str) -> bool: ...
    def span(self, name: str) -> str: ...


class Catalogue:
    """Holds the document as it was read; its answers are worked out when asked."""

    __slots__ = ("_fields", "_flags", "_keys", "_shapes", "_variables", "releases")

    def __init__(self, document: dict[str, Any]) -> None:
        self.releases: tuple[str, ...] = tuple(document["releases"])
        self._keys = [key for release in self.releases if (key := release_key(release))]
        self._shapes: list[dict[str, Any]] = document["shapes"]
        self._flags: dict[str, list[list[int]]] = document["flags"]
        self._variables: dict[str, list[list[int]]] = document["variables"]
        self._fields: frozenset[str] | None = None

    def near(self, release: str | None) -> tuple[str, ...]:
        """Who speaks for the release: itself, or the two it lies between; nobody for a newer one or a nightly."""
        if release is None or not _RELEASE.fullmatch(release.strip()):
            return ()
        key = release_key(release)
        assert key is not None
        at = bisect_left(self._keys, key)
        if self._keys[at : at + 1] == [key]:
            return (self.releases[at],)
        return self.releases[at - 1 : at + 1] if 0 < at < len(self.releases) else ()

    def knows(self, name: str) -> bool:
        """Has any release this flag, or one it is a short form of?"""
        return name in self._flags or any(self._declared(name, at) for at in range(len(self.releases)))

    def knows_variable(self, name: str) -> bool:
        return name in self._variables

    def flag(self, name: str, release: str) -> Declared | None:
        """The flag in that release, one of `near`; abbreviations count where argparse would take them."""
        return self._declared(name, self.releases.index(release))

    def variable(self, name: str, release: str) -> bool:
        at = self.releases.index(release)
        return any(first <= at <= last for first, last in self._variables.get(name, ()))

    def newest(self, name: str) -> Declared | None:
        """As the last release that has the flag declares it: for a log that does not tell its release."""
        places = range(len(self.releases) - 1, -1, -1)
        return next((found for at in places if (found := self._declared(name, at))), None)

    def takes(self, name: str, value: str) -> bool:
        """Does any release take this value for the flag?"""
        found = [shape for at in range(len(self.releases)) if (shape := self._declared(name, at))]
        return any(shape.refusal(value) is None for shape in found)

    def successor(self, name: str, release: str) -> tuple[str, str | None] | None:
        """How a flag that is gone is written now: its new name, and the value it stands for."""
        at = self.releases.index(release)
        for first, _, shape in reversed(self._flags.get(name, [])):
            found = _SUCCESSOR.fullmatch(self._shapes[shape].get("use", "")) if first <= at else None
            if found and self._declared(found[1], at):
                return found[1], found[2]
        return None

    def relatives(self, name: str) -> tuple[tuple[str, str | None], ...]:
        """What other releases write for the same: newer names (and the value that one stands for), then older."""
        newer = [
            _SUCCESSOR.fullmatch(self._shapes[s].get("use", "")) for _, _, s in reversed(self._flags.get(name, []))
        ]
        older = [
            old
            for old, spans in self._flags.items()
            if any(self._shapes[shape].get("use") == name for _, _, shape in spans)
        ]
        return (*((found[1], found[2]) for found in newer if found), *((old, None) for old in older))

    def meant(self, name: str, release: str | None) -> str | None:
        """The flag that somebody meant who wrote one that is not there: dashes for underscores, a new name, the
        name that `server_args=` has for it, a word too many, a typo. Never the opposite of what was written."""
        return self._agreed(release, lambda at: self._meant(name, at))

    def _meant(self, name: str, at: int) -> str | None:
        if self._declared(name, at):
            return None
        dashed = "--" + name[2:].replace("_", "-")
        if self._declared(dashed, at):
            return dashed
        if new := self.successor(dashed, self.releases[at]):
            return new[0]
        there = {known: shape for known in self._flags if (shape := self._shape(known, at))}
        field = dashed[2:].replace("-", "_")
        named = [known for known, shape in there.items() if shape["dest"] == field and not known.startswith("--no-")]
        words = set(dashed[2:].split("-"))
        near = named or [known for known in there if len(words) > 3 and _one_more(words, set(known[2:].split("-")))]
        if len(near) == 1:
            return near[0]
        from difflib import get_close_matches  # a slow import that only a typo needs

        alike = [known for known in there if _SWITCH & words == _SWITCH & set(known[2:].split("-"))]
        return next(iter(get_close_matches(dashed, alike, 1, 0.9)), None)

    def fields(self) -> frozenset[str]:
        """The names that `server_args=` has for the flags of all releases."""
        if self._fields is None:
            self._fields = frozenset(shape["dest"] for shape in self._shapes)
        return self._fields

    def dests(self, name: str) -> tuple[str, ...]:
        """The fields of `server_args=` that hold the value given to this flag, newest first; one that takes none may be
        another field turned round, so it has none here."""
        shapes = [self._shapes[shape] for _, _, shape in reversed(self._flags.get(name, ()))]
        if not shapes and (longer := self.newest(name)) and longer.takes != "nothing":  # --tp
            return (longer.dest,)
        return tuple(dict.fromkeys(shape["dest"] for shape in shapes if shape["takes"] != "nothing"))

    def setting(self, field: str, value: str, release: str | None) -> str | None:
        """The flag that gives this field of `server_args=` this value; None where it is none, or a switch that can
        only be turned on and is to be something else."""
        return self._agreed(release, lambda at: self._setting(field, value, at))

    def _agreed(self, release: str | None, answer: Callable[[int], str | None]) -> str | None:
        """What those say who speak for the release, if they agree; where nobody does, the newest."""
        said = {answer(self.releases.index(one)) for one in self.near(release) or self.releases[-1:]}
        return said.pop() if len(said) == 1 else None

    def _setting(self, field: str, value: str, at: int) -> str | None:
        dashed = "--" + field.replace("_", "-")
        there = {known: shape for known in self._flags if (shape := self._shape(known, at))}
        named = [known for known, shape in there.items() if shape["dest"] == field and not known.startswith("--no-")]
        name = dashed if dashed in there else min(named, key=len, default=None)  # --tp-size is kept under another name
        return None if name is None or (there[name]["takes"] == "nothing" and value != "True") else name

    def span(self, name: str) -> str:
        """'0.5.14 to 0.5.19': where it is or was."""
        spans = self._flags.get(name) or self._variables.get(name) or []
        return f"{self.releases[spans[0][0]]} to {self.releases[spans[-1][1]]}" if spans else "no release"

    def _declared(self, name: str, at: int) -> Declared | None:
        shape = self._shape(name, at)
        if shape is None:  # argparse takes a prefix that means one flag only
            longer = [known for known in self._flags if known.startswith(name)] if len(name) > 3 else []
            shapes = [found for known in longer if (found := self._shape(known, at))]
            shape = shapes[0] if len({found["dest"] for found in shapes}) == 1 else None
        if shape is None:
            return None
        number = shape.get("type", "")
        bounds = _bounds(shape) if number else (-inf, inf)
        old = shape.get("deprecated", False)
        return Declared(
            shape["dest"], shape["takes"], tuple(shape.get("choices", ())), old, shape.get("use"), number, *bounds
        )

    def _shape(self, name: str, at: int) -> dict[str, Any] | None:
        found = (shape for first, last, shape in self._flags.get(name, ()) if first <= at <= last)
        number = next(found, None)
        return None if number is None else self._shapes[number]


def _bounds(shape: dict[str, Any]) -> tuple[float, float]:
    """What a number may be, as far as a declaration tells (argparse has no ranges): a fraction is a share of a whole,
    and -1 means 'none' or 'by itself' only where the default says as much or is worked out."""
    if "fraction" in shape["dest"]:
        return 0.0, 1.0
    if shape["dest"] in _AT_LEAST_ONE:
        return 1.0, inf
    return (0.0 if shape.get("default", -1) >= 0 else -1.0), inf


def _one_more(words: set[str], known: set[str]) -> bool:
    return known < words and len(words - known) == 1 and not (words - known) & _SWITCH


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """The shipped one, read when first asked: a one-shot command over a log without a release never pays for it."""
    return Catalogue(json.loads((shipped("catalogue") / "flags.json").read_text(encoding="utf-8")))
