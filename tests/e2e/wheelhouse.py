"""The wheel of this checkout and the wheels of everything it needs, built outside the box (which has no network).

Both are kept below build/e2e: the others until what we depend on changes, ours until any file of the checkout does."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "e2e"
PYTHON = "/usr/bin/python3"  # the one that is in the box too, and that every user may read
OURS = ("triage", "rules", "catalogue", "migrations", "web", "packaging", "pyproject.toml")


def wheelhouse() -> tuple[Path, Path]:
    """(our wheel, folder of all wheels). Raises subprocess.CalledProcessError with pip's words."""
    version = subprocess.run([PYTHON, "--version"], check=True, capture_output=True, text=True).stdout
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["journal"]]
    key = hashlib.sha256("\n".join([version, *needs]).encode()).hexdigest()[:12]
    folder = CACHE / f"wheels-{key}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _pip("wheel", "--use-pep517", "--wheel-dir", str(folder), *needs)  # an old pip has no bdist_wheel of its own
        (folder / "complete").touch()
    digest = _digest()
    ours = CACHE / f"triage-{digest}"
    if not list(ours.glob("*.whl")):
        for old in CACHE.glob("triage-*"):
            shutil.rmtree(old)
        _pip("wheel", "--no-deps", "--wheel-dir", str(ours), str(ROOT))
    return next(ours.glob("*.whl")), folder


def _digest() -> str:
    """Over what goes into the wheel."""
    digest = hashlib.sha256()
    for name in OURS:
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _pip(*args: str) -> None:
    builder = CACHE / "builder"
    if not (builder / "bin" / "pip").exists():
        subprocess.run([PYTHON, "-m", "venv", str(builder)], check=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(builder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", *args],
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"pip {' '.join(args)}: {done.stderr[-3000:]}")
