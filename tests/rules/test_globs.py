"""The rules' globs over files and functions."""

from __future__ import annotations

import fnmatch

from hypothesis import example, given
from hypothesis import strategies as st

from triage.rulebase.evidence import _matches

_TEXTS = st.text(alphabet="ab./_", max_size=12)
_GLOBS = st.lists(st.sampled_from(["a", "b", ".", "/", "ab", "*", "**", "?", "[ab]", "[!a]"]), max_size=7).map("".join)


@given(_TEXTS, _GLOBS)
@example("a", "a*a")
@example("ab", "*b*b")
def test_they_mean_what_fnmatch_means(name: str, glob: str) -> None:
    assert _matches(name, glob) == fnmatch.fnmatchcase(name, glob)


@given(st.lists(_TEXTS, min_size=1, max_size=4))
def test_what_a_glob_was_made_of_fits_it(parts: list[str]) -> None:
    assert _matches("b".join(parts), "*".join(parts))
