"""Where the files that travel beside the code are: rules, catalogue, migrations, web, packaging.

In a checkout they lie at the top level; in an installed wheel below `triage/_shipped`. Nothing else may guess.
"""

from pathlib import Path
from typing import Literal

SITE_RULES = Path("/etc/triage/rules.d")
_PACKAGE = Path(__file__).resolve().parent


def shipped(what: Literal["rules", "catalogue", "migrations", "web", "packaging"]) -> Path:
    """The folder of that name, in either layout. Raises FileNotFoundError on a broken installation."""
    for base in (_PACKAGE / "_shipped", _PACKAGE.parent):
        folder = base / what
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"triage's own {what}/ folder is missing beside {_PACKAGE}: reinstall triage")


def rule_folders(*extra: Path) -> tuple[Path, ...]:
    """Where rules come from, each once, the later overriding the earlier: shipped, the site's, those named."""
    return tuple(dict.fromkeys((shipped("rules"), SITE_RULES, *extra)))


def is_checkout() -> bool:
    """True when this code runs out of a source tree rather than an installed wheel."""
    return not (_PACKAGE / "_shipped").is_dir()


def checkout() -> Path | None:
    """The source tree this code runs out of, with its tests; None in an installed wheel."""
    return _PACKAGE.parent if is_checkout() else None
