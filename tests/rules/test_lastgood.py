"""A ladder offers the way back to what the unit last came up with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.crashes import book, crash, link, rule, write
from triage.model import Crash, Phase, Remedy

LADDER = """\
remedies:
  - id: newer
    kind: upgrade
    title: Move on
    cost: none
    confirmed: false
    versions: sglang
  - id: pages
    kind: flag
    title: Smaller pages
    cost: none
    confirmed: false
    edits: [{op: set-flag, name: --page-size, value: 16}]
"""


def seen(good: dict[str, str] | None, flags: dict[str, str], phase: Phase = Phase.LOAD) -> Crash:
    made = crash(link("ValueError", "no heron"), phase=phase, flags=flags, release="0.5.9")
    return replace(
        made, context=replace(made.context, good=good and {**good, "sglang_version": good.get("v", "0.5.9")})
    )


def offered(folder: Path, made: Crash) -> tuple[Remedy, ...]:
    write(folder, "lake", rule("{exception: ValueError, message: no heron}", LADDER))
    return book(folder).match(made)[0].remedies


@pytest.mark.parametrize("phase", [Phase.LOAD, Phase.SERVING])
def test_what_an_edit_is_about_goes_back_first(tmp_path: Path, phase: Phase) -> None:
    first, *others = offered(tmp_path, seen({"page_size": "1"}, {"page_size": "64"}, phase))
    assert (first.id, first.applicable, first.confirmed, first.edits) == ("last-good-flags", False, False, ())
    assert first.title == "By hand: go back to what it last came up with: --page-size 1 (now 64)"
    assert [one.id for one in others] == ["newer", "pages"]


def test_another_change_goes_back_last_and_only_before_it_served(tmp_path: Path) -> None:
    before, now = {"page_size": "1", "enable_mixed_chunk": "False"}, {"page_size": "1", "enable_mixed_chunk": "True"}
    assert [one.id for one in offered(tmp_path, seen(before, now))] == ["newer", "pages", "last-good-flags"]
    assert offered(tmp_path, seen(before, now))[-1].title.endswith(": without --enable-mixed-chunk")
    assert [one.id for one in offered(tmp_path, seen(before, now, Phase.SERVING))] == ["newer", "pages"]


@pytest.mark.parametrize(
    ("good", "flags"),
    [
        (None, {"page_size": "64"}),
        ({"page_size": "64"}, {"page_size": "64"}),
        ({"heron": "1"}, {"heron": "2"}),
        ({"model_path": "/models/a"}, {"model_path": "/models/b"}),
        (
            {"tp_size": "1", "dp_size": "1", "pp_size": "1", "ep_size": "1"},
            dict.fromkeys(("tp_size", "dp_size", "pp_size", "ep_size"), "2"),
        ),
    ],
)
def test_where_nothing_certain_is_known_no_way_back_is_told(
    tmp_path: Path, good: dict[str, str] | None, flags: dict[str, str]
) -> None:
    assert [one.id for one in offered(tmp_path, seen(good, flags))] == ["newer", "pages"]


def test_another_release_comes_before_the_flags_that_it_changed(tmp_path: Path) -> None:
    good = {"page_size": "1", "enable_mixed_chunk": "False", "v": "0.5.8"}
    made = seen(good, {"page_size": "1", "enable_mixed_chunk": "True", "v": "0.5.8"})
    last = offered(tmp_path, made)[-1]
    assert (last.id, last.versions) == ("last-good-release", "sglang==0.5.8")
    assert last.title == "By hand: go back to sglang 0.5.8, with which it last came up (now 0.5.9)"
