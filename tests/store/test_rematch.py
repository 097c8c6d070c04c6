"""Rules that are written later know the incidents that are open: at once, not at the next crash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.crashes import rule, write
from tests.store.made import HOST, SECOND, T0, closed, made_finding, opened, record
from triage.diagnose import NoRules, diagnose
from triage.model import Crash, Finding, Severity
from triage.rematch import A_ROUND, Rematch
from triage.rulebase.rulebook import Rulebook
from triage.rulebase.rulefile import load_rules
from triage.rulebase.shelf import LiveBook, Shelf
from triage.store import Store

REMEDY = (
    "remedies: [{id: a, kind: flag, title: A, cost: None., confirmed: false, edits: [{op: set-flag, name: --x}]}]\n"
)
KNOWS = rule("{exception: AttributeError, message: has no attribute 'seq_lens'}", REMEDY)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """With whole documents, as `watch` keeps them."""
    made = Store(f"sqlite:///{tmp_path / 'state' / 'triage.db'}", base_url="http://127.0.0.1:8475", host=HOST)
    made.upgrade()
    yield made
    made.close()


def unknown(number: int = 1, **more: object) -> Finding:
    """As `watch` names a crash that no rule knows."""
    return diagnose(made_finding(number, **more).crash, NoRules())  # type: ignore[arg-type]


def written(folder: Path, text: str = KNOWS) -> Rulebook:
    write(folder, "seq-lens", text)
    return Rulebook(load_rules([folder]).rules)


def matched(store: Store, book: Rulebook | LiveBook, now: int = T0 + 60 * SECOND) -> list[str]:
    again = Rematch(store, lambda crash: diagnose(crash, book))
    again.begin()
    return again.go_on(now)


def test_an_open_incident_gets_the_rule_that_was_written_for_it(store: Store, tmp_path: Path) -> None:
    record(store, opened(unknown()), closed(unknown()))
    before = store.incident(1)
    assert (before.incident.rule, before.crashes[0].document["matches"]) == (None, [])
    assert matched(store, written(tmp_path)) == ["incident 1 is known now: seq-lens"]
    view = store.incident(1)
    assert (view.incident.rule, view.incident.title, view.incident.severity) == ("seq-lens", "A rule", Severity.ERROR)
    assert (view.incident.state, view.incident.signature) == (before.incident.state, before.incident.signature)
    document = view.crashes[0].document
    assert (view.crashes[0].rule, document["title"], document["general"]) == ("seq-lens", "A rule", [])
    assert document["matches"][0]["remedies"][0]["id"] == "a"
    kept = {key: value for key, value in document.items() if key not in ("matches", "nearest", "general", "title")}
    assert kept.items() <= {**before.crashes[0].document, "severity": "error"}.items()
    assert view.timeline[-1].text == "rules changed, and one knows it now: A rule (seq-lens)"
    assert matched(store, written(tmp_path)) == []  # once


def test_what_no_rule_knows_still_is_left_as_it_is(store: Store, tmp_path: Path) -> None:
    record(store, opened(unknown()), closed(unknown()))
    before = store.incident(1)
    assert matched(store, written(tmp_path, rule("{exception: ValueError}"))) == []
    assert store.incident(1) == before


def test_only_what_is_open_and_unknown_and_over_is_matched(store: Store, tmp_path: Path) -> None:
    known = made_finding(1, signature="known")
    record(store, opened(known), closed(known))
    resolved = replace(unknown(2), signature=replace(unknown(2).signature, key="resolved"))
    record(store, opened(resolved), closed(resolved))
    store.resolve(2, "ada", T0 + SECOND)
    growing = replace(unknown(3), signature=replace(unknown(3).signature, key="growing"))
    record(store, opened(growing))
    assert matched(store, written(tmp_path)) == []
    assert [store.incident(number).incident.rule for number in (1, 2, 3)] == ["dflash-none", None, None]


def test_no_alert_is_sent_for_it(store: Store, tmp_path: Path) -> None:
    record(store, opened(unknown()), closed(unknown()))
    before = store.health().outbox
    matched(store, written(tmp_path))
    assert store.health().outbox == before


def test_reading_waits_for_a_few_only(store: Store, tmp_path: Path) -> None:
    many = [replace(unknown(n), signature=replace(unknown(n).signature, key=f"k{n}")) for n in range(1, A_ROUND + 3)]
    record(store, *(event(finding) for finding in many for event in (opened, closed)))
    book = written(tmp_path)
    again = Rematch(store, lambda crash: diagnose(crash, book))
    again.begin()
    assert [len(again.go_on(T0 + 60 * SECOND)) for _ in range(3)] == [A_ROUND, 2, 0]


def test_a_document_of_an_older_release_stops_nothing(store: Store, tmp_path: Path) -> None:
    record(store, opened(unknown()), closed(unknown()))
    (row,) = store.incident(1).crashes

    def fails(crash: Crash) -> Finding:
        raise KeyError("root")

    again = Rematch(store, fails)
    again.begin()
    assert again.go_on(T0) == []
    assert store.incident(1).crashes == (row,)


def test_a_rulebook_tells_that_its_rules_were_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, "seq-lens", rule("{exception: ValueError}"))
    times = iter(range(0, 1000, 10))
    live = LiveBook(Shelf([tmp_path], lambda: float(next(times))))
    live.follow()
    assert live.turn == 0
    path.write_text(KNOWS)
    os.utime(path, (1, 1))  # long settled
    live.follow()
    assert live.turn == 1
    assert [match.rule for match in live.match(made_finding().crash)] == ["seq-lens"]
