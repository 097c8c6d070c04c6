"""In which file SGLang defines which class, of those that belong to one part of the server alone. `build.py` writes it
to messages.json.

In: folders that hold an unpacked `sglang/`, older releases first, and what tells the part of a file. Out: file ->
names: a last line that names a class and has no traceback tells its part by them. Source is parsed, never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

# Names of one or two plain words (`Overlap`, `CacheConfig`) are other packages' too.
_TELLING = re.compile(r"\w*[A-Z]{2}|(?:_?[A-Z][a-z0-9]+){3,}")
_MODELS = "models/"  # their classes' names are in every message about the model


def document(folders: list[Path], part: Callable[[str], str]) -> dict[str, list[str]]:
    """`part`: of a file below `sglang/srt/`, '' where it is of none. The last release that has a class counts: there
    all files that define it have to be of one part, and the first of them is told."""
    places: dict[str, set[str]] = {}
    for folder in folders:
        here: dict[str, set[str]] = {}
        base = folder / "sglang" / "srt"
        for path in sorted(base.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.ClassDef) and _TELLING.match(node.name):
                    here.setdefault(node.name, set()).add(path.relative_to(base).as_posix())
        places |= here
    out: dict[str, list[str]] = {}
    for name, files in sorted(places.items()):
        parts = {"" if file.startswith(_MODELS) else part(file) for file in files}
        if len(parts) == 1 and "" not in parts:
            out.setdefault(min(files), []).append(name)
    return dict(sorted(out.items()))
