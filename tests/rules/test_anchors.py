"""The literals that a pattern cannot match without."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from triage.rulebase.anchors import needed


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("no kernel image is available", ("no kernel image is available",)),
        (r"context_length \((?P<asked>\d+)\) is greater", ("context_length (",)),
        (r"out of memory|kernel image", ("out of memory", "kernel image")),
        (r"out of memory|a+", ()),
        (r"abcde?fgh", ("abcd",)),
        (r"abcd{2}efghij", ("efghij",)),
        (r"abcd(?:efgh)?ijklm", ("ijklm",)),
        (r"(?:first|second) word", (" word",)),
        (r"[abc]{3}d", ()),
        (r"(?i)nonetype", ()),
        (r"\[Errno 98\]", ("[Errno 98]",)),
        (r"[]x]long[^]y]", ("long",)),
        (r"\bword\b", ("word",)),
        (r"\p{L}abcd", ()),
        (r"\x41bcdef", ()),
        (r"(a)\10bcdef", ()),
        (".*", ()),
    ],
)
def test_literals_are_taken_from_the_top_level(pattern: str, literals: tuple[str, ...]) -> None:
    assert needed(pattern) == literals


_PIECES = st.sampled_from(
    [
        "abcd",
        "efg",
        r"\d+",
        "[a-f]",
        "[^x]+",
        "(?:ab|cd)",
        "(ef)?",
        "a?",
        "b*",
        ".",
        r"\[",
        "|",
        "c{1,2}",
        "h+",
        "^",
        "$",
    ]
)
_TEXTS = st.text(alphabet="abcdefgh[12x", max_size=14)


@given(st.lists(_PIECES, min_size=1, max_size=7).map("".join), st.lists(_TEXTS, min_size=1, max_size=20))
def test_no_text_that_matches_lacks_them(pattern: str, texts: list[str]) -> None:
    """Too few anchors are an error an author sees; one too many would lose matches silently."""
    try:
        compiled = regex.compile(pattern, regex.MULTILINE)
    except regex.error:
        return
    literals = needed(pattern)
    for text in texts:
        if literals and compiled.search(text):
            assert any(literal in text for literal in literals)
