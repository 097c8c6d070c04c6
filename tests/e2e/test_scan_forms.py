"""`triage scan` says the same of one real crash, whatever form its log comes in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.box import Box
from tests.e2e.server import Server, install_standin

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def forms(box: Box, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Form -> SPEC of one crash."""
    folder = tmp_path_factory.mktemp("forms")
    install_standin(box)
    server = Server(box, "forms", 31001)
    server.crash()
    box.run(["journalctl", "--sync"])
    specs = {"journal folder": f"journal:{box.journal_folder}"}
    specs["journal file"] = f"journal:{next(box.journal_folder.glob('*/system.journal'))}"
    for form, options in {
        "plain": ["-o", "cat", f"_SYSTEMD_UNIT={server.name}"],
        "journalctl": ["-o", "short", "-u", server.name],
        "journalctl, precise": ["-o", "short-iso-precise", "-u", server.name],
        "json": ["-o", "json", "--all", "-u", server.name],
        "export": ["-o", "export", "-u", server.name],
    }.items():
        path = folder / form.replace(" ", "")
        path.write_text(box.journal(*options))
        specs[form] = str(path)
    server.stop()
    return specs


def scan(spec: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "triage", "scan", "--json", spec], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_one_crash_has_one_id_and_one_signature_in_every_form(forms: dict[str, str]) -> None:
    found = {}
    for form, spec in forms.items():
        code, document = scan(spec)
        assert (form, code, len(document["crashes"])) == (form, 1, 1)
        found[form] = document["crashes"][0]
    assert len({crash["id"] for crash in found.values()}) == 1
    assert len({crash["signature"]["key"] for crash in found.values()}) == 1
    for form, crash in found.items():
        assert (form, sorted(crash["ranks"])) == (form, [f"TP{n}" for n in range(8)])
        assert (form, crash["root"]["exception"]) == (form, "AttributeError")
        assert (form, crash["root"]["frame"]["file"], crash["root"]["frame"]["line"]) == (form, "dflash_worker.py", 715)
        remedy = crash["matches"][0]["remedies"][0]
        assert (form, remedy["edits"][0]["name"]) == (form, "--disable-cuda-graph")


def test_where_the_manager_speaks_the_crash_is_fatal(forms: dict[str, str]) -> None:
    for form in ("journal folder", "journal file", "json", "export"):
        crash = scan(forms[form])[1]["crashes"][0]
        assert (form, crash["outcome"], crash["phase"]) == (form, "fatal", "serving")
        assert (form, crash["unit"]) == (form, "sglang-forms.service")
        assert (form, crash["invocation"] is not None) == (form, True)


SLOW = """\
[Service]
Type=notify
TimeoutStartSec=1
TimeoutStopSec=3
ExecStart=/bin/sh -c '(trap "" TERM; exec sleep 60) & trap "exit 3" TERM; sleep 60 & wait'
"""


def test_a_start_that_took_too_long_is_told_as_one_though_its_children_stay_for_seconds(
    box: Box, tmp_path: Path
) -> None:
    """The main process goes at once, a rank only when it is killed; the manager tells its result after that."""
    unit = "sglang-slow.service"
    box.push(SLOW, f"/etc/systemd/system/{unit}")
    box.systemctl("daemon-reload")
    box.systemctl("start", unit, check=False)
    box.run(["journalctl", "--sync"])
    for form, options in (("json", ["-o", "json", "--all"]), ("journalctl", ["-o", "short-iso-precise"])):
        said = box.journal(*options, "-u", unit)
        untold = [line for line in said.splitlines(True) if "operation timed out" not in line]
        assert len(untold) == len(said.splitlines()) - 1
        for name, text in (("whole", said), ("without the manager's warning", "".join(untold))):
            path = tmp_path / form
            path.write_text(text)
            (crash,) = scan(str(path))[1]["crashes"]
            of = (form, name)
            assert (of, crash["root"]["exception"], crash["outcome"]) == (of, "StartTimeout", "fatal")
            assert (of, crash["matches"][0]["rule"]) == (of, "start-timeout")
            assert (of, crash["end"]["result"], crash["end"]["status"]) == (of, "timeout", "3")
