"""Retiring in the store: the window, the crash that comes back, the proposal that is told once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.made import SECOND, T0, closed, made_finding, made_result, record
from triage.actionmodel import ActionResult, ActionState
from triage.model import Verify
from triage.settings import EVENTS, Guards
from triage.store import IncidentState, ProofState, Store

AFTER = T0 + 60 * SECOND
DAY = 86_400 * SECOND


@pytest.fixture(autouse=True)
def _in_force(store: Store) -> None:
    record(store, closed(made_finding(1)), now=T0)
    store.import_result(made_result(), AFTER)


def retired(state: ActionState = ActionState.UNDONE) -> ActionResult:
    begun = T0 + DAY
    restarted, ended = begun + 10 * SECOND, begun + 60 * SECOND
    result = made_result("r1", state, kind="retire", target="a1", started=begun, restarted=restarted, ended=ended)
    return replace(result, request=replace(result.request, edits=()))


END = T0 + DAY + 60 * SECOND


def types(store: Store) -> list[str]:
    store.fan_out({"ops": frozenset(EVENTS)}, T0 + 10 * DAY)
    return [delivery.type for delivery in store.due("ops", T0 + 10 * DAY, 1000)]


def test_retired_and_quiet_is_resolved(store: Store) -> None:
    store.import_result(retired(), END)
    assert store.action("a1").state is ActionState.UNDONE
    assert store.workarounds() == ()
    assert store.incident(1).incident.state is IncidentState.MITIGATED, "not before its window has passed"
    assert store.watch_windows(END + 601 * SECOND) == 1
    assert store.incident(1).incident.state is IncidentState.RESOLVED
    assert "action.retired" in types(store)
    assert store.wanted_rollbacks() == ()


@pytest.mark.parametrize("account_first", [True, False])
def test_a_crash_that_comes_back_wants_it_back(store: Store, account_first: bool) -> None:
    crash = made_finding(started=END + 30 * SECOND)
    if account_first:
        store.import_result(retired(), END)
    record(store, closed(replace(crash, crash=replace(crash.crash, id="again"))), now=END + 31 * SECOND)
    if not account_first:
        store.import_result(retired(), END + 32 * SECOND)
    (wanted,) = store.wanted_rollbacks()
    assert wanted.action == "r1"
    assert "a1 was retired by r1" in wanted.reason
    assert store.incident(1).incident.state is IncidentState.REGRESSED
    assert store.guarded().demotions == (), "that the bug is still there says nothing against the rule"
    assert store.watch_windows(END + 601 * SECOND) == 0
    assert store.incident(1).incident.state is IncidentState.REGRESSED


def test_that_the_targets_account_comes_first_changes_nothing(store: Store) -> None:
    """Root writes both, the retirement's first; the worker may read the other one before."""
    words = {"title": "t", "cost": "", "diff": "d", "who": "ada"}
    store.reserve(retired().request, **words, now=T0 + DAY, limits=Guards())
    store.import_result(made_result(state=ActionState.UNDONE), END)
    assert store.incident(1).incident.state is IncidentState.MITIGATED
    store.import_result(retired(), END)
    assert store.incident(1).incident.state is IncidentState.MITIGATED
    assert store.watch_windows(END + 601 * SECOND) == 1
    assert store.incident(1).incident.state is IncidentState.RESOLVED


def soaked(store: Store) -> None:
    """The retirement asked for with the proof of an apply, and root's part of it done."""
    profile = Verify(soak=30, window=600)
    words = {"title": "t", "cost": "", "diff": "d", "who": "ada"}
    store.reserve(retired().request, **words, now=T0 + DAY, limits=Guards(), profile=profile)
    store.import_result(retired(), END)


def test_it_is_soaked_like_an_apply_and_resolved_when_both_soak_and_window_are_over(store: Store) -> None:
    soaked(store)
    (row,) = store.soaking()
    assert (row.action, row.profile.soak, row.effective_at) == ("r1", 30, T0 + DAY + 10 * SECOND)
    assert store.watch_windows(END + 601 * SECOND) == 0, "the soak is not through"
    store.soaked("r1", 30, "30 requests answered", {}, END + 700 * SECOND)
    assert store.incident(1).incident.state is IncidentState.MITIGATED
    assert store.watch_windows(END + 701 * SECOND) == 1
    assert store.incident(1).incident.state is IncidentState.RESOLVED
    proof = store.action("r1").proof
    assert proof is not None
    assert proof.state is ProofState.PROVED


def test_a_soak_that_fails_wants_it_back_and_blames_no_rule(store: Store) -> None:
    soaked(store)
    store.proof_failed("r1", 7, "no answer to request 8 in 5 s", {}, END + SECOND)
    (wanted,) = store.wanted_rollbacks()
    assert (wanted.action, wanted.reason) == ("r1", "no answer to request 8 in 5 s")
    assert any("a1 is asked back" in row.text for row in store.incident(1).timeline)
    assert store.guarded().demotions == ()
    assert store.watch_windows(END + 601 * SECOND) == 0


def test_where_root_proved_nothing_nothing_is_soaked(store: Store) -> None:
    """The drop-in was removed by hand before: nothing was restarted."""
    profile = Verify(soak=30, window=600)
    words = {"title": "t", "cost": "", "diff": "d", "who": "ada"}
    store.reserve(retired().request, **words, now=T0 + DAY, limits=Guards(), profile=profile)
    store.import_result(replace(retired(), steps=retired().steps[:1]), END)
    assert store.soaking() == ()
    proof = store.action("r1").proof
    assert proof is not None
    assert proof.state is ProofState.ENDED
    assert store.watch_windows(END + 601 * SECOND) == 1


def test_one_that_could_not_be_retired_is_in_force_still(store: Store) -> None:
    store.import_result(retired(ActionState.ROLLED_BACK), END)
    assert [row.name for row in store.workarounds()] == ["a1"]
    assert store.action("a1").state is ActionState.VERIFIED
    assert store.guarded().demotions == ()
    store.import_result(retired(ActionState.REFUSED), END)
    assert [row.name for row in store.workarounds()] == ["a1"]


def test_a_condition_and_a_proposal_are_kept_and_told(store: Store) -> None:
    row = store.action("a1")
    store.set_retirement(row, "0.6", None, "ada", AFTER)
    store.propose_retirement(row, "0.6.1", "0.6.1 is installed", AFTER)
    store.propose_retirement(row, "0.6.1", "0.6.1 is installed", AFTER + SECOND)
    known = store.retirements()["a1"]
    assert (known.release, known.proposed_for, known.failed) == ("0.6", "0.6.1", ())
    assert types(store).count("workaround.retirable") == 1
    store.still_needed("a1", "r1-again", "0.6.1")
    store.still_needed("r1-again", "r2-again", "0.6.2")
    assert store.retirements()["r2-again"].failed == ("0.6.1", "0.6.2")
    assert store.retirements()["r2-again"].release == "0.6"


SOON = AFTER + 30 * SECOND  # a retirement is asked for within the window of what it is to retire


def trial_of(state: ActionState, *, restarted: bool = True, ended: bool = True) -> ActionResult:
    """Root's account of a retirement that begins at SOON, restarts 10 s later and is settled 30 s after that."""
    return replace(
        made_result(
            "r1",
            state,
            kind="retire",
            target="a1",
            started=SOON,
            restarted=SOON + 10 * SECOND if restarted else None,
            ended=SOON + 40 * SECOND if ended else None,
        )
    )


def ask(store: Store) -> None:
    request = replace(trial_of(ActionState.RUNNING).request, time=SOON)
    store.reserve(request, title="t", cost="", diff="d", who="ada", now=SOON, limits=Guards())


def without_it(store: Store, after: int = 20) -> None:
    """The crash, so many seconds after SOON."""
    finding = made_finding(90, started=SOON + after * SECOND)
    crash = replace(finding.crash, invocation="without")
    record(store, closed(replace(finding, crash=crash)), now=SOON + (after + 1) * SECOND)


@pytest.mark.parametrize("known", ["asked", "restarted", "settled"])
def test_the_crash_of_a_retirement_that_failed_takes_the_working_cure_nowhere(store: Store, known: str) -> None:
    """However late root's account comes, and however late `watch` reads the crash."""
    ask(store)
    if known == "restarted":
        store.import_result(trial_of(ActionState.RUNNING, ended=False), SOON + 11 * SECOND)
    if known != "settled":
        without_it(store)
        assert store.wanted_rollbacks() == ()
        assert [row.started for row in store.undecided(T0)] == [T0 + SECOND], "what it is will be known soon"
    store.import_result(trial_of(ActionState.ROLLED_BACK), SOON + 41 * SECOND)
    if known == "settled":
        without_it(store)
    assert store.wanted_rollbacks() == ()
    assert store.guarded().demotions == ()
    assert [row.name for row in store.workarounds()] == ["a1"]
    assert store.incident(1).incident.state is IncidentState.MITIGATED
    (tried,) = store.tried(made_result().request.unit)
    assert not tried.failed
    assert [row.started for row in store.undecided(T0)] == [T0 + SECOND], "nothing is to be done about it"
    assert store.died_of(made_result().request.unit, "without") == "", "nor is it a verdict on the soak"
    assert store.watch_windows(AFTER + 601 * SECOND) == 1
    assert ("incident.regressed" in types(store)) == (known == "asked")


@pytest.mark.parametrize("after", [5, 60])
def test_a_crash_before_or_after_the_trial_speaks_against_the_cure(store: Store, after: int) -> None:
    ask(store)
    store.import_result(trial_of(ActionState.ROLLED_BACK), SOON + 41 * SECOND)
    without_it(store, after)
    assert [row.action for row in store.wanted_rollbacks()] == ["a1"]
    assert store.incident(1).incident.state is IncidentState.REGRESSED
    assert store.died_of(made_result().request.unit, "without")
    assert not store.died_of(made_result().request.unit, "without", since=AFTER + 3600 * SECOND), "a look from before"


def test_a_crash_that_waited_for_a_retirement_that_never_began_counts(store: Store) -> None:
    ask(store)
    without_it(store)
    assert store.wanted_rollbacks() == ()
    store.import_result(trial_of(ActionState.REFUSED, restarted=False), SOON + 41 * SECOND)
    assert [row.action for row in store.wanted_rollbacks()] == ["a1"]
    assert store.incident(1).incident.state is IncidentState.REGRESSED


def test_a_crash_that_waited_for_a_retirement_that_was_lost_counts(store: Store) -> None:
    ask(store)
    without_it(store)
    store.abandoned("r1", SOON + 100 * SECOND)
    assert [row.action for row in store.wanted_rollbacks()] == ["a1"]


def test_a_unit_that_stays_down_after_a_failed_retirement_is_not_mitigated(store: Store) -> None:
    ask(store)
    store.import_result(trial_of(ActionState.RUNNING, ended=False), SOON + 11 * SECOND)
    without_it(store)
    store.import_result(trial_of(ActionState.ROLLBACK_FAILED), SOON + 41 * SECOND)
    assert store.incident(1).incident.state is IncidentState.REGRESSED
    assert store.wanted_rollbacks() == ()


def test_a_return_under_the_cure_stays_one_when_its_retirement_fails_too(store: Store) -> None:
    """It came back after the window: then somebody tries to retire it."""
    record(store, closed(made_finding(700)), now=T0 + 701 * SECOND)
    assert store.incident(1).incident.state is IncidentState.REGRESSED
    later = 800 * SECOND
    failed = trial_of(ActionState.ROLLED_BACK)
    steps = tuple(replace(step, time=step.time + later) for step in failed.steps)
    failed = replace(failed, started=failed.started + later, ended=(failed.ended or 0) + later, steps=steps)
    store.import_result(failed, SOON + later + 41 * SECOND)
    record(store, closed(made_finding(900, started=SOON + later + 20 * SECOND)), now=SOON + later + 42 * SECOND)
    assert store.incident(1).incident.state is IncidentState.REGRESSED
    assert store.wanted_rollbacks() == ()


def test_a_change_that_was_tried_and_taken_back_says_nothing_against_what_was_in_force(store: Store) -> None:
    """The second remedy of the unit, for another crash, brings the first one's back."""
    record(store, closed(made_finding(2, signature="bb22")), now=T0 + 3 * SECOND)
    tried = trial_of(ActionState.ROLLED_BACK)
    request = replace(tried.request, action="a2", kind="apply", target=None, incident=2)
    store.import_result(replace(tried, request=request), SOON + 41 * SECOND)
    without_it(store)
    assert store.wanted_rollbacks() == ()
    assert store.incident(1).incident.state is IncidentState.REGRESSED, "whose it was is not known"
    without_it(store, 100)
    assert [row.action for row in store.wanted_rollbacks()] == ["a1"]
