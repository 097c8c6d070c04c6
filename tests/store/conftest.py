from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.made import made_store
from triage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = made_store(tmp_path)
    yield made
    made.close()
