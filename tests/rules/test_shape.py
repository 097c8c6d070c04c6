"""How a regular expression is built, read by hand."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from triage.rulebase.shape import alternatives, example, repeats


@pytest.mark.parametrize(
    ("pattern", "sides"),
    [
        ("the moon", []),
        ("moon|sun", ["moon", "sun"]),
        ("the (?:moon|sun)", ["moon", "sun"]),
        ("the (?P<what>moon|sun)", ["moon", "sun"]),
        (r"a \| b|[|c]", [r"a \| b", "[|c]"]),
        ("(?:red |new )?moon", ["red ", "new "]),
        ("moon(?:$|,|)", [","]),  # what takes no character is no side
        ("(?!moon|sun)star(?<!a|b)", []),
        ("(?i)moon|sun", ["(?i)moon", "sun"]),
        ("(?P<n>moon)?(?(n)s|sun)(?#a|b)", []),
        ("moon (?:is (?:full|new)|was)", ["is (?:full|new)", "was"]),  # the outermost only
    ],
)
def test_the_sides_of_each_bar_are_found(pattern: str, sides: list[str]) -> None:
    assert [one.text for one in alternatives(pattern)] == sides


def test_what_is_inside_a_side_is_asked_of_it() -> None:
    first, _ = alternatives("moon (?:is (?:full|new)|was)")
    assert [one.text for one in first.inner()] == ["full", "new"]


def test_a_side_is_marked_or_stands_alone() -> None:
    moon, sun = alternatives("the (?:(?i)moon|sun)s?")
    assert sun.marked("hit") == "the (?:(?i)moon|(?P<hit>sun))s?"
    assert sun.alone("hit") == "the (?:(?i)(?P<hit>sun))s?"
    assert regex.search(moon.alone("hit"), "the MOONS")


@pytest.mark.parametrize(
    ("pattern", "most", "least"),
    [
        (r"the moon (?:is|was)(?: very)? \w{2,40}\.$", "the moon is very ww.", "the moon is ww."),
        (r"[^\n]{0,80}x\d{3}", " x111", "x111"),
        (r"\[Errno 98\]|other", "[Errno 98]", "[Errno 98]"),
        (r"\x41\p{L}", "Aa", "Aa"),
    ],
)
def test_an_example_is_a_text_that_matches(pattern: str, most: str, least: str) -> None:
    assert (example(pattern), example(pattern, least=True)) == (most, least)
    assert regex.search(pattern, most)
    assert regex.search(pattern, least)


def test_each_repeat_is_told_with_what_leads_to_it() -> None:
    assert list(repeats(r"lit(?:inner+){2,}[ab]{0,3}")) == [("litinne", ("r",)), ("lit", ("inner",))]
    assert list(repeats("(?:a|bb)*c{20}")) == [("", ("a", "bb")), ("a", ("c",))]


_PIECES = st.sampled_from(
    ["ab", "(?:x|yy)", "(?P<n>z)?", "[a-f]{2,30}", r"\d+", ".", r"\(", "(?:a(?:b|c))*", "(?=a)a", "|", "e*?"]
)


@given(st.lists(_PIECES, min_size=1, max_size=7).map("".join))
def test_any_pattern_is_read(pattern: str) -> None:
    """A side that stands alone is still a pattern, and its own example holds it."""
    try:
        regex.compile(pattern, regex.MULTILINE)
    except regex.error:
        return
    todo = list(alternatives(pattern))
    while todo:
        one = todo.pop()
        assert regex.compile(one.marked("hit"), regex.MULTILINE)
        assert regex.search(one.text, example(one.text), regex.MULTILINE)
        todo += one.inner()
    for _, units in repeats(pattern):
        assert all(units)
