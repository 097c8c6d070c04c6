"""What was tried on a unit is remembered: what held, what failed, under which release, with which values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.store.made import HOST, SECOND, T0, UNIT, closed, made_finding, made_result, record
from triage.actionmodel import ActionResult, ActionState, Tried
from triage.document import finding_document
from triage.model import Finding
from triage.store import Store

LATER = T0 + 100 * SECOND  # after the action of made_result() was verified


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """With the whole document of each crash: its release and flags are read from it."""
    url = f"sqlite:///{tmp_path / 'triage.db'}"
    store = Store(url, base_url="http://127.0.0.1:8475", host=HOST, document=finding_document)
    store.upgrade()
    record(store, closed(crash(0)), now=T0)
    yield store
    store.close()


def crash(number: int, *, release: str = "0.5.12", started: int | None = None, **flags: str) -> Finding:
    found = made_finding(number, started=started)
    context = replace(found.crash.context, sglang_version=release, flags=flags)
    return replace(found, crash=replace(found.crash, context=context))


def only(store: Store) -> Tried:
    (one,) = store.tried(UNIT)
    return one


def test_a_remedy_that_holds_has_not_failed(store: Store) -> None:
    store.import_result(made_result(), LATER)
    assert not only(store).failed
    assert (only(store).remedy, only(store).incident) == ("no-graph", 1)
    assert store.tried("sglang-other.service") == ()


@pytest.mark.parametrize("end", [ActionState.ROLLED_BACK, ActionState.ROLLBACK_FAILED])
def test_a_failed_proof_is_remembered_with_the_release_of_the_crash(store: Store, end: ActionState) -> None:
    store.import_result(made_result(state=end, started=T0 + 5 * SECOND), LATER)
    assert only(store).failed
    assert only(store).release == "0.5.12"


def test_the_release_that_crashed_is_that_of_the_crash_before_the_action(store: Store) -> None:
    record(store, closed(crash(2, release="0.5.13", started=LATER)), now=LATER)
    store.import_result(made_result(started=T0 + 5 * SECOND), LATER)
    assert store.crashed_on(store.action("a1")) == "0.5.12"
    store.import_result(made_result("a2", started=LATER + SECOND), LATER + SECOND)
    assert store.crashed_on(store.action("a2")) == "0.5.13"


def test_what_was_refused_was_not_tried(store: Store) -> None:
    store.import_result(made_result(state=ActionState.REFUSED, restarted=None), LATER)
    assert store.tried(UNIT) == ()


def test_a_crash_that_comes_back_under_it_is_its_failure(store: Store) -> None:
    store.import_result(made_result(), LATER)
    record(store, closed(crash(1, started=T0 + 5 * SECOND)), now=LATER)  # before the restart
    assert not only(store).failed
    record(store, closed(crash(2, release="0.5.13", started=LATER)), now=LATER)
    assert only(store).came_back
    assert only(store).release == "0.5.13"


def test_a_crash_after_it_was_taken_back_is_not(store: Store) -> None:
    store.import_result(made_result(), LATER)
    undoing = made_result(
        "a2",
        ActionState.UNDONE,
        kind="rollback",
        target="a1",
        started=LATER,
        restarted=LATER + SECOND,
        ended=LATER + SECOND,
    )
    store.import_result(undoing, LATER + SECOND)
    record(store, closed(crash(3, started=LATER + 50 * SECOND)), now=LATER + 50 * SECOND)
    assert only(store).state is ActionState.UNDONE
    assert not only(store).failed


def test_the_values_under_which_it_crashed_are_remembered(store: Store) -> None:
    record(store, closed(crash(4, max_running_requests="64")), now=LATER)
    record(store, closed(crash(5, max_running_requests="62")), now=LATER)
    record(store, closed(crash(6, max_running_requests="None")), now=LATER)
    assert store.crashed_with(1, "max_running_requests") == (62.0, 64.0)
    assert store.crashed_with(1, "no_such_field") == ()


# ---------------------------------------------------------------- units of users


def of_user(found: Finding, owner: int | None) -> Finding:
    return replace(found, crash=replace(found.crash, owner=owner))


def applied(owner: int | None) -> ActionResult:
    result = made_result()
    return replace(result, request=replace(result.request, owner=owner))


@pytest.mark.parametrize("crash_first", [False, True])
@pytest.mark.parametrize(
    ("action_of", "crash_of"), [(None, 1000), (1000, None), (1000, 1001), (1000, 1000), (None, None)]
)
def test_a_crash_of_anothers_unit_says_nothing_of_an_action(
    store: Store, action_of: int | None, crash_of: int | None, crash_first: bool
) -> None:
    """Units of two users and of the system may have one name, and their crashes one signature."""
    again = of_user(crash(2, started=LATER), crash_of)
    if crash_first:
        record(store, closed(again), now=LATER)
    store.import_result(applied(action_of), LATER)
    if not crash_first:
        record(store, closed(again), now=LATER)
    mine = action_of == crash_of
    assert [wanted.action for wanted in store.wanted_rollbacks()] == (["a1"] if mine else [])
    (one,) = store.tried(UNIT, owner=action_of)
    assert one.came_back is mine
    assert store.tried(UNIT, owner=4711) == ()
    assert store.action("a1").owner == action_of
