"""`triage rules try | backtest | draft`: for whoever writes a rule.

In: a rule (its id, or the path of its file) and crashes: of a log, a folder of logs, a journal, or of the store.
Out: why it matches or does not, what it would change, a first draft. Nothing is written and no rule is put in force.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triage.cli.options import JSON, RULES
from triage.cli.rules import counted, in_force, load, one, rules
from triage.cli.screen import echo, print_json
from triage.model import InputError

if TYPE_CHECKING:
    from triage.model import Crash
    from triage.rulebase.trial import Attempt

KEPT = "store:"
JOURNALS = ("/var/log/journal", "/run/log/journal")
_UNIT = click.option("--unit", "units", multiple=True, metavar="U", help="In a journal: only this unit (a glob).")
_RULE = click.argument("rule", metavar="ID")
_SPEC = click.argument("spec", metavar="SPEC")


@rules.command("try")
@_RULE
@_SPEC
@RULES
@_UNIT
@JSON
def try_(rule: str, spec: str, folders: tuple[Path, ...], units: tuple[str, ...], as_json: bool) -> None:
    """Why a rule matches the crashes of SPEC, or how far each of its conditions got. Exit 1 where it matches none.

    ID: a rule in force, or the path of a rule file. SPEC: a log, a folder of logs, journal:FILE-or-FOLDER, journal:
    (this machine's, up to now), or store: (the crashes that triage keeps).
    """
    from triage.engine.signature import title
    from triage.rulebase.rulebook import Rulebook
    from triage.rulebase.trial import furthest

    tried, loaded = one(rule, folders)
    book = Rulebook(loaded.rules)
    told = []
    for place, crash in _crashes(spec, units):
        won = [match.rule for match in book.match(crash)]
        told.append(
            {
                "spec": place,
                "crash": crash.id,
                "title": title(crash.root.cause),
                "phase": str(crash.phase),
                "outcome": str(crash.outcome),
                "matches": tried.id in won,
                "winner": won[0] if won else None,
                "clauses": [_attempt(attempt) for attempt in furthest(tried, crash)],
            }
        )
    if as_json:
        print_json({"schema": 1, "rule": tried.id, "path": str(tried.path), "crashes": told})
    else:
        for crash_told in told:
            _show(tried.id, crash_told)
        click.echo(f"{counted(len(told), 'crash')}, {sum(bool(c['matches']) for c in told)} matched", err=True)
    if not any(crash_told["matches"] for crash_told in told):
        sys.exit(1)


def _attempt(attempt: Attempt) -> dict[str, Any]:
    names = ("name", "wanted", "holds", "seen")
    conditions = [{name: getattr(condition, name) for name in names} for condition in attempt.conditions]
    return {"line": attempt.mark.line, "holds": attempt.holds, "conditions": conditions}


def _show(rule: str, crash: Mapping[str, Any]) -> None:
    echo(f"{crash['spec']}: {crash['title']} ({crash['phase']}, {crash['outcome']})")
    if not crash["matches"]:
        echo(f"  {rule} does not match; " + (f"{crash['winner']} does" if crash["winner"] else "no rule does"))
    elif crash["winner"] == rule:
        echo(f"  {rule} matches and wins")
    else:
        echo(f"  {rule} matches, but {crash['winner']} wins: make one of them stricter, or set rank")
    for clause in crash["clauses"]:
        echo(f"  clause in line {clause['line']}:" + (" holds" if clause["holds"] else ""))
        for condition in clause["conditions"]:
            mark = "yes" if condition["holds"] else "no "
            seen = f": {condition['seen']}" if condition["seen"] else ""
            echo(f"    {mark} {condition['name']} {condition['wanted'][:100]}{seen}")
    echo()


@rules.command()
@_RULE
@_SPEC
@RULES
@_UNIT
@JSON
def backtest(rule: str, spec: str, folders: tuple[Path, ...], units: tuple[str, ...], as_json: bool) -> None:
    """What a rule changes for the crashes of SPEC: newly known, taken from another rule, lost, false alarms.

    ID and SPEC as for `try`. A file with the id of a rule in force is compared with that rule. Exit 1 where something
    is lost or a healthy server is taken for a failed one.
    """
    from triage.engine.signature import title
    from triage.rulebase.backtest import Change, differences
    from triage.rulebase.rulebook import Rulebook

    tested, loaded = one(rule, folders)
    present = [other for other in load(folders).rules if other.path != tested.path]
    crashes = list(_crashes(spec, units))
    places = {id(crash): place for place, crash in crashes}
    found = list(differences(tested.id, Rulebook(present), Rulebook(loaded.rules), (crash for _, crash in crashes)))
    told = [
        {
            "change": str(one.change),
            "spec": places[id(one.crash)],
            "crash": one.crash.id,
            "title": title(one.crash.root.cause),
            "outcome": str(one.crash.outcome),
            "before": one.before,
            "after": one.after,
        }
        for one in found
    ]
    counts = Counter(str(one.change) for one in found)
    if as_json:
        print_json({"schema": 1, "rule": tested.id, "crashes": len(crashes), "counts": counts, "differences": told})
    else:
        for line in told:
            was = f" (before: {line['before'] or 'none'})" if line["before"] != line["after"] else ""
            echo(f"{line['change']:11} {line['spec']}: {line['title']} -> {line['after'] or 'none'}{was}")
        said = ", ".join(f"{count} {change}" for change, count in counts.items()) or "it matches none of them"
        click.echo(f"{counted(len(crashes), 'crash')}: {said}", err=True)
    if counts[str(Change.LOST)] or counts[str(Change.FALSE_ALARM)]:
        sys.exit(1)


@rules.command()
@click.argument("incident", metavar="INCIDENT", type=click.IntRange(min=1))
@JSON
def draft(incident: int, as_json: bool) -> None:
    """A first rule for an incident: patterns of its signature, a sample of its evidence, TODOs for the rest."""
    from triage.cli.bundle import masker
    from triage.rulebase import drafting

    document = _newest(incident)
    mask = masker(document["host"])
    name = drafting.name(document)
    made = [drafting.draft(document, mask, log) for log in drafting.samples(document, mask)]
    proofs = [(text, _problems(name, text)) for text in made]
    text, problems = next((proof for proof in proofs if not proof[1]), proofs[0])
    if as_json:
        print_json({"schema": 1, "rule": name, "yaml": text, "proved": not problems, "problems": problems})
        return
    click.echo(text, nl=False)
    where = f"/etc/triage/rules.d/site/{name}.yaml"
    click.echo(f"\nSave it as {where}, do its TODOs, then: triage rules check {where}", err=True)
    for problem in problems:
        click.echo(f"To mend: {problem}", err=True)
    if not problems:
        click.echo("It loads and wins its own sample as it is.", err=True)


def _problems(name: str, text: str) -> list[str]:
    """What `triage rules check` would say of the draft among the rules in force, but for its TODOs."""
    from tempfile import TemporaryDirectory

    from triage.rulebase.rulecheck import UNFINISHED, check

    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        found = check(in_force(), (path,)).problems
        return [f"line {p.mark.line}: {p.text}" for p in found if not p.text.startswith(UNFINISHED)]


def _newest(incident: int) -> Mapping[str, Any]:
    from triage.cli.parts import kept

    with kept() as (store, _):
        view = store.incident(incident, crash_limit=1)
    if not view.crashes:
        raise InputError(f"no crash of incident {incident} is kept any more")
    return view.crashes[0].document


# ---------------------------------------------------------------- rules and crashes


def _crashes(spec: str, units: tuple[str, ...]) -> Iterator[tuple[str, Crash]]:
    if spec == KEPT:
        yield from _kept()
        return
    from triage.cli.scan import scan_one
    from triage.diagnose import NoRules

    notices: list[str] = []
    places, unread = _places(spec), 0
    for place in places:
        try:
            _, found, _ = scan_one(place, NoRules(), units, None, None, notices)
        except InputError as error:
            unread += 1
            if unread == len(places):
                raise
            click.echo(str(error), err=True)  # one file of a folder that is no log
            continue
        yield from ((place, finding.crash) for finding in found)
    for notice in notices:
        click.echo(notice, err=True)


def _places(spec: str) -> list[str]:
    """The SPECs that `scan` would take: a folder is its files, the live journal what is in it so far."""
    if spec == "journal:":
        there = [f"journal:{folder}" for folder in JOURNALS if Path(folder).is_dir()]
        if not there:
            raise InputError(f"this machine keeps no journal in {' or '.join(JOURNALS)}")
        return there
    if Path(spec).is_dir():
        return [str(path) for path in sorted(Path(spec).rglob("*")) if path.is_file()]
    return [spec]


def _kept() -> Iterator[tuple[str, Crash]]:
    """All crashes in the store, newest first."""
    from triage.cli.parts import kept
    from triage.document import crash_of

    with kept() as (store, _):
        before: str | None = None
        while True:
            page = store.crashes(limit=200, before=before)
            yield from ((f"incident {row.incident}", crash_of(row.document)) for row in page.rows)
            before = page.next
            if before is None:
                return
