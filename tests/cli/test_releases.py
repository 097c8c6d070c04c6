"""One remedy, servers of three releases: each is edited in its own words, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.store.made import T0, UNIT, closed, made_finding, record
from triage.model import Refused
from triage.request import Requester
from triage.settings import load_settings
from triage.store import Store

Machine = Callable[[str | None], Path]


@pytest.fixture
def machine(home: Path) -> Machine:
    def made(release: str | None) -> Path:
        root = home / f"machine-{release}"
        units = root / "etc/systemd/system"
        units.mkdir(parents=True)
        (units / UNIT).write_text(
            "[Service]\nExecStart=/opt/sglang/bin/python -m sglang.launch_server --model-path /m --tp 8\n"
        )
        if release:
            (root / f"opt/sglang/lib/python3.12/site-packages/sglang-{release}.dist-info").mkdir(parents=True)
        return root

    return made


def planned(store: Store, root: Path, *edits: dict[str, Any]) -> str:
    record(store, closed(made_finding()))
    view = store.incident(1)
    document = {**view.crashes[0].document}
    match = document["matches"][0]
    rung = {**match["remedies"][0], "id": "it", "edits": list(edits), "applicable": True, "blocked_by": None}
    document["matches"] = [{**match, "remedies": [rung]}]
    plan = Requester(load_settings(), store, root=root).plan(
        replace(view.incident, unit=UNIT), document, "it", "i1-1", T0
    )
    return plan.drop_in_text


PIECEWISE = {"op": "set-flag", "name": "--disable-piecewise-cuda-graph"}


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("0.5.12", "--disable-piecewise-cuda-graph"),
        ("0.5.21", "--cuda-graph-backend-prefill disabled"),
        ("0.5.22.dev3+g1a2b", "--disable-piecewise-cuda-graph"),  # a nightly: nobody knows, it is left as it is
        (None, "--disable-piecewise-cuda-graph"),
    ],
)
def test_the_edit_is_in_the_words_of_the_installed_release(
    store: Store, machine: Machine, release: str | None, words: str
) -> None:
    assert words in planned(store, machine(release), PIECEWISE)


def test_what_the_installed_release_does_not_have_is_refused(store: Store, machine: Machine) -> None:
    with pytest.raises(Refused, match=r"sglang 0\.5\.6 has no --disable-piecewise-cuda-graph \(it is in 0\.5\.10 to"):
        planned(store, machine("0.5.6"), PIECEWISE)
