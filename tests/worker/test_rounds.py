"""The worker's rounds: import, file, watch, prune; a fault in one step stops no other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.store.made import SECOND, T0, closed, made_finding, made_result, made_store, record
from triage.actionmodel import ActionResult, ActionState
from triage.actions.ledger import Ledger
from triage.channels import Message, Sent
from triage.model import Busy, NotPermitted
from triage.store import IncidentState, Store, WantedRollback
from triage.worker import DAY, PRUNE_EVERY, Worker

AFTER = T0 + 60 * SECOND


class Ears:
    """Who wants to hear of rollbacks that failed."""

    name = "ops"
    events = frozenset(("action.rollback_failed",))

    def __init__(self) -> None:
        self.heard: list[str] = []

    def send(self, message: Message, now: int) -> Sent:
        self.heard.append(json.loads(message.body)["data"]["action"])
        return Sent(True, "heard")

    def close(self) -> None:
        return


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = made_store(tmp_path)
    record(made, closed(made_finding()), now=T0)
    yield made
    made.close()


def test_roots_accounts_are_imported_as_they_grow(store: Store) -> None:
    accounts: list[ActionResult] = [made_result(state=ActionState.RUNNING, restarted=None, ended=None)]
    worker = Worker(store, results=lambda: tuple(accounts))
    assert worker.run_once(T0).imported == 1
    assert worker.run_once(T0).imported == 0
    accounts[0] = made_result()
    assert worker.run_once(AFTER).imported == 1
    assert store.incident(1).incident.state is IncidentState.MITIGATED
    again = Worker(store, results=lambda: tuple(accounts))
    assert again.run_once(AFTER).imported == 0, "a restarted worker knows from the store"
    worker.close()
    again.close()


def test_a_wanted_rollback_is_filed_once(store: Store) -> None:
    store.import_result(made_result(), AFTER)
    record(store, closed(made_finding(90)), now=AFTER + 31 * SECOND)
    filed: list[str] = []

    def file(wanted: WantedRollback, now: int) -> str:
        filed.append(wanted.action)
        return f"undo-{wanted.action}"

    worker = Worker(store, file_rollback=file)
    assert worker.run_once(AFTER).filed == 1
    assert worker.run_once(AFTER).filed == 0
    assert filed == ["a1"]
    worker.close()


def test_a_rollback_that_could_not_be_filed_is_tried_again(store: Store) -> None:
    store.import_result(made_result(), AFTER)
    record(store, closed(made_finding(90)), now=AFTER + 31 * SECOND)
    answers: list[str | Exception] = [NotPermitted("the spool is not ours"), "undo-a1"]

    def file(wanted: WantedRollback, now: int) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    worker = Worker(store, file_rollback=file)
    (said,) = worker.run_once(AFTER).errors
    assert said == "the rollback of a1 on sglang-larch.service cannot be filed: the spool is not ours"
    assert worker.run_once(AFTER).filed == 1
    worker.close()


def test_a_rollback_that_cannot_be_filed_holds_up_no_other_and_is_told_once(store: Store) -> None:
    store.import_result(made_result(), AFTER)
    other = made_finding(2, signature="bb22", unit="sglang-birch.service")
    record(store, closed(other), now=T0)
    second = made_result("b1", incident=2)
    store.import_result(replace(second, request=replace(second.request, unit="sglang-birch.service")), AFTER)
    third = made_finding(2, signature="cc33", unit="sglang-aspen.service")
    record(store, closed(third), now=T0)
    busy = made_result("c1", incident=3)
    store.import_result(replace(busy, request=replace(busy.request, unit="sglang-aspen.service")), AFTER)
    back = AFTER + 31 * SECOND
    for finding in (
        made_finding(90),
        made_finding(91, signature="cc33", unit="sglang-aspen.service"),
        made_finding(92, signature="bb22", unit="sglang-birch.service"),
    ):
        record(store, closed(finding), now=back)
    filed: list[str] = []

    def file(wanted: WantedRollback, now: int) -> str:
        if wanted.action == "a1":
            raise NotPermitted("its files may not be read")
        if wanted.action == "c1":
            raise Busy("c2 is under way")
        filed.append(wanted.action)
        return f"undo-{wanted.action}"

    ears = Ears()
    worker = Worker(store, (ears,), file_rollback=file)
    errors = [error for at in range(29) for error in worker.run_once(back + at * SECOND).errors]
    assert filed == ["b1"]
    assert len(errors) == 1
    assert ears.heard == [], "it may be a moment's trouble"
    for at in range(30, 40):
        assert worker.run_once(back + at * SECOND).errors == []
    again = Worker(store, (ears,), file_rollback=file)
    again.run_once(back + 50 * SECOND)
    lines = [row.text for row in store.incident(1).timeline if "not taken back" in row.text]
    assert lines == ["a1 was not taken back: its files may not be read"]
    assert ears.heard == ["a1"]
    assert [wanted.action for wanted in store.wanted_rollbacks()] == ["a1", "c1"], "both are still wanted"
    worker.close()
    again.close()


def test_accounts_that_cannot_be_read_stop_nothing_else(store: Store) -> None:
    def unreadable() -> Iterable[ActionResult]:
        raise PermissionError("results")

    worker = Worker(store, results=unreadable)
    done = worker.run_once(T0)
    assert done.errors == ["results"]
    assert done.events == 1
    assert done.pruned is not None
    worker.close()


def test_one_account_that_is_damaged_keeps_no_other_from_being_imported(store: Store, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.create()
    (tmp_path / "ledger/results/a0").write_text("{")
    sound = made_result()
    request = replace(sound.request, seen_digest="a" * 64, result_digest="b" * 64)
    ledger.write_result(replace(sound, request=request))
    worker = Worker(store, results=ledger.each)
    done = worker.run_once(AFTER)
    assert done.imported == 1
    (said,) = done.errors
    assert said.startswith(f"{tmp_path / 'ledger/results/a0'} is damaged")
    worker.close()


def test_a_window_that_passed_is_noted(store: Store) -> None:
    store.import_result(made_result(), AFTER)
    worker = Worker(store)
    assert worker.run_once(AFTER + 700 * SECOND).watched == 1
    worker.close()


def test_old_things_are_pruned_every_few_hours(store: Store) -> None:
    store.resolve(1, "ada", T0)
    worker = Worker(store, retention=30 * DAY)
    first = worker.run_once(T0 + 31 * DAY)
    assert first.pruned is not None
    assert first.pruned.incidents == 1
    assert worker.run_once(T0 + 31 * DAY + PRUNE_EVERY - 1).pruned is None
    assert worker.run_once(T0 + 31 * DAY + PRUNE_EVERY).pruned is not None
    worker.close()
