"""A request that ends the server at every start is no reason to change a flag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.store.made import SECOND, T0, closed, made_finding, made_store, record
from triage.document import finding_document
from triage.model import Context, Phase, Refused
from triage.poison import check_poison, poison
from triage.store import IncidentView, Store

RUNG = {"blocked_by": None, "applicable": True, "confirmed": True, "title": "t"}
LADDER = [{"id": "no-graph", **RUNG}, {"id": "second", **RUNG}]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = made_store(tmp_path)
    made._document = finding_document
    yield made
    made.close()


def crash(store: Store, number: int, answered: int, **more: Any) -> None:
    finding = made_finding(number)
    context = Context(answered=answered, sglang_version=more.pop("version", "0.5.12"), flags=more.pop("flags", {}))
    changed = {"invocation": f"inv{number}", "context": context, "phase": Phase.SERVING, **more}
    record(store, closed(replace(finding, crash=replace(finding.crash, **changed))), now=T0 + number * SECOND)


def view(store: Store) -> IncidentView:
    return store.incident(1)


@pytest.mark.parametrize("answered", [(3, 1, 20), (0, 2, 5)])
def test_three_starts_that_die_after_a_few_answers_are_a_poison_request(
    store: Store, answered: tuple[int, ...]
) -> None:
    for number, count in enumerate(answered, 1):
        crash(store, number, count)
    assert "poison request" in poison(view(store))
    with pytest.raises(Refused, match=r"No flag is changed; .* --remedy ID: no-graph, second"):
        check_poison(view(store), LADDER)


@pytest.mark.parametrize("answered", [(3, 1), (0, 0, 0), (0, 0, 1), (3, 21, 4)])
def test_other_crashes_are_none(store: Store, answered: tuple[int, ...]) -> None:
    for number, count in enumerate(answered, 1):
        crash(store, number, count)
    assert poison(view(store)) == ""
    check_poison(view(store), LADDER)


def test_one_run_that_crashed_three_times_is_none(store: Store) -> None:
    for number in (1, 2, 3):
        crash(store, number, 3, invocation="the same")
    assert poison(view(store)) == ""


def test_crashes_while_loading_are_none(store: Store) -> None:
    for number in (1, 2, 3):
        crash(store, number, 3, phase=Phase.CAPTURE)
    assert poison(view(store)) == ""


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"crash_dump_folder": "/srv/dumps"}, "are in /srv/dumps"),
        ({"crash_dump_folder": "None", "log_requests": "True"}, "request log has it"),
        ({}, "Start with --crash-dump-folder DIR"),
    ],
)
def test_it_is_said_where_the_request_can_be_found(store: Store, flags: dict[str, str], told: str) -> None:
    for number in (1, 2, 3):
        crash(store, number, 3, flags=flags)
    assert told in poison(view(store))
