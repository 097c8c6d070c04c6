"""`triage rules try | backtest | draft`: what an author is told on the way to a rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from tests.rules.crashes import rule, write
from triage.diagnose import NoRules, diagnose
from triage.document import crash_of, finding_document
from triage.engine.signature import sign
from triage.rulebase.rulecheck import check, crashes_of
from triage.store import Store

Type = Callable[..., Result]
LOG = """\
[2026-06-01 12:00:55] The server is fired up and ready to roll!
[2026-06-01 12:00:58 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/llm/sglang/srt/managers/scheduler.py", line 11, in run_scheduler_process
    scheduler.event_loop()
  File "/opt/llm/sglang/srt/managers/scheduler.py", line 22, in event_loop
    raise ValueError
ValueError: the moon is full (17 of 28 days), see /home/jo/moon.txt

[2026-06-01 12:00:59] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "crash.log"
    path.parent.mkdir()
    path.write_text(LOG)
    return path


@pytest.fixture
def kept(store: Store, run: Type, log: Path) -> Path:
    """The crash is in the store, as incident 1."""
    assert run("watch", "--source", str(log)).exit_code == 0
    return log


def test_try_tells_each_condition_of_a_rule_that_does_not_match(tmp_path: Path, run: Type, log: Path) -> None:
    path = write(tmp_path, "moon", rule("{exception: ValueError, message: the moon is new}"))
    result = run("rules", "try", str(path), str(log))
    assert result.exit_code == 1
    assert "moon does not match; no rule does" in result.stdout
    assert "yes exception ValueError" in result.stdout
    assert "no  message the moon is new: found 'the moon is', then the text goes on 'full (17 of" in result.stdout


def test_try_says_who_wins_where_the_rule_matches(tmp_path: Path, run: Type, log: Path) -> None:
    write(tmp_path, "moon", rule("{exception: ValueError, message: the moon is full}"))
    path = write(tmp_path / "other", "night", rule("{message: moon is full}"))
    result = run("rules", "try", "--json", str(path), str(log.parent), "--rules", str(tmp_path / "site"))
    (crash,) = json.loads(result.stdout)["crashes"]
    assert (result.exit_code, crash["matches"], crash["winner"]) == (0, True, "moon")
    assert crash["clauses"][0]["conditions"][0]["holds"] is True


def test_try_of_something_that_is_no_rule_says_what_to_give(run: Type, log: Path) -> None:
    result = run("rules", "try", "nothing-such", str(log))
    assert "there is no rule 'nothing-such'" in str(result.exception)


def test_show_takes_the_path_of_a_rule_that_is_not_in_force(tmp_path: Path, run: Type) -> None:
    path = write(tmp_path, "moon", rule("{exception: ValueError}"))
    result = run("rules", "show", str(path))
    assert (result.exit_code, result.stdout.splitlines()[-1][:9]) == (0, "rule moon")
    assert run("rules", "show", "moon").exit_code == 2


def test_what_a_log_fills_and_what_is_by_hand_is_marked(run: Type) -> None:
    shown = run("rules", "show", "nixl-error").output
    assert shown.startswith("NIXL could not do what it was asked (‹what›)")
    assert "(--disaggregation-transfer-backend mooncake) (by hand, on both sides of the pair at once)" in shown
    assert "by hand, on" not in run("rules", "show", "chunk-not-page-multiple").output
    assert "NIXL could not do what it was asked (‹what›)" in run("rules", "list").output
    edits = run("rules", "show", "invalid-choice").output
    assert "   remove-flag ‹flag›" in edits.splitlines()
    assert "{" not in edits


def test_a_place_that_cannot_be_read_is_an_error_unless_others_can(tmp_path: Path, run: Type, log: Path) -> None:
    path = write(tmp_path, "moon", rule("{exception: ValueError}"))
    (log.parent / "bad.gz").write_bytes(b"\x1f\x8b no archive")
    assert run("rules", "try", str(path), str(log.parent)).exit_code == 0
    log.unlink()
    assert run("rules", "try", str(path), str(log.parent)).exit_code == 2


def test_backtest_tells_what_is_new_taken_and_lost(tmp_path: Path, run: Type, log: Path) -> None:
    narrow = write(tmp_path, "moon", rule("{message: the moon is full}"))
    new = json.loads(run("rules", "backtest", "--json", str(narrow), str(log.parent)).stdout)
    assert [(one["change"], one["before"], one["after"]) for one in new["differences"]] == [("new", None, "moon")]
    other = write(tmp_path / "b", "night", rule("{exception: ValueError, message: the moon is full}"))
    site = ("--rules", str(tmp_path / "site"))
    taken = json.loads(run("rules", "backtest", "--json", str(other), str(log), *site).stdout)
    assert [(one["change"], one["before"], one["after"]) for one in taken["differences"]] == [
        ("taken", "moon", "night")
    ]
    worse = write(tmp_path / "c", "moon", rule("{message: the moon is new}"))
    lost = run("rules", "backtest", str(worse), str(log), *site)
    assert lost.exit_code == 1
    assert lost.stdout.startswith("lost")


def test_backtest_over_the_store_calls_a_failed_request_a_false_alarm(
    tmp_path: Path, store: Store, run: Type, log: Path
) -> None:
    log.write_text(LOG.replace("Scheduler hit an exception: ", "").rsplit("\n\n", 1)[0] + "\n")
    run("watch", "--source", str(log))
    path = write(tmp_path, "moon", rule("{message: the moon is full}"))
    document = json.loads(run("rules", "backtest", "--json", str(path), "store:").stdout)
    assert [one["spec"] for one in document["differences"]] == ["incident 1"]


def test_a_draft_loads_wins_its_sample_and_holds_nothing_private(kept: Path, tmp_path: Path, run: Type) -> None:
    result = run("rules", "draft", "1")
    assert "It loads and wins its own sample as it is." in result.stderr
    assert "/home/jo" not in result.stdout
    path = write(tmp_path, "value-error-event-loop", result.stdout)
    left = check([path.parent]).problems
    assert {problem.text.split(":")[0] for problem in left} == {"a TODO of the draft is left"}, "nothing else is wrong"
    lines = result.stdout.splitlines()
    assert all("TODO" in lines[problem.mark.line - 1][problem.mark.column - 1 :] for problem in left)
    assert len(left) == sum("TODO" in line for line in lines)
    assert run("rules", "check", str(path)).exit_code == 1
    for words in (
        r"the moon is full \(-?[0-9.]+ of -?[0-9.]+ days\), see [^\s''\"]{1,200}",
        "at: 'scheduler.py:event_loop'",
        "phase: [serving]",
        "TODO",
    ):
        assert words in result.stdout
    document = json.loads(run("rules", "draft", "1", "--json").stdout)
    assert (document["rule"], document["proved"], document["problems"]) == ("value-error-event-loop", True, [])


def test_a_draft_matches_the_crash_it_was_made_of_whatever_its_message_holds(
    store: Store, tmp_path: Path, run: Type, log: Path
) -> None:
    message = (
        "PeerError: tide peer 10.3.4.5:8998 refused {user} jo@heron.example \x1b[31mapi_key=sk-0123456789abcdef\x1b[0m"
    )
    log.write_text(LOG.replace("ValueError: the moon is full (17 of 28 days), see /home/jo/moon.txt", message))
    assert run("watch", "--source", str(log)).exit_code == 0
    made = run("rules", "draft", "1")
    assert "It loads and wins its own sample as it is." in made.stderr
    assert not [word for word in ("10.3.4.5", "jo@heron", "sk-0123", "\x1b") if word in made.stdout]
    path = write(tmp_path, "peer-error-event-loop", made.stdout)
    tried = run("rules", "try", str(path), "store:").stdout
    assert r"yes message tide peer [\w.:-]{1,100} refused \{user\} \S{1,200} \S{1,200}" in tried


def test_a_draft_that_another_rule_beats_says_what_to_mend(
    kept: Path, tmp_path: Path, run: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "rules.d"
    write(
        site,
        "moon",
        rule("{message: the moon is full, at: 'scheduler.py:event_loop', exception: ValueError}", "rank: 9\n"),
    )
    monkeypatch.setattr("triage.shipped.SITE_RULES", site)
    result = run("rules", "draft", "1")
    assert "won by moon" in result.stderr


def test_a_crash_read_back_from_its_document_is_the_same_to_rules(log: Path) -> None:
    (crash,) = crashes_of(LOG)
    again = crash_of(finding_document(diagnose(crash, NoRules())))
    assert sign(again) == sign(crash)
    assert again.root.chain == tuple(replace(link) for link in crash.root.chain)
    assert [line.text for line in again.evidence] == [line.text for line in crash.evidence]
    assert (again.phase, again.outcome, again.end) == (crash.phase, crash.outcome, crash.end)
