"""Units as systemd reads them and as triage does: the same words, and the same again out of a drop-in of ours."""

from __future__ import annotations

import json

from tests.e2e.box import Box
from tests.remedy.fixtures import DISABLE_GRAPH, UNITS, planned, with_file
from triage.actions.compare import mismatch
from triage.model import Edit, Unit, UnitFile
from triage.units.edits import draft
from triage.units.systemctl import Loaded, object_path
from triage.units.unitfile import effective

ODD = r"""[Service]
Environment="A=one two" 'B=it\'s' C=\x41\u00e9 "D=100%%"
Environment=E=$plain
UnsetEnvironment=F
ExecStart=-@/usr/bin/env argv0 \
  # why the next one
  /v/python -m sglang.launch_server --a 'p q' --b="r \"s\"" mid"dle q"uote \
; another comment
  \x2d-c \; --d %n %% $ARGS ${A} $$X --e "" --f 'it\'s' --g tab\there --h {"a":[1,2]} --i back\\slash --j ünï
"""
SERVICE = "org.freedesktop.systemd1.Service"


def held(box: Box, unit: Unit) -> Loaded:
    """The unit's files put into the box and read back from its manager."""
    for file in unit.files:
        box.push(file.text, file.path)
    box.systemctl("daemon-reload")
    ask = ["busctl", "--json=short", "get-property", "org.freedesktop.systemd1", object_path(unit.name), SERVICE]
    lines = box.run([*ask, "ExecStart", "Environment", "UnsetEnvironment"]).out.splitlines()
    commands, environment, unset = (json.loads(line)["data"] for line in lines)
    return Loaded(tuple(tuple(command[1]) for command in commands), tuple(environment), tuple(unset))


def agree(box: Box, unit: Unit) -> str:
    return mismatch(draft(effective(unit, with_drop_in=True)), held(box, unit))


def test_the_manager_holds_the_words_that_triage_reads(box: Box) -> None:
    odd = Unit("sglang-odd.service", (UnitFile("/etc/systemd/system/sglang-odd.service", ODD),))
    assert agree(box, odd) == ""
    for fixture in sorted(UNITS.glob("*.service")):
        name = f"sglang-{fixture.stem}x.service" if "@" in fixture.stem else f"sglang-{fixture.stem}.service"
        assert agree(box, Unit(name, (UnitFile(f"/etc/systemd/system/{name}", fixture.read_text()),))) == "", name


def test_an_edit_changes_nothing_else_for_the_manager(box: Box) -> None:
    odd = Unit("sglang-odd2.service", (UnitFile("/etc/systemd/system/sglang-odd2.service", ODD),))
    before = held(box, odd)
    hostile = 'a "b" c\\d %i $HOME ${HOME} \'e\' ; #x {"k":1} é'
    result = planned(odd, DISABLE_GRAPH, Edit("set-flag", "--hostile", hostile), Edit("set-env", "H", hostile))
    edited = with_file(odd, result.drop_in_text)
    after = held(box, edited)
    assert mismatch(draft(effective(edited, with_drop_in=True)), after) == ""
    added = ("--disable-cuda-graph", "--hostile", hostile.replace("$", "$$"))
    assert after.commands == ((*before.commands[0], *added),)
    assert set(after.environment) == {*before.environment, f"H={hostile}"}
