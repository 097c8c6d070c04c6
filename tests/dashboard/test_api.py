"""/api/v1 as programs rely on it, /metrics, and the stream of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from tests.dashboard.conftest import NOW, TOKEN
from tests.dashboard.made import UNIT, MadeHands, result
from triage.actionmodel import ActionState
from triage.dashboard.events import Pulse
from triage.store import Counter, Store

BEARER = {"Authorization": f"Bearer {TOKEN}"}


def key(word: str) -> dict[str, str]:
    return {**BEARER, "Idempotency-Key": word}


def test_incidents_come_in_pages_by_cursor(reader: TestClient) -> None:
    first = reader.get("/api/v1/incidents?limit=1").json()
    assert first["schema"] == 1
    assert [one["number"] for one in first["items"]] == [1]
    second = reader.get("/api/v1/incidents", params={"limit": 1, "cursor": first["next"]}).json()
    assert [one["number"] for one in second["items"]] == [2]
    assert first["items"][0]["first_seen"].endswith("Z")


def test_incidents_are_filtered(reader: TestClient) -> None:
    def numbers(**query: object) -> list[int]:
        return [one["number"] for one in reader.get("/api/v1/incidents", params=query).json()["items"]]

    assert numbers(state=["open", "regressed"]) == [1, 2]
    assert numbers(state="resolved") == [3]
    assert numbers(severity="critical", unit=UNIT) == [1]
    assert numbers(text="seq_lens") == [1]


def test_one_incident_holds_crashes_timeline_and_actions(reader: TestClient, store: Store) -> None:
    store.import_result(result("a1", ActionState.VERIFIED, NOW), NOW)
    body = reader.get("/api/v1/incidents/1").json()
    assert body["incident"]["state"] == "mitigated"
    assert body["crashes"][0]["crash"]["root"]["frame"]["line"] == 715
    assert body["timeline"]
    assert body["actions"][0]["steps"][0]["name"] == "claim"


def test_crashes_of_one_incident_or_of_all(reader: TestClient) -> None:
    assert len(reader.get("/api/v1/crashes").json()["items"]) == 5
    of_one = reader.get("/api/v1/crashes?incident=1&limit=2").json()
    assert [one["crash"]["id"] for one in of_one["items"]] == ["000000000003", "000000000002"]
    rest = reader.get("/api/v1/crashes", params={"incident": 1, "cursor": of_one["next"]}).json()
    assert [one["crash"]["id"] for one in rest["items"]] == ["000000000001"]


def test_units_rules_and_workarounds_are_told(reader: TestClient, store: Store) -> None:
    assert reader.get("/api/v1/workarounds").json()["items"] == []
    store.import_result(result("a1", ActionState.VERIFIED, NOW), NOW)
    assert [one["name"] for one in reader.get("/api/v1/workarounds").json()["items"]] == ["a1"]
    units = {one["name"]: one for one in reader.get("/api/v1/units").json()["items"]}
    assert units[UNIT]["state"] == "active"
    assert units["sglang-embed@2.service"]["state"] is None
    rules = reader.get("/api/v1/rules").json()["items"]
    assert reader.get(f"/api/v1/rules/{rules[0]['id']}").json() == rules[0]


def test_a_plan_is_previewed_without_a_token(reader: TestClient, hands: MadeHands) -> None:
    plan = reader.get("/api/v1/incidents/1/plan").json()
    assert plan["remedy"] == "disable-cuda-graph"
    assert plan["argv_after"][-1] == "--disable-cuda-graph"
    refused = reader.get("/api/v1/incidents/1/plan?remedy=upgrade")
    assert refused.status_code == 409
    assert refused.json()["code"] == "refused"
    assert not hands.filed


def test_apply_answers_202_with_the_action_once(reader: TestClient, hands: MadeHands) -> None:
    seen = reader.get("/api/v1/incidents/1/plan").json()["seen_digest"]
    body = {"remedy": "disable-cuda-graph", "seen_digest": seen}
    first = reader.post("/api/v1/incidents/1/apply", json=body, headers=key("one"))
    assert first.status_code == 202
    assert first.json()["state"] == "requested"
    assert first.headers["location"] == f"/api/v1/actions/{first.json()['name']}"
    again = reader.post("/api/v1/incidents/1/apply", json=body, headers=key("one"))
    assert (again.status_code, again.json()) == (202, first.json())
    assert len(hands.filed) == 1
    assert reader.get(first.headers["location"]).json() == first.json()


def test_the_same_key_for_something_else_is_refused(reader: TestClient, hands: MadeHands) -> None:
    reader.post("/api/v1/incidents/1/apply", json={"remedy": "disable-cuda-graph"}, headers=key("one"))
    answer = reader.post("/api/v1/incidents/1/apply", json={"remedy": "upgrade"}, headers=key("one"))
    assert answer.status_code == 422
    assert answer.json()["code"] == "key-reused"
    assert len(hands.filed) == 1


def test_apply_needs_a_key_and_a_unit_that_is_as_it_was_seen(reader: TestClient, hands: MadeHands) -> None:
    answer = reader.post("/api/v1/incidents/1/apply", json={}, headers=BEARER)
    assert (answer.status_code, answer.json()["code"]) == (400, "idempotency-key-required")
    answer = reader.post("/api/v1/incidents/1/apply", json={"seen_digest": "0" * 64}, headers=key("two"))
    assert (answer.status_code, answer.json()["code"]) == (409, "refused")
    assert not hands.filed


def test_the_cookie_of_the_printed_link_is_enough_for_apply(operator: TestClient, hands: MadeHands) -> None:
    answer = operator.post("/api/v1/incidents/1/apply", json={}, headers={"Idempotency-Key": "c"})
    assert answer.status_code == 202
    assert len(hands.filed) == 1


def test_rollback_answers_202_once(reader: TestClient, store: Store, hands: MadeHands) -> None:
    store.import_result(result("a1", ActionState.VERIFIED, NOW), NOW)
    first = reader.post("/api/v1/actions/a1/rollback", headers=key("r"))
    assert first.status_code == 202
    assert first.json()["target"] == "a1"
    assert reader.post("/api/v1/actions/a1/rollback", headers=key("r")).json() == first.json()
    assert len(hands.filed) == 1
    assert reader.post("/api/v1/actions/nothing/rollback", headers=key("q")).status_code == 404


def test_incidents_are_settled_and_muted(reader: TestClient) -> None:
    assert reader.post("/api/v1/incidents/1/resolve", headers=BEARER).json()["state"] == "resolved"
    assert reader.post("/api/v1/incidents/1/reopen", headers=BEARER).json()["state"] == "open"
    body = {"until": "2030-01-01T00:00:00Z", "why": "driver"}
    assert reader.post("/api/v1/incidents/1/mute", json=body, headers=BEARER).json()["muted_until"] == body["until"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/v1/incidents/99", 404, "not-found"),
        ("GET", "/api/v1/incidents/x", 404, "not-found"),
        ("GET", "/api/v1/nothing", 404, "not-found"),
        ("GET", "/api/v1/actions/nothing", 404, "not-found"),
        ("GET", "/api/v1/incidents?limit=0", 422, "invalid"),
        ("GET", "/api/v1/incidents?cursor=x", 422, "invalid"),
        ("GET", "/api/v1/incidents?state=odd", 422, "invalid"),
        ("PUT", "/api/v1/incidents", 401, "token-required"),
        ("POST", "/api/v1/incidents/1/apply", 401, "token-required"),
    ],
)
def test_errors_are_problem_documents_with_a_stable_code(
    reader: TestClient, method: str, path: str, status: int, code: str
) -> None:
    answer = reader.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["detail"]


def test_openapi_is_told_and_no_page_of_it_loads_from_elsewhere(reader: TestClient) -> None:
    document = reader.get("/api/v1/openapi.json").json()
    assert "/api/v1/incidents/{n}/apply" in document["paths"]
    assert all(path.startswith("/api/v1/") for path in document["paths"])
    assert reader.get("/docs").status_code == 404


def test_liveness_and_readiness(reader: TestClient) -> None:
    assert reader.get("/livez").status_code == 200
    assert reader.get("/readyz").status_code == 200


def test_metrics_are_valid_and_name_no_incident(reader: TestClient, store: Store) -> None:
    unit = (("unit", UNIT),)
    counters = [Counter("lines_total", unit, 1234.0), Counter("lag_seconds", unit, 0.25)]
    for edge, count in (("0.001", 3.0), ("0.1", 5.0), ("+Inf", 6.0)):
        counters.append(Counter("rule_seconds_bucket", (("le", edge),), count))
    counters += [Counter("rule_seconds_sum", (), 0.5), Counter("rule_seconds_count", (), 6.0)]
    store.put_counters(tuple(counters))
    answer = reader.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    samples = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families.values() for s in f.samples}
    assert samples["triage_lines_total", unit] == 1234
    assert samples["triage_lag_seconds", unit] == 0.25
    assert samples["triage_incidents_open", (("severity", "critical"), ("unit", UNIT))] == 1
    assert samples["triage_rule_seconds_bucket", (("le", "+Inf"),)] == 6
    assert samples["triage_rule_seconds_count", ()] == 6
    assert families["triage_rule_seconds"].type == "histogram"
    assert families["triage_crashes"].type == "counter"
    for name in ("triage_outbox_depth", "triage_database_bytes"):
        assert samples[name, ()] > 0
    assert "seq_lens" not in answer.text


# ---------------------------------------------------------------- the stream


class Word:
    """A pulse that a test changes by hand."""

    def __init__(self) -> None:
        self.text = "1"
        self.looks = 0

    def __call__(self) -> str:
        self.looks += 1
        return self.text


async def _next(stream: AsyncIterator[bytes]) -> bytes:
    return await asyncio.wait_for(anext(stream), 10)


def test_listeners_are_told_of_a_change_and_nobody_looks_without_them() -> None:
    async def story() -> None:
        word = Word()
        pulse = Pulse(word, look_seconds=0.01, heartbeat_seconds=5)
        assert word.looks == 0
        one, two = pulse.stream(), pulse.stream()
        assert await _next(one) == b"retry: 2000\n\n"
        await _next(two)
        while not word.looks:
            await asyncio.sleep(0.01)
        word.text = "2"
        for stream in (one, two):
            told = b""
            while b'"2"' not in told:  # the present one comes first
                told = await _next(stream)
                assert b"event: change" in told
        for stream in (one, two):
            await stream.aclose()  # type: ignore[attr-defined]
        assert pulse.listeners == 0

    asyncio.run(story())


def test_whoever_listens_hears_the_present_first_so_that_nothing_is_missed() -> None:
    async def story() -> None:
        pulse = Pulse(Word(), look_seconds=0.01, heartbeat_seconds=5)
        one = pulse.stream()
        await _next(one)
        assert b'"1"' in await _next(one)
        late = pulse.stream()
        await _next(late)
        assert b'"1"' in await _next(late)
        for stream in (one, late):
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(story())


def test_a_quiet_stream_has_a_heartbeat() -> None:
    async def story() -> None:
        stream = Pulse(Word(), look_seconds=0.01, heartbeat_seconds=0.01).stream()
        told = b""
        while not told.startswith(b":"):
            told = await _next(stream)
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(story())


def test_streams_are_limited_and_end_when_the_server_stops() -> None:
    async def story() -> None:
        pulse = Pulse(Word(), streams=1, look_seconds=0.01)
        stream = pulse.stream()
        await _next(stream)
        assert pulse.full()
        pulse.close()
        with pytest.raises(StopAsyncIteration):
            await _next(stream)
        assert pulse.listeners == 0

    asyncio.run(story())
