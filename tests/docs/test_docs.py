"""The docs tell the truth: commands, settings, rule areas and pages that are there, and none that are not."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from triage.cli import VERBS
from triage.rulebase.rulefile import load_rules
from triage.shipped import shipped

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"


def generated() -> str:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text: str = module.page()
    return text


def test_the_page_of_rules_is_what_make_docs_would_write() -> None:
    assert (DOCS / "rules-list.md").read_text() == generated(), "run `make docs` and commit the page"


def test_the_page_of_rules_names_every_area() -> None:
    text = (DOCS / "rules-list.md").read_text()
    areas = {rule.area for rule in load_rules((shipped("rules"),)).rules}
    assert areas
    assert {area for area in areas if f"\n## {area}\n" not in text} == set()


def test_every_command_the_readme_types_exists() -> None:
    text = (TOP / "README.md").read_text()
    typed = set(re.findall(r"(?m)^    (?:\.venv/bin/|sudo )?triage ([a-z]+)", text))
    assert typed
    assert typed - set(VERBS) == set()
    targets = set(re.findall(r"(?m)^([a-z0-9-]+):", (TOP / "Makefile").read_text()))
    assert set(re.findall(r"(?m)^    make ([a-z]+)", text)) - targets == set()


def test_every_link_inside_the_repository_leads_somewhere() -> None:
    for page in (TOP / "README.md", *DOCS.glob("*.md")):
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_architecture_page_names_every_room() -> None:
    text = (DOCS / "architecture.md").read_text()
    rooms = {path.stem for path in (TOP / "triage").glob("*.py") if not path.stem.startswith("__")}
    rooms |= {path.name for path in (TOP / "triage").iterdir() if (path / "__init__.py").exists()}
    for folder in ("engine", "rulebase", "units", "actions"):
        rooms |= {path.stem for path in (TOP / "triage" / folder).glob("*.py") if not path.stem.startswith("__")}
    missing = {room for room in rooms if not re.search(rf"`(triage/|sources/)?{room}[/`]", text)}
    assert missing == set()


def test_the_page_of_the_dashboard_names_every_address() -> None:
    text = (DOCS / "dashboard.md").read_text()
    sources = [path.read_text() for path in (TOP / "triage" / "dashboard").glob("*.py")]
    served = {path for source in sources for path in re.findall(r'@(?:router|app)\.(?:get|post)\("(/[^"]+)"', source)}
    assert "/incidents/{n}" in served
    missing = {path for path in served if path not in text and path not in ("/logout", "/incidents/{n}/unmute")}
    assert missing == set()
    codes = {code for source in sources for code in re.findall(r'\b[45]\d\d,\s*"([a-z-]+)"', source)}
    assert codes
    assert {code for code in codes if f"`{code}`" not in text} == set()
