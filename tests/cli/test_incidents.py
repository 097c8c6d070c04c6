"""`triage incidents`: what a person or a script reads, and what they may do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import Result

from tests.store.made import SECOND, T0, closed, made_finding, made_result, record
from triage.cli import incidents
from triage.cli.incidents import moment_of
from triage.model import Outcome
from triage.store import IncidentState, Store

Type = Callable[..., Result]


def test_an_empty_store_lists_nothing(store: Store, run: Type) -> None:
    result = run("incidents", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(run("incidents", "list", "--json").stdout) == {"schema": 1, "items": [], "next": None}


def test_the_list_shows_what_matters_and_pages(store: Store, run: Type) -> None:
    for number in range(1, 4):
        record(store, closed(made_finding(number, signature=f"s{number}")))
    record(store, closed(made_finding(4, signature="quiet", outcome=Outcome.REQUEST_ERROR)))
    lines = run("incidents", "list").stdout.splitlines()
    assert len(lines) == 4
    assert "sglang-larch.service" in lines[1]
    assert "DFlash meets a batch without lengths" in lines[1]
    assert len(run("incidents", "list", "--all").stdout.splitlines()) == 5
    first = json.loads(run("incidents", "list", "--json", "--limit", "2").stdout)
    second = json.loads(run("incidents", "list", "--json", "--limit", "2", "--before", first["next"]).stdout)
    assert [item["number"] for item in first["items"] + second["items"]] == [3, 2, 1]
    assert first["items"][0]["first_seen"].endswith("Z")
    assert json.loads(run("incidents", "list", "--json", "--state", "resolved").stdout)["items"] == []


def test_one_incident_is_shown_with_its_actions_and_timeline(store: Store, run: Type) -> None:
    record(store, closed(made_finding()))
    store.import_result(made_result(), T0)
    shown = run("incidents", "show", "1").stdout
    for words in (
        "mitigated",
        "AttributeError: 'NoneType'",
        "dflash_worker.py:715",
        "a1",
        "no-graph",
        "mitigated by action",
    ):
        assert words in shown
    document = json.loads(run("incidents", "show", "1", "--json").stdout)
    assert document["incident"]["state"] == "mitigated"
    assert document["crashes"][0]["document"]["id"] == "id1"
    assert document["actions"][0]["steps"][0] == {
        "name": "claim",
        "state": "done",
        "time": "2026-09-21T14:13:20.000Z",
        "text": "",
    }


def test_explaining_names_root_followers_and_evidence(store: Store, run: Type) -> None:
    record(store, closed(made_finding()))
    told = run("incidents", "explain", "1").stdout
    for words in ("First failed TP0", "dflash_worker.py:715 in forward", "What followed (7)", "Evidence (complete)"):
        assert words in told
    document = json.loads(run("incidents", "explain", "1", "--json").stdout)
    assert document["root"]["rank"] == "TP0"
    assert document["evidence"]["grade"] == "complete"


def test_what_people_do_is_done_and_signed(store: Store, run: Type) -> None:
    record(store, closed(made_finding(1)), closed(made_finding(2, signature="other")))
    assert run("incidents", "resolve", "1").exit_code == 0
    assert store.incident(1).incident.state is IncidentState.RESOLVED
    assert store.incident(1).timeline[-1].who not in ("", "triage")
    run("incidents", "reopen", "1")
    assert store.incident(1).incident.state is IncidentState.OPEN
    run("incidents", "mute", "1", "--until", "2h", "--why", "driver update")
    assert store.incident(1).incident.mute_why == "driver update"
    assert "(muted)" in run("incidents", "list").stdout
    run("incidents", "mute", "1", "--until", "now", "--why", "-")
    assert store.incident(1).incident.mute_until is None
    run("incidents", "merge", "1", "2")
    assert store.incident(1).incident.merged_into == 2


def test_a_wrong_number_or_time_is_a_usage_error(store: Store, run: Type) -> None:
    for words in (("show", "9"), ("resolve", "9"), ("show", "x"), ("mute", "1", "--until", "soon", "--why", "x")):
        assert run("incidents", *words).exit_code == 2


def test_without_a_database_the_command_says_what_to_do(run: Type) -> None:
    result = run("incidents", "list")
    assert result.exit_code == 6
    assert "triage db upgrade" in str(result.exception)


def test_log_text_cannot_drive_the_terminal(store: Store, run: Type) -> None:
    hostile = "\x1b]0;title\x07\x1b[2J\x9b31m\u202ereversed\nFAKE LINE\ttab\u2028"
    finding = made_finding(message=hostile, known=False)
    titled = replace(finding, signature=replace(finding.signature, title=hostile))
    record(store, closed(titled))
    for words in (("list",), ("show", "1"), ("explain", "1"), ("list", "--json"), ("show", "1", "--json")):
        out = run("incidents", *words).stdout
        assert not any(character in out for character in "\x1b\x07\x9b\u202e\u2028"), words
        assert not any(line.startswith("FAKE LINE") for line in out.splitlines()), words


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("90m", 5400),
        ("8h", 28_800),
        ("3d", 259_200),
        ("now", 0),
        ("2026-09-21T14:13:21", 1),
        ("2026-09-21T16:13:21+02:00", 1),
    ],
)
def test_times_are_spans_or_points(text: str, after: int) -> None:
    assert moment_of(text, T0) == T0 + after * SECOND


def test_explaining_names_what_changed_since_the_last_good_run(capsys: pytest.CaptureFixture[str]) -> None:
    incidents._changed([{"name": "tp_size", "before": "4", "now": None}])
    incidents._changed([])
    incidents._changed(None)
    assert "tp_size: 4 -> unset" in (told := capsys.readouterr().out)
    assert told.count("last good run") == 2
