"""docs/rules.md names all that a rule may say, and rules/schema.json allows what the loader allows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from triage.model import Outcome, Phase, Severity
from triage.rulebase import ruleread
from triage.rulebase.rule import EDITABLE
from triage.rulebase.rulefile import load_rule
from triage.shipped import shipped

DOCS = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
SCHEMA = json.loads((shipped("rules") / "schema.json").read_text())
AREAS = sorted({path.parent.name for path in shipped("rules").rglob("*.yaml")})
KEYS = sorted({*ruleread._RULE[0], *ruleread._CLAUSE, *ruleread._CONDITION, *ruleread._REMEDY, *ruleread._SAMPLE})


@pytest.mark.parametrize("word", [*KEYS, *AREAS, *ruleread.OPS, *ruleread.KINDS, *Phase, *Outcome, *Severity])
def test_the_page_names_it(word: str) -> None:
    assert word in DOCS


def test_the_example_of_the_page_is_a_rule_that_loads(tmp_path: Path) -> None:
    example = DOCS.split("moon-phase.yaml`:\n")[1].split("\n3. ")[0]
    path = tmp_path / "site" / "moon-phase.yaml"
    path.parent.mkdir()
    path.write_text("\n".join(line[7:] for line in example.splitlines()))
    rule, problems = load_rule(path)
    assert problems == []
    assert rule is not None
    assert rule.remedies[0].edits[0].names == ("--disable-moon",)


def test_the_schema_knows_the_same_words() -> None:
    definitions = SCHEMA["$defs"]
    assert set(SCHEMA["properties"]) == set(ruleread._RULE[0])
    assert set(SCHEMA["required"]) == set(ruleread._RULE[1])
    assert set(definitions["clause"]["properties"]) == set(ruleread._CLAUSE)
    assert set(definitions["condition"]["properties"]) == set(ruleread._CONDITION)
    assert set(definitions["remedy"]["properties"]) == set(ruleread._REMEDY)
    assert set(definitions["remedy"]["properties"]["kind"]["enum"]) == set(ruleread.KINDS)
    assert set(EDITABLE) < set(ruleread.KINDS)
    assert set(definitions["edit"]["properties"]["op"]["enum"]) == set(ruleread.OPS)
    assert set(definitions["phase"]["enum"]) == set(Phase)
    assert set(definitions["outcome"]["enum"]) == set(Outcome)
    assert set(SCHEMA["properties"]["severity"]["enum"]) == set(Severity)
