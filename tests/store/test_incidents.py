"""Incidents: what people do to them, and what the queries show."""

from __future__ import annotations

import pytest

from tests.store.made import SECOND, T0, UNIT, closed, made_finding, made_result, record
from triage.model import InputError, Outcome, Severity
from triage.store import IncidentState, Store


def fill(store: Store, count: int) -> None:
    for number in range(1, count + 1):
        record(store, closed(made_finding(number, signature=f"s{number}")))


def test_resolving_and_reopening_leave_their_lines(store: Store) -> None:
    fill(store, 1)
    store.resolve(1, "ada", T0 + SECOND)
    store.resolve(1, "ada", T0 + 2 * SECOND)
    store.reopen(1, "bob", T0 + 3 * SECOND)
    lines = [(line.text, line.who) for line in store.incident(1).timeline if line.kind == "state"]
    assert lines == [("resolved", "ada"), ("opened again", "bob")]
    assert store.incident(1).incident.state is IncidentState.OPEN


def test_a_mute_ends_by_itself_or_by_a_time_that_has_passed(store: Store) -> None:
    fill(store, 1)
    store.mute(1, T0 + 10 * SECOND, "known, driver is on its way", "ada", T0)
    incident = store.incident(1).incident
    assert incident.muted(T0 + 9 * SECOND)
    assert not incident.muted(T0 + 10 * SECOND)
    assert incident.mute_why == "known, driver is on its way"
    store.mute(1, T0, "", "ada", T0 + SECOND)
    assert store.incident(1).incident.mute_until is None


def test_a_merged_incident_sends_its_crashes_on(store: Store) -> None:
    fill(store, 2)
    store.merge(1, 2, "ada", T0 + SECOND)
    record(store, closed(made_finding(9, signature="s1")))
    (row,) = store.incidents().rows
    assert (row.number, row.crashes, row.alarms) == (2, 3, 3)
    assert row.first_seen == T0 + SECOND
    assert store.incident(1).incident.merged_into == 2
    assert [crash.incident for crash in store.crashes(2).rows] == [2, 2, 2]


def test_only_incidents_of_one_unit_are_merged_and_never_in_a_circle(store: Store) -> None:
    record(store, closed(made_finding(1)), closed(made_finding(1, unit="sglang-birch.service")))
    with pytest.raises(InputError, match="different units"):
        store.merge(1, 2, "ada", T0)
    record(store, closed(made_finding(2, signature="other")))
    store.merge(1, 3, "ada", T0)
    for one, two in ((3, 1), (1, 3), (3, 3)):
        with pytest.raises(InputError):
            store.merge(one, two, "ada", T0)


def test_an_unknown_number_says_where_to_look(store: Store) -> None:
    for ask in (lambda: store.incident(7), lambda: store.resolve(7, "ada", T0), lambda: store.note(7, "x", "ada", T0)):
        with pytest.raises(InputError, match="triage incidents list"):
            ask()
    with pytest.raises(InputError, match="triage actions list"):
        store.action("nope")


def test_pages_hold_every_incident_once_newest_first(store: Store) -> None:
    fill(store, 25)
    seen: list[int] = []
    before = None
    while True:
        page = store.incidents(limit=10, before=before)
        seen += [row.number for row in page.rows]
        if page.next is None:
            break
        before = page.next
    assert seen == list(range(25, 0, -1))


def test_pages_of_crashes_and_actions_hold_each_once(store: Store) -> None:
    for number in range(1, 8):
        record(store, closed(made_finding(number)))
        store.import_result(made_result(f"a{number}", started=T0 + number * SECOND), T0)
    for ask, count in (
        (lambda before: store.crashes(1, limit=3, before=before), 7),
        (lambda b: store.actions(limit=3, before=b), 7),
    ):
        rows: list[object] = []
        page = ask(None)
        rows += page.rows
        while page.next:
            page = ask(page.next)
            rows += page.rows
        assert len(rows) == len(set(map(repr, rows))) == count


def test_a_place_in_a_list_that_was_made_up_is_refused(store: Store) -> None:
    for ask in (store.incidents, store.actions):
        with pytest.raises(InputError):
            ask(before="x' OR 1=1")


def test_filters_narrow_the_list(store: Store) -> None:
    fill(store, 3)
    record(store, closed(made_finding(4, unit="sglang-birch.service", message="100% _full", known=False)))
    store.resolve(1, "ada", T0)
    assert [row.number for row in store.incidents(states=(IncidentState.RESOLVED,)).rows] == [1]
    assert [row.number for row in store.incidents(unit=UNIT).rows] == [3, 2, 1]
    assert [row.number for row in store.incidents(text="100% _FULL").rows] == [4]
    assert store.incidents(text="100%x").rows == (), "a percent sign is a percent sign"
    assert len(store.incidents(severity=Severity.CRITICAL).rows) == 4
    assert store.incidents(severity=Severity.WARNING).rows == ()


def test_an_undiagnosed_crash_goes_by_its_signature(store: Store) -> None:
    record(store, closed(made_finding(known=False)))
    incident = store.incident(1).incident
    assert incident.rule is None
    assert incident.title == "AttributeError in forward (aa11)"


def test_units_and_counts_leave_out_what_is_over_or_harmless(store: Store) -> None:
    fill(store, 2)
    record(store, closed(made_finding(3, signature="s3", outcome=Outcome.REQUEST_ERROR)))
    store.resolve(1, "ada", T0)
    (unit,) = store.units()
    assert (unit.unit, unit.open_incidents, unit.incidents) == (UNIT, 1, 3)
    (count,) = store.open_counts()
    assert (count.state, count.severity, count.count) == (IncidentState.OPEN, Severity.CRITICAL, 1)


def test_the_pulse_beats_when_something_shown_has_changed(store: Store) -> None:
    beats = [store.pulse()]
    fill(store, 1)
    beats.append(store.pulse())
    store.mute(1, T0 + SECOND, "x", "ada", T0 + SECOND)
    beats.append(store.pulse())
    store.import_result(made_result(), T0 + 2 * SECOND)
    beats.append(store.pulse())
    store.put_counters(())
    assert store.pulse() == beats[-1]
    assert len(set(beats)) == 4
