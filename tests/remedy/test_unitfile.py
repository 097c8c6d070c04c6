"""What systemd makes of a unit's text: words, continuations, resets, and writing them back unchanged."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remedy.fixtures import unit
from triage.actionmodel import Unit, UnitFile
from triage.model import Refused
from triage.units.unitfile import (
    commands,
    drop_in_path,
    effective,
    entries,
    environment_file,
    expand,
    quote,
    split,
    unit_digest,
    word,
)


def texts(value: str) -> list[str]:
    return [item.text for item in split(value)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        ("--x='a b'", ["--x=a b"]),
        (r'"a \"b\" c"', ['a "b" c']),
        (r"'it\'s'", ["it's"]),
        (r"a\sb \x41 \101 \u00e9", ["a b", "A", "A", "é"]),
        (r"\xc3\xa9", ["é"]),
        (r"\q", [r"\q"]),
        ('""', [""]),
        ("%i $X ${Y} $$", ["%i", "$X", "${Y}", "$$"]),
    ],
)
def test_words_are_parted_as_systemd_does(value: str, expected: list[str]) -> None:
    assert texts(value) == expected


def test_an_open_quote_is_refused() -> None:
    with pytest.raises(Refused, match="unclosed"):
        split('a "b')


def test_a_comment_inside_a_continuation_is_skipped() -> None:
    file = UnitFile("/x", "[Service]\nExecStart=/bin/a \\\n  # why\n  b \\\n; why not\n  c\nUser=u\n")
    assert [(entry.name, texts(entry.value)) for entry in entries(file)] == [
        ("Service.ExecStart", ["/bin/a", "b", "c"]),
        ("Service.User", ["u"]),
    ]


def test_an_even_number_of_backslashes_ends_the_line() -> None:
    file = UnitFile("/x", "[Service]\nA=x\\\\\nB=y\n")
    assert [(entry.key, entry.value) for entry in entries(file)] == [("A", "x\\\\"), ("B", "y")]


def test_a_lone_semicolon_parts_commands_and_an_escaped_one_does_not() -> None:
    first, second = commands(r"/bin/a x ; -@/bin/b argv0 \; y")
    assert first.argv == ("/bin/a", "x")
    assert (second.prefix, second.program, second.argv) == ("-@", "/bin/b", ("argv0", ";", "y"))


def test_the_last_full_command_wins_and_environment_is_merged() -> None:
    merged = effective(unit("kimi-k26-dflash", None, ("override.conf", "kimi-override.conf")))
    assert len(merged.commands) == 1
    assert merged.commands[0].argv[-2:] == ("--speculative-dflash-block-size", "16")
    assert merged.environment["SGLANG_LOG_MS"] == "0"
    assert merged.environment["NCCL_DEBUG"] == "WARN"


def test_an_empty_assignment_resets_what_came_before() -> None:
    merged = effective(
        Unit("a.service", (UnitFile("/a", "[Service]\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2\n"),))
    )
    assert dict(merged.environment) == {"B": "2"}


def test_triages_own_file_counts_only_when_asked() -> None:
    target = unit("kimi-k26-dflash", None, ("zzz-triage.conf", "[Service]\nExecStart=\nExecStart=/bin/true\n"))
    assert effective(target).commands[0].program.endswith("python")
    assert effective(target, with_drop_in=True).commands[0].program == "/bin/true"


def test_environment_files_are_read_with_their_quotes() -> None:
    text = '# keys\nPORT=30001\nA=\'x y\'\nB="q\\"r"\nC=one \\\ntwo\n\nnonsense\n'
    assert environment_file(text) == {"PORT": "30001", "A": "x y", "B": 'q"r', "C": "one two"}


def test_variables_expand_as_at_exec() -> None:
    env = {"A": "x y", "B": "z"}
    assert expand(("$A", "${A}", "--b=${B}", "$$A", "--$B", "$NONE", "${NONE}"), env) == (
        "x",
        "y",
        "x y",
        "--b=z",
        "$A",
        "--$B",
        "",
    )


def test_any_change_of_any_file_changes_the_digest() -> None:
    target = unit("kimi-k26-dflash", None, ("override.conf", "kimi-override.conf"))
    changed = Unit(target.name, (target.files[0], UnitFile(target.files[1].path, target.files[1].text + "\n")))
    assert unit_digest(target) == unit_digest(unit("kimi-k26-dflash", None, ("override.conf", "kimi-override.conf")))
    assert unit_digest(changed) != unit_digest(target)


@pytest.mark.parametrize(
    "name", ["../x.service", ".service", "a/b.service", "x.socket", "a..b.service", "x.service\n", ""]
)
def test_a_path_is_made_only_for_the_name_of_a_service(name: str) -> None:
    with pytest.raises(Refused):
        drop_in_path(name)


VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\t\n\r"), max_size=40)


@given(VALUES)
def test_any_value_comes_out_of_its_quotes_as_it_went_in(value: str) -> None:
    (back,) = split(quote(value)) if value else (split(quote(value))[0],)
    assert back.text.replace("%%", "%").replace("$$", "$") == value
    assert word(value).literal == value
    assert word(value).text == back.text
    assert expand((back.text.replace("%%", "%"),), {"A": "wrong"}) == (value,)


@given(
    st.lists(st.one_of(VALUES.map(quote), VALUES.map(shlex.quote), st.sampled_from(["%i", "$X", "${Y}", "a'b c'd"])))
)
def test_words_written_again_as_they_stood_are_the_same_words(raws: list[str]) -> None:
    try:
        words = split("  ".join(raws))
    except Refused:
        return
    assert split(" ".join(item.raw for item in words)) == words


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    for entry in entries(UnitFile("/x", "[Service]\n" + text)):
        assert "\n" not in entry.value
