"""Do the edits of a rule render on units as people write them, and does systemd read back what was meant?

In: a rule and a folder of unit files (a checkout's tests/units). Out: problems with their place. Called by `rulecheck`.
A unit whose command no edit understands (a shell, a container) says nothing about a rule, nor does a refusal that tells
what to do by hand: that is the unit's shape (sudo, env -i), whatever the rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from triage.actionmodel import Unit, UnitFile
from triage.model import Edit, Refused
from triage.rulebase.rule import PLACEHOLDER, EditText, Rule
from triage.rulebase.rulefile import Problem
from triage.units.dropin import InForce, render
from triage.units.edits import SEARCH, DoesNotFit, draft
from triage.units.unitfile import drop_in_path, effective

_PLAIN = Edit("set-flag", "--log-level", "info")


def units(folder: Path) -> tuple[Unit, ...]:
    """The units of the folder whose command can be edited at all."""
    found = []
    for path in sorted(folder.glob("*.service")):
        name = f"sglang-{path.name}".replace("@.", "@1.")
        unit = Unit(name, (UnitFile(f"/etc/systemd/system/{name}", path.read_text(encoding="utf-8")),))
        if _rendered(unit, (_PLAIN,)) is None:
            found.append(unit)
    return tuple(found)


def unfit(rule: Rule, known: tuple[Unit, ...]) -> Iterator[Problem]:
    """Every rung with edits, on every unit: it renders, or has nothing to do there."""
    for remedy in rule.remedies:
        edits = tuple(edit for text in remedy.edits for edit in stood_in(text))
        whys = [(unit.name, why) for unit in known if edits and (why := _rendered(unit, edits))]
        if whys:
            name, why = whys[0]
            more = f" (and on {len(whys) - 1} other units)" if len(whys) > 1 else ""
            yield Problem(remedy.mark, f"the rung {remedy.id} does not render on {name}{more}: {why}")


def stood_in(text: EditText) -> Iterator[Edit]:
    """The edit with something plain in place of what a log would tell."""
    value = text.value
    if isinstance(value, str):
        value = 1 if PLACEHOLDER.fullmatch(value) else PLACEHOLDER.sub("1", value)
    if text.op == SEARCH:  # planning works it out; the lowest it may come to stands for what it finds
        yield from (Edit("cap-flag", name, text.floor) for name in text.names)
        return
    for name in text.names:
        plain = "SGLANG_X" if text.op.endswith("-env") else "--x"
        yield Edit(text.op, PLACEHOLDER.sub(plain, name), value, text.floor, text.ceiling)


@cache
def _rendered(unit: Unit, edits: tuple[Edit, ...]) -> str | None:
    """None where it renders and reads back as meant, or changes nothing; else why not."""
    try:
        rendered = render(unit, (), InForce("i1-1", 1, "rule", "rung", 0, edits))
    except DoesNotFit as reason:  # nothing to do there; but arithmetic on what is no number is the rule's mistake
        return str(reason) if "no number" in str(reason) else None
    except Refused as reason:
        return None if edits != (_PLAIN,) and "by hand" in str(reason) else str(reason)
    after = Unit(unit.name, (*unit.files, UnitFile(drop_in_path(unit.name), rendered.text)))
    back = draft(effective(after, with_drop_in=True))
    same = [command.argv for command in back.commands] == [command.argv for command in rendered.draft.commands]
    there = back.base.environment
    same &= all(there.get(name) == value for name, value in rendered.draft.environment.items())
    return None if same else "systemd would read something else"
