"""`apply --wait` ends with what became of the whole proof; `actions show` tells how far it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from tests.store.made import SECOND, T0, closed, made_finding, made_result, record
from triage.actionmodel import ActionState
from triage.cli import applying as commands
from triage.model import RollbackFailed, Unreachable, VerificationFailed, Verify
from triage.settings import Guards
from triage.store import Store

AFTER = T0 + 60 * SECOND


@pytest.fixture
def proving(store: Store) -> Store:
    record(store, closed(made_finding()))
    result = made_result()
    profile = Verify(soak=150, window=600)
    store.reserve(result.request, title="t", cost="", diff="", who="ada", now=T0, limits=Guards(), profile=profile)
    store.import_result(result, AFTER)
    return store


def wait(store: Store, action: str = "a1") -> None:
    requester: Any = SimpleNamespace(store=store, under_way=lambda unit: "")
    commands._wait(requester, action)


def undo(store: Store, state: ActionState) -> None:
    store.import_result(made_result("a2", state, kind="rollback", target="a1"), AFTER + 2 * SECOND)


def test_the_progress_is_shown(proving: Store, run: Callable[..., Result]) -> None:
    proving.soak_progress("a1", 60, "60 requests answered", AFTER)
    assert "proving: soak 60/150: 60 requests answered" in run("actions", "show", "a1").stdout
    shown = json.loads(run("actions", "show", "a1", "--json").stdout)["action"]["proof"]
    assert (shown["state"], shown["sent"], shown["wanted"]) == ("soak", 60, 150)


def test_a_proved_action_ends_the_wait(proving: Store) -> None:
    proving.soaked("a1", 150, "fine", {}, AFTER)
    proving.watch_windows(AFTER + 700 * SECOND)
    wait(proving)


def test_a_failed_proof_is_waited_for_until_it_is_taken_back(proving: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    proving.proof_failed("a1", 7, "no answer to request 7", {}, AFTER)
    monkeypatch.setattr(commands.time, "sleep", lambda _: undo(proving, ActionState.UNDONE))
    with pytest.raises(VerificationFailed, match="a1 was taken back: no answer to request 7"):
        wait(proving)


def test_a_proof_without_a_verdict_is_no_success(proving: Store) -> None:
    undo(proving, ActionState.UNDONE)
    with pytest.raises(SystemExit) as ended:
        wait(proving)
    assert ended.value.code == 1


def test_a_worker_that_does_not_run_is_said(proving: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "STALLED", -1.0)
    with pytest.raises(Unreachable, match=r"triage-worker\.service"):
        wait(proving)


@pytest.mark.parametrize(
    ("came", "ends"), [(ActionState.VERIFIED, VerificationFailed), (ActionState.ROLLED_BACK, RollbackFailed)]
)
def test_a_failed_retirement_is_waited_for_until_the_workaround_is_back(
    proving: Store, monkeypatch: pytest.MonkeyPatch, came: ActionState, ends: type[Exception]
) -> None:
    retired = made_result("r1", ActionState.UNDONE, kind="retire", target="a1")
    profile = Verify(soak=150, window=600)
    words = {"title": "t", "cost": "", "diff": "", "who": "ada"}
    proving.reserve(retired.request, **words, now=AFTER, limits=Guards(), profile=profile)
    proving.import_result(retired, AFTER)
    proving.proof_failed("r1", 7, "no answer to request 7", {}, AFTER)
    again = made_result("r1-again", came, target="r1")
    monkeypatch.setattr(commands.time, "sleep", lambda _: proving.import_result(again, AFTER + SECOND))
    with pytest.raises(ends, match="no answer to request 7"):
        wait(proving, "r1")


def test_a_rollback_that_failed_ends_the_wait(proving: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    proving.proof_failed("a1", 7, "no answer to request 7", {}, AFTER)

    def fails(_: float) -> None:
        undo(proving, ActionState.ROLLBACK_FAILED)

    monkeypatch.setattr(commands.time, "sleep", fails)
    with pytest.raises(RollbackFailed):
        wait(proving)
