"""Could the edits of a rule be carried out? Asked of what decides when a plan is made, so that check and plan agree.

In: a rule. Out: problems with their place. `edits.check_edit` and `policy.check_name` say what root's side never takes,
`spelling.spelled` what the releases take that a rung is for. Called by `rulecheck`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from triage.actions.policy import check_name
from triage.model import Edit, Refused
from triage.rulebase.catalogue import catalogue
from triage.rulebase.releases import covers
from triage.rulebase.rule import PLACEHOLDER, EditText, RemedyText, Rule
from triage.rulebase.rulefile import Problem
from triage.rulebase.spelling import spelled
from triage.rulebase.unitproof import stood_in
from triage.units import directivenames
from triage.units.edits import check_edit


def takeable(rule: Rule) -> Iterator[Problem]:
    """Would root's side take the edits? Placeholders stand for something plain."""
    for remedy in rule.remedies:
        for text in remedy.edits:
            if text.op in ("step-flag", "scale-flag") and not _bounded(text):
                yield Problem(
                    text.mark,
                    f"{text.op} {text.names[0]} needs a floor and a ceiling above it: a unit's present value may be"
                    " far off, and the result has to be one that the server takes",
                )
            if text.op == "search-flag" and text.floor is None:
                yield Problem(text.mark, f"search-flag {text.names[0]} needs a floor: the least that is worth trying")
            for edit in stood_in(text):
                try:
                    check_edit(edit)
                    check_name(edit.op.rsplit("-", 1)[-1], edit.name)
                except Refused as reason:
                    yield Problem(text.mark, f"the edit cannot be carried out: {reason}")
            for name in text.names:
                if text.op == "set-unit" and not directivenames.known(name):
                    near = directivenames.meant(name)
                    mend = f"did you mean {near}?" if near else "correct it"
                    yield Problem(text.mark, f"systemd knows no {name}, and would pass over it: {mend}")


def _bounded(text: EditText) -> bool:
    return text.floor is not None and text.ceiling is not None and text.floor < text.ceiling


def catalogued(rule: Rule) -> Iterator[Problem]:
    """Is every flag, variable and value in some release, or marked as a fork's?"""
    book = catalogue()
    forks = {name for remedy in rule.remedies for name in remedy.forks}
    for clause in (clause for top in rule.clauses for clause in (top, *top.unless)):
        for name in (name for condition in clause.flags for name in condition.names):
            if (flag := f"--{name.replace('_', '-')}") not in forks and not book.knows(flag):
                yield Problem(clause.mark, f"no release of sglang has {flag} ({name} in `flags`): correct it")
    for remedy in rule.remedies:
        for text in remedy.edits:
            for name in text.names:
                if name in remedy.forks or PLACEHOLDER.search(name):
                    continue
                if (text.op.endswith("-flag") and not book.knows(name)) or (
                    re.match("SGL(ANG)?_", name) and not book.knows_variable(name)
                ):
                    yield Problem(text.mark, f"no release of sglang has {name}: correct it, or list it in `forks`")
            if why := _unspelled(rule, remedy, text):
                yield Problem(text.mark, why)
        for name in (*remedy.requires, *remedy.conflicts):
            if name not in remedy.forks and not book.knows(name):
                yield Problem(remedy.mark, f"no release of sglang has {name}: correct it, or list it in `forks`")


def _unspelled(rule: Rule, remedy: RemedyText, text: EditText) -> str | None:
    """Why no release that the rung is for takes the edit. What a log will tell is for planning to judge."""
    book = catalogue()
    known = (name for name in text.names if book.knows(name) or book.knows_variable(name))
    ours = [name for name in known if name not in remedy.forks]
    if not ours or PLACEHOLDER.search(str(text.value)):
        return None
    releases = [release for release in book.releases if _is_for(rule, remedy, release)]
    edits = [Edit(text.op, name, text.value, text.floor, text.ceiling) for name in ours]
    told = [spelled([edits], release).why for release in releases]
    if not told or None in told:
        return None
    which = "of sglang" if len(releases) == len(book.releases) else "that the rung is for"
    what = ours[0] if text.value is None else f"{text.value} for {ours[0]}"
    return f"no release {which} takes {what} ({told[-1]}): correct it"


def _is_for(rule: Rule, remedy: RemedyText, release: str) -> bool:
    return all(covers(ranges, release) for ranges in (rule.applies, remedy.release) if ranges)


def missing_in(rules: Iterable[Rule], release: str) -> Iterator[tuple[str, str, str]]:
    """Rule, rung and reason for each rung that this release has no words for."""
    for rule in rules:
        for remedy in (one for one in rule.remedies if _is_for(rule, one, release)):
            # A value that the log will tell is for planning to judge.
            told = [text for text in remedy.edits if not PLACEHOLDER.search(str(text.value))]
            edits = [[Edit(t.op, name, t.value, t.floor, t.ceiling) for name in t.names] for t in told]
            here = spelled(edits, release)
            if why := here.why or here.doubt:
                yield rule.id, remedy.id, why
