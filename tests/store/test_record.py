"""Recording: each crash once, each alarm once, whatever is read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.store.made import (
    SECOND,
    T0,
    UNIT,
    amended,
    closed,
    made_finding,
    made_store,
    opened,
    record,
)
from triage.model import Change, Context, Finding, FindingEvent, Line, Origin, Outcome, Phase, Role, Severity, UnitEnd
from triage.store import DueDelivery, IncidentState, Store

ALL = frozenset(("incident.opened", "incident.repeated", "incident.regressed", "incident.resolved"))


def sent(store: Store, now: int = T0 + 1_000 * SECOND) -> list[DueDelivery]:
    """All that has gone out so far."""
    store.fan_out({"ops": ALL}, now)
    return list(store.due("ops", now, 1000))


def types(store: Store) -> list[str]:
    return [delivery.type for delivery in sent(store)]


def test_a_crash_opens_grows_and_closes_as_one_row(store: Store) -> None:
    finding = made_finding()
    record(store, opened(finding), now=T0)
    view = store.incident(1)
    assert view.crashes[0].document["ranks"] == ["TP0"]
    assert view.crashes[0].closed_at is None
    record(store, amended(finding), now=T0 + SECOND)
    record(store, closed(finding), now=T0 + 2 * SECOND)
    view = store.incident(1)
    assert len(view.crashes) == 1
    assert len(view.crashes[0].document["ranks"]) == 8
    assert view.crashes[0].closed_at == T0 + 2 * SECOND
    assert view.incident.crashes == 1
    assert view.incident.state is IncidentState.OPEN
    assert view.incident.severity is Severity.CRITICAL
    assert view.incident.place == "dflash_worker.py:715 in forward"


def test_reading_again_changes_nothing(store: Store) -> None:
    events = [event(made_finding(n)) for n in (1, 2) for event in (opened, amended, closed)]
    record(store, *events)
    before = (store.incident(1), store.counters(), store.health().outbox)
    for event in events:
        record(store, event, now=T0 + 50 * SECOND)
    record(store, *events, now=T0 + 60 * SECOND)
    assert (store.incident(1), store.counters(), store.health().outbox) == before


def test_a_crash_half_stored_is_finished_by_the_next_reading(store: Store) -> None:
    finding = made_finding()
    record(store, opened(finding))
    record(store, amended(finding))
    record(store, opened(finding))
    assert len(store.incident(1).crashes[0].document["ranks"]) == 8, "the first lines alone must not replace more"
    record(store, amended(finding), closed(finding))
    assert store.incident(1).incident.crashes == 1
    assert types(store) == ["incident.opened"]


def test_a_second_close_may_add_knowledge_but_counts_nothing(store: Store) -> None:
    finding = made_finding()
    record(store, closed(replace(finding, crash=replace(finding.crash, failures=finding.crash.failures[:1]))))
    record(store, closed(finding), now=T0 + SECOND)
    assert store.incident(1).incident.crashes == 1
    assert types(store) == ["incident.opened"]
    assert [counter.value for counter in store.counters()] == [1]


def test_a_restart_loop_counts_each_crash(store: Store) -> None:
    for number in range(1, 6):
        record(store, closed(made_finding(number)))
    incident = store.incident(1).incident
    assert (incident.crashes, incident.alarms) == (5, 5)
    assert (incident.first_seen, incident.last_seen) == (T0 + SECOND, T0 + 5 * SECOND)


def test_one_signature_on_two_units_is_two_incidents(store: Store) -> None:
    record(store, closed(made_finding(1)), closed(made_finding(1, unit="sglang-birch.service")))
    assert {row.unit for row in store.incidents().rows} == {UNIT, "sglang-birch.service"}


def test_an_alert_waits_for_the_end_of_the_crash_or_five_seconds(store: Store) -> None:
    record(store, opened(made_finding()), now=T0)
    assert sent(store, T0 + 4 * SECOND) == []
    record(store, closed(made_finding()), now=T0 + 4 * SECOND)
    (one,) = sent(store, T0 + 4 * SECOND)
    assert one.type == "incident.opened"
    assert len(json.loads(one.payload)["data"]["ranks"]) == 8


def test_a_crash_that_stays_open_is_told_after_five_seconds_and_only_once(store: Store) -> None:
    record(store, opened(made_finding()), now=T0)
    assert [one.type for one in sent(store, T0 + 5 * SECOND)] == ["incident.opened"]
    record(store, amended(made_finding()), now=T0 + 6 * SECOND)
    record(store, closed(made_finding()), now=T0 + 7 * SECOND)
    assert types(store) == ["incident.opened"]


def test_the_event_says_what_a_receiver_needs(store: Store) -> None:
    record(store, closed(made_finding()), now=T0)
    body = json.loads(sent(store)[0].payload)
    assert set(body) == {"type", "timestamp", "data"}
    data = body["data"]
    assert body["timestamp"].endswith("Z")
    assert data["incident"] == 1
    assert data["unit"] == UNIT
    assert data["root"]["exception"] == "AttributeError"
    assert data["root"]["frame"] == {"file": "dflash_worker.py", "function": "forward", "line": 715}
    assert data["rule"] == "dflash-none"
    assert data["remedy"]["id"] == "no-graph"
    assert data["url"] == "http://127.0.0.1:8475/incidents/1"


def test_an_event_stays_small_and_without_secrets(store: Store) -> None:
    message = "api_key='sk-verysecret1' Authorization: Bearer abcdef123 " + "x" * 100_000
    record(store, closed(made_finding(message=message)))
    payload = sent(store)[0].payload
    assert len(payload.encode()) < 20_000
    assert "verysecret" not in payload
    assert "abcdef123" not in payload


def test_half_characters_and_nuls_of_a_broken_log_are_stored(store: Store) -> None:
    record(store, closed(made_finding(message="bad \udc80 byte \0 here")))
    assert store.incident(1).incident.message == "bad ? byte  here"
    json.loads(sent(store)[0].payload)


@pytest.mark.parametrize(
    "quiet",
    [
        made_finding(outcome=Outcome.REQUEST_ERROR),
        made_finding(outcome=Outcome.RECOVERED),
        made_finding(outcome=Outcome.UNKNOWN, role=Role.CASCADE),
    ],
)
def test_what_is_no_failure_is_stored_in_silence(store: Store, quiet: Finding) -> None:

    record(store, closed(quiet))
    assert types(store) == []
    assert store.incidents().rows == ()
    (row,) = store.incidents(alarming=False).rows
    assert (row.severity, row.crashes, row.alarms) == (Severity.INFO, 1, 0)


def test_an_unknown_outcome_with_a_root_alarms(store: Store) -> None:
    record(store, closed(made_finding(outcome=Outcome.UNKNOWN)))
    assert types(store) == ["incident.opened"]


def test_a_crash_that_turns_out_harmless_takes_its_alarm_back(store: Store) -> None:
    harmless = made_finding(outcome=Outcome.REQUEST_ERROR)
    record(store, opened(harmless), now=T0)
    record(store, closed(harmless), now=T0 + SECOND)
    assert types(store) == []
    assert store.incident(1).incident.severity is Severity.INFO
    record(store, closed(made_finding(2)), now=T0 + 2 * SECOND)
    assert types(store) == ["incident.opened"], "the first real failure is told as the first"


def test_an_alarm_taken_back_and_raised_again_is_one_event(store: Store) -> None:
    finding = made_finding()
    record(store, opened(finding), now=T0)
    quiet = amended(made_finding(outcome=Outcome.REQUEST_ERROR))
    record(store, quiet, now=T0 + SECOND)
    record(store, closed(finding), now=T0 + 2 * SECOND)
    (one,) = sent(store)
    assert len(json.loads(one.payload)["data"]["ranks"]) == 8


def test_the_same_crash_in_another_database_has_the_same_webhook_id(store: Store, tmp_path: Path) -> None:
    """As after a power cut that took the last commits: a receiver that keeps ids takes the alert once."""
    other = made_store(tmp_path / "other")
    for one in (store, other):
        record(one, closed(made_finding(1)), closed(made_finding(2)))
    assert [due.id for due in sent(store)] == [due.id for due in sent(other)]
    assert len({due.id for due in sent(store)}) == 2
    other.close()


def test_a_harmless_crash_leaves_a_resolved_incident_resolved(store: Store) -> None:
    record(store, closed(made_finding(1)))
    store.resolve(1, "ada", T0 + SECOND)
    harmless = made_finding(2, outcome=Outcome.REQUEST_ERROR)
    record(store, opened(harmless), now=T0 + 2 * SECOND)
    assert store.incident(1).incident.state is IncidentState.REGRESSED
    record(store, closed(harmless), now=T0 + 3 * SECOND)
    assert store.incident(1).incident.state is IncidentState.RESOLVED
    assert types(store) == ["incident.opened", "incident.resolved"]


def test_a_resolved_incident_that_comes_back_is_a_regression(store: Store) -> None:
    record(store, closed(made_finding(1)))
    store.resolve(1, "ada", T0 + SECOND)
    record(store, closed(made_finding(2)), now=T0 + 2 * SECOND)
    assert store.incident(1).incident.state is IncidentState.REGRESSED
    assert types(store) == ["incident.opened", "incident.resolved", "incident.regressed"]


def test_repetitions_are_told_ever_more_rarely_but_hourly(store: Store) -> None:
    for number in range(1, 12):
        record(store, closed(made_finding(number)), now=T0 + number * SECOND)
    assert types(store) == ["incident.opened"] + ["incident.repeated"] * 4  # the 2nd, 3rd, 5th and 10th
    record(store, closed(made_finding(5000)), now=T0 + 5000 * SECOND)
    assert len(sent(store, T0 + 5000 * SECOND)) == 6


def test_a_root_seen_better_later_renames_the_incident_it_made(store: Store) -> None:
    record(store, opened(made_finding(signature="first")))
    record(store, closed(made_finding(signature="second")))
    (row,) = store.incidents().rows
    assert (row.number, row.signature, row.crashes) == (1, "1:second", 1)
    assert types(store) == ["incident.opened"]


def test_a_renamed_incident_frees_its_old_name_at_once(store: Store) -> None:
    record(store, opened(made_finding(1, signature="first")))
    record(store, closed(made_finding(1, signature="second")), closed(made_finding(2, signature="first")))
    assert [row.signature for row in store.incidents().rows] == ["1:first", "1:second"]


def test_a_storm_in_one_batch_is_stored_like_one_crash_after_another(store: Store, tmp_path: Path) -> None:
    events = [
        event(made_finding(n, signature="ab"[n % 2], outcome=Outcome.REQUEST_ERROR if n % 5 == 0 else Outcome.FATAL))
        for n in range(1, 40)
        for event in (opened, amended, closed)
    ]
    record(store, *events)
    slow = made_store(tmp_path / "slow")
    for event in events:
        record(slow, event)
    assert store.incidents(alarming=False) == slow.incidents(alarming=False)
    assert store.incident(1) == slow.incident(1)
    assert store.counters() == slow.counters()
    assert sorted(types(store)) == sorted(types(slow))
    slow.close()


def test_a_root_seen_better_later_moves_the_crash_to_the_incident_of_its_kind(store: Store) -> None:
    record(store, closed(made_finding(1, signature="second")))
    record(store, opened(made_finding(2, signature="first")))
    record(store, closed(made_finding(2, signature="second")))
    (row,) = store.incidents().rows
    assert (row.number, row.crashes, row.alarms) == (1, 2, 2)
    assert types(store) == ["incident.opened", "incident.repeated"]
    assert store.incident(2).incident.merged_into == 1, "its number leads on"
    record(store, closed(made_finding(3, signature="first")))
    assert len(store.incidents().rows) == 2, "a later crash that is of the first kind is its own incident"


def test_cursor_and_contexts_are_kept_together(store: Store) -> None:
    warning = Line("Ignore import error when loading", time=T0, pid=7, origin=Origin.KERNEL, fields={"A": "b"})
    context = Context(Phase.LOAD, "0.5.12", {"tp": "8"}, (("load", T0), ("ready", None)), (warning,), good={"tp": "4"})
    store.record("journal:", (), cursor="c1", contexts={"inv1": context, "inv2": Context()}, now=T0)
    assert store.resume("journal:") == ("c1", {"inv1": context, "inv2": Context()})
    store.record("journal:", (), cursor=None, contexts=None, now=T0 + 1)
    assert store.resume("journal:")[0] == "c1"
    store.record("journal:", (), cursor="c2", contexts={"inv2": context}, now=T0 + 2)
    assert store.resume("journal:") == ("c2", {"inv2": context})
    assert store.resume("other") == (None, {})
    assert [source.read_at for source in store.health().sources] == [T0 + 2]


def test_a_fault_in_the_middle_leaves_nothing_behind(store: Store) -> None:
    bad = made_finding(2)
    broken = replace(bad, crash=replace(bad.crash, root=None))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        record(store, closed(made_finding(1)), closed(broken), cursor="c1")
    assert store.incidents(alarming=False).rows == ()
    assert store.resume("journal:") == (None, {})


def test_a_result_told_after_the_crash_was_closed_is_taken_over_once(store: Store) -> None:
    """The manager said only then that it was a start time-out: another signature, another rule, the same crash."""
    first = made_finding(signature="sigkill", known=False)
    first = replace(first, crash=replace(first.crash, end=UnitEnd("signal", "killed", "9")))
    better = made_finding(signature="start-timeout")
    better = replace(better, crash=replace(better.crash, end=UnitEnd("timeout", "killed", "9")))
    record(store, opened(first), closed(first), now=T0)
    late = FindingEvent(Change.CORRECTED, better)
    record(store, late, now=T0 + 60 * SECOND)
    view = store.incident(1)
    assert (len(view.crashes), view.incident.crashes, view.incident.alarms) == (1, 1, 1)
    assert (view.incident.rule, view.incident.signature) == ("dflash-none", "1:start-timeout")
    told = [entry.text for entry in view.timeline]
    assert told.count("the manager said later how the unit ended: timeout") == 1
    assert types(store) == ["incident.opened"]
    record(store, closed(first), late, closed(better), now=T0 + 90 * SECOND)  # read again: nothing new
    assert [entry.text for entry in store.incident(1).timeline] == told
