"""What the pages say, that they say it without script, and that nothing in a log changes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.dashboard.conftest import NOW, TOKEN
from tests.dashboard.made import DFLASH, HOSTILE, MESSAGE, SECOND, UNIT, MadeHands, finding, record, result
from triage.actionmodel import ActionState, Plan
from triage.model import Line, Origin, Outcome, Pending, Unreachable
from triage.rulebase.rule import Rule, Rules
from triage.rulebase.shelf import InForce
from triage.store import Store

PATHS = (
    "/incidents",
    "/incidents?state=all",
    "/incidents?text=nothing-is-like-this",
    "/incidents/1",
    "/incidents/2",
    "/incidents/1/remedies/disable-cuda-graph",
    "/actions",
    "/workarounds",
    "/units",
    "/rules",
    "/rules/dflash-graph-replay-none",
    "/login",
    "/nothing/here",
)


class Structure(HTMLParser):
    """Tags, ids and references of a page, and whether it is well formed."""

    VOID = frozenset({"meta", "link", "input", "br", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.faults: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.stack or self.stack.pop() != tag:
            self.faults.append(tag)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_well_formed_and_loads_nothing_from_elsewhere(reader: TestClient, path: str) -> None:
    text = reader.get(path).text
    page = Structure(text)
    assert not page.faults
    assert not page.stack
    assert len(page.named("h1")) == 1
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, name in (("script", "src"), ("link", "href"), ("img", "src")):
        assert all(str(attrs[name]).startswith("/static/") for attrs in page.named(tag))
    assert [attrs.get("src") for attrs in page.named("script")] == [page.named("script")[0]["src"]]
    assert not any(name.startswith("on") or name == "style" for _, attrs in page.tags for name in attrs)


@pytest.mark.parametrize("path", PATHS)
def test_every_field_has_a_label(reader: TestClient, path: str) -> None:
    page = Structure(reader.get(path).text)
    labels = {attrs.get("for") for attrs in page.named("label")}
    for tag in ("input", "select", "textarea"):
        for attrs in page.named(tag):
            if attrs.get("type") not in ("hidden", "checkbox"):
                assert attrs["id"] in labels


def test_the_list_tells_what_failed_where_how_often_since_when(reader: TestClient) -> None:
    text = reader.get("/incidents").text
    for word in (
        "DFlash loses",
        UNIT,
        "AttributeError at dflash_worker.py:715",
        "3<span",
        "critical",
        "open",
        "Remedy:",
    ):
        assert word in text
    assert "sglang-birch.service on" not in text  # resolved: not among the active ones


def test_filters_narrow_the_list(reader: TestClient) -> None:
    def numbers(query: str) -> list[str]:
        return re.findall(r'<h2><a href="/incidents/(\d+)"', reader.get(f"/incidents?{query}").text)

    assert numbers("") == ["1", "2"]
    assert numbers("state=all") == ["1", "2", "3"]
    assert numbers("state=resolved") == ["3"]
    assert numbers("severity=critical") == ["1"]
    assert numbers("unit=sglang-embed%402.service") == ["2"]
    assert numbers("text=seq_lens") == ["1"]
    assert numbers("text=%25") == []  # no wildcard
    assert numbers("state=nonsense&severity=nonsense") == ["1", "2"]


def test_an_empty_list_says_why_it_is_empty(reader: TestClient, store: Store) -> None:
    assert "Nothing matches these filters" in reader.get("/incidents?text=zzz").text
    for number in (1, 2):
        store.resolve(number, "test", NOW)
    assert "No active incidents" in reader.get("/incidents").text


def test_long_lists_come_in_pages(reader: TestClient, store: Store) -> None:
    for number in range(60):
        record(store, finding(100 + number, signature=f"{number:04x}", started=NOW + number * SECOND), NOW)
    first = reader.get("/incidents").text
    older = re.search(r'<a href="(/incidents\?[^"]+)" rel="next"', first)
    assert older
    second = reader.get(older[1].replace("&amp;", "&")).text
    shown = [set(re.findall(r'<h2><a href="/incidents/(\d+)"', text)) for text in (first, second)]
    assert len(shown[0]) == 50
    assert not shown[0] & shown[1]
    assert len(shown[0] | shown[1]) == 62


def test_an_incident_tells_root_cause_evidence_ranks_and_end(reader: TestClient) -> None:
    text = reader.get("/incidents/1").text
    for word in (
        "failed first",
        "dflash_worker.py:715",
        "forward_batch_generation",
        "&#39;NoneType&#39; object has no attribute",
        "The draft worker reads",
        "serving",
        "0.5.12",
        "the earliest traceback of a rank",
        "8 failures folded under the root",
        "signal · killed, status 9",
        "about a third of the tokens per second",
        "Does not fit here",
        "It is no edit of the unit",
        "TP7",
    ):
        assert word in text
    assert text.count('class="n">') == 13


def test_an_earlier_crash_can_be_looked_at(reader: TestClient) -> None:
    assert "000000000003" in reader.get("/incidents/1").text
    links = re.findall(r'href="(/incidents/1\?crash=\d+)"', reader.get("/incidents/1").text)
    assert len(links) == 2
    assert "000000000002" in reader.get(links[0]).text
    assert reader.get("/incidents/1?crash=4").status_code == 404  # another incident's


def test_an_undiagnosed_incident_says_so_and_offers_nothing(reader: TestClient) -> None:
    text = reader.get("/incidents/2").text
    assert "No rule knows this crash yet" in text
    assert "General advice for any crash of this phase" in text
    assert '<a href="/rules/embed-nan">NaN in the embeddings</a>' in text
    assert "message wants NaN: nothing of it is there" in text
    assert "/remedies/" not in text


def test_bad_evidence_is_said_to_be_bad(reader: TestClient) -> None:
    assert "mixed here beyond repair" in reader.get("/incidents/2").text


@pytest.mark.parametrize("path", ["/incidents?state=all", "/incidents/2", "/units"])
def test_log_text_never_becomes_markup(reader: TestClient, path: str) -> None:
    text = reader.get(path).text
    assert "<script>alert" not in text
    assert "<b>bold" not in text
    for hidden in "\u202e\x1b\x07":
        assert hidden not in text
    if path != "/units":
        assert "U+202E" in text
        assert "ESC[31m" in text


def test_hostile_text_in_a_query_is_shown_as_text(reader: TestClient) -> None:
    text = reader.get("/incidents", params={"text": HOSTILE, "unit": HOSTILE}).text
    assert "<script>alert" not in text
    assert "\u202e" not in text
    for path in ("/rules/%3Cscript%3Ealert(1)", "/incidents/1/remedies/%3Cscript%3Ealert(1)", "/%3Cscript%3Ealert(1)"):
        answer = reader.get(path)
        assert answer.status_code == 404
        assert "<script>alert" not in answer.text


def test_a_line_of_200_kilobytes_does_not_drown_the_page(reader: TestClient, store: Store) -> None:
    huge = finding(200, signature="b16b16b16b16", message="y" * 200_000, started=NOW)
    record(store, huge, NOW)
    answer = reader.get("/incidents?text=yyy")
    assert answer.status_code == 200
    page = reader.get("/incidents/4").text
    assert len(page) < 200_000
    assert "more characters" in page


def test_the_preview_shows_the_plan_as_it_is_now(operator: TestClient) -> None:
    text = operator.get("/incidents/1/remedies/disable-cuda-graph").text
    assert '<span class="add">+[Service]</span>' in text
    assert "<ins>--disable-cuda-graph</ins>" in text
    assert "&#39;/srv/models/kimi k2.6&#39;" in text  # one word, quoted
    assert "daemon-reload is part of the apply" in text
    assert 'name="result_digest"' in text


def test_a_preview_that_waits_for_the_server_comes_again_by_itself(
    operator: TestClient, hands: MadeHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asking(*_: object) -> Plan:
        raise Pending("the server is being asked")

    monkeypatch.setattr(hands, "plan", asking)
    answer = operator.get("/incidents/1/remedies/disable-cuda-graph")
    assert (answer.status_code, answer.headers["Refresh"]) == (200, "3")
    assert "One moment" in answer.text
    assert "Refused" not in answer.text
    assert 'action="/incidents/1/apply"' not in answer.text
    monkeypatch.undo()
    assert "Refresh" not in operator.get("/incidents/1/remedies/disable-cuda-graph").headers


def test_what_cannot_be_applied_has_no_button_but_a_reason(operator: TestClient) -> None:
    for remedy, reason in (("smaller-block", "does not run with"), ("upgrade", "no edit of the unit")):
        answer = operator.get(f"/incidents/1/remedies/{remedy}")
        assert answer.status_code == 409
        assert reason in answer.text
        assert 'action="/incidents/1/apply"' not in answer.text


def test_a_reader_sees_the_diff_but_no_button(reader: TestClient) -> None:
    text = reader.get("/incidents/1/remedies/disable-cuda-graph").text
    assert "+[Service]" in text
    assert "Sign in to act" in text
    assert 'action="/incidents/1/apply"' not in text


def test_without_roots_side_the_page_shows_the_command(operator: TestClient, hands: MadeHands) -> None:
    hands.active = False
    text = operator.get("/incidents/1/remedies/disable-cuda-graph").text
    assert "sudo triage apply 1 --remedy disable-cuda-graph" in text
    assert 'action="/incidents/1/apply"' not in text


def test_a_dashboard_over_copies_says_that_nothing_restarts(operator: TestClient, hands: MadeHands) -> None:
    hands.root = Path("/srv/copies")
    text = operator.get("/incidents/1/remedies/disable-cuda-graph").text
    assert "/srv/copies" in text
    assert "nothing is restarted" in text
    assert "Apply and restart" not in text


def test_a_running_action_shows_its_steps(reader: TestClient, store: Store) -> None:
    store.import_result(result("a1", ActionState.RUNNING, NOW, going=True), NOW)
    text = reader.get("/actions/a1").text
    assert "loading weights, 96 s" in text
    assert 'class="running"' in text
    assert "Watch the steps" in reader.get("/incidents/1").text


def test_an_action_in_force_is_on_every_page_it_concerns(operator: TestClient, store: Store) -> None:
    store.import_result(result("a1", ActionState.VERIFIED, NOW), NOW)
    assert "In force since" in operator.get("/incidents/1").text
    assert "/actions/a1" in operator.get("/workarounds").text
    assert "1 workaround" in operator.get("/units").text
    assert "Undo and restart" in operator.get("/actions/a1").text
    assert "/remedies/disable-cuda-graph" not in operator.get("/incidents/1").text


def test_a_failed_action_says_what_happened(reader: TestClient, store: Store) -> None:
    store.import_result(result("a1", ActionState.ROLLED_BACK, NOW), NOW)
    text = reader.get("/incidents/1").text
    assert "rolled-back" in text
    assert "What happened" in text


def test_units_are_told_even_where_no_manager_can_be_asked(make: Callable[..., TestClient]) -> None:
    def nobody() -> tuple[()]:
        raise Unreachable("systemd does not answer")

    text = make(units=nobody).get("/units").text
    assert "systemd does not answer" in text
    assert UNIT in text


def test_the_footer_says_when_watch_no_longer_reads(reader: TestClient, store: Store) -> None:
    assert "it may not be running" in reader.get("/incidents").text
    store.record("journal:", (), cursor="s=2", contexts=None, now=NOW)
    assert "it may not be running" not in reader.get("/incidents").text


def test_a_merged_incident_leads_to_where_it_lives_on(reader: TestClient, store: Store) -> None:
    record(store, finding(300, signature="c0ffee", started=NOW), NOW)
    store.merge(4, 1, "test", NOW)
    assert reader.get("/incidents/4").headers["location"] == "/incidents/1"


def test_unknown_and_impossible_numbers_are_not_found(reader: TestClient) -> None:
    for path in (
        "/incidents/99",
        "/incidents/0",
        "/incidents/x",
        "/incidents/99999999999999999999",
        "/actions/NO",
        "/rules/no",
    ):
        assert reader.get(path).status_code == 404, path


def test_a_bad_cursor_is_a_mistake_of_the_asker(reader: TestClient) -> None:
    assert reader.get("/incidents?before=x").status_code == 422


def test_nothing_but_the_link_knows_the_token(operator: TestClient) -> None:
    assert TOKEN not in "".join(operator.get(path).text for path in PATHS)
    assert MESSAGE  # the store is not empty


def test_a_line_of_the_manager_is_nobodys_rank(reader: TestClient, store: Store) -> None:
    last = Line("sglang-k26-dflash.service: Main process exited, code=killed, status=9/KILL", origin=Origin.MANAGER)
    record(store, finding(400, signature="feed", started=NOW, ranks=1, more=(last,)), NOW)
    text = reader.get("/incidents/4").text
    line = text[text.rindex("<li", 0, text.index("Main process exited")) :]
    assert line.startswith('<li class="">')


def test_a_key_in_a_log_is_on_no_page(reader: TestClient, store: Store) -> None:
    secret = "sk-" + "q7W3" * 8
    leaky = replace(DFLASH, title=f"Refused the api_key={secret}", cause=f"The key {secret} is not known")
    found = finding(
        500,
        signature="5ec2e7",
        message=f"api_key='{secret}' is not valid",
        match=leaky,
        started=NOW,
        more=(Line(f"server_args=ServerArgs(api_key='{secret}')"),),
    )
    record(store, found, NOW)
    paths = ("/incidents", "/incidents/4", "/api/v1/incidents", "/api/v1/incidents/4", "/api/v1/crashes", "/metrics")
    for path in paths:
        text = reader.get(path).text
        assert "masked" in text or path == "/metrics"
        assert secret not in text, path


def test_the_list_offers_no_remedy_where_none_can_be_applied(reader: TestClient, store: Store) -> None:
    record(store, finding(600, signature="aa", outcome=Outcome.UNKNOWN, started=NOW), NOW)
    record(store, finding(601, signature="bb", started=NOW), NOW)
    items = reader.get("/incidents").text.split("<li ")
    offered = {
        re.findall(r'href="/incidents/(\d+)"', one)[0]: "Remedy:" in one
        for one in items
        if "/incidents/" in one and "<h2>" in one
    }
    assert offered == {"1": True, "2": False, "4": False, "5": True}


def test_the_list_names_no_remedy_whose_title_waits_for_words_of_the_log(reader: TestClient, store: Store) -> None:
    match = replace(DFLASH, rule="unknown-flag", remedies=())
    record(store, finding(700, signature="cc", match=match, started=NOW), NOW)
    page = reader.get("/incidents").text
    assert 'href="/incidents/4"' in page
    assert "in place of" not in page


def test_rules_are_found_by_words_of_what_they_tell(reader: TestClient) -> None:
    every = reader.get("/rules").text
    assert '<details class="panel area" open' not in every  # a phone shows the areas, not every rule
    found = reader.get("/rules", params={"text": " GRAPH dflash "}).text
    assert 'href="/rules/dflash-graph-replay-none"' in found
    assert 'href="/rules/embed-nan"' not in found
    assert '<details class="panel area" open' in found
    pasted = ("builtins.AttributeError: 'NoneType' object", '"dflash_graph"', "replay,", "DFlash graph_replay.")
    for seen_in_a_log in ("attributeerror", "nonetype", *pasted):
        assert 'href="/rules/dflash-graph-replay-none"' in reader.get("/rules", params={"text": seen_in_a_log}).text
    none = reader.get("/rules", params={"text": "<b>nowhere"}).text
    assert "try one rare word of an error" in none
    assert "No rule says that" in none
    assert "<b>nowhere" not in none


def test_a_rule_that_changes_is_on_the_page_without_a_restart(
    make: Callable[..., TestClient], rules: tuple[Rule, ...]
) -> None:
    shown = [InForce(Rules(rules[:1]))]
    client = make(in_force=lambda: shown[-1])
    assert client.get(f"/rules/{rules[1].id}").status_code == 404
    shown.append(InForce(Rules(rules[:2]), "the rules stay as they were, a file has a fault:\nmoon.yaml:1:1: mend it"))
    assert client.get(f"/rules/{rules[1].id}").status_code == 200
    assert client.get(f"/api/v1/rules/{rules[1].id}").status_code == 200
    assert "moon.yaml:1:1: mend it" in client.get("/rules").text
