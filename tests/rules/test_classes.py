"""The catalogue's classes: of parts of the server, each of one part alone in the last release that has it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from triage.shipped import checkout

PARTS = {"nests": "enable_nests", "reeds": "enable_reeds", "models": "draft"}


@pytest.mark.skipif(checkout() is None, reason="the building scripts are not in a wheel")
def test_a_class_is_kept_where_the_last_release_has_it_in_one_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str((checkout() or tmp_path) / "catalogue"), *sys.path])
    import classes

    releases: list[dict[str, str]] = [
        {"lake/moved.py": "class HeronNestPool: ...", "nests/one.py": "class OldNestPool: ..."},
        {
            "nests/one.py": "class HeronNestPool: ...\nclass Nest: ...\nclass LakeNest: ...\nclass MLANest: ...",
            "nests/two.py": "class HeronNestPool: ...\nclass TwoPartsNest: ...\nclass OutsideOfNests: ...",
            "reeds/one.py": "class TwoPartsNest: ...\nclass TallReedBed: ...",
            "models/nest_one.py": "class NestForCausalLMDraft: ...",
            "lake/one.py": "class OutsideOfNests: ...\nclass LakeWaterLevel: ...",
        },
    ]
    for number, files in enumerate(releases):
        for name, source in files.items():
            path = tmp_path / str(number) / "sglang" / "srt" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
    found = classes.document([tmp_path / "0", tmp_path / "1"], lambda file: PARTS.get(file.split("/")[0], ""))
    assert found == {"nests/one.py": ["HeronNestPool", "MLANest", "OldNestPool"], "reeds/one.py": ["TallReedBed"]}
