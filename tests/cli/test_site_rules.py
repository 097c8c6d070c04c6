"""Rules of the site, seen through `triage scan`, `rules list` and `doctor`: one overrides, masks, or has a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Type
from tests.crashes import story
from tests.rules.crashes import rule, write

SHIPPED = "dflash-graph-replay-none"  # what the story's crash is by the shipped rules


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "rules.d"
    monkeypatch.setattr("triage.shipped.SITE_RULES", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def crashed(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    path.write_bytes(story.as_text(story.story()))
    return str(path)


@pytest.fixture
def healthy(tmp_path: Path) -> str:
    path = tmp_path / "healthy.log"
    path.write_bytes(story.as_text([*story.starting(), *story.serving(10_000, 50)]))
    return str(path)


def told(run: Type, log: str) -> tuple[dict[str, Any], list[str]]:
    """The first match of the only crash, and the notices."""
    result = run("scan", "--json", log)
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    (crash,) = document["crashes"]
    return (crash["matches"] or [{"rule": None}])[0], document["notices"]


def test_a_rule_of_the_same_id_replaces_the_shipped_one_from_the_next_scan_on(
    site: Path, crashed: str, run: Type
) -> None:
    match, _ = told(run, crashed)
    assert (match["rule"], match["title"] == "A rule") == (SHIPPED, False)
    write(site / "deep", SHIPPED, rule("{exception: AttributeError}", "rank: 9\n"))
    match, notices = told(run, crashed)
    assert (match["rule"], match["title"], match["remedies"], notices) == (SHIPPED, "A rule", [], [])


@pytest.mark.parametrize("text", ["", "# switched off here, ticket 12\n"])
def test_an_empty_file_masks(site: Path, crashed: str, run: Type, text: str) -> None:
    write(site, SHIPPED, text)
    match, notices = told(run, crashed)
    assert (match["rule"] == SHIPPED, notices) == (False, [])
    assert SHIPPED in json.loads(run("rules", "list", "--json").stdout)["masked"]


def test_a_fault_is_told_beside_the_crash_and_the_sound_rules_name_it(site: Path, crashed: str, run: Type) -> None:
    path = write(site, "moon", rule("{exceptoin: MoonError}"))
    match, (notice,) = told(run, crashed)
    assert match["rule"] == SHIPPED
    assert notice.startswith(f"left out: {path}:4:9: ")
    assert notice in run("scan", crashed).stderr
    said = json.loads(run("doctor", "--json").stdout)
    assert str(said).count(f"{path}:4:9") == 1  # the site's folder is in the settings too


def test_a_shipped_rule_stays_where_a_faulty_file_was_to_replace_it(site: Path, crashed: str, run: Type) -> None:
    write(site, SHIPPED, "title: half a rule\n")
    match, notices = told(run, crashed)
    assert match["rule"] == SHIPPED
    assert notices != []


def test_without_a_crash_no_rule_is_read(site: Path, healthy: str, run: Type) -> None:
    write(site, "moon", rule("{exceptoin: MoonError}"))
    result = run("scan", healthy)
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_folder_that_was_named_is_read_at_once(tmp_path: Path, site: Path, healthy: str, run: Type) -> None:
    write(tmp_path / "mine", "moon", rule("{exceptoin: MoonError}"))
    result = run("scan", "--rules", str(tmp_path / "mine"), healthy)
    assert result.exit_code == 2
    assert "moon.yaml:4:9" in str(result.exception)


def test_folders_of_the_settings_are_in_force_for_an_author_too(
    site: Path, tmp_path: Path, crashed: str, run: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    write(mine, "of-mine", rule("{exception: AttributeError}", "rank: 9\n"))
    monkeypatch.setenv("TRIAGE_RULES", str(mine))
    assert "of-mine" in run("rules", "list").stdout
    assert "of-mine matches and wins" in run("rules", "try", "of-mine", crashed).stdout
