"""What the reading of SGLang's source finds of its checks, and what the shipped reading holds."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from triage.rulebase.catalogue import catalogue
from triage.shipped import shipped

ROOT = Path(__file__).resolve().parents[2]
FIELDS = frozenset({"page_size", "enable_herons", "tp_size", "dtype", "model_path"})


def conditions() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conditions", ROOT / "catalogue" / "conditions.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(folder: Path, source: str, file: str = "mem_cache/nests.py") -> dict[str, list[list[list[str]]]]:
    path = folder / "sglang" / "srt" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    found: dict[str, list[list[list[str]]]] = conditions().document([folder], FIELDS)
    return found


@pytest.mark.parametrize(
    ("body", "settings"),
    [
        (
            "if server_args.enable_herons:\n  if page_size > 1:\n   raise ValueError('heron {}'.format('duck'))",
            ["page_size", "enable_herons"],
        ),
        ("if get_exec().features.enable_herons:\n  pass\n else:\n  raise ValueError('heron')", ["enable_herons"]),
        ("size = self.server_args.page_size\n assert size == 1, f'heron {nest[duck]}'", ["page_size"]),
        ("if envs.SGLANG_HERON.get():\n  raise ValueError('a heron')", ["SGLANG_HERON"]),
        ("if get_bool_env_var('SGLANG_HERON'):\n  raise ValueError('a heron')", ["SGLANG_HERON"]),
        ("for one in two:\n  if cfg.tp_size > one:\n   raise ValueError('heron %d' % one)", ["tp_size"]),
        ("if server_args.dtype == 'x':\n  raise ValueError('heron')", ["dtype"]),
        ("if dtype == 'x':\n  raise ValueError('heron')", None),
        ("if self.page_size > 1:\n  raise ValueError('heron')", None),
        ("if server_args.model_path is None:\n  raise ValueError('heron')", None),
        ("if server_args.enable_herons:\n  raise ValueError(heron)", None),
        ("if server_args.enable_herons:\n  raise", None),
    ],
)
def test_what_the_conditions_of_a_check_read(tmp_path: Path, body: str, settings: list[str] | None) -> None:
    found = read(tmp_path, f"def count(self):\n {body}\n")
    assert found == ({"nests.py:count": [[["heron"], settings]]} if settings else {})


def test_the_settings_of_the_declaring_modules_are_their_own(tmp_path: Path) -> None:
    source = "class A:\n def count(self):\n  if self.page_size > 1:\n   raise ValueError('heron')\n"
    assert read(tmp_path, source, "server_args.py") == {"server_args.py:count": [[["heron"], ["page_size"]]]}


def test_clients_and_tests_are_passed_over(tmp_path: Path) -> None:
    source = "def count(page_size):\n assert page_size, 'heron'\n"
    assert read(tmp_path, source, "function_call/nests.py") == {}


def test_of_a_check_in_two_releases_the_last_one_counts(tmp_path: Path) -> None:
    for name, field in (("old", "page_size"), ("new", "tp_size")):
        read(tmp_path / name, f"def count({field}):\n assert {field}, 'heron'\n")
    found = conditions().document([tmp_path / "old", tmp_path / "new"], FIELDS)
    assert found == {"nests.py:count": [[["heron"], ["tp_size"]]]}


def test_the_shipped_reading_knows_only_settings_and_copies_no_message() -> None:
    checks = json.loads((shipped("catalogue") / "checks.json").read_text())["checks"]
    assert len(checks) > 500
    for place, known in checks.items():
        assert re.fullmatch(r"\w+\.py:\w+", place)
        for words, settings in known:
            assert 1 <= len(words) <= 3
            assert words == sorted(words)
            assert 1 <= len(settings) <= 4
            assert {one for one in settings if not one.isupper()} <= catalogue().fields()
