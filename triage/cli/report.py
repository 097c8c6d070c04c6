"""A diagnosis for people: the findings of a scan, short enough to be read on a terminal at night.

In: the document of `scan --json`. Out: text. Called by `scan` and the demo. What a log wrote goes through `clean`.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import Any

import click

from triage.cli.screen import clean

COLOURS = {"fatal": "red", "degraded": "red", "unknown": "yellow", "request-error": "cyan", "recovered": "green"}
LABEL = 12  # columns of the labels on the left
MESSAGE_LINES = 4


def print_report(document: dict[str, Any]) -> None:
    """All crashes of one scan."""
    crashes = document["crashes"]
    lines = document["lines"]
    click.echo(f"{lines} line{'' if lines == 1 else 's'}, {len(crashes)} crash{'' if len(crashes) == 1 else 'es'}")
    for crash in crashes:
        click.echo("")
        print_crash(crash)


def print_crash(crash: dict[str, Any]) -> None:
    """What failed first and why; then what to do, cheapest first."""
    root = crash["root"]
    outcome = crash["outcome"].upper()
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        outcome = click.style(outcome, fg=COLOURS[crash["outcome"]], bold=True)
    click.echo(f"{outcome}  {clean(crash['title'])}")
    where = [crash["unit"], crash["host"] and f"on {crash['host']}", crash["started"]]
    _say("where", " ".join(part for part in where if part))
    release = f", SGLang {crash['sglang_version']}" if crash["sglang_version"] else ""
    _say("phase", crash["phase"] + release)
    frame = root["frame"]
    at = f" at {frame['file']}:{frame['line']} in {frame['function']}" if frame else ""
    who = f"{root['rank']}: " if root["rank"] else ""
    _say("first", f"{who}{root['exception']}{at}")
    _say("", root["message"].split("\n", 1)[0], most=MESSAGE_LINES)
    if len(crash["ranks"]) > 1:
        _say("ranks", " ".join(crash["ranks"]))
    if crash["cascades"]:
        _say("followed", f"{crash['cascades']} other failure{'' if crash['cascades'] == 1 else 's'}, set off by it")
    if crash["suspects"]:
        _say("suspect", f"{' '.join(crash['suspects'])}: the others waited, and it never came")
    if crash["follows"]:
        _say("because", root["why"])
    if crash["evidence"]["grade"] != "complete":
        _say("evidence", crash["evidence"]["grade"])
    if not crash["matches"]:
        _undiagnosed(crash)
        return
    best = crash["matches"][0]
    _say("cause", best["cause"])
    _say("rule", best["rule"])
    for number, remedy in enumerate(best["remedies"], 1):
        _say(f"remedy {number}", remedy["title"] + ("" if remedy["confirmed"] else "  (not confirmed)"))
        if remedy["blocked_by"]:
            _say("", f"does not fit here: {remedy['blocked_by']}")
        if remedy["cost"]:
            _say("", f"costs: {remedy['cost']}")


def _undiagnosed(crash: dict[str, Any]) -> None:
    _say("cause", f"undiagnosed: no rule knows it (signature {crash['signature']['key']})")
    for number, near in enumerate(crash["nearest"], 1):
        _say(f"near {number}", f"{near['rule']}: {near['title']}")
        for why in near["why"]:
            _say("", f"is not it: {why}")
    for number, text in enumerate(["for any crash of this phase, not for this one:", *crash["general"]]):
        _say("general" if number == 0 else "", text)


def _say(label: str, text: str, most: int | None = None) -> None:
    """One labelled paragraph, folded at the terminal's edge."""
    if not text.strip():
        return
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    lines = textwrap.wrap(clean(text), max(40, width - LABEL), break_on_hyphens=False)
    if most is not None and len(lines) > most:
        lines = [*lines[:most], "..."]
    for number, line in enumerate(lines):
        click.echo(f"  {label if number == 0 else '':<{LABEL - 2}}{line}")
