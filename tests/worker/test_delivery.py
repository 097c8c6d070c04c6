"""Delivery: signed, at least once under one id, and no receiver keeps another one waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.store.made import SECOND, T0, closed, made_finding, made_store, record
from tests.worker.receiver import Receiver, receiver
from triage.channels import Webhook
from triage.settings import EVENTS
from triage.settings import Webhook as WebhookSettings
from triage.store import Store
from triage.worker import SCHEDULE, Worker

OLD, NEW = "whsec_" + "b2xkLXNlY3JldC1vbGQtc2VjcmV0", "whsec_" + "bmV3LXNlY3JldC1uZXctc2VjcmV0"
Make = Callable[..., Worker]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = made_store(tmp_path)
    yield made
    made.close()


@pytest.fixture
def make(store: Store, tmp_path: Path) -> Iterator[Make]:
    """A worker for some receivers, named a, b, ..."""
    made: list[Worker] = []

    def worker(*receivers: str, events: tuple[str, ...] = EVENTS, timeout: float = 10.0) -> Worker:
        secret = tmp_path / "secret"
        if not secret.exists():
            secret.write_text(OLD)
        hooks = [
            WebhookSettings(name=name, url=url, secret_file=secret, events=events, timeout_seconds=timeout)
            for name, url in zip("abc", receivers, strict=False)
        ]
        made.append(Worker(store, tuple(Webhook(hook) for hook in hooks), chance=lambda: 0.0))
        return made[-1]

    yield worker
    for one in made:
        one.close()


@pytest.fixture
def ops() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def crash(store: Store, number: int = 1, signature: str = "aa11") -> None:
    record(store, closed(made_finding(number, signature=signature)), now=T0)


def test_an_alert_arrives_once_and_signed(store: Store, make: Make, ops: Receiver) -> None:
    crash(store)
    worker = make(ops.url)
    for second in range(3):
        worker.run_once(T0 + second * SECOND)
    (got,) = ops.got
    assert got.type == "incident.opened"
    assert got.signed_by(OLD)
    assert got.headers["webhook-timestamp"] == str(T0 // SECOND)
    assert got.headers["content-type"] == "application/json"
    assert store.health().outbox.waiting == 0


def test_while_a_secret_rotates_both_sign(store: Store, make: Make, ops: Receiver, tmp_path: Path) -> None:
    crash(store)
    worker = make(ops.url)
    (tmp_path / "secret").write_text(f"{NEW}\n{OLD}\n")
    worker.run_once(T0)
    assert ops.got[0].signed_by(NEW)
    assert ops.got[0].signed_by(OLD)
    assert not ops.got[0].signed_by("whsec_" + "bm9ib2R5")


def test_a_failed_try_is_made_again_with_the_same_id_and_body(store: Store, make: Make, ops: Receiver) -> None:
    crash(store)
    worker = make(ops.url)
    ops.answers = [500, 503]
    worker.run_once(T0)
    worker.run_once(T0 + 4 * SECOND)
    assert len(ops.got) == 1, "not before its time"
    worker.run_once(T0 + 5 * SECOND)
    worker.run_once(T0 + 305 * SECOND)
    worker.run_once(T0 + 306 * SECOND)
    assert len(ops.got) == 3
    assert len({got.id for got in ops.got}) == 1
    assert len({got.body for got in ops.got}) == 1
    assert ops.got[1].headers["webhook-timestamp"] != ops.got[0].headers["webhook-timestamp"]
    assert all(got.signed_by(OLD) for got in ops.got)


def test_a_receiver_that_is_gone_for_good_is_not_asked_again(store: Store, make: Make, ops: Receiver) -> None:
    crash(store)
    worker = make(ops.url)
    ops.answers = [410]
    worker.run_once(T0)
    worker.run_once(T0 + 100_000 * SECOND)
    assert len(ops.got) == 1
    assert store.health().outbox == type(store.health().outbox)(waiting=0, dead=1)


def test_all_tries_spent_ends_the_delivery(store: Store, make: Make, ops: Receiver) -> None:
    crash(store)
    worker = make(ops.url)
    ops.answers = [500] * 50
    now = T0
    for pause in (0, *SCHEDULE, 1_000_000, 1_000_000):
        now += pause * SECOND
        worker.run_once(now)
    assert len(ops.got) == len(SCHEDULE) + 1
    assert store.health().outbox.dead == 1
    assert [c.value for c in store.counters() if c.name == "deliveries_total"] == [1]


def test_a_receiver_that_asks_for_time_gets_it(store: Store, make: Make, ops: Receiver) -> None:
    crash(store)
    worker = make(ops.url)
    ops.answers, ops.headers = [429], {"retry-after": "120"}
    worker.run_once(T0)
    worker.run_once(T0 + 119 * SECOND)
    assert len(ops.got) == 1
    worker.run_once(T0 + 120 * SECOND)
    assert len(ops.got) == 2


def test_a_redirect_is_not_followed(store: Store, make: Make, ops: Receiver) -> None:
    crash(store)
    with receiver() as other:
        ops.answers, ops.headers = [307], {"location": other.url}
        make(ops.url).run_once(T0)
        assert other.got == []
    assert store.health().outbox.waiting == 1


def test_a_dead_receiver_does_not_hold_up_another_one(store: Store, make: Make, ops: Receiver) -> None:
    for number in range(1, 4):
        crash(store, number, f"sign{number}")
    worker = make("http://127.0.0.1:1/hook", ops.url)
    for second in range(3):
        worker.run_once(T0 + second * SECOND)
    assert len({got.id for got in ops.got}) == len(ops.got) == 3
    assert store.health().outbox.waiting == 3


def test_a_receiver_that_never_answers_keeps_only_itself_waiting(store: Store, make: Make, ops: Receiver) -> None:
    with receiver() as stuck:
        stuck.hold = threading.Event()
        crash(store, 1, "one")
        worker = make(stuck.url, ops.url, timeout=60)
        while not ops.got:
            worker.run_once(T0, patience=0.05)
        crash(store, 2, "two")
        while len(ops.got) < 2:
            worker.run_once(T0 + SECOND, patience=0.05)
        assert len(stuck.got) == 1, "it is not asked again while it has not answered"
        stuck.hold.set()
        worker.run_once(T0 + 2 * SECOND)
        worker.run_once(T0 + 3 * SECOND)
        assert len({got.id for got in stuck.got}) == len(stuck.got) == 2


def test_a_dead_receiver_gets_everything_after_a_restart(store: Store, make: Make) -> None:
    crash(store, 1, "one")
    crash(store, 2, "two")
    with receiver() as short:
        url = short.url
    make(url).run_once(T0)
    with receiver(int(url.split(":")[2].split("/")[0])) as back:
        worker = make(url)
        for second in range(5, 30):
            worker.run_once(T0 + second * SECOND)
        assert len({got.id for got in back.got}) == len(back.got) == 2


def test_a_try_that_was_made_but_not_noted_is_made_again_under_its_id(
    store: Store, make: Make, ops: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "delivered", lambda *values: 1 / 0)  # as if killed between the two
        make(ops.url).run_once(T0)
    make(ops.url).run_once(T0 + SECOND)
    assert len(ops.got) == 2
    assert ops.got[0].id == ops.got[1].id


def test_a_channel_gets_only_the_events_it_wants(store: Store, make: Make, ops: Receiver) -> None:
    crash(store, 1)
    store.resolve(1, "ada", T0)
    make(ops.url, events=("incident.resolved",)).run_once(T0)
    assert [got.type for got in ops.got] == ["incident.resolved"]
    assert store.health().outbox.waiting == 0


def test_without_channels_nothing_piles_up(store: Store, make: Make, ops: Receiver) -> None:
    crash(store)
    make().run_once(T0)
    assert store.health().outbox.waiting == 0
    make(ops.url).run_once(T0 + SECOND)
    assert ops.got == [], "an alert of yesterday is not sent to a receiver of today"


def test_a_muted_incident_sends_nothing(store: Store, make: Make, ops: Receiver) -> None:
    crash(store)
    worker = make(ops.url)
    store.mute(1, T0 + 3600 * SECOND, "we know", "ada", T0)
    worker.run_once(T0)
    crash(store, 2)
    store.resolve(1, "ada", T0 + SECOND)
    worker.run_once(T0 + SECOND)
    assert ops.got == []
    crash(store, 3)
    worker.run_once(T0 + 3601 * SECOND)
    store.resolve(1, "ada", T0 + 3602 * SECOND)
    worker.run_once(T0 + 3602 * SECOND)
    assert [got.type for got in ops.got] == ["incident.resolved"], "the mute was over"


def test_a_secret_that_is_spelled_wrong_is_told_and_nothing_goes_out(
    store: Store, make: Make, ops: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("hunter2")
    crash(store)
    make(ops.url).run_once(T0)
    assert ops.got == []
    assert store.health().outbox.waiting == 1
