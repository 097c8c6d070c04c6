"""`triage rules list | show | check`: what is known, and the proof that it holds. `authoring` has the other verbs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triage.cli.options import JSON, RULES
from triage.cli.screen import print_json

if TYPE_CHECKING:
    from triage.rulebase.rule import RemedyText, Rule, Rules


@click.group()
def rules() -> None:
    """List, show and check rules."""


@rules.command("list")
@RULES
@JSON
def list_(folders: tuple[Path, ...], as_json: bool) -> None:
    """All rules in force: id, area, severity, first remedy."""
    from triage.rulebase.rule import slots

    loaded = load(folders)
    if as_json:
        print_json({"schema": 1, "rules": [_document(rule) for rule in loaded.rules], "masked": list(loaded.masked)})
        return
    width = max((len(rule.id) for rule in loaded.rules), default=0)
    for rule in sorted(loaded.rules, key=lambda r: (r.area, r.id)):
        click.echo(f"{rule.area:12} {rule.id:{width}}  {rule.severity:8}  {slots(rule.title)}")
    for name in loaded.masked:
        click.echo(f"{'-':12} {name:{width}}  masked by an empty file")


@rules.command()
@click.argument("rule_id", metavar="ID")
@RULES
@JSON
def show(rule_id: str, folders: tuple[Path, ...], as_json: bool) -> None:
    """One rule in words: what it means, its remedies, its file. ID: of a rule in force, or the path of a rule file."""
    from triage.rulebase.peers import always
    from triage.rulebase.rule import slots

    rule, _ = one(rule_id, folders)
    if as_json:
        print_json(_document(rule))
        return
    click.echo(f"{slots(rule.title)}\n")
    click.echo(click.wrap_text(slots(rule.cause), 100) + "\n")
    for number, remedy in enumerate(rule.remedies, 1):
        confirmed = "" if remedy.confirmed else " (not confirmed)"
        others = always(remedy.edits)
        click.echo(f"{number}. {slots(remedy.title)}{f' (by hand, {others})' if others else ''}{confirmed}")
        click.echo(click.wrap_text(f"costs: {remedy.cost}", 100, "   ", "   "))
        for bad in remedy.known_bad:
            where = [f"sglang {bad.release}"] * bool(bad.release) + ["certain flags"] * bool(bad.flags)
            click.echo(click.wrap_text(f"makes it worse with {' and '.join(where)}: {bad.why}", 100, "   ", "   "))
        for edit in remedy.edits:
            value = "" if edit.value is None else f" {edit.value}"
            click.echo(f"   {edit.op} {slots(' or '.join(edit.names) + value)}")
    for heading, items in (("not to be confused with", rule.false_positives), ("see", rule.references)):
        if items:
            click.echo(f"\n{heading}:")
            for item in items:
                click.echo(click.wrap_text(item, 100, "  - ", "    ") if " " in item else f"  - {item}")
    releases = [f"for sglang {rule.applies}"] * bool(rule.applies) + [f"mended in {rule.fixed_in}"] * bool(
        rule.fixed_in
    )
    click.echo("\n" + ", ".join([f"rule {rule.id} ({rule.area}, {rule.severity})", *releases, str(rule.path)]))


@rules.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--sglang", "release", metavar="RELEASE", help="Name the rungs that this release has no words for.")
@RULES
@JSON
def check(paths: tuple[Path, ...], folders: tuple[Path, ...], as_json: bool, release: str | None) -> None:
    """Prove rules by their samples and near-misses, all of them without a PATH. Exit 1 where one does not hold.

    With --sglang nothing is proved: it lists the rungs that a server of that release could not carry out.
    """
    if release is not None:
        _missing(_among(load((*folders, *paths)), paths), release, as_json)
        return
    from triage.rulebase.rulecheck import check as prove

    def progress(number: int, of: int) -> None:
        click.echo(f"\rchecking {number}/{of}", err=True, nl=number == of)

    report = prove(in_force(*folders), paths, progress if sys.stderr.isatty() else None)
    if as_json:
        problems = [
            {"path": p.mark.path, "line": p.mark.line, "column": p.mark.column, "text": p.text} for p in report.problems
        ]
        counts = {"rules": report.rules, "samples": report.samples, "near_misses": report.near_misses}
        print_json({"schema": 1, **counts, "problems": problems})
    else:
        for problem in report.problems:
            click.echo(str(problem))
        found = counted(len(report.problems), "problem") if report.problems else "all hold"
        told = ((report.rules, "rule"), (report.samples, "sample"), (report.near_misses, "near-miss"))
        click.echo(f"{', '.join(counted(*count) for count in told)}: {found}", err=True)
    if report.problems:
        sys.exit(1)


def counted(number: int, word: str) -> str:
    """'1 sample', '2 near-misses'."""
    return f"{number} {word}" if number == 1 else f"{number} {word}{'es' if word.endswith(('s', 'sh')) else 's'}"


def _among(loaded: Rules, paths: tuple[Path, ...]) -> tuple[Rule, ...]:
    """The rules of these files and folders; all, where none are given."""
    from triage.rulebase.rulefile import rule_files

    wanted = {file.resolve() for path in paths for file in rule_files(path)}
    return tuple(rule for rule in loaded.rules if not paths or rule.path.resolve() in wanted)


def _missing(chosen: tuple[Rule, ...], release: str, as_json: bool) -> None:
    from triage.model import InputError
    from triage.rulebase.catalogue import catalogue
    from triage.rulebase.editproof import missing_in

    if not catalogue().near(release):
        first, last = catalogue().releases[0], catalogue().releases[-1]
        raise InputError(f"sglang {release} is not in the catalogue: it knows {first} to {last}")
    rungs = list(missing_in(chosen, release))
    if as_json:
        found = [{"rule": rule, "remedy": remedy, "why": why} for rule, remedy, why in rungs]
        print_json({"schema": 1, "sglang": release, "missing": found})
        return
    for rule, remedy, why in rungs:
        click.echo(f"{rule}/{remedy}: {why}")
    click.echo(
        f"{counted(len(chosen), 'rule')}, {counted(len(rungs), 'rung')} that sglang {release} has no words for",
        err=True,
    )


def in_force(*more: Path) -> tuple[Path, ...]:
    """The folders that `watch` reads too, those of the settings among them; then those of one command."""
    from triage.settings import load_settings
    from triage.shipped import rule_folders

    return rule_folders(*load_settings().rules, *more)


def load(folders: tuple[Path, ...]) -> Rules:
    from triage.rulebase.rulefile import load_rules

    return load_rules(in_force(*folders))


def one(name: str, folders: tuple[Path, ...]) -> tuple[Rule, Rules]:
    """The rule of that id or file, and all rules with it in force."""
    from triage.model import InputError

    path = Path(name)
    if path.suffix == ".yaml" and path.is_file():
        loaded, name = load((*folders, path)), path.stem
    else:
        loaded = load(folders)
    found = loaded.get(name)
    if found is None:
        raise InputError(f"there is no rule '{name}': give the id of one in `triage rules list`, or a file's path")
    return found, loaded


def _document(rule: Rule) -> dict[str, Any]:
    return {
        "rule": rule.id,
        "rule_digest": rule.digest,
        "area": rule.area,
        "title": rule.title,
        "cause": rule.cause,
        "severity": str(rule.severity),
        "confidence": rule.confidence,
        "applies": rule.applies,
        "fixed_in": rule.fixed_in,
        "references": list(rule.references),
        "false_positives": list(rule.false_positives),
        "remedies": [_remedy(remedy) for remedy in rule.remedies],
        "path": str(rule.path),
    }


def _remedy(remedy: RemedyText) -> dict[str, Any]:
    from triage.rulebase.options import words

    edits = [
        {"op": edit.op, "name": name, "value": edit.value, "floor": edit.floor, "ceiling": edit.ceiling}
        for edit in remedy.edits
        for name in edit.names
    ]
    where = remedy.first_where
    return {
        "id": remedy.id,
        "kind": remedy.kind,
        "title": remedy.title,
        "cost": remedy.cost,
        "confirmed": remedy.confirmed,
        "edits": edits,
        "versions": remedy.versions,
        "requires": list(remedy.requires),
        "conflicts": list(remedy.conflicts),
        "known_bad": [{"release": bad.release, "why": bad.why} for bad in remedy.known_bad],
        "first_where": {
            "frame": [f"{place.file}:{place.function}" for place in where.frames],
            "flags": [words(condition) for condition in where.flags],
        }
        if where
        else None,
    }
