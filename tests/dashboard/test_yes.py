"""A person's yes on the page: to a plan that autonomy prepared, and to doing without a workaround."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.dashboard.conftest import NOW, TOKEN, form
from tests.dashboard.made import DFLASH, NO_GRAPH, SECOND, UNIT, MadeHands, result
from triage.actionmodel import ActionState, Level
from triage.autonomy import plan_facts
from triage.model import Verify
from triage.settings import Guards
from triage.store import Decision, Store, Verdict

WAITING, APPROVE, RETIRE = "/incidents/1/waiting", "/incidents/1/approve", "/actions/a1/retire"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def prepared(store: Store, hands: MadeHands) -> Decision:
    """What the worker left for incident 1."""
    view = store.incident(1)
    crash = view.crashes[0]
    plan = hands.plan(view.incident, crash.document, NO_GRAPH.id, "i1-1", NOW)
    made = Decision(
        crash=crash.number,
        incident=1,
        unit=UNIT,
        rule=DFLASH.rule,
        level=Level.APPROVE,
        verdict=Verdict.WAITING,
        remedy=NO_GRAPH.id,
        text="Run without CUDA graphs (disable-cuda-graph)",
        action="i1-1",
        plan=plan_facts(plan),
        decided_at=NOW,
    )
    store.decide(made)
    return made


def test_a_plan_that_waits_is_where_people_look(reader: TestClient, prepared: Decision) -> None:
    for path in ("/incidents/1", "/actions"):
        assert f'href="{WAITING}"' in reader.get(path).text
    page = reader.get(WAITING).text
    assert "--disable-cuda-graph" in page
    assert "exactly this plan" in page
    assert "Say yes" in page
    assert f'action="{APPROVE}"' not in page, "a reader has no button"


def test_a_yes_files_exactly_that_plan_once(operator: TestClient, hands: MadeHands, prepared: Decision) -> None:
    fields = {**form(operator, WAITING, APPROVE), "agreed": "yes"}
    first, second = operator.post(APPROVE, data=fields), operator.post(APPROVE, data=fields)
    assert first.status_code == 303
    assert first.headers["location"] == second.headers["location"] == "/actions/i1-1"
    [request] = hands.filed
    assert request.action == "i1-1"
    assert operator.get(WAITING).status_code == 404, "it waits no more"
    assert WAITING not in operator.get("/incidents/1").text


def test_a_unit_that_changed_since_gets_no_yes(operator: TestClient, hands: MadeHands, prepared: Decision) -> None:
    fields = {**form(operator, WAITING, APPROVE), "agreed": "yes"}
    hands.unit_text += "# by hand\n"
    answer = operator.post(APPROVE, data=fields)
    assert answer.status_code == 409
    assert "was changed since the plan was made" in answer.text
    assert "was changed since the plan was made" in operator.get(WAITING).text
    assert not hands.filed


def test_a_yes_needs_its_tick_its_session_and_what_was_seen(
    operator: TestClient, hands: MadeHands, prepared: Decision
) -> None:
    fields = form(operator, WAITING, APPROVE)
    assert operator.post(APPROVE, data=fields).status_code == 409
    assert operator.post(APPROVE, data={**fields, "agreed": "yes", "csrf": "x"}).status_code == 403
    assert operator.post(APPROVE, data={**fields, "agreed": "yes", "result_digest": "0" * 64}).status_code == 409
    assert not hands.filed


def test_what_is_resolved_waits_no_more(operator: TestClient, store: Store, prepared: Decision) -> None:
    store.resolve(1, "ada", NOW + SECOND)
    assert operator.get(WAITING).status_code == 404
    assert WAITING not in operator.get("/actions").text


def test_the_api_says_yes_too(reader: TestClient, hands: MadeHands, prepared: Decision) -> None:
    seen = reader.get("/api/v1/incidents/1/waiting").json()
    assert seen["remedy"] == NO_GRAPH.id
    body = {"seen_digest": seen["seen_digest"]}
    path = "/api/v1/incidents/1/approve"
    assert reader.post(path, json=body, headers=BEARER).json()["code"] == "idempotency-key-required"
    stale = reader.post(path, json={"seen_digest": "0" * 64}, headers={**BEARER, "Idempotency-Key": "k"})
    assert (stale.status_code, stale.json()["code"]) == (409, "refused")
    answer = reader.post(path, json=body, headers={**BEARER, "Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["name"]) == (202, "i1-1")
    assert len(hands.filed) == 1
    assert reader.get("/api/v1/incidents/1/waiting").status_code == 409


@pytest.fixture
def held(store: Store) -> None:
    """In force, and soaked."""
    made = result("a1", ActionState.VERIFIED, NOW)
    words = {"title": NO_GRAPH.title, "cost": NO_GRAPH.cost, "diff": "", "who": "ada"}
    store.reserve(made.request, **words, now=NOW, limits=Guards(), profile=Verify(soak=30, window=600))
    store.import_result(made, NOW)
    store.soaked("a1", 30, "fine", {"speed_before": "81.0", "speed_after": "52.5"}, NOW + SECOND)


def test_a_workaround_is_retired_from_its_page(operator: TestClient, hands: MadeHands, held: None) -> None:
    fields = {**form(operator, "/actions/a1", RETIRE), "agreed": "yes"}
    first = operator.post(RETIRE, data=fields)
    assert first.status_code == 303
    assert first.headers["location"].startswith("/actions/i1-retire-")
    assert operator.post(RETIRE, data=fields).headers["location"] == first.headers["location"]
    assert [(request.kind, request.target) for request in hands.filed] == [("retire", "a1")]
    assert "Retire: " in operator.get(first.headers["location"]).text


def test_a_unit_that_changed_since_it_was_shown_is_not_retired(
    operator: TestClient, hands: MadeHands, held: None
) -> None:
    fields = {**form(operator, "/actions/a1", RETIRE), "agreed": "yes"}
    hands.unit_text += "# by hand\n"
    assert operator.post(RETIRE, data=fields).status_code == 409
    assert operator.post(RETIRE, data={**fields, "agreed": ""}).status_code == 422
    assert not hands.filed


def test_the_api_retires_too(reader: TestClient, hands: MadeHands, held: None) -> None:
    path = "/api/v1/actions/a1/retire"
    assert reader.post(path, headers=BEARER).status_code == 400
    answer = reader.post(path, headers={**BEARER, "Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["kind"]) == (202, "retire")


def test_the_debt_list_says_what_each_costs_and_when_it_may_go(
    operator: TestClient, store: Store, hands: MadeHands, held: None
) -> None:
    page = operator.get("/workarounds").text
    assert "about a third of the tokens per second" in page
    assert "measured: 81.0 -&gt; 52.5 tokens/s" in page
    assert "mended in 0.5.15" in page
    store.set_retirement(store.action("a1"), "0.6", NOW + SECOND, "ada", NOW)
    assert "mended in 0.5.15 or release 0.6 or " in operator.get("/workarounds").text
    hands.installed = "0.5.15"
    page = operator.get("/workarounds").text
    assert "0.5.15 is installed, and 0.5.15 has it mended" in page
    assert 'href="/actions/a1#retire-h"' in page
    assert "It may go:" in operator.get("/actions/a1").text


def test_below_a_folder_nothing_can_be_proved_and_nothing_is_retired(
    operator: TestClient, hands: MadeHands, held: None, tmp_path: object
) -> None:
    hands.root = tmp_path  # type: ignore[assignment]
    assert RETIRE not in operator.get("/actions/a1").text
