"""Rule files come in, rules or all errors go out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.rules.crashes import load, rule, write
from triage.rulebase.rulefile import MAX_BYTES, Problem, RuleErrors, load_proof, load_rules, rule_files

BAD = Path(__file__).parents[1] / "rules_bad"
GOLDEN = Path(__file__).parent / "rules_bad.txt"


def test_all_errors_of_all_files_are_told_at_once_with_their_place() -> None:
    with pytest.raises(RuleErrors) as caught:
        load_rules([BAD])
    told = str(caught.value).replace(str(BAD), "rules_bad")
    assert told.splitlines() == GOLDEN.read_text().splitlines()
    assert caught.value.exit_code == 2


def test_the_file_gives_id_area_and_digest(tmp_path: Path) -> None:
    path = write(tmp_path, "some-id", rule("{exception: [ValueError]}"))
    (loaded,) = load(tmp_path).rules
    assert (loaded.id, loaded.area, loaded.path) == ("some-id", "site", path)
    before = loaded.digest
    write(tmp_path, "some-id", rule("{exception: [ValueError]}") + "# a remark\n")
    assert load(tmp_path).rules[0].digest != before


def test_a_later_folder_overrides_by_id_and_its_empty_file_masks(tmp_path: Path) -> None:
    shipped, site = tmp_path / "shipped", tmp_path / "site"
    write(shipped, "one", rule("{exception: [ValueError]}"))
    write(shipped, "two", rule("{exception: [KeyError]}"))
    write(site, "one", rule("{exception: [TypeError]}"))
    write(site, "two", "")
    loaded = load_rules([shipped, site, tmp_path / "not-there"])
    assert [r.clauses[0].exceptions for r in loaded.rules] == [("TypeError",)]
    assert loaded.masked == ("two",)


def test_a_mask_of_comments_only_masks_too(tmp_path: Path) -> None:
    write(tmp_path, "one", "# off here, see ticket\n---\n")
    assert load(tmp_path).masked == ("one",)


def test_the_same_id_twice_in_one_folder_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a", "one", rule("{exception: [ValueError]}"))
    write(tmp_path / "b", "one", rule("{exception: [ValueError]}"))
    with pytest.raises(RuleErrors, match="the id 'one' is taken"):
        load(tmp_path)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    write(tmp_path, "one", rule("{exception: [ValueError]}") + "#" * MAX_BYTES)
    with pytest.raises(RuleErrors, match="larger than 256 KiB"):
        load(tmp_path)


@pytest.mark.parametrize("depth", [50, 900, 5000])
def test_deep_nesting_is_an_error_and_no_crash(tmp_path: Path, depth: int) -> None:
    write(tmp_path, "one", rule("[" * depth + "]" * depth))
    with pytest.raises(RuleErrors):
        load(tmp_path)


def test_bytes_that_are_no_text_are_told_with_their_line(tmp_path: Path) -> None:
    path = write(tmp_path, "one", "")
    path.write_bytes(b"title: fine\ncause: \xff\xfe\n")
    with pytest.raises(RuleErrors, match=r"one.yaml:2:8: not UTF-8"):
        load(tmp_path)


def test_loading_rules_does_not_read_their_samples(tmp_path: Path) -> None:
    path = write(tmp_path, "one", rule("{exception: [ValueError]}") + "---\nsamples: [broken\n")
    assert load(tmp_path).rules[0].id == "one"
    assert [p.mark.line for p in load_proof(path)[1]] == [7]


def test_several_spellings_are_one_edit_in_the_rule(tmp_path: Path) -> None:
    remedies = """remedies:
      - id: cap
        kind: flag
        title: Cap
        cost: none
        confirmed: true
        edits: [{op: cap-flag, name: [--a-tokens, --b-tokens], value: 8}]
"""
    write(tmp_path, "one", rule("{exception: [ValueError]}", remedies))
    (edit,) = load(tmp_path).rules[0].remedies[0].edits
    assert (edit.op, edit.names, edit.value) == ("cap-flag", ("--a-tokens", "--b-tokens"), 8)


def test_a_folder_or_a_link_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    (tmp_path / "dead.yaml").symlink_to(tmp_path / "nowhere")
    problems: list[Problem] = []
    assert rule_files(tmp_path, problems) == []
    told = [str(problem) for problem in problems]
    assert f"{tmp_path}/dead.yaml:1:1: is no file that could be read: remove it, or mend the link" in told
    if os.geteuid():
        assert any("closed:1:1: cannot be read" in text for text in told)
    assert rule_files(tmp_path / "missing", problems) == []
    assert len(problems) == len(told)


@pytest.mark.parametrize(
    ("ranges", "possible"),
    [
        (">=0.5,<0.4", False),
        (">=0.5,<0.5", False),
        ("==0.5.2,!=0.5.2", False),
        ("~=0.5.3,>=0.6", False),
        (">0.4.6.post5,<0.4.6.post6", False),
        (">0.4.6.post5,<0.4.6.post7", True),
        (">0.5,<0.5.1", True),
        ("<0.4", True),
        (">=0.5.0rc1,<0.5.0", True),
        ("~=0.5.3", True),
        (">=0.5.3,!=0.5.3,<0.5.4", True),
    ],
)
def test_a_range_that_no_release_can_be_in_is_an_error(tmp_path: Path, ranges: str, possible: bool) -> None:
    write(tmp_path, "one", rule("{exception: [KeyError]}", f"applies: '{ranges}'\n"))
    if possible:
        assert load(tmp_path).rules[0].applies == ranges
        return
    with pytest.raises(RuleErrors, match=f"no release is within '{ranges}'"):
        load(tmp_path)


def test_an_upgrade_into_a_range_that_no_release_can_be_in_is_an_error(tmp_path: Path) -> None:
    rung = "{id: new, kind: upgrade, title: T, cost: none, confirmed: false, versions: 'sglang>=0.5,<0.4'}"
    write(tmp_path, "one", rule("{exception: [KeyError]}", f"remedies: [{rung}]\n"))
    with pytest.raises(RuleErrors, match=r"no release is within 'sglang>=0\.5,<0\.4'"):
        load(tmp_path)


def test_a_word_for_a_release_is_no_package(tmp_path: Path) -> None:
    rung = "{id: new, kind: upgrade, title: T, cost: none, confirmed: false, versions: sglang newest}"
    write(tmp_path, "one", rule("{exception: [KeyError]}", f"remedies: [{rung}]\n"))
    with pytest.raises(RuleErrors, match="'newest' is no package: the name of one alone means any newer release of it"):
        load(tmp_path)
