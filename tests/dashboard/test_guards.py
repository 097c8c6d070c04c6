"""The breaker and what was demoted, on the page of the actions and in /metrics."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.dashboard.conftest import NOW, form
from tests.dashboard.made import UNIT, result
from triage.actionmodel import ActionState
from triage.model import Refused
from triage.settings import Guards
from triage.store import Store

RESET = "/guards/reset"


@pytest.fixture
def bad_night(store: Store) -> Store:
    store.import_result(result("i1-77", ActionState.ROLLED_BACK, NOW), NOW)
    store.import_result(result("i1-78", ActionState.ROLLED_BACK, NOW), NOW)
    tight = Guards(breaker_actions=2, breaker_seconds=10**9)
    asked = result("i1-79", ActionState.ROLLED_BACK, NOW).request
    with pytest.raises(Refused):
        store.reserve(asked, title="", cost="", diff="", who="ada", now=NOW, limits=tight)
    return store


def test_an_open_breaker_is_the_first_thing_on_the_page(reader: TestClient, bad_night: Store) -> None:
    page = reader.get("/actions").text
    assert "The breaker is open" in page
    assert 'action="/guards/reset"' not in page, "who may only read has no button"
    assert "triage_breaker_open 1.0" in reader.get("/metrics").text
    assert "triage_demotions 1.0" in reader.get("/metrics").text


def test_a_signed_in_person_closes_it(operator: TestClient, reader: TestClient, bad_night: Store) -> None:
    assert reader.post(RESET).status_code == 401
    assert operator.post(RESET, data={"csrf": "another"}).status_code == 403
    assert bad_night.guarded().breaker.opened_at is not None
    assert operator.post(RESET, data=form(operator, "/actions", RESET)).status_code == 303
    held = bad_night.guarded()
    assert held.breaker.opened_at is None
    assert held.breaker.who.startswith("page (")
    assert [row.unit for row in held.demotions] == [UNIT]
    fields = form(operator, "/actions", RESET)
    assert operator.post(RESET, data=fields).status_code == 303
    assert bad_night.guarded().demotions == ()
    assert RESET not in operator.get("/actions").text
