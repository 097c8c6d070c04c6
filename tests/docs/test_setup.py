"""`make setup` again, from inside the environment that it made."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).parents[2]


def test_an_activated_environment_is_not_made_anew(tmp_path: Path) -> None:
    (tmp_path / "packaging").mkdir()
    shutil.copy(TREE / "packaging" / "setup", tmp_path / "packaging" / "setup")
    shutil.copy(TREE / "pyproject.toml", tmp_path)
    stand_in = tmp_path / "stand-in" / "dpkg-query"  # nothing is to be installed by a test
    stand_in.parent.mkdir()
    stand_in.write_text("#!/bin/sh\nprintf 'ii '\n")
    stand_in.chmod(0o755)
    interpreter = os.path.realpath(sys.executable)
    venv = tmp_path / ".venv"
    subprocess.run([interpreter, "-m", "venv", "--without-pip", str(venv)], check=True)
    digest = hashlib.sha256((tmp_path / "pyproject.toml").read_bytes()).hexdigest()
    version = " ".join(map(str, sys.version_info[:3]))
    (venv / ".made-from").write_text(f"{interpreter} {version} {digest}  - journal")
    path = f"{venv / 'bin'}:{stand_in.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHON": "python3"}
    again = subprocess.run(
        [str(tmp_path / "packaging" / "setup")], env=environment, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert "making .venv" not in again.stderr
    assert (venv / ".made-from").exists()
