"""`triage scan`: diagnose logs without a database.

In: SPECs of files, stdin or journals; out: one JSON document, or a short report for people. Exit code 0 where there
is no crash, 1 where there is one, 2 where the input cannot be read, or not to its end and shows none so far. It must
import neither the store nor the dashboard, nor settings: it works on a machine that has nothing but a log.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triage.cli.options import JSON
from triage.model import InputError

if TYPE_CHECKING:
    from triage.diagnose import Matcher
    from triage.model import Crash, Finding, Line, Match, Near
    from triage.rulebase.rulebook import Rulebook

_ALARMING = ("fatal", "degraded", "unknown")


@click.command()
@click.argument("specs", nargs=-1, metavar="[SPEC]...")
@JSON
@click.option("--rules", "folders", multiple=True, metavar="DIR", help="More rules, over the shipped and the site's.")
@click.option("--unit", "units", multiple=True, metavar="U", help="Only this unit (a glob); default sglang*.service.")
@click.option("--since", metavar="T", help="Leave out what is older: an ISO time, or 2h, 30m, 7d ago.")
@click.option("--tz", metavar="ZONE", help="The zone of times that carry none; default: this machine's.")
def scan(
    specs: tuple[str, ...],
    as_json: bool,
    folders: tuple[str, ...],
    units: tuple[str, ...],
    since: str | None,
    tz: str | None,
) -> None:
    """Diagnose a log without a database.

    SPEC: a file (text, journal json or export, also gzip, xz, zstd, bzip2; a journal's own file), '-' for stdin,
    journal:FILE-or-FOLDER. Without one stdin is read.
    """
    from triage.document import scan_document

    if not specs:
        if sys.stdin.isatty():
            raise InputError("nothing to read: give a file, '-', or 'journal:FOLDER'")
        specs = ("-",)
    book = _Rules(folders)
    found: list[Finding] = []
    notices: list[str] = []
    lines = 0
    broken = ""
    for spec in specs:
        count, findings, whole = scan_one(spec, book, units, _since(since), tz, notices)
        lines += count
        found.extend(findings)
        broken = broken if whole else spec
    if len(found) > 1:
        from triage.engine.aftermath import across

        for n, crash in across([finding.crash for finding in found]).items():
            found[n] = _named(crash, book)
    notices += book.notices
    document = scan_document(lines, found, notices)
    if as_json:
        click.echo(json.dumps(document))  # as ASCII: no byte of a log reaches the terminal as itself
    else:
        from triage.cli.report import print_report

        for text in notices:
            click.echo(text, err=True)
        print_report(document)
    if any(finding.crash.outcome.value in _ALARMING for finding in found):
        sys.exit(1)
    if broken:
        raise InputError(f"{broken} breaks off: no crash in what could be read, and what is missing may hold one")


def scan_one(
    spec: str, book: Matcher, units: tuple[str, ...], since: int | None, tz: str | None, notices: list[str]
) -> tuple[int, list[Finding], bool]:
    """The lines of one SPEC, what was found in them, and whether it is whole. Raises InputError where it cannot be
    read."""
    from triage.engine.assemble import Assembler
    from triage.engine.gate import Gate
    from triage.pipeline import findings
    from triage.sources import UNITS, open_source

    if spec == "journal:":
        raise InputError("the live journal never ends: `triage watch` reads it; give scan a journal file or folder")
    assembler = Assembler()
    source = open_source(spec, units=units or UNITS, since=since, tz=tz, gate=Gate(assembler))
    count, whole = 0, True

    def read() -> Iterator[Line]:
        nonlocal count, whole
        for batch in source.batches():
            whole = whole and not batch.broken
            notices.extend(batch.notices)
            count += batch.size
            assembler.pass_over(batch.passed, batch.time)
            yield from batch.lines

    try:
        found = list(findings(read(), assembler, lambda crash: _named(crash, book)))
    except UnicodeError as error:
        raise InputError(f"{spec} cannot be read: {error}") from error
    finally:
        source.close()
    if not found and assembler.strange:
        notices.append(
            f"{spec}: not one line has a form that is known, so nothing is told of it (docs/scan.md: what is read)"
        )
    return count, found, whole


def _named(crash: Crash, book: Matcher) -> Finding:
    """Signature and rules are imported for the first crash: most logs that are scanned have none."""
    from triage.diagnose import diagnose

    return diagnose(crash, book)


class _Rules:
    """The rules, read when a crash asks for them; at once where a folder is named, so that its faults are told."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        for folder in folders:
            if not Path(folder).is_dir():
                raise InputError(f"{folder} is no folder of rules")
        self._folders = tuple(Path(folder) for folder in folders)
        self._book: Rulebook | None = self._load() if folders else None

    @property
    def notices(self) -> list[str]:
        """Rules that were put out of force on the way, and what is wrong with the site's files."""
        return self._book.notices if self._book else []

    def match(self, crash: Crash) -> tuple[Match, ...]:
        self._book = self._book or self._load()
        return self._book.match(crash)

    def nearest(self, crash: Crash) -> tuple[Near, ...]:
        self._book = self._book or self._load()
        return self._book.nearest(crash)

    def _load(self) -> Rulebook:
        from triage.rulebase.rulebook import Rulebook
        from triage.shipped import rule_folders

        try:
            return Rulebook.load(rule_folders(*self._folders))
        except InputError as error:
            from triage.rulebase.rulefile import RuleErrors

            if self._folders or not isinstance(error, RuleErrors):
                raise
            book = Rulebook(error.sound.rules)  # whoever has a crash at hand gets what the sound rules say of it
            book.notices += [f"left out: {problem}" for problem in error.problems]
            return book


_UNITS_OF_TIME = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _since(text: str | None) -> int | None:
    if text is None:
        return None
    if text[-1:] in _UNITS_OF_TIME and text[:-1].isdigit():
        return int((datetime.now(UTC).timestamp() - int(text[:-1]) * _UNITS_OF_TIME[text[-1]]) * 1_000_000)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000_000)
    except ValueError:
        raise InputError(f"--since {text!r} is no time: give 2026-11-29T12:00 or 2h") from None
