"""The guards: reserved before anything is touched, or refused; the breaker stays open until a person resets it."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.store.made import SECOND, T0, UNIT, closed, made_finding, made_result, made_store, record
from triage.actionmodel import ActionResult, ActionState, Request
from triage.model import Busy, NotPermitted, Refused, Verify
from triage.request import ABANDONED, Requester
from triage.settings import Guards, Settings
from triage.store import Store

HOUR = 3600 * SECOND
LOOSE = Guards(signature_per_day=99, unit_per_day=99, host_per_day=99, breaker_actions=99)


@pytest.fixture(autouse=True)
def _crash(store: Store) -> None:
    record(store, closed(made_finding(1)), now=T0)


def request(name: str, *, unit: str = UNIT, time: int = T0, root: str = "") -> Request:
    return replace(made_result(name).request, unit=unit, time=time, root=root)


def reserve(store: Store, asked: Request, limits: Guards = LOOSE, now: int | None = None) -> None:
    now = asked.time if now is None else now
    store.reserve(asked, title="t", cost="c", diff="", who="ada", now=now, limits=limits)


def applied(store: Store, number: int, state: ActionState = ActionState.UNDONE, **more: object) -> None:
    """One action of the past: reserved and settled."""
    asked = request(f"p{number}", **more)  # type: ignore[arg-type]
    reserve(store, asked)
    store.import_result(ActionResult(asked, state, (), asked.time, asked.time + SECOND), asked.time + SECOND)


def test_one_action_a_unit_at_a_time(store: Store) -> None:
    reserve(store, request("a1"))
    with pytest.raises(Busy, match="a1 is under way"):
        reserve(store, request("a2"))
    reserve(store, request("b1", unit="sglang-other.service"))
    reserve(store, request("c1", root="/tmp/copy"))
    store.import_result(made_result("a1", ActionState.REFUSED), T0 + SECOND)
    reserve(store, request("a2"))


def test_of_many_at_once_one_is_reserved(tmp_path: Path) -> None:
    stores = [made_store(tmp_path) for _ in range(8)]
    record(stores[0], closed(made_finding(1)), now=T0)
    outcomes: list[str] = []

    def ask(number: int) -> None:
        try:
            reserve(stores[number], request(f"a{number}"))
            outcomes.append("reserved")
        except Busy:
            outcomes.append("busy")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["busy"] * 7 + ["reserved"]
    for one in stores:
        one.close()


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (LOOSE.model_copy(update={"signature_per_day": 2}), "this signature"),
        (LOOSE.model_copy(update={"unit_per_day": 2}), UNIT),
        (LOOSE.model_copy(update={"host_per_day": 2}), "this host"),
    ],
)
def test_so_many_a_day_and_no_more(store: Store, limits: Guards, why: str) -> None:
    applied(store, 1, time=T0)
    applied(store, 2, time=T0 + HOUR)
    applied(store, 3, ActionState.REFUSED, time=T0 + HOUR)  # touched nothing
    with pytest.raises(Refused, match=f"2 actions were applied for {why}"):
        reserve(store, request("a1", time=T0 + 2 * HOUR), limits)
    assert [row.name for row in store.actions().rows if row.name == "a1"] == []
    reserve(store, request("a1", time=T0 + 24 * HOUR + SECOND), limits)


def test_taking_back_is_never_limited(store: Store) -> None:
    tight = Guards(signature_per_day=1, unit_per_day=1, host_per_day=1, breaker_actions=2)
    applied(store, 1)
    applied(store, 2)
    with pytest.raises(Refused, match="breaker"):
        reserve(store, request("a1", time=T0 + SECOND), tight)
    reserve(store, replace(request("u1", time=T0 + SECOND), kind="rollback", target="p1", edits=()), tight)


def test_many_actions_open_the_breaker_until_a_person_resets_it(store: Store) -> None:
    limits = LOOSE.model_copy(update={"breaker_actions": 3, "breaker_seconds": 600})
    for number in range(3):
        applied(store, number, unit=f"sglang-{number}.service", time=T0 + number * SECOND)
    with pytest.raises(Refused, match="3 actions on this host within 600 s: the breaker is open now"):
        reserve(store, request("a1", time=T0 + 60 * SECOND), limits)
    held = store.guarded().breaker
    assert (held.opened_at, held.why) == (T0 + 60 * SECOND, "3 actions on this host within 600 s")
    with pytest.raises(Refused, match=r"the breaker is open since .*triage guards reset"):
        reserve(store, request("a1", time=T0 + 20 * HOUR), limits)  # time alone does not close it
    store.fan_out({"ops": frozenset({"breaker.opened"})}, T0 + HOUR)
    assert [delivery.type for delivery in store.due("ops", T0 + HOUR, 9)] == ["breaker.opened"]
    assert store.reset_breaker("ada", T0 + 61 * SECOND)
    assert not store.reset_breaker("ada", T0 + 61 * SECOND)
    reserve(store, request("a1", time=T0 + 62 * SECOND), limits)  # counted anew


def test_what_was_reserved_and_never_filed_is_settled(tmp_path: Path) -> None:
    """kill -9 between the two: the next round of the worker says so, and the unit is free again."""
    settings = Settings(state_dir=tmp_path / "state")
    made_store(tmp_path).close()
    child = os.fork()
    if child == 0:
        os.umask(0o077)
        mine = made_store(tmp_path)
        record(mine, closed(made_finding(1)), now=T0)
        reserve(mine, request("a1"))
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    store = made_store(tmp_path)
    hands = Requester(settings, store)
    assert hands.settle_abandoned(T0 + ABANDONED) == 0
    assert hands.settle_abandoned(T0 + ABANDONED + SECOND) == 1
    assert store.action("a1").state is ActionState.REFUSED
    assert "never filed" in store.action("a1").text
    reserve(store, request("a2", time=T0 + ABANDONED + SECOND))
    reserve(store, request("a1", unit="sglang-b.service"))  # asked again under its name
    assert store.action("a1").state is ActionState.REQUESTED
    store.close()


def test_what_root_has_is_not_abandoned(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "state")
    store = made_store(tmp_path)
    record(store, closed(made_finding(1)), now=T0)
    hands = Requester(settings, store)
    hands.spool.create()
    hands.ledger.create()
    asked = replace(request("a1"), seen_digest="0" * 64, result_digest="1" * 64)
    reserve(store, asked)
    late = T0 + 2 * ABANDONED
    hands.spool.file(asked)
    assert hands.settle_abandoned(late) == 0
    hands.ledger.claim(asked)
    hands.spool.withdraw("a1")
    assert hands.settle_abandoned(late) == 0
    hands.ledger.write_result(made_result("a1", ActionState.RUNNING, ended=None))
    hands.ledger.finish("a1")
    assert hands.settle_abandoned(late) == 0
    store.import_result(made_result("a1", ActionState.RUNNING, ended=None), T0)
    (hands.ledger.folder / "results/a1").unlink()
    assert hands.settle_abandoned(late) == 1
    row = store.action("a1")
    assert row.state is ActionState.ROLLBACK_FAILED, "somebody has to look at the unit"
    assert "root's account of it is gone" in row.text
    store.close()


def test_where_roots_folder_cannot_be_read_nothing_is_settled_and_nothing_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(state_dir=tmp_path / "state")
    store = made_store(tmp_path)
    record(store, closed(made_finding(1)), now=T0)
    reserve(store, request("a1"))
    hands = Requester(settings, store)

    def unreadable(place: object) -> list[str]:
        raise PermissionError(13, "no", str(place))

    monkeypatch.setattr("triage.actions.ledger.os.listdir", unreadable)
    with pytest.raises(NotPermitted):
        hands.settle_abandoned(T0 + 2 * ABANDONED)
    assert store.action("a1").state is ActionState.REQUESTED
    with pytest.raises(NotPermitted):
        hands.action_name(1)
    store.close()


def test_a_broken_account_of_roots_stops_planning(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "state")
    store = made_store(tmp_path)
    hands = Requester(settings, store)
    hands.ledger.create()
    (hands.ledger.folder / "results/a1").write_text("{ half a file")
    with pytest.raises(Refused, match="not JSON"):
        hands.ledger.results()
    store.close()


def test_one_failed_proof_demotes_the_rule_on_that_unit(store: Store) -> None:
    store.import_result(made_result("a1", ActionState.ROLLED_BACK, text="no answer"), T0)
    (demotion,) = store.guarded().demotions
    assert (demotion.rule, demotion.unit, demotion.action) == ("dflash-none", UNIT, "a1")
    assert any("triage guards reset dflash-none" in line.text for line in store.incident(1).timeline)
    store.import_result(made_result("a2", ActionState.ROLLBACK_FAILED), T0)
    assert store.guarded().demotions == (demotion,), "the first reason is kept"
    assert store.reset_demotion("dflash-none", UNIT)
    assert not store.reset_demotion("dflash-none", UNIT)
    assert store.guarded().demotions == ()


def test_a_signature_that_comes_back_demotes_too(store: Store) -> None:
    store.import_result(made_result(), T0 + 60 * SECOND)
    record(store, closed(made_finding(90)), now=T0 + 91 * SECOND)
    assert [row.action for row in store.guarded().demotions] == ["a1"]
    assert "came back" in store.guarded().demotions[0].why


def test_a_soak_that_fails_demotes_and_is_no_history(store: Store) -> None:
    asked = replace(made_result("a1").request, incident=1)
    profile = Verify(soak=10)
    store.reserve(asked, title="t", cost="c", diff="", who="ada", now=T0, limits=LOOSE, profile=profile)
    store.import_result(made_result("a1"), T0 + 60 * SECOND)
    store.watch_windows(T0 + 10_000 * SECOND)
    assert store.proved("dflash-none", "no-graph") == 1
    store.proof_failed("a1", 3, "half the speed", {}, T0 + 10_001 * SECOND)
    assert [row.why for row in store.guarded().demotions] == ["half the speed"]
    assert store.proved("dflash-none", "no-graph") == 0
