"""docs/rules.md names all that a rule may say; rules/schema.json allows what the loader allows, in both documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.rules.jsonschema import faults
from triage.model import Outcome, Phase, Severity
from triage.rulebase import ruleread
from triage.rulebase.rule import EDITABLE
from triage.rulebase.rulecheck import check
from triage.rulebase.rulefile import load_rule
from triage.shipped import shipped

DOCS = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
SCHEMA = json.loads((shipped("rules") / "schema.json").read_text())
AREAS = sorted({path.parent.name for path in shipped("rules").rglob("*.yaml")})
KEYS = sorted({*ruleread._RULE[0], *ruleread._CLAUSE, *ruleread._CONDITION, *ruleread._REMEDY, *ruleread._SAMPLE})


@pytest.mark.parametrize("word", [*KEYS, *AREAS, *ruleread.OPS, *ruleread.KINDS, *Phase, *Outcome, *Severity])
def test_the_page_names_it(word: str) -> None:
    assert word in DOCS


def test_the_example_of_the_page_is_a_rule_that_loads_and_is_proved(tmp_path: Path) -> None:
    example = DOCS.split("moon-phase.yaml`:\n")[1].split("\n3. ")[0]
    path = tmp_path / "site" / "moon-phase.yaml"
    path.parent.mkdir()
    path.write_text("\n".join(line[7:] for line in example.splitlines()))
    rule, problems = load_rule(path)
    assert problems == []
    assert rule is not None
    assert rule.remedies[0].edits[0].names == ("--disable-overlap-schedule",)
    assert check([path.parent], [path]).problems == ()


def test_the_schema_knows_the_same_words() -> None:
    definitions = SCHEMA["$defs"]
    rule = definitions["rule"]
    assert set(rule["properties"]) == set(ruleread._RULE[0])
    assert set(rule["required"]) == set(ruleread._RULE[1])
    assert set(definitions["clause"]["properties"]) == set(ruleread._CLAUSE)
    assert set(definitions["condition"]["properties"]) == set(ruleread._CONDITION)
    assert set(definitions["remedy"]["properties"]) == set(ruleread._REMEDY)
    assert set(definitions["remedy"]["properties"]["kind"]["enum"]) == set(ruleread.KINDS)
    assert set(EDITABLE) < set(ruleread.KINDS)
    assert set(definitions["edit"]["properties"]["op"]["enum"]) == set(ruleread.OPS)
    assert set(definitions["verify"]["properties"]) == set(ruleread._VERIFY)
    assert set(definitions["sample"]["properties"]) == set(ruleread._SAMPLE)
    assert set(definitions["near_miss"]["properties"]) == set(ruleread._SAMPLE)
    assert set(definitions["also"]["properties"]) == set(ruleread._ALSO)
    assert set(definitions["phase"]["enum"]) == set(Phase)
    assert set(definitions["outcome"]["enum"]) == set(Outcome)
    assert set(rule["properties"]["severity"]["enum"]) == set(Severity)


def wrong(text: str) -> list[str]:
    """What an editor underlines in a rule file: every document of it is held against the schema."""
    documents = yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return [fault for document in documents for fault in faults(SCHEMA, document, SCHEMA)]


def test_an_editor_flags_nothing_in_the_shipped_rules() -> None:
    rules = sorted(shipped("rules").rglob("*.yaml"))
    assert len(rules) > 150
    assert [(path.name, found) for path in rules if (found := wrong(path.read_text()))] == []


RULE = "title: T\ncause: C.\nseverity: error\nmatch: {exception: E}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RULE, []),
        (RULE + "---\nsamples: {name: s, log: l, also: {instead_of: l, say: [m, 1]}}\n", []),
        (RULE + "---\nnear_misses: [{why: w, log: l}]\n", []),
        (RULE + "moon: full\n", ["$: moon is unknown"]),
        (RULE.replace("error", "dire"), ["$.severity: enum"]),
        (RULE + "rank: 11\n", ["$.rank: maximum"]),
        (RULE + "stable: 1\n", ["$.stable: type"]),
        (RULE + "---\nsamples: [{name: s}]\n", ["$.samples: fits none"]),
        (RULE + "---\nsamples: [{name: s, log: l}]\ntitle: T\n", ["$: title is unknown"]),
        (RULE + "---\nnear_misses: [{name: w, log: l}]\n", ["$.near_misses: fits none"]),
        ("title: T\n", ["$: required"]),
    ],
)
def test_an_editor_flags_what_the_loader_would_refuse(text: str, said: list[str]) -> None:
    found = wrong(text)
    assert len(found) == len(said)
    assert all(fault.startswith(start) for fault, start in zip(found, said, strict=True))
