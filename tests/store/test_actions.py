"""Actions: root's account is imported once, the incident follows it, and a signature that comes back takes it back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.store.made import SECOND, T0, closed, made_finding, made_result, opened, record
from triage.actionmodel import ActionState, StepState
from triage.model import Outcome
from triage.settings import EVENTS, Guards
from triage.store import IncidentState, Store

AFTER = T0 + 60 * SECOND  # when made_result() was verified; its restart was at T0 + 10 s


@pytest.fixture(autouse=True)
def _crash(store: Store) -> None:
    record(store, closed(made_finding(1)), now=T0)


def types(store: Store) -> list[str]:
    store.fan_out({"ops": frozenset(EVENTS)}, T0 + 10_000 * SECOND)
    return [delivery.type for delivery in store.due("ops", T0 + 10_000 * SECOND, 1000)]


def state(store: Store) -> IncidentState:
    return store.incident(1).incident.state


def test_a_verified_action_mitigates_its_incident(store: Store) -> None:
    assert store.import_result(made_result(), AFTER)
    assert state(store) is IncidentState.MITIGATED
    (action,) = store.workarounds()
    assert action.in_force
    assert action.steps[-1].state is StepState.DONE
    assert action.measured == {"ready_seconds": "12"}
    assert store.action("a1") == action
    assert types(store) == ["incident.opened", "action.verified"]


def test_the_same_account_twice_says_nothing_new(store: Store) -> None:
    store.import_result(made_result(), AFTER)
    before = (store.incident(1), store.counters(), types(store))
    assert not store.import_result(made_result(), AFTER + SECOND)
    assert (store.incident(1), store.counters(), types(store)) == before


def test_an_account_grows_step_by_step(store: Store) -> None:
    store.import_result(made_result(state=ActionState.RUNNING, restarted=None, ended=None), T0)
    assert store.action("a1").effective_at is None
    store.import_result(made_result(state=ActionState.RUNNING, ended=None), T0 + SECOND)
    store.import_result(made_result(), AFTER)
    assert not store.import_result(made_result(state=ActionState.RUNNING, ended=None), AFTER + SECOND)
    assert store.action("a1").state is ActionState.VERIFIED
    assert types(store) == ["incident.opened", "action.started", "action.verified"]


def test_what_the_operator_saw_is_kept_with_the_action(store: Store) -> None:
    request = made_result().request
    store.reserve(request, title="Graphs off", cost="speed", diff="+ x", who="ada", now=T0, limits=Guards())
    assert store.action("a1").state is ActionState.REQUESTED
    store.import_result(made_result(), AFTER)
    action = store.action("a1")
    assert (action.state, action.title, action.diff, action.who) == (ActionState.VERIFIED, "Graphs off", "+ x", "ada")


@pytest.mark.parametrize(
    ("end", "event"),
    [
        (ActionState.ROLLED_BACK, "action.rolled_back"),
        (ActionState.ROLLBACK_FAILED, "action.rollback_failed"),
        (ActionState.REFUSED, "action.refused"),
    ],
)
def test_an_action_that_did_not_help_leaves_the_incident_open(store: Store, end: ActionState, event: str) -> None:
    store.import_result(made_result(state=end, text="no answer"), AFTER)
    assert state(store) is IncidentState.OPEN
    assert store.workarounds() == ()
    assert types(store) == ["incident.opened", event]
    assert any("no answer" in line.text for line in store.incident(1).timeline)


def test_an_action_applied_without_proof_is_in_force_but_mitigates_nothing(store: Store) -> None:
    store.import_result(made_result(state=ActionState.UNVERIFIED), AFTER)
    assert state(store) is IncidentState.OPEN
    assert len(store.workarounds()) == 1


def test_an_action_that_could_not_be_taken_back_stays_on_the_list_until_it_is_undone(store: Store) -> None:
    failed = made_result(state=ActionState.ROLLBACK_FAILED)
    store.import_result(failed, AFTER)
    assert store.workarounds() == ()
    store.import_result(replace(failed, measured={"stands": "yes"}), AFTER)
    assert [row.name for row in store.workarounds()] == ["a1"]
    assert state(store) is IncidentState.OPEN
    store.import_result(undo(), AFTER + SECOND)
    assert store.workarounds() == ()
    assert store.action("a1").state is ActionState.UNDONE


def undo(name: str = "r1", target: str = "a1", end: ActionState = ActionState.UNDONE) -> object:
    return made_result(name, end, kind="rollback", target=target, started=AFTER, ended=AFTER + 60 * SECOND)


def test_undoing_an_action_opens_the_incident_again(store: Store) -> None:
    store.import_result(made_result(), AFTER)
    store.import_result(undo(), AFTER + 60 * SECOND)  # type: ignore[arg-type]
    assert store.action("a1").state is ActionState.UNDONE
    assert state(store) is IncidentState.OPEN
    assert store.workarounds() == ()


def test_the_order_of_the_accounts_does_not_matter(store: Store) -> None:
    store.import_result(undo(), AFTER)  # type: ignore[arg-type]
    store.import_result(made_result(), AFTER)
    assert store.action("a1").state is ActionState.UNDONE
    assert state(store) is IncidentState.OPEN
    assert store.workarounds() == ()


def test_a_rollback_that_was_refused_changes_nothing(store: Store) -> None:
    store.import_result(made_result(), AFTER)
    store.import_result(undo(end=ActionState.REFUSED), AFTER)  # type: ignore[arg-type]
    assert store.action("a1").in_force
    assert state(store) is IncidentState.MITIGATED


def test_undoing_one_of_two_actions_leaves_the_incident_mitigated(store: Store) -> None:
    store.import_result(made_result("a1"), AFTER)
    store.import_result(made_result("a2"), AFTER)
    store.import_result(undo(target="a1"), AFTER)  # type: ignore[arg-type]
    assert [action.name for action in store.workarounds()] == ["a2"]
    assert state(store) is IncidentState.MITIGATED


def test_a_signature_that_comes_back_in_the_window_wants_the_rollback_once(store: Store) -> None:
    store.import_result(made_result(), AFTER)
    back = made_finding(90)
    record(store, opened(back), now=AFTER + 30 * SECOND)
    assert store.wanted_rollbacks() == (), "what became of it is not known yet"
    record(store, closed(back), now=AFTER + 31 * SECOND)
    record(store, closed(made_finding(120)), now=AFTER + 61 * SECOND)
    (wanted,) = store.wanted_rollbacks()
    assert (wanted.action, wanted.incident) == ("a1", 1)
    assert "30 s after" in wanted.reason
    assert state(store) is IncidentState.REGRESSED
    store.mark_filed("a1", "r1", AFTER + 62 * SECOND)
    record(store, closed(made_finding(150)), now=AFTER + 91 * SECOND)
    assert store.wanted_rollbacks() == ()


def test_a_crash_stored_before_the_account_counts_the_same(store: Store) -> None:
    record(store, closed(made_finding(90)), now=AFTER + 31 * SECOND)
    store.import_result(made_result(), AFTER + 32 * SECOND)
    assert [wanted.action for wanted in store.wanted_rollbacks()] == ["a1"]
    assert state(store) is IncidentState.REGRESSED


@pytest.mark.parametrize(
    "other",
    [
        made_finding(9),  # before the restart: the old process
        made_finding(90, signature="other"),
        made_finding(90, unit="sglang-birch.service"),
        made_finding(90, outcome=Outcome.REQUEST_ERROR),
        made_finding(90, outcome=Outcome.UNKNOWN),
        made_finding(661),  # after the window
    ],
)
def test_no_other_crash_takes_an_action_back(store: Store, other: object) -> None:
    record(store, closed(other), now=AFTER)  # type: ignore[arg-type]
    store.import_result(made_result(), AFTER)
    record(store, closed(other), now=AFTER + SECOND)  # type: ignore[arg-type]
    assert store.wanted_rollbacks() == ()


def test_an_action_that_is_undone_is_not_taken_back_again(store: Store) -> None:
    store.import_result(made_result(), AFTER)
    store.import_result(undo(), AFTER + SECOND)  # type: ignore[arg-type]
    record(store, closed(made_finding(90)), now=AFTER + 31 * SECOND)
    assert store.wanted_rollbacks() == ()


def test_a_window_that_passes_in_silence_is_noted_once(store: Store) -> None:
    store.import_result(made_result(), AFTER)
    assert store.watch_windows(AFTER + 600 * SECOND) == 0
    assert store.watch_windows(AFTER + 601 * SECOND) == 1
    assert store.watch_windows(AFTER + 602 * SECOND) == 0
    assert "did not come back within 600 s" in store.incident(1).timeline[-1].text


def test_a_window_is_not_over_before_the_journal_was_read_that_far(store: Store) -> None:
    record(store, now=AFTER, cursor="c1")
    store.import_result(made_result(), AFTER)
    assert store.watch_windows(AFTER + 10_000 * SECOND) == 0
    record(store, now=AFTER + 700 * SECOND, cursor="c2")
    assert store.watch_windows(AFTER + 10_000 * SECOND) == 1


def test_an_account_of_an_incident_that_is_not_here_is_kept_all_the_same(store: Store) -> None:
    assert store.import_result(made_result(incident=77), AFTER)
    assert store.action("a1").incident == 77


def test_the_event_of_an_action_leads_to_its_page_and_stays_small(store: Store) -> None:
    store.import_result(made_result(text="x" * 50_000), AFTER)
    store.fan_out({"ops": frozenset(("action.verified",))}, AFTER)
    (delivery,) = store.due("ops", AFTER)
    data = json.loads(delivery.payload)["data"]
    assert data["url"].endswith("/incidents/1")
    assert data["action"] == "a1"
    assert len(delivery.payload) < 20_000


def test_a_muted_incident_does_not_tell_of_its_actions(store: Store) -> None:
    store.mute(1, AFTER + 10_000 * SECOND, "maintenance", "ada", T0)
    store.import_result(made_result(), AFTER)
    assert types(store) == []


def test_an_action_of_an_incident_that_was_merged_belongs_to_where_it_went(store: Store) -> None:
    record(store, closed(made_finding(2, signature="other")), now=T0)
    store.merge(1, 2, "ada", T0)
    store.import_result(made_result(incident=1), AFTER)
    assert store.action("a1").incident == 2
    assert store.incident(2).incident.state is IncidentState.MITIGATED
    record(store, closed(made_finding(90)), now=AFTER + 31 * SECOND)
    assert [wanted.incident for wanted in store.wanted_rollbacks()] == [2]
