"""Units of tests/units as values, and a remedy of each kind."""

from dataclasses import replace
from pathlib import Path

from triage.actionmodel import Plan, Unit, UnitFile
from triage.model import Edit, Remedy
from triage.remedy import plan
from triage.units.dropin import Standing
from triage.units.unitfile import drop_in_path

UNITS = Path(__file__).parent.parent / "units"
NOW = 1_764_424_800_000_000  # 2025-11-29T14:00Z
DISABLE_GRAPH = Edit("set-flag", "--disable-cuda-graph")


def unit(fixture: str, name: str | None = None, *drop_ins: tuple[str, str], mode: int = 0o644) -> Unit:
    """The fixture as a unit of that name; drop-ins are (file name, text or fixture)."""
    name = name or f"sglang-{fixture}.service"
    files = [UnitFile(f"/etc/systemd/system/{name}", (UNITS / f"{fixture}.service").read_text(), mode)]
    for file, text in sorted(drop_ins):
        content = (UNITS / text).read_text() if text.endswith(".conf") else text
        files.append(UnitFile(f"/etc/systemd/system/{name}.d/{file}", content))
    return Unit(name, tuple(files))


def remedy(*edits: Edit, name: str = "cure") -> Remedy:
    return Remedy(name, "flag", f"Try {name}", "some speed", True, edits, applicable=True)


def planned(target: Unit, *edits: Edit, known: Standing | None = None, action: str = "i3-1", **more: object) -> Plan:
    return plan(
        target,
        3,
        "dflash-graph-replay-none",
        remedy(*edits),
        known or Standing(),
        action=action,
        now=NOW,
        **more,  # type: ignore[arg-type]
    )


def with_file(target: Unit, text: str) -> Unit:
    """The unit once that drop-in lies there."""
    others = tuple(file for file in target.files if file.path != drop_in_path(target.name))
    return replace(target, files=(*others, UnitFile(drop_in_path(target.name), text)) if text else others)
