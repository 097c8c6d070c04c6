"""Log text can never become markup, and nothing in it can change how the rest of the page looks."""

from __future__ import annotations

import pytest

from triage.dashboard.logtext import MOST, flat, fold, shown
from triage.dashboard.render import unbroken


def test_markup_is_escaped() -> None:
    assert shown("<script>alert(1)</script>") == "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert "<img" not in shown('"><img src=x onerror=alert(1)>')


@pytest.mark.parametrize(
    "hidden", ["\u202e", "\u2066", "\u200b", "\ufeff", "\u2028", "\x00", "\x08", "\x7f", "\x9b", "\U000e0041"]
)
def test_characters_that_hide_are_shown_with_their_name(hidden: str) -> None:
    out = shown(f"a{hidden}b")
    assert hidden not in out
    assert f"U+{ord(hidden):04X}" in out
    assert hidden not in flat(f"a{hidden}b")


def test_terminal_colours_become_one_visible_sign() -> None:
    assert shown("\x1b[31mred\x1b[0m").count('class="ctl"') == 2
    assert "ESC[31m" in shown("\x1b[31mred")
    assert flat("\x1b[31mred") == "ESC[31mred"


def test_tabs_letters_and_emoji_stay_as_they_are() -> None:
    text = "a\tb ü 漢字 🙂 שלום"
    assert shown(text) == text


def test_a_lone_surrogate_can_be_sent() -> None:
    assert shown("bad \udce9 byte").encode("utf-8")


def test_a_short_line_is_not_folded() -> None:
    line = fold("x" * 350)
    assert (line.rest, line.lost) == ("", 0)


def test_a_huge_line_is_cut_and_says_how_much_is_missing() -> None:
    line = fold("x" * 200_000)
    assert len(line.head) + len(line.rest) == MOST
    assert line.lost == 200_000 - MOST
    assert "180,000 more characters not shown" in shown("x" * 200_000)


def test_markup_in_a_hidden_characters_neighbourhood_is_escaped_too() -> None:
    assert "<b>" not in shown("\u202e<b>\x1b[1m<i>")


def test_a_flags_name_is_kept_in_one_piece_and_nothing_is_let_through_by_it() -> None:
    told = unbroken(shown("Set (--page-size 1) <b> a--b " + "--" + "x" * 60))
    assert '(<span class="flag">--page-size</span> 1) &lt;b&gt; a--b --xxx' in told
    assert told.count("<span") == 1
