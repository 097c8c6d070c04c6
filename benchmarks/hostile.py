"""A hostile line for a hostile rule: what it costs the first time, and what the second.

    python -m benchmarks.hostile

Printed as JSON: milliseconds of CPU that a log with a line of a megabyte takes more where a rule's pattern never comes
to its end on it than where there is no such rule; and the same again, with the rulebook that has learned from it.
"""

from __future__ import annotations

import io
import json
import time
from dataclasses import replace
from statistics import median

from tests.crashes import story
from triage.diagnose import diagnose
from triage.engine.assemble import Assembler
from triage.engine.gate import Gate
from triage.pipeline import findings
from triage.rulebase.rule import Pattern, Rule
from triage.rulebase.rulebook import Rulebook
from triage.rulebase.rulefile import load_rules
from triage.shipped import rule_folders
from triage.sources.stream import StreamSource

ROUNDS = 7
LOG = story.as_text(
    [
        *story.starting(),
        *story.rank_crash(12_000, 0, "ValueError: hostile " + "a" * 1_000_000 + "!"),
        *story.parent_gives_up(12_200),
    ]
)


def hostile_rule(rule: Rule) -> Rule:
    """Any rule, with a pattern that tries each way to part the line."""
    clause = rule.clauses[0]
    pattern = Pattern(r"hostile (?:a|aa)+b$", clause.mark)
    clause = replace(clause, exceptions=("ValueError",), messages=(pattern,), frames=(), places=(), lines=(), phases=())
    return replace(
        rule, id="hostile", clauses=(replace(clause, unless=(), flags=(), anchors=("hostile",)),), applies=None
    )


def seconds(book: Rulebook) -> float:
    assembler, began = Assembler(), time.process_time()
    source = StreamSource("hostile", io.BytesIO(LOG), tz="UTC", gate=Gate(assembler))
    lines = (line for batch in source.batches() for line in batch.lines)
    assert len(list(findings(lines, assembler, lambda crash: diagnose(crash, book)))) == 1
    return time.process_time() - began


def measure() -> dict[str, float]:
    rules = load_rules(rule_folders()).rules
    once, again = [], []
    for _ in range(ROUNDS):
        plain, book = Rulebook(rules), Rulebook([*rules, hostile_rule(rules[0])])
        seconds(plain)  # patterns are compiled for their first text
        without, first, second = seconds(plain), seconds(book), seconds(book)
        assert book.quarantined
        once.append(first - without)
        again.append(second - without)
    return {"first_ms": round(1000 * median(once), 1), "again_ms": round(1000 * median(again), 1)}


if __name__ == "__main__":
    print(json.dumps(measure()))
