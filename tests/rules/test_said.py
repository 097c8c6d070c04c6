"""A message that was pasted without its traceback is given the place where a release says such words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rules.crashes import book, crash, link, rule, write
from triage.model import Failure, Line, Link, Role
from triage.rulebase import said
from triage.rulebase.said import place_of, views, written
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
    kept = (said._known, said._files, said._folders, said._by_rarest)
    for one in kept:
        one.cache_clear()
    yield tmp_path
    for one in kept:
        one.cache_clear()


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


@pytest.mark.parametrize(
    ("message", "line", "places"),
    [
        ("eggs", "nests.py:432 ValueError: eggs", [("sglang/srt/lake/nests.py", "")]),
        ("eggs", "nests.py: ValueError: eggs", [("sglang/srt/lake/nests.py", "")]),
        ("eggs", "lake/other.py:432:lay: ValueError: eggs", [("sglang/srt/lake/other.py", "lay")]),
        ("eggs", "heron.py:4 ValueError: eggs", [("heron.py", "")]),
        ("eggs", "/opt/heron/lake/nests.py:4 ValueError: eggs", [("/opt/heron/lake/nests.py", "")]),
        ("nests.py:4: eggs", "ValueError: nests.py:4: eggs", [("sglang/srt/lake/nests.py", "")]),
        ("eggs", "nests.py said ValueError: eggs", []),
        ("eggs in nests.py: two", "ValueError: eggs in nests.py: two", []),
        (
            "eggs\n  lake/nests.py:4    lay\n  at reeds.py grow:\n     grow(lake)\n"
            '  File ".../phases.py", line ..., in wane',
            "ValueError: eggs",
            [
                ("sglang/srt/lake/nests.py", "lay"),
                ("sglang/srt/lake/reeds.py", "grow"),
                ("sglang/srt/moon/phases.py", "wane"),
            ],
        ),
        ("eggs\nnests.py:4 lay", "ValueError: eggs", []),
        ("eggs" + "\n  nests.py:4 lay" * 400, "ValueError: eggs", [("sglang/srt/lake/nests.py", "lay")] * 24),
    ],
)
@pytest.mark.usefixtures("lake")
def test_places_that_somebody_wrote_beside_a_message_are_taken(
    message: str, line: str, places: list[tuple[str, str]]
) -> None:
    root = Failure(Role.ROOT, (Link("ValueError", message),), (Line(line),))
    assert [(frame.path, frame.function) for frame in written(root)] == places


@pytest.mark.parametrize(
    ("message", "exception"),
    [
        ("nests.py: cannot unpack non-iterable Heron", "TypeError"),
        ("nests.py: 'Heron' object has no attribute 'egg'", "AttributeError"),
        ("nests.py: list index out of range", "IndexError"),
        ("nests.py: too many values to unpack (expected 2)", "ValueError"),
        ("nests.py: local variable 'egg' referenced before assignment", "UnboundLocalError"),
        ("nests.py: the heron is gone", "ErrorLine"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_words_of_python_have_their_class_where_nobody_wrote_it(message: str, exception: str) -> None:
    seen, plain = views(crash(link("ErrorLine", message)))
    assert seen.root.cause.exception == exception
    assert plain.root.cause.exception == "ErrorLine"


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
