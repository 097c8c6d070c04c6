"""Options that more than one verb takes, with one wording for all. It must import click alone."""

from __future__ import annotations

from pathlib import Path

import click

ROOT = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read and write unit files below this folder; restart nothing.",
)
DRY = click.option("--dry-run", is_flag=True, help="Show plan and diff, change nothing.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")
WAIT = click.option("--wait", is_flag=True, help="Stay until soak, speed and window have decided too.")
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
RULES = click.option(
    "--rules",
    "folders",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Another folder of rules, over the shipped ones and the site's.",
)
