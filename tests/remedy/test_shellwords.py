"""A shell's words are taken apart as the shell does, and what is more than words is left alone."""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triage.model import Refused
from triage.units.shellwords import shell_word, simple_commands

PIECES = [
    "a",
    "b c",
    " ",
    "'x y'",
    "'it'",
    '"q r"',
    '"a\\"b"',
    "\\ ",
    "\\'",
    '\\"',
    "#z",
    "a#b",
    "--f=1",
    "--f='p q'",
    '"\\\\"',
    "\\\\",
    "=",
    ",",
    "{",
    "}",
    "é",
    "'a'\"b\"",
    '"\'"',
    "'\"'",
    "!",
    "@",
]


def words(script: str) -> list[list[str]]:
    return [[item.text for item in command] for command in simple_commands(script)]


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
@settings(max_examples=60)
@given(st.lists(st.sampled_from([*PIECES, "\\\n"]), min_size=1, max_size=7))
def test_words_are_those_of_bash(pieces: list[str]) -> None:
    script = f"set -f +B; printf '%s\\0' W {''.join(pieces)}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
    if done.returncode or done.stderr:
        return
    assert words(script)[-1][2:] == done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a b; c && d || e | f & g", [["a", "b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("a > x 2>&1 b >> y", [["a", "b"]]),
        ("a &> x < y", [["a"]]),
        ("a # b; c\nd", [["a"], ["d"]]),
        ("if a; then b; fi", [["if", "a"], ["then", "b"], ["fi"]]),
        ("(cd x && a)", [["cd", "x"], ["a"]]),
    ],
)
def test_commands_are_parted_and_redirections_left_out(script: str, expected: list[list[str]]) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    ("word", "expands", "splits"),
    [
        ("plain", False, False),
        ("$A", True, True),
        ('"$A"', True, False),
        ("'$A'", False, False),
        ("'${A}'", True, False),  # the manager fills it in before the shell sees the quotes
        ("'$${A}'", False, False),
        ('"$$(cat /etc/key)"', True, False),
        ("`id`", True, True),
        ("${A:-'x y'}z", True, True),
        ("\\\\$A", True, True),
    ],
)
def test_what_the_shell_puts_in_is_known_as_such(word: str, expands: bool, splits: bool) -> None:
    [[item]] = simple_commands(word)
    assert (item.raw, item.expands, item.splits) == (word, expands, splits)


@pytest.mark.parametrize("script", ["cat <<EOF\nx\nEOF", "a 'b", 'a "b', "a $(b", "a ${b", "a `b"])
def test_what_is_more_than_words_is_refused(script: str) -> None:
    with pytest.raises(Refused):
        simple_commands(script)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
def test_a_new_word_comes_out_as_its_value(value: str) -> None:
    source = shell_word(value)
    assert words(source.replace("%%", "%").replace("$$", "$")) == [[value]]
    [[item]] = simple_commands(source)
    assert item.literal == value
    assert not item.opaque
