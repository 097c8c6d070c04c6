"""`make docs`: write docs/rules-list.md, the page of all shipped rules for people who only read.

A test compares the page with the rules, so that neither can go without the other.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from triage.rulebase.peers import always
from triage.rulebase.rule import RemedyText, Rule, slots
from triage.rulebase.rulefile import load_rules
from triage.shipped import shipped

PAGE = Path(__file__).resolve().parent / "rules-list.md"


def page() -> str:
    """The whole page as Markdown."""
    rules = sorted(load_rules((shipped("rules"),)).rules, key=lambda rule: (rule.area, rule.id))
    areas = {area: list(group) for area, group in groupby(rules, key=lambda rule: rule.area)}
    out = [
        "# What triage recognises",
        "",
        f"{len(rules)} rules in {len(areas)} areas; written by `make docs`, not by hand. `triage rules show ID` shows",
        "one whole, with its samples. *Confirmed* means that somebody said it helped; the rest is advice. What stands",
        "in `{braces}` is taken from the log.",
        "",
        "| area | rules |",
        "|---|---|",
        *(
            f"| [{area}](#{area}) | {', '.join(f'[{rule.id}](#{rule.id})' for rule in group)} |"
            for area, group in areas.items()
        ),
    ]
    for area, group in areas.items():
        out += ["", f"## {area}"]
        for rule in group:
            out += _rule(rule)
    return "\n".join(out) + "\n"


def _rule(rule: Rule) -> list[str]:
    out = ["", f"### {rule.id}", "", f"**{_text(rule.title)}** ({rule.severity})", "", _text(rule.cause), ""]
    out += [f"{n}. {_remedy(remedy)}" for n, remedy in enumerate(rule.remedies, 1)]
    if rule.fixed_in:
        out += ["", f"Mended in {rule.fixed_in}."]
    if rule.false_positives:
        out += ["", "Not this: " + " ".join(_text(text) for text in rule.false_positives)]
    if rule.references:
        out += ["", "See " + ", ".join(rule.references) + "."]
    return out


def _remedy(remedy: RemedyText) -> str:
    said = "confirmed" if remedy.confirmed else "advice"
    if where := always(remedy.edits):
        said += f"; by hand, {where}"
    elif remedy.edits:
        said += "; `triage apply` can do it"
    cost = f" Costs: {_text(remedy.cost)}" if remedy.cost else ""
    bad = "".join(
        f" Makes it worse {f'in sglang {one.release}' if one.release else 'with some flags'}: {_text(one.why)}."
        for one in remedy.known_bad
    )
    return f"{_text(remedy.title)} ({said}).{cost}{bad}"


def _text(text: str) -> str:
    """One line, with what Markdown would take for itself escaped."""
    return re.sub(r"([*_<>|`\[\]])", r"\\\1", " ".join(slots(text).split()))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.name}: {PAGE.stat().st_size} bytes")
