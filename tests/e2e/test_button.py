"""The same story by the button on the page, in a real browser, against the installed triage in the box."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.box import wait_for
from tests.e2e.installed import Installed
from tests.e2e.server import Server

SCRIPT = Path(__file__).parent / "button.py"


def link(triage: Installed) -> str:
    """What triage-web printed when it started."""

    def look() -> str | None:
        found = re.findall(r"http://\S+/login\?token=\S+", triage.box.journal("-u", "triage-web.service", "-o", "cat"))
        return str(found[-1]) if found else None

    return wait_for("the link of the dashboard", look)


def test_the_button_cures_and_undo_brings_every_byte_back(triage: Installed) -> None:
    if not shutil.which("chromium") and not shutil.which("chromium-browser"):
        pytest.fail("no Chromium: apt-get install chromium, or TRIAGE_E2E=skip", pytrace=False)
    server = Server(triage.box, "button", 31150)
    before = server.files()
    server.crash()
    number = triage.incident(server)

    # The browser is this machine's, in the box's network.
    argv = ["nsenter", "-t", str(triage.box.leader), "-n", "--", sys.executable, str(SCRIPT), link(triage), str(number)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)

    assert re.search(r"(?m)^\+\s+--disable-cuda-graph$", said["preview"])
    assert "probe" in said["applied"]
    assert server.files() == before
    assert "--disable-cuda-graph" not in server.argv()
    [action, undo] = triage.actions(server)
    assert action["name"] == said["action"]
    assert (action["state"], undo["state"]) == ("undone", "undone")
    assert {"incident.opened", "action.started", "action.verified"} <= set(triage.types(number))
    server.stop()
