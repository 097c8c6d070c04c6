"""Install the stand-in for SGLang: a small virtual environment with the package `sglang` in it.

`python install.py FOLDER` makes FOLDER/bin/python; `files()` gives what lies in its site-packages.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

VERSION = "0.5.12"
HERE = Path(__file__).resolve().parent
PAD = "# --- padding: what follows stands on line "


def files() -> dict[str, str]:
    """Path below site-packages -> text."""
    found = {str(path.relative_to(HERE)): padded(path.read_text()) for path in sorted((HERE / "sglang").rglob("*.py"))}
    info = f"sglang-{VERSION}.dist-info"
    found[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: sglang\nVersion: {VERSION}\n"
    found[f"{info}/INSTALLER"] = "triage's tests\n"
    return found


def padded(text: str) -> str:
    """Blank lines where a file asks for them, so that a statement stands on the very line that the real program names.

    The story's crash is known by `dflash_worker.py`, line 715. The traceback must be a genuine one, printed by Python
    for the line that raised, and nobody wants seven hundred lines of filler under review."""
    out: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith(PAD):
            goal = int(line.strip().removeprefix(PAD))
            out.extend([""] * (goal - len(out) - 1))
        else:
            out.append(line)
    return "\n".join(out) + "\n"


def install(folder: Path, python: str = sys.executable) -> Path:
    """A virtual environment without pip; gives its interpreter."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next((folder / "lib").glob("python3*/site-packages"))
    for name, text in files().items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    return folder / "bin" / "python"


if __name__ == "__main__":
    print(install(Path(sys.argv[1]), *sys.argv[2:3]))
