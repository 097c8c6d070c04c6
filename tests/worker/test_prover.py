"""The soak in the background: one request at a time, from where it stands, and a verdict that files a rollback."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.remedy.test_probe import Sequence, StandIn, running
from tests.store.made import SECOND, T0, UNIT, closed, made_finding, made_result, made_store, record
from triage.actionmodel import ActionState
from triage.actions.readiness import Limits, Proof
from triage.model import Context, Outcome, Pace, Verify
from triage.prover import Prover, Soak
from triage.settings import Guards
from triage.store import ActionRow, ProofRow, ProofState, Store

AFTER = T0 + 60 * SECOND
PROFILE = Verify(soak=30, rate=50, timeout=5, window=600, min_speed=0.6)
INVOCATION = "new"
SOUND = {
    "choices": [{"text": "ready eight", "message": {"content": "ready eight"}}],
    "usage": {"completion_tokens": 64},
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = made_store(tmp_path)
    record(made, closed(made_finding()), now=T0)
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[StandIn]:
    made = StandIn()
    for path in ("/v1/chat/completions", "/v1/completions"):
        made.answers[path] = (200, SOUND)
    yield made
    made.server.shutdown()
    made.server.server_close()


def apply(store: Store, profile: Verify = PROFILE, **measured: str) -> None:
    result = made_result()
    store.reserve(result.request, title="t", cost="c", diff="d", who="ada", now=T0, limits=Guards(), profile=profile)
    store.import_result(replace(result, measured=measured), AFTER)


def manager(server: StandIn, *states: Any, flags: str = "") -> Sequence:
    command = f"python -m sglang.launch_server --port {server.port} {flags}"
    return Sequence(*(states or (running(),)), command=command)


def soak(
    store: Store, manager: Sequence, busy: Callable[[str], bool] = lambda _: False, stop_after: float = 1e9
) -> ProofRow:
    """One run of the soak that is wanted, with no real pauses."""
    left = [stop_after]

    def wait(_: float) -> bool:
        left[0] -= 1
        return left[0] < 0

    [row] = store.soaking()
    proof = Proof(manager, Limits())  # type: ignore[arg-type]
    Soak(store, proof, row, busy, wait, lambda: AFTER + SECOND).run()
    return proved(store)


def proved(store: Store) -> ProofRow:
    found = action(store).proof
    assert found is not None
    return found


def action(store: Store) -> ActionRow:
    return store.action("a1")


def generations(server: StandIn) -> int:
    return sum(path.startswith("/v1/c") for path, _, _ in server.asked)


def test_a_server_that_answers_everything_has_only_the_window_left(store: Store, server: StandIn) -> None:
    apply(store)
    assert proved(store).words == "proving: soak 0/30: the soak begins"
    assert soak(store, manager(server)).state is ProofState.WINDOW
    assert generations(server) == 30
    assert store.soaking() == ()
    assert store.watch_windows(AFTER + 601 * SECOND) == 1
    assert proved(store).state is ProofState.PROVED


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"choices": [{"text": " ", "message": {"content": ""}}]}, "empty text"),
        ({"choices": [{"text": "!" * 40, "message": {"content": "!" * 40}}]}, "garbage"),
        ({"choices": [{"text": "a teapot", "message": {"content": "a teapot"}}]}, "not those that are known"),
        ({"choices": []}, "no proper answer"),
    ],
)
def test_answers_that_are_none_ask_for_the_rollback(store: Store, server: StandIn, answer: Any, why: str) -> None:
    apply(store)
    for path in ("/v1/chat/completions", "/v1/completions"):
        server.answers[path] = (200, answer)
    found = soak(store, manager(server))
    assert found.state is ProofState.FAILED
    assert why in found.text
    [wanted] = store.wanted_rollbacks()
    assert (wanted.action, wanted.reason) == ("a1", found.text)
    assert any("its rollback is asked for" in row.text for row in store.incident(1).timeline)


def test_a_server_that_hangs_is_asked_once_and_no_more(store: Store, server: StandIn) -> None:
    apply(store, replace(PROFILE, timeout=0.3))
    released = threading.Event()
    served = iter(range(1000))

    def stuck(handler: Any) -> None:
        if next(served) < 3:
            reply(handler)
        else:
            released.wait(20)

    server.answers["/v1/chat/completions"] = server.answers["/v1/completions"] = stuck
    found = soak(store, manager(server))
    released.set()
    assert (found.state, found.sent) == (ProofState.FAILED, 3)
    assert "no answer to request 4" in found.text
    assert generations(server) == 4


def reply(handler: Any, body: Any = SOUND) -> None:
    data = json.dumps(body).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def test_a_stopped_worker_goes_on_where_it_was(store: Store, server: StandIn) -> None:
    apply(store)
    found = soak(store, manager(server), stop_after=20)
    assert found.state is ProofState.SOAK
    assert 0 < found.sent < 30
    assert f"soak {found.sent}/30" in found.words
    assert soak(store, manager(server)).state is ProofState.WINDOW
    assert generations(server) == 30


class Killed(BaseException):
    """kill -9: nothing in the code under test catches it."""


@pytest.mark.parametrize("after", [0, 1, 2, 17, 29, 30, 31])
@pytest.mark.parametrize("sound", [True, False])
def test_a_killed_worker_comes_to_the_same_verdict(store: Store, server: StandIn, after: int, sound: bool) -> None:
    """Whatever was not noted is asked again; the verdict is filed once."""
    apply(store)
    _answers(server, lambda number: sound or number < 25)
    left = [after]

    def wait(_: float) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return False

    [row] = store.soaking()
    with contextlib.suppress(Killed):
        Soak(store, Proof(manager(server), Limits()), row, lambda _: False, wait, lambda: AFTER).run()  # type: ignore[arg-type]
    found = soak(store, manager(server)) if store.soaking() else proved(store)
    assert found.state is (ProofState.WINDOW if sound else ProofState.FAILED)
    assert len(store.wanted_rollbacks()) == (not sound)


def _answers(server: StandIn, sound: Callable[[int], bool]) -> None:
    """Sound answers, and empty ones where `sound` says so of the generation's number."""
    served = iter(range(10_000))
    empty = {"choices": [{"text": "", "message": {"content": ""}}]}
    for path in ("/v1/chat/completions", "/v1/completions"):
        server.answers[path] = lambda handler: reply(handler, SOUND if sound(next(served)) else empty)


def test_half_the_speed_is_a_failure_unless_it_was_announced(store: Store, server: StandIn) -> None:
    crashed = made_finding()
    _watched(store, crashed, Pace(1, 20, 80.0))
    apply(store)
    _runs(store, Pace(1, 20, 40.0))
    found = soak(store, manager(server))
    assert found.state is ProofState.FAILED
    assert "too slow: 0.50 of the speed before (80.0 -> 40.0 tokens/s" in found.text
    assert (found.measured["speed_before"], found.measured["speed_after"]) == ("80.0", "40.0")


def test_half_the_speed_as_announced_is_a_cost(store: Store, server: StandIn) -> None:
    _watched(store, made_finding(), Pace(1, 20, 80.0))
    apply(store, replace(PROFILE, min_speed=0.2))
    _runs(store, Pace(1, 20, 40.0))
    assert soak(store, manager(server)).state is ProofState.WINDOW


def test_drafts_that_are_not_accepted_any_more_are_a_failure(store: Store, server: StandIn) -> None:
    _watched(store, made_finding(), Pace(1, 20, 80.0, 3.5))
    apply(store)
    _runs(store, Pace(1, 20, 79.0, 1.0))
    assert "drafts accepted 3.50 -> 1.00" in soak(store, manager(server)).text


def _watched(store: Store, finding: Any, *pace: Pace) -> None:
    """The crash again, with what its log told of the speed."""
    store._document = lambda found: {
        "context": {"pace": [vars_of(one) for one in found.crash.context.pace]},
        "matches": [],
    }
    crash = replace(finding.crash, position="t-again", context=Context(pace=pace))
    record(store, closed(replace(finding, crash=crash)), now=T0)


def vars_of(one: Pace) -> dict[str, float]:
    return {"running": one.running, "samples": one.samples, "speed": one.speed, "accepted": one.accepted}


def _runs(store: Store, *pace: Pace) -> None:
    contexts = {f"{store.host}|{UNIT}|{INVOCATION}": Context(pace=pace)}
    store.record("journal:", (), cursor="c", contexts=contexts, now=AFTER)


def test_a_crash_that_watch_recorded_is_a_failure(store: Store, server: StandIn) -> None:
    apply(store)
    server.answers["/v1/completions"] = lambda handler: handler.connection.close()
    other = made_finding(90, signature="bb22")
    crash = replace(other.crash, invocation=INVOCATION)
    record(store, closed(replace(other, crash=crash)), now=AFTER + 31 * SECOND)
    found = soak(store, manager(server, running(), running("failed", result="signal")))
    assert found.state is ProofState.FAILED
    assert "it crashed at request 2" in found.text


def test_an_operators_restart_is_no_failure(store: Store, server: StandIn) -> None:
    apply(store)
    server.answers["/v1/completions"] = lambda handler: handler.connection.close()
    found = soak(store, manager(server, running(), running(invocation="newer")))
    assert found.state is ProofState.SOAK
    server.answers["/v1/completions"] = (200, SOUND)
    assert soak(store, manager(server, running(invocation="newer"))).state is ProofState.WINDOW


def test_nothing_is_asked_while_root_works_on_the_unit(store: Store, server: StandIn) -> None:
    apply(store)
    assert soak(store, manager(server), busy=lambda unit: unit == UNIT).state is ProofState.SOAK
    assert server.asked == []


def test_a_stopped_unit_is_waited_for(store: Store, server: StandIn) -> None:
    apply(store)
    found = soak(store, manager(server, running("failed")))
    assert (found.state, found.text) == (ProofState.SOAK, "waits, the unit is failed")
    assert server.asked == []


def test_a_busy_server_is_waited_for(store: Store, server: StandIn) -> None:
    apply(store)
    served = iter(range(1000))

    def busy(handler: Any) -> None:
        if next(served) % 2:
            reply(handler)
            return
        handler.send_response(503)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.answers["/v1/chat/completions"] = server.answers["/v1/completions"] = busy
    assert soak(store, manager(server)).state is ProofState.WINDOW
    assert generations(server) == 60


@pytest.mark.parametrize("state", [running("failed", result="signal"), running("activating", sub="auto-restart")])
def test_a_crash_while_nobody_asked_is_a_verdict(store: Store, server: StandIn, state: Any) -> None:
    """The worker was down; real requests ended the unit in another way."""
    apply(store)
    store.soak_progress("a1", 12, "12 requests answered", AFTER)
    other = made_finding(90, signature="bb22", message="CUDA out of memory")
    record(store, closed(replace(other, crash=replace(other.crash, invocation=INVOCATION))), now=AFTER + 31 * SECOND)
    found = soak(store, manager(server, state))
    assert (found.state, found.sent) == (ProofState.FAILED, 12)
    assert "it crashed after 12 requests answered: DFlash meets" in found.text
    assert [wanted.action for wanted in store.wanted_rollbacks()] == ["a1"]
    assert server.asked == []


@pytest.mark.parametrize(("invocation", "outcome"), [("older", Outcome.FATAL), (INVOCATION, Outcome.DEGRADED)])
def test_a_unit_that_was_stopped_is_waited_for_whatever_crashed_before(
    store: Store, server: StandIn, invocation: str, outcome: Outcome
) -> None:
    apply(store)
    other = made_finding(90, signature="bb22", outcome=outcome)
    record(store, closed(replace(other, crash=replace(other.crash, invocation=invocation))), now=AFTER + 31 * SECOND)
    found = soak(store, manager(server, running("failed")))
    assert (found.state, found.text) == (ProofState.SOAK, "waits, the unit is failed")


def refusing(status: int) -> Callable[[Any], None]:
    def handle(handler: Any) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return handle


@pytest.mark.parametrize(
    ("health", "state", "said"),
    [
        (503, ProofState.FAILED, "request 1: busy (503) for 600 s without an answer, and /health says 503"),
        (200, ProofState.WINDOW, "not soaked to its end: busy (503) for 600 s without an answer, though /health says"),
    ],
)
def test_a_server_that_is_busy_for_ever_comes_to_a_verdict(
    store: Store, server: StandIn, health: int, state: ProofState, said: str
) -> None:
    apply(store)
    for path in ("/v1/chat/completions", "/v1/completions"):
        server.answers[path] = refusing(503)
    server.answers["/health"] = (health, "")
    found = soak(store, manager(server))
    assert found.state is state
    assert found.text.startswith(said)


def test_what_a_server_does_not_take_is_not_counted_as_answered(store: Store, server: StandIn) -> None:
    """Also where the worker is started again in the middle."""
    apply(store)
    server.answers["/v1/chat/completions"] = (404, "")
    assert soak(store, manager(server), stop_after=20).state is ProofState.SOAK
    found = soak(store, manager(server))
    assert found.state is ProofState.WINDOW
    assert found.text.startswith("20 requests answered")
    assert "10 of a kind that it does not take" in found.text
    assert found.measured["requests"] == "20"


def test_a_server_that_takes_nothing_is_not_soaked(store: Store, server: StandIn) -> None:
    apply(store)
    server.answers["/v1/chat/completions"] = server.answers["/v1/completions"] = (404, "")
    found = soak(store, manager(server))
    assert (found.state, found.text) == (ProofState.WINDOW, "not soaked: it takes none of the 30 requests")


def test_what_cannot_be_asked_is_said_and_no_failure(store: Store, server: StandIn) -> None:
    apply(store)
    server.answers["/v1/models"] = (401, "")
    found = soak(store, manager(server))
    assert found.state is ProofState.WINDOW
    assert "wants a key" in found.text


def test_an_action_that_is_undone_is_not_proved_further(store: Store, server: StandIn) -> None:
    apply(store)
    undo = made_result("a2", ActionState.UNDONE, kind="rollback", target="a1", started=AFTER, ended=AFTER + SECOND)
    store.import_result(undo, AFTER + SECOND)
    assert store.soaking() == ()
    assert (proved(store).state, proved(store).text) == (ProofState.ENDED, "undone by a2")


def test_a_signature_that_comes_back_ends_the_soak(store: Store) -> None:
    apply(store)
    record(store, closed(made_finding(90)), now=AFTER + 31 * SECOND)
    assert proved(store).state is ProofState.FAILED
    assert store.soaking() == ()


def test_a_rules_own_window_holds(store: Store) -> None:
    apply(store, replace(PROFILE, window=5.0))
    record(store, closed(made_finding(90)), now=AFTER + 31 * SECOND)
    assert store.wanted_rollbacks() == ()
    assert store.watch_windows(AFTER + 6 * SECOND) == 1


def test_without_a_soak_only_the_window_is_left(store: Store) -> None:
    apply(store, replace(PROFILE, soak=0))
    assert proved(store).state is ProofState.WINDOW


def test_the_worker_soaks_one_unit_once_however_often_it_looks(store: Store, server: StandIn) -> None:
    apply(store, replace(PROFILE, soak=3))
    prover = Prover(store, manager(server), lambda _: False)  # type: ignore[arg-type]
    for _ in range(5):
        assert prover.round() == []
    prover._running[UNIT].result(20)
    prover.close()
    assert proved(store).state is ProofState.WINDOW
    assert generations(server) == 3
