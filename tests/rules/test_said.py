"""A message that was pasted without its traceback is given the place where a release says such words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rules.crashes import book, crash, link, rule, write
from triage.model import Link
from triage.rulebase import said
from triage.rulebase.said import place_of, views
from triage.rulebase.trial import furthest
from triage.shipped import shipped

KNOWN = {
    "srt/lake/nests.py": {"lay": ["herons wading reeds"], "hatch": ["eggs herons warm"]},
    "srt/lake/reeds.py": {"grow": ["reeds water herons"]},
    "srt/moon/phases.py": {"wane": ["moon eggs waning"]},
}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue of its own."""
    (tmp_path / "catalogue").mkdir()
    (tmp_path / "catalogue" / "messages.json").write_text(json.dumps({"schema": 1, "said": KNOWN}))
    monkeypatch.setattr(said, "shipped", lambda name: tmp_path / name)
    said._by_rarest.cache_clear()
    yield tmp_path
    said._by_rarest.cache_clear()


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("4 herons are wading in the reeds", ("srt/lake/nests.py", "lay")),
        ("Herons, wading: reeds!", ("srt/lake/nests.py", "lay")),
        ("4 herons are wading", None),
        ("herons wading between reeds in water", ("srt/lake/nests.py", "lay")),  # two files of one folder
        ("herons warm eggs while the waning moon goes", None),  # two folders
        ("wading_herons in reeds", ("srt/lake/nests.py", "lay")),
        ("x" * 500 + " herons wading reeds", None),
        ("", None),
    ],
)
@pytest.mark.usefixtures("lake")
def test_a_message_is_found_by_its_rarest_words(message: str, place: tuple[str, str] | None) -> None:
    assert place_of(message) == place


@pytest.mark.parametrize(
    ("one", "many"),
    [
        (link("ValueError", "herons wading in reeds"), 2),
        (link("ValueError", "herons"), 1),
        (link("ValueError", "herons wading in reeds", "srt/other.py:run"), 1),
        (link("torch.OutOfMemoryError", "herons wading in reeds"), 1),
        (link("ModuleNotFoundError", "herons wading in reeds"), 1),
    ],
)
@pytest.mark.usefixtures("lake")
def test_only_a_message_without_a_place_is_looked_up(one: Link, many: int) -> None:
    assert len(views(crash(one))) == many


def test_a_rule_about_a_place_serves_a_last_line_alone(lake: Path) -> None:
    write(lake / "rules", "lake", rule("{frame: ['lake/*.py'], anchors: [lake/]}"))
    seen = crash(link("ValueError", "herons wading in reeds"))
    rules = book(lake / "rules")
    assert [match.rule for match in rules.match(seen)] == ["lake"]
    assert rules.match(crash(link("ValueError", "herons"))) == ()
    assert furthest(rules.rules[0], seen)[0].holds
    assert seen.root.cause.frame is None  # what is reported stays what the log says


def test_a_rule_that_wants_no_place_holds_as_before(lake: Path) -> None:
    write(lake / "rules", "words", rule("{exception: ValueError, message: herons, unless: {frame: ['*']}}"))
    assert book(lake / "rules").match(crash(link("ValueError", "herons wading in reeds")))


def test_the_shipped_words_are_words_of_one_place_and_few_stand_in_what_others_say() -> None:
    document = json.loads((shipped("catalogue") / "messages.json").read_text(encoding="utf-8"))["said"]
    groups = [group for functions in document.values() for said_there in functions.values() for group in said_there]
    assert len(groups) > 4000
    assert all(path.startswith("srt/") for path in document)
    assert all(len(set(group.split())) == 3 for group in groups)
    for message in (
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "mat1 and mat2 shapes cannot be multiplied (4x8 and 16x4)",
        "q.shape[0] (48) does not match qo_indptr[-1] (39)",
        "The size of tensor a (4) must match the size of tensor b (8) at non-singleton dimension 1",
        "Connection reset by peer",
        "'NoneType' object has no attribute 'shape'",
    ):
        assert place_of(message) is None, message
