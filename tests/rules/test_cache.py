"""Rules are read from a cache where nothing has changed, and from their files where anything has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.rules.crashes import rule, write
from triage.rulebase import rulecache
from triage.rulebase.rulecache import cached_rules
from triage.rulebase.rulefile import RuleErrors, load_rules
from triage.shipped import shipped


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that the files were read."""
    seen: list[int] = []

    def load(folders: object) -> object:
        seen.append(1)
        return load_rules(folders)  # type: ignore[arg-type]

    monkeypatch.setattr(rulecache, "load_rules", load)
    return seen


def test_the_second_time_no_file_is_read(tmp_path: Path, reads: list[int]) -> None:
    folders = (shipped("rules"), tmp_path / "none")
    first, second = (cached_rules(folders, tmp_path / "cache") for _ in range(2))
    assert (first, len(reads)) == (second, 1)
    assert second == load_rules(folders)
    assert (tmp_path / "cache/rules.pickle").stat().st_mode & 0o777 == 0o600


def test_a_changed_a_new_and_a_removed_rule_are_seen(tmp_path: Path, reads: list[int]) -> None:
    site, cache = tmp_path / "rules", tmp_path / "cache"

    def ids() -> list[str]:
        return [f"{r.id}:{r.title}" for r in cached_rules((site,), cache).rules]

    one = write(site, "one", rule("{exception: ValueError}"))
    assert ids() == ["one:A rule"]
    one.write_text(rule("{exception: ValueError}").replace("A rule", "B rule"))  # of the same size
    assert ids() == ["one:B rule"]
    write(site, "two", rule("{exception: KeyError}"))
    assert ids() == ["one:B rule", "two:A rule"]
    one.unlink()
    assert ids() == ["two:A rule"]
    assert ids() == ["two:A rule"]
    assert len(reads) == 4


def test_faulty_rules_are_told_every_time(tmp_path: Path, reads: list[int]) -> None:
    write(tmp_path, "one", "title: half a rule\n")
    for _ in range(2):
        with pytest.raises(RuleErrors):
            cached_rules((tmp_path,), tmp_path / "cache")
    assert len(reads) == 2


@pytest.mark.parametrize("harm", ["others may write", "a link", "cut", "another's text"])
def test_a_cache_that_cannot_be_believed_is_passed_over(tmp_path: Path, reads: list[int], harm: str) -> None:
    write(tmp_path / "rules", "one", rule("{exception: ValueError}"))
    folders, cache = (tmp_path / "rules",), tmp_path / "cache"
    expected = cached_rules(folders, cache)
    kept = cache / "rules.pickle"
    if harm == "others may write":
        kept.chmod(0o622)
    elif harm == "a link":
        kept.rename(cache / "elsewhere")
        kept.symlink_to(cache / "elsewhere")
    elif harm == "cut":
        os.truncate(kept, 40)
    else:
        kept.write_text("no pickle")
    assert cached_rules(folders, cache) == expected
    assert len(reads) == 2


def test_without_a_folder_to_write_to_the_rules_are_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write(tmp_path / "rules", "one", rule("{exception: ValueError}"))
    assert [r.id for r in cached_rules((tmp_path / "rules",), tmp_path / "file/cache").rules] == ["one"]
