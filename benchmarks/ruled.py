"""A log through `triage scan`'s own way with a given number of rules: the shipped ones, then more of their kind.

    python -m benchmarks.ruled RULES.pickle LOG

`write_rules` makes the pickle: a site's rules come out of a cache in the same way.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

from triage.cli.scan import scan_one
from triage.rulebase.rule import Rule
from triage.rulebase.rulebook import Rulebook
from triage.rulebase.rulefile import load_rules
from triage.shipped import rule_folders


def write_rules(path: Path, number: int) -> Path:
    shipped = load_rules(rule_folders()).rules
    more = (_variant(rule, turn) for turn in count(1) for rule in shipped)
    path.write_bytes(pickle.dumps([*shipped, *islice(more, max(0, number - len(shipped)))][:number]))
    return path


def _variant(rule: Rule, turn: int) -> Rule:
    """A rule of the same make that means another failure."""
    clauses = tuple(replace(each, anchors=tuple(f"{word} {turn}" for word in each.anchors)) for each in rule.clauses)
    return replace(rule, id=f"{rule.id}-{turn}", clauses=clauses)


def main(rules: str, log: str) -> None:
    book = Rulebook(pickle.loads(Path(rules).read_bytes()))
    lines, found = scan_one(log, book, (), None, None, [])
    print(lines, "lines,", len(found), "crashes")


if __name__ == "__main__":
    main(*sys.argv[1:])
