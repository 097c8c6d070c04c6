"""`frozen` beside the standard decorator that it stands for, and mypy as the one who holds it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from triage.frozen import frozen


@frozen
class Ours:
    text: str
    n: int | None = None
    seen: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Theirs:
    text: str
    n: int | None = None
    seen: tuple[str, ...] = field(default=(), compare=False, repr=False)


@frozen
class Nothing:
    pass


PAIRS = [(("a", 1), ("a", 1)), (("a", 1), ("a", 2)), (("a", 1, ("x",)), ("a", 1)), (("a",), ("b",))]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_it_equals_and_hashes_as_the_standard_one(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert (Ours(*one) == Ours(*other)) is (Theirs(*one) == Theirs(*other))
    assert (hash(Ours(*one)) == hash(Ours(*other))) is (hash(Theirs(*one)) == hash(Theirs(*other)))
    assert repr(Ours(*one)).replace("Ours", "Theirs") == repr(Theirs(*one))


def test_it_is_a_dataclass_to_those_who_ask() -> None:
    value = Ours("a", 1, ("x",))
    assert asdict(value) == {"text": "a", "n": 1, "seen": ("x",)}
    assert replace(value, n=2) == Ours("a", 2)
    assert [each.name for each in fields(value)] == ["text", "n", "seen"]
    assert pickle.loads(pickle.dumps(value)) == value
    assert not hasattr(value, "__dict__")


def test_another_class_is_never_equal() -> None:
    assert Ours("a") != Theirs("a")
    assert Nothing() == Nothing()
    assert Nothing() != Ours("a")


def test_who_writes_its_own_equality_keeps_it() -> None:
    @frozen
    class Loose:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Loose) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

    assert Loose("A") == Loose("a")


def test_an_assignment_is_refused_by_mypy(tmp_path: Path) -> None:
    code = tmp_path / "assigns.py"
    code.write_text("from triage.model import Line\nLine('a').text = 'b'\n")
    root = Path(__file__).parent.parent
    argv = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent", str(code)]
    said = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=False).stdout
    assert "read-only" in said, said
