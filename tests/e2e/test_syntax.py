"""Units as systemd reads them and as triage does: the same words, and the same again out of a drop-in of ours."""

from __future__ import annotations

import json

from tests.e2e.box import Box
from tests.remedy.fixtures import DISABLE_GRAPH, UNITS, planned, with_file
from tests.remedy.test_units import case, changed, read, worked_out
from triage.actionmodel import Unit, UnitFile
from triage.actions.compare import mismatch
from triage.model import Edit
from triage.units.directives import HELD, held_as
from triage.units.edits import apply_edit, draft
from triage.units.flags import served
from triage.units.systemctl import Loaded, object_path
from triage.units.unitfile import effective, expand

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


def put(box: Box, *units: Unit) -> None:
    """The units' files put into the box, and loaded."""
    for unit in units:
        for file in unit.files:
            box.push(file.text, file.path)
    box.systemctl("daemon-reload")


def held(box: Box, unit: Unit) -> Loaded:
    """The unit as its manager has it."""
    ask = ["busctl", "--json=short", "get-property", "org.freedesktop.systemd1", object_path(unit.name)]
    lines = box.run([*ask, SERVICE, "ExecStart", "Environment", "UnsetEnvironment"]).out.splitlines()
    commands, environment, unset = (json.loads(line)["data"] for line in lines)
    settings = {}
    for section, interface in (("Service.", SERVICE), ("Unit.", SERVICE.replace("Service", "Unit"))):
        names = [name for name in HELD if name.startswith(section)]
        answer = box.run([*ask, interface, *(HELD[name][0] for name in names)]).out.splitlines()
        settings |= {name: json.loads(line)["data"] for name, line in zip(names, answer, strict=True)}
    argvs = tuple(tuple(command[1]) for command in commands)
    return Loaded(argvs, tuple(environment), tuple(unset), settings=settings)


def agree(box: Box, unit: Unit) -> str:
    return mismatch(draft(effective(unit, with_drop_in=True)), held(box, unit))


def test_the_manager_holds_the_words_that_triage_reads(box: Box) -> None:
    odd = Unit("sglang-odd.service", (UnitFile("/etc/systemd/system/sglang-odd.service", ODD),))
    others = [read(path.stem, f"sglang-{path.stem.replace('@', '@one')}.service") for path in UNITS.glob("*.service")]
    put(box, odd, *others)
    assert {unit.name: why for unit in (odd, *others) if (why := agree(box, unit))} == {}


DOZEN = (
    "args-bare",
    "args-bare-remove",
    "bash-c-json",
    "bash-c-variables",
    "direct-continued",
    "direct-escapes",
    "docker-env-new",
    "drop-ins-with-resets",
    "flag-json",
    "flag-json-kept",
    "instance-dashed@",
    "prefix-at",
    "prefix-colon",
    "serve-model-last",
)


def test_the_manager_holds_the_expected_change_of_each_unit_and_nothing_else(box: Box) -> None:
    units = {name: case(name).unit for name in DOZEN}
    put(box, *units.values())
    before = {name: gets(box, unit) for name, unit in units.items()}
    edited = {name: with_file(unit, worked_out(case(name)).drop_in_text) for name, unit in units.items()}
    put(box, *edited.values())
    assert {name: why for name, unit in edited.items() if (why := agree(box, unit))} == {}
    for name, unit in edited.items():
        expected = (UNITS / f"{name}.expected").read_text()
        assert changed(before[name], gets(box, unit)) == expected[: expected.index("[Service]")], name


def gets(box: Box, unit: Unit) -> list[str]:
    """The words that the server gets, by what the manager holds."""
    loaded = held(box, unit)
    variables = dict(item.partition("=")[::2] for item in loaded.environment)
    return [word for command in loaded.commands for word in served(expand(command, variables), variables)]


def test_an_edit_changes_nothing_else_for_the_manager(box: Box) -> None:
    odd = Unit("sglang-odd2.service", (UnitFile("/etc/systemd/system/sglang-odd2.service", ODD),))
    put(box, odd)
    before = held(box, odd)
    hostile = 'a "b" c\\d %i $HOME ${HOME} \'e\' ; #x {"k":1} é'
    result = planned(odd, DISABLE_GRAPH, Edit("set-flag", "--hostile", hostile), Edit("set-env", "H", hostile))
    edited = with_file(odd, result.drop_in_text)
    put(box, edited)
    after = held(box, edited)
    assert mismatch(draft(effective(edited, with_drop_in=True)), after) == ""
    added = ("--disable-cuda-graph", "--hostile", hostile.replace("$", "$$"))
    assert after.commands == ((*before.commands[0], *added),)
    assert set(after.environment) == {*before.environment, f"H={hostile}"}


def test_variables_become_the_words_that_triage_says(box: Box) -> None:
    """Only a process shows what the manager makes of `$ARGS`."""
    said = r"""[Service]
Type=oneshot
Environment=A='one' "B='two two' too" C= "D=a\\b \"c d\" e\\ f" "E=--x='p q'r --y={\"k\":1} 100%% $A"
ExecStart=/bin/sh -c 'for w in "$$@"; do printf "%%s\\n" "$$w"; done > /run/words' \
  - $A $B $C $D $E ${B} --z=${C} $$A $NONE ${NONE} a$A
"""
    unit = Unit("sglang-words.service", (UnitFile("/etc/systemd/system/sglang-words.service", said),))
    put(box, unit)
    box.systemctl("start", unit.name)
    loaded = held(box, unit)
    variables = dict(item.partition("=")[::2] for item in loaded.environment)
    [command] = loaded.commands
    assert list(expand(command, variables)[4:]) == box.run(["cat", "/run/words"]).out.removesuffix("\n").split("\n")


def test_directives_are_held_as_triage_reads_them(box: Box) -> None:
    """For each that a remedy may set, in several spellings; and one that was not taken is told."""
    spelled = {
        "Service.LimitNOFILE": "1024:1048576",
        "Service.LimitMEMLOCK": "infinity",
        "Service.LimitSTACK": "64M",
        "Service.LimitNPROC": "4096",
        "Service.LimitCORE": "0",
        "Service.MemoryMax": "200G",
        "Service.MemoryHigh": "1536M",
        "Service.TasksMax": "infinity",
        "Service.TimeoutStartSec": "1min 30s",
        "Service.TimeoutStopSec": "0",
        "Service.RestartSec": "30s",
        "Service.Restart": "on-failure",
        "Service.KillMode": "mixed",
        "Service.OOMScoreAdjust": "-500",
        "Unit.StartLimitIntervalSec": "2h",
        "Unit.StartLimitBurst": "4",
    }
    assert set(spelled) == set(HELD)
    sections = ("Unit", "Service")
    lines = [[f"{name.split('.')[1]}={text}" for name, text in spelled.items() if name.startswith(s)] for s in sections]
    text = "\n".join(["[Unit]", *lines[0], "[Service]", "ExecStart=/v/python -m sglang.launch_server", *lines[1], ""])
    unit = Unit("sglang-directives.service", (UnitFile("/etc/systemd/system/sglang-directives.service", text),))
    put(box, unit)
    found = held(box, unit)
    assert {name: held_as(name, text) for name, text in spelled.items()} == dict(found.settings)
    state = apply_edit(draft(effective(unit)), Edit("set-unit", "Service.LimitNOFILE", 65536))
    assert mismatch(state, found) == "Service.LimitNOFILE is 1048576 instead of 65536"
