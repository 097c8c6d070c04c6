"""Exit 1 of `scan` means a crash in the log, and nothing else may look like it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CRASH = Path(__file__).resolve().parents[2] / "demo" / "crash.export"
TRIAGE = [sys.executable, "-m", "triage"]


def run(*args: str, out: str | None = None) -> tuple[int, str]:
    with open(out or "/dev/null", "wb") as sink:
        done = subprocess.run([*TRIAGE, *args], stdout=sink, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_a_crash_is_1_and_what_cannot_be_read_is_2() -> None:
    assert run("scan", str(CRASH))[0] == 1
    assert run("scan", "/no/such/file")[0] == 2


def test_help_does_not_pay_for_the_model() -> None:
    script = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from triage.cli import main\n"
        "main()\n"
        "sys.exit(bool({'triage.model', 'traceback'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, timeout=60, check=False)
    assert done.returncode == 0


def test_a_full_disk_behind_stdout_is_no_crash() -> None:
    code, said = run("scan", "--json", str(CRASH), out="/dev/full")
    assert code == 70
    assert "No space left" in said
    assert "Traceback" not in said
