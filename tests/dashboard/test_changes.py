"""Who may change something, and that a change happens once, as it was seen, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from tests.dashboard.conftest import BASE, NOW, TOKEN, Clock, form
from tests.dashboard.made import MadeHands, result
from triage.actionmodel import ActionState
from triage.model import InputError
from triage.settings import Settings, Web
from triage.store import IncidentState, Store

PREVIEW = "/incidents/1/remedies/disable-cuda-graph"
APPLY = "/incidents/1/apply"
CHANGES = (
    APPLY,
    "/actions/a1/rollback",
    "/actions/a1/retire",
    "/incidents/1/approve",
    "/guards/reset",
    "/incidents/1/resolve",
    "/incidents/1/reopen",
    "/incidents/1/mute",
    "/incidents/1/unmute",
    "/logout",
    "/api/v1/incidents/1/apply",
    "/api/v1/actions/a1/rollback",
    "/api/v1/actions/a1/retire",
    "/api/v1/incidents/1/approve",
    "/api/v1/incidents/1/resolve",
)


def agreed(client: TestClient) -> dict[str, str]:
    return {**form(client, PREVIEW, APPLY), "agreed": "yes"}


def test_the_button_files_what_was_seen(operator: TestClient, hands: MadeHands) -> None:
    answer = operator.post(APPLY, data=agreed(operator))
    assert answer.status_code == 303
    assert len(hands.filed) == 1
    request = hands.filed[0]
    assert answer.headers["location"] == f"/actions/{request.action}"
    page = operator.get(answer.headers["location"]).text
    assert "root has not taken it up yet" in page
    assert "page (" in page


def test_the_same_form_sent_twice_is_one_action(operator: TestClient, hands: MadeHands) -> None:
    fields = agreed(operator)
    first, second = operator.post(APPLY, data=fields), operator.post(APPLY, data=fields)
    assert first.headers["location"] == second.headers["location"]
    assert len(hands.filed) == 1


def test_the_same_form_sent_twice_at_once_is_one_action(operator: TestClient, hands: MadeHands) -> None:
    fields = agreed(operator)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: operator.post(APPLY, data=fields), range(4)))
    assert {answer.status_code for answer in answers} == {303}
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert len(hands.filed) == 1


def test_a_unit_that_changed_since_the_preview_is_not_touched(operator: TestClient, hands: MadeHands) -> None:
    fields = agreed(operator)
    hands.unit_text += "Environment=X=1\n"
    answer = operator.post(APPLY, data=fields)
    assert answer.status_code == 409
    assert "the unit changed since the plan was shown" in answer.text
    assert 'name="result_digest"' in answer.text  # the new plan, to be read again
    assert not hands.filed


def test_an_old_preview_is_not_applied(operator: TestClient, hands: MadeHands, clock: Clock) -> None:
    fields = agreed(operator)
    clock.time += 2 * 3600
    assert operator.post(APPLY, data=fields).status_code == 409
    assert not hands.filed


def test_nothing_happens_without_the_tick(operator: TestClient, hands: MadeHands) -> None:
    fields = form(operator, PREVIEW, APPLY)
    assert operator.post(APPLY, data=fields).status_code == 409
    assert not hands.filed


def test_without_roots_side_nothing_is_filed(operator: TestClient, hands: MadeHands) -> None:
    fields = agreed(operator)
    hands.active = False
    assert operator.post(APPLY, data=fields).status_code == 409
    assert not hands.filed


def test_undo_is_a_request_of_its_own(operator: TestClient, store: Store, hands: MadeHands) -> None:
    store.import_result(result("a1", ActionState.VERIFIED, NOW), NOW)
    fields = {**form(operator, "/actions/a1", "/actions/a1/rollback"), "agreed": "yes"}
    first = operator.post("/actions/a1/rollback", data=fields)
    assert first.status_code == 303
    assert operator.post("/actions/a1/rollback", data=fields).headers["location"] == first.headers["location"]
    assert [request.target for request in hands.filed] == ["a1"]


def test_what_undoing_changes_is_shown_first(operator: TestClient, store: Store) -> None:
    store.import_result(result("a1", ActionState.VERIFIED, NOW), NOW)
    assert "--disable-cuda-graph" in operator.get("/actions/a1").text.split("What undoing changes on disk")[1]


def test_an_undo_of_a_unit_that_changed_since_it_was_shown_is_refused(
    operator: TestClient, store: Store, hands: MadeHands
) -> None:
    store.import_result(result("a1", ActionState.VERIFIED, NOW), NOW)
    fields = {**form(operator, "/actions/a1", "/actions/a1/rollback"), "agreed": "yes"}
    hands.unit_text += "# by hand\n"
    assert operator.post("/actions/a1/rollback", data=fields).status_code == 409
    assert not hands.filed


def test_only_what_is_in_force_can_be_undone(operator: TestClient, store: Store, hands: MadeHands) -> None:
    csrf = form(operator, "/incidents/1", "/incidents/1/resolve")["csrf"]
    store.import_result(result("a1", ActionState.ROLLED_BACK, NOW), NOW)
    answer = operator.post("/actions/a1/rollback", data={"csrf": csrf, "agreed": "yes", "key": "k", "unit_digest": "5"})
    assert answer.status_code == 409
    assert not hands.filed


def test_an_incident_is_settled_and_opened_again(operator: TestClient, store: Store) -> None:
    fields = form(operator, "/incidents/1", "/incidents/1/resolve")
    assert operator.post("/incidents/1/resolve", data=fields).status_code == 303
    assert store.incident(1).incident.state is IncidentState.RESOLVED
    assert operator.post("/incidents/1/reopen", data=fields).status_code == 303
    assert store.incident(1).incident.state is IncidentState.OPEN
    assert any(row.who.startswith("page (") for row in store.incident(1).timeline)


def test_an_incident_is_muted_for_a_time_and_a_reason(operator: TestClient, store: Store) -> None:
    fields = form(operator, "/incidents/1", "/incidents/1/mute")
    assert operator.post("/incidents/1/mute", data={**fields, "hours": "8", "why": "driver update"}).status_code == 303
    row = store.incident(1).incident
    assert row.muted(NOW)
    assert not row.muted(NOW + 8 * 3600 * 1_000_000)
    assert "muted until" in operator.get("/incidents/1").text
    assert operator.post("/incidents/1/unmute", data=fields).status_code == 303
    assert not store.incident(1).incident.muted(NOW)
    assert operator.post("/incidents/1/mute", data={**fields, "hours": "99999", "why": "x"}).status_code == 422


@pytest.mark.parametrize("path", CHANGES)
def test_nobody_changes_anything_without_the_token(reader: TestClient, hands: MadeHands, path: str) -> None:
    answer = reader.post(path, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 401
    assert not hands.filed


@pytest.mark.parametrize("path", CHANGES)
def test_a_form_without_the_word_of_its_session_is_refused(
    operator: TestClient, hands: MadeHands, store: Store, path: str
) -> None:
    fields = {**agreed(operator), "hours": "1", "why": "x"}
    for word in ("", "0" * 64, "é"):
        answer = operator.post(path, data={**fields, "csrf": word})
        assert answer.status_code in (400, 403, 422), path
    assert not hands.filed
    assert store.incident(1).incident.state is IncidentState.OPEN


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": BASE, "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_foreign_page_changes_nothing_even_with_cookie_and_word(
    operator: TestClient, hands: MadeHands, headers: dict[str, str]
) -> None:
    answer = operator.post(APPLY, data=agreed(operator), headers=headers)
    assert answer.status_code == 403
    assert not hands.filed


def test_our_own_page_is_let_through(operator: TestClient, hands: MadeHands) -> None:
    headers = {"Origin": "null", "Sec-Fetch-Site": "same-origin"}
    assert operator.post(APPLY, data=agreed(operator), headers=headers).status_code == 303
    assert len(hands.filed) == 1


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.nip.io", "10.0.0.1:8475", ""])
@pytest.mark.parametrize("path", ["/incidents", "/api/v1/incidents", "/metrics", "/livez", "/static/style.css"])
def test_a_rebound_name_gets_nothing(reader: TestClient, host: str, path: str) -> None:
    answer = reader.get(path, headers={"Host": host})
    assert answer.status_code == 400
    assert "DFlash" not in answer.text


def test_a_session_is_a_cookie_that_scripts_and_strangers_do_not_get(reader: TestClient) -> None:
    answer = reader.get(f"/login?token={TOKEN}&next=/incidents/1")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/incidents/1"
    cookie = answer.headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word in cookie
    assert TOKEN not in cookie
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert reader.get(f"/login?token={TOKEN}&next=//evil.example").headers["location"] == "/"


def test_a_wrong_token_signs_nobody_in(reader: TestClient) -> None:
    for answer in (reader.get("/login?token=wrong"), reader.post("/login", data={"token": "wrong"})):
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_the_token_can_be_pasted(reader: TestClient) -> None:
    assert reader.post("/login", data={"token": TOKEN, "next": "/units"}).headers["location"] == "/units"
    assert "Sign out" in reader.get("/units").text


def test_a_session_ends_with_the_shift(operator: TestClient, clock: Clock) -> None:
    clock.time += 13 * 3600
    assert "Sign in to act" in operator.get("/incidents/1").text
    assert operator.post("/incidents/1/resolve", data={"csrf": ""}).status_code == 401


def test_signing_out_forgets_the_cookie(operator: TestClient) -> None:
    fields = form(operator, "/incidents", "/logout")
    assert operator.post("/logout", data=fields).status_code == 303
    assert "Sign in to act" in operator.get("/incidents").text


def test_read_only_serves_pages_and_refuses_every_change(make: Callable[..., TestClient], hands: MadeHands) -> None:
    client = make(read_only=True)
    assert "read only" in client.get("/incidents/1").text
    assert "set-cookie" not in client.get(f"/login?token={TOKEN}").headers
    for path in (*CHANGES, "/login"):
        answer = client.post(path, headers={"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": "k"})
        assert answer.status_code == 403, path
    assert not hands.filed


def test_every_answer_carries_the_security_headers(reader: TestClient) -> None:
    for path in ("/incidents", "/nothing", "/static/live.js", "/api/v1/incidents", "/api/v1/nothing", "/metrics"):
        headers = reader.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_a_fault_of_ours_is_a_page_with_the_headers_and_no_details(make: Callable[..., TestClient]) -> None:
    def broken() -> tuple[()]:
        raise ZeroDivisionError("secret detail")

    for path in ("/units", "/api/v1/units"):
        answer = make(units=broken).get(path)
        assert answer.status_code == 500
        assert "secret detail" not in answer.text
        assert "content-security-policy" in answer.headers


def test_a_body_too_large_is_not_read(operator: TestClient) -> None:
    assert operator.post(APPLY, content=b"x" * 70_000).status_code == 413


def test_any_address_but_loopback_is_refused(make: Callable[..., TestClient], store: Store, hands: MadeHands) -> None:
    from triage.dashboard.app import create_app

    settings = Settings(web=Web(host="0.0.0.0"))
    with pytest.raises(InputError, match="loopback"):
        create_app(settings, store, token=TOKEN, hands=hands, units=lambda: ())
