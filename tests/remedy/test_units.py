"""Units as people write them: tests/units/NAME.service with NAME.edit comes to NAME.expected, and systemd agrees.

NAME.service.d/ holds drop-ins, NAME.env what its EnvironmentFile= names, NAME.yaml what its --config names. In
NAME.edit a line is an edit (`cap-flag --cuda-graph-max-bs 64`, bounds as `floor=1`), or `release`, `name UNIT`,
`logged FIELD VALUE`. NAME.expected is what changes for the process (words that go, words that come), then the drop-in
without its comments; or the refusal.
"""

import contextlib
import difflib
import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.remedy.fixtures import NOW, UNITS, remedy, with_file
from triage.actionmodel import Plan, Request, Unit, UnitFile
from triage.actions.wire import dump_request, load_request
from triage.configured import configured, logged_beside, noted
from triage.model import Edit, Refused
from triage.remedy import as_it_stands, plan
from triage.rulebase.hints import hinted
from triage.rulebase.spelling import respelled
from triage.units.dropin import Standing, in_force, render
from triage.units.flagfile import FlagFile, parse
from triage.units.flags import served, spelled
from triage.units.unitfile import digest, effective, expand

CASES = sorted(path.stem for path in UNITS.glob("*.edit"))


@dataclass(frozen=True)
class Case:
    unit: Unit
    edits: tuple[Edit, ...]
    release: str | None
    logged: dict[str, str]
    file: FlagFile | None


def case(name: str) -> Case:
    told = [
        line.split(" ", 2) for line in (UNITS / f"{name}.edit").read_text().splitlines() if line[:1] not in ("", "#")
    ]
    facts = {words[0]: words[1] for words in told if words[0] in ("release", "name")}
    logged = {words[1]: words[2] for words in told if words[0] == "logged"}
    edits = tuple(edit(words) for words in told if "-" in words[0])
    own = f"sglang-{name.replace('@', '@one')}.service"
    return Case(read(name, facts.get("name", own)), edits, facts.get("release"), logged, filed(name))


def filed(name: str) -> FlagFile | None:
    path = UNITS / f"{name}.yaml"
    values = parse(path.read_text()) if path.exists() else None
    return FlagFile(f"/etc/sglang/{name}.yaml", values) if values is not None else None


def edit(words: list[str]) -> Edit:
    op, name, rest = (*words, "")[:3]
    bounds = dict(word.split("=") for word in rest.split() if word.startswith(("floor=", "ceiling=")))
    numbers = {key: float(value) for key, value in bounds.items()}
    if op in ("cap-flag", "scale-flag", "step-flag"):
        return Edit(op, name, float(rest.split()[0]), **numbers)
    return Edit(op, name, rest or None)


def read(name: str, unit: str) -> Unit:
    fragment = unit.partition("@")[0] + "@.service" if "@" in unit else unit
    files = [UnitFile(f"/etc/systemd/system/{fragment}", (UNITS / f"{name}.service").read_text())]
    for path in sorted((UNITS / f"{name}.service.d").glob("*.conf")):
        files.append(UnitFile(f"/etc/systemd/system/{unit}.d/{path.name}", path.read_text()))
    env = UNITS / f"{name}.env"
    filed = (UnitFile(f"/etc/sglang/{name}.env", env.read_text()),) if env.exists() else ()
    return Unit(unit, tuple(files), environment_files=filed)


def worked_out(found: Case) -> Plan:
    cure = hinted(respelled(remedy(*found.edits), found.release), spelled(effective(found.unit)), found.release)
    logged = found.logged
    if found.file:
        stands = as_it_stands(found.unit, Standing())
        cure, logged = configured(cure, stands, found.file), logged_beside(found.file, stands, logged)
    result = plan(found.unit, 3, "a-rule", cure, Standing(), action="i3-1", now=NOW, present=logged)
    return noted(result, found.file) if found.file else result


def process(unit: Unit) -> list[str]:
    """The words that the server gets, out of a shell's script too."""
    merged = effective(unit, with_drop_in=True)
    variables = {name: value.replace("%%", "%") for name, value in merged.variables.items()}
    return [
        word
        for command in merged.commands
        for word in served(tuple(w.replace("%%", "%") for w in expand(command.argv, variables)), variables)
    ]


def changed(before: list[str], after: list[str]) -> str:
    lines = difflib.ndiff([repr(word) for word in before], [repr(word) for word in after])
    return "".join(f"# {line}\n" for line in lines if line[0] in "+-")


def told(found: Case) -> str:
    try:
        result = worked_out(found)
    except Refused as reason:
        return f"refused: {reason}\n"
    edited = with_file(found.unit, result.drop_in_text)
    text = "".join(line for line in result.drop_in_text.splitlines(keepends=True) if not line.startswith("#"))
    notes = "".join(f"# note: {note}\n" for note in result.notes if "--config" in note)
    return changed(process(found.unit), process(edited)) + notes + text


@pytest.mark.parametrize("name", CASES)
def test_the_edit_comes_to_the_expected_file(name: str, request: pytest.FixtureRequest) -> None:
    said, answer = told(case(name)), UNITS / f"{name}.expected"
    if request.config.getoption("--golden"):
        answer.write_text(said)
    assert said == answer.read_text(), f"{name}: `make golden` writes it anew, then review the diff"


@pytest.mark.parametrize("name", CASES)
def test_root_renders_what_was_shown_from_the_request_alone(name: str) -> None:
    found = case(name)
    try:
        shown = worked_out(found)
    except Refused:
        return
    ids = {"action": shown.action, "unit": shown.unit, "incident": shown.incident, "rule": "a-rule", "remedy": "cure"}
    digests = {"seen_digest": shown.seen_digest, "result_digest": shown.result_digest}
    asked = Request(kind="apply", edits=shown.edits, **ids, **digests, uid=0, sudo_uid=None, time=NOW)
    text = render(found.unit, (), in_force(load_request(dump_request(asked)))).text
    assert digest(text) == shown.result_digest


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_objects_to_nothing_that_it_did_not_object_to_before(tmp_path: Path) -> None:
    """Two calls for all of them: the units as they are, and as they become."""
    before, after = [], []
    for name in CASES:
        found = case(name)
        with contextlib.suppress(Refused):
            after.append(with_file(found.unit, worked_out(found).drop_in_text))
            before.append(found.unit)
    assert len(after) > 60
    said = verified(tmp_path / "before", before)
    assert any("/opt/sglang/bin/python3 is not executable" in line for line in said)
    assert verified(tmp_path / "after", after) - said == Counter()


def verified(folder: Path, units: list[Unit]) -> Counter[str]:
    for unit in units:
        for at, file in enumerate(unit.files):
            place = folder / unit.name if at == 0 else folder / f"{unit.name}.d" / file.path.rsplit("/", 1)[-1]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(file.text)
    argv = [
        "systemd-analyze",
        "verify",
        "--man=no",
        "--recursive-errors=no",
        *(str(folder / unit.name) for unit in units),
    ]
    env = {**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=110, check=False)
    return Counter(re.sub(r":\d+:", ":", line.replace(str(folder), "")) for line in done.stderr.splitlines())


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 60
    assert {path.stem for path in UNITS.glob("*.expected")} == set(CASES)
    assert all((UNITS / f"{name}.service").exists() for name in CASES)
