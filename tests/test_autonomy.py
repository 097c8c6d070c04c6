"""Unasked: only where every condition holds; written down before it is filed; in shadow nothing at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.store.made import REMEDY, SECOND, T0, UNIT, closed, made_finding, made_result, record
from triage.actionmodel import ActionState, Level, Plan
from triage.autonomy import Deciding, Facts, level_of, objections, open_window
from triage.document import finding_document
from triage.model import Finding, Grade, InputError, Outcome, Pending, Refused, UnitEnd
from triage.settings import Autonomy, AutonomyRule, load_settings
from triage.store import IncidentRow, Store, Verdict

NOW = T0 + 200 * SECOND
GOOD = Facts(
    rule="dflash-none",
    remedy="no-graph",
    stable=True,
    confirmed=True,
    complete=True,
    end={"result": "signal", "code": "killed", "status": "9", "requested": False},
    proved=1,
    demoted=False,
    breaker_open=False,
    in_force="",
    muted=False,
    gave_up=False,
    in_window=True,
    listening=True,
)
AUTOMATIC = Autonomy(level=Level.AUTOMATIC)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"stable": False}, "not marked stable"),
        ({"confirmed": False}, "nobody has confirmed"),
        ({"complete": False}, "evidence is not complete"),
        ({"end": None}, "systemd does not confirm"),
        ({"end": {"result": "success"}}, "systemd does not confirm"),
        ({"end": {"result": "signal", "requested": True}}, "systemd does not confirm"),
        ({"proved": 0}, "was not applied and verified 1 times"),
        ({"demoted": True}, "failed a proof"),
        ({"breaker_open": True}, "breaker"),
        ({"in_force": "i1-1"}, "i1-1 is in force"),
        ({"muted": True}, "muted"),
        ({"gave_up": True}, "start limit"),
        ({"stopped": True}, "is stopped"),
        ({"in_window": False}, "no maintenance window"),
        ({"listening": False}, "not listening"),
        ({"of_user": True}, "that user's own manager"),
    ],
)
def test_each_condition_alone_leaves_it_to_a_person(change: dict[str, Any], why: str) -> None:
    assert objections(GOOD, 1) == ()
    (said,) = objections(replace(GOOD, **change), 1)
    assert why in said


def test_the_last_entry_that_fits_decides() -> None:
    entries = (
        AutonomyRule(rule="dflash-*", level=Level.AUTOMATIC),
        AutonomyRule(unit="sglang-prod*", level=Level.APPROVE),
        AutonomyRule(rule="*", unit="sglang-prod-1.service", level=Level.OBSERVE),
    )
    settings = Autonomy(level=Level.PROPOSE, rules=entries)
    assert level_of(settings, "dflash-none", "sglang-a.service") is Level.AUTOMATIC
    assert level_of(settings, "dflash-none", "sglang-prod-2.service") is Level.APPROVE
    assert level_of(settings, "dflash-none", "sglang-prod-1.service") is Level.OBSERVE
    assert level_of(settings, "other", "sglang-a.service") is Level.PROPOSE
    assert level_of(Autonomy(), "dflash-none", "sglang-a.service") is Level.OBSERVE


@pytest.mark.parametrize(
    ("windows", "when", "inside"),
    [
        ((), "2026-11-29 12:00", True),
        (("01:00-05:00",), "2026-11-29 01:00", True),
        (("01:00-05:00",), "2026-11-29 05:00", False),
        (("23:30-02:00",), "2026-11-29 00:10", True),
        (("23:30-02:00",), "2026-11-29 03:00", False),
        (("Sat-Sun 01:00-05:00",), "2026-11-29 02:00", True),  # a Sunday
        (("Sat-Sun 01:00-05:00",), "2026-11-30 02:00", False),
        (("Fri-Mon 01:00-05:00",), "2026-11-30 02:00", True),
        (("sun 23:00-02:00",), "2026-11-30 01:00", True),  # began on Sunday
        (("sun 23:00-02:00",), "2026-11-29 01:00", False),
        (("01:00-02:00", "12:00-13:00"), "2026-11-29 12:30", True),
    ],
)
def test_windows(windows: tuple[str, ...], when: str, inside: bool) -> None:
    assert open_window(windows, datetime.fromisoformat(when).replace(tzinfo=UTC)) is inside


def test_a_window_that_is_none_is_an_error_of_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "triage.toml"
    file.write_text('[autonomy]\nlevel = "automatic"\nwindows = ["25:00-26:00"]\n')
    with pytest.raises(InputError, match=r"autonomy\.windows"):
        load_settings(file)


class FakeHands:
    """Plans the one remedy, files through the store's guards as the real ones do."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.filed: list[str] = []
        self.refusal = ""

    def listening(self) -> bool:
        return True

    def stopped(self, unit: str) -> bool:
        return False

    def gave_up(self, unit: str) -> bool:
        return False

    def rungs(
        self, ladder: Sequence[Mapping[str, Any]], incident: IncidentRow, document: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        return ladder

    def action_name(self, incident: int) -> str:
        return f"i{incident}-{len(self.filed) + 9}"

    def plan(self, incident: IncidentRow, document: Mapping[str, Any], remedy: str, name: str, time: int) -> Plan:
        texts = (UNIT, incident.number, "dflash-none", remedy, REMEDY.title, REMEDY.cost, REMEDY.edits)
        return Plan(*texts, "path", "text", "diff", "seen", "result", (), (), action=name, time=time)

    def apply(self, plan: Plan, name: str, time: int, who: str) -> None:
        if self.refusal:
            raise Refused(self.refusal)
        self.filed.append(name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path / 'triage.db'}", host="gpu-a", document=finding_document)
    made.upgrade()
    yield made
    made.close()


@pytest.fixture
def hands(store: Store) -> FakeHands:
    return FakeHands(store)


@dataclass(frozen=True)
class StableRule:
    """As much of a rule as is asked for; `made_finding` was matched by it."""

    stable: bool = True
    digest: str = "d1"


def deciding(settings: Autonomy, store: Store, hands: FakeHands, rule: Any = StableRule(), **more: Any) -> Deciding:
    return Deciding(settings, store, hands, rule=lambda name: rule, **more)


def crash(number: int, *, grade: Grade = Grade.COMPLETE, **more: Any) -> Finding:
    finding = made_finding(number, **more)
    end = UnitEnd("signal", "killed", "9", finding.crash.started)
    ended = replace(finding.crash, end=end, grade=grade, ended=finding.crash.started)
    return replace(finding, crash=ended)


def with_history(store: Store) -> None:
    """The remedy held on this host once, through its window, and was taken back since."""
    record(store, closed(crash(1)), now=T0)
    store.import_result(made_result("i1-1", started=T0, ended=T0 + 2 * SECOND, restarted=T0 + SECOND), T0)
    store.watch_windows(T0 + 10_000 * SECOND)
    undo = made_result("i1-2", ActionState.UNDONE, kind="rollback", target="i1-1")
    store.import_result(undo, T0 + 10_000 * SECOND)


LATER = T0 + 20_000 * SECOND


def later(store: Store, **more: Any) -> None:
    record(store, closed(crash(20_000, **more)), now=LATER)


def test_it_is_filed_once_where_nothing_speaks_against_it(store: Store, hands: FakeHands) -> None:
    with_history(store)
    later(store)
    worker = deciding(AUTOMATIC, store, hands)
    assert worker.round(LATER) == 1
    assert worker.round(LATER) == 0
    assert hands.filed == ["i1-9"]
    (decision,) = store.decisions()
    assert (decision.verdict, decision.level, decision.remedy) == (Verdict.FILED, Level.AUTOMATIC, "no-graph")
    assert any("applies by itself" in line.text for line in store.incident(1).timeline)


def test_while_the_server_is_asked_for_its_flags_the_decision_waits_and_the_worker_does_not(
    store: Store, hands: FakeHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(store)
    worker = deciding(Autonomy(level=Level.PROPOSE), store, hands)
    answered = hands.plan

    def pending(*_: Any) -> Plan:
        raise Pending("the server is being asked")

    monkeypatch.setattr(hands, "plan", pending)
    assert worker.round(LATER) == 0
    assert store.decisions() == ()
    monkeypatch.setattr(hands, "plan", answered)
    assert worker.round(LATER + SECOND) == 1
    assert [one.verdict for one in store.decisions()] == [Verdict.PROPOSED]


def test_without_a_history_it_is_proposed_and_the_reason_said(store: Store, hands: FakeHands) -> None:
    later(store)
    deciding(AUTOMATIC, store, hands).round(LATER)
    assert hands.filed == []
    (decision,) = store.decisions()
    assert decision.verdict is Verdict.PROPOSED
    assert "not applied and verified" in decision.text
    store.fan_out({"ops": frozenset({"action.proposed"})}, LATER)
    assert [one.type for one in store.due("ops", LATER, 9)] == ["action.proposed"]


@pytest.mark.parametrize("rule", [None, StableRule(stable=False), StableRule(digest="d2")])
def test_a_rule_that_is_not_stable_or_another_by_now_is_only_proposed(
    store: Store, hands: FakeHands, rule: StableRule | None
) -> None:
    with_history(store)
    later(store)
    deciding(AUTOMATIC, store, hands, rule).round(LATER)
    assert (hands.filed, store.decisions()[0].verdict) == ([], Verdict.PROPOSED)


def test_off_by_default(store: Store, hands: FakeHands) -> None:
    with_history(store)
    later(store)
    assert deciding(Autonomy(), store, hands).round(LATER) == 0
    assert (hands.filed, store.decisions()) == ([], ())


@pytest.mark.parametrize("settings", [AUTOMATIC.model_copy(update={"shadow": True}), AUTOMATIC])
def test_shadow_writes_down_what_would_have_been_and_does_nothing(
    store: Store, hands: FakeHands, settings: Autonomy
) -> None:
    with_history(store)
    later(store)
    deciding(settings, store, hands, shadow=not settings.shadow).round(LATER)
    assert hands.filed == []
    (decision,) = store.decisions()
    assert (decision.verdict, decision.shadow) == (Verdict.FILED, True)
    assert any(line.text.startswith("would have been: applies by itself") for line in store.incident(1).timeline)
    store.fan_out({"ops": frozenset({"action.proposed"})}, LATER)
    assert store.due("ops", LATER, 9) == ()


def test_a_demoted_rule_does_nothing_by_itself_until_a_person_resets_it(store: Store, hands: FakeHands) -> None:
    with_history(store)
    store.import_result(made_result("i1-3", ActionState.ROLLED_BACK), T0)
    later(store)
    worker = deciding(AUTOMATIC, store, hands)
    worker.round(LATER)
    assert hands.filed == []
    assert "failed a proof" in store.decisions()[0].text
    store.reset_demotion("dflash-none", UNIT)
    record(store, closed(crash(20_001)), now=LATER)
    worker.round(LATER)
    assert len(hands.filed) == 1


def test_a_kill_between_writing_down_and_filing_does_it_not_rather_than_twice(
    store: Store, hands: FakeHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_history(store)
    later(store)

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    worker = deciding(AUTOMATIC, store, hands)
    with monkeypatch.context() as patch:
        patch.setattr(hands, "apply", killed)
        with pytest.raises(Killed):
            worker.round(LATER)
    assert deciding(AUTOMATIC, store, hands).round(LATER) == 0
    assert hands.filed == []
    assert store.decisions()[0].verdict is Verdict.FILING


def test_the_guards_hold_it_back_like_everybody(store: Store, hands: FakeHands) -> None:
    with_history(store)
    later(store)
    hands.refusal = "the breaker is open"
    deciding(AUTOMATIC, store, hands).round(LATER)
    assert store.decisions()[0].verdict is Verdict.HELD
    assert "the breaker is open" in store.decisions()[0].text


@pytest.mark.parametrize("grade", [grade for grade in Grade if grade is not Grade.COMPLETE])
def test_poor_evidence_offers_nothing(store: Store, hands: FakeHands, grade: Grade) -> None:
    with_history(store)
    later(store, grade=grade)
    deciding(AUTOMATIC, store, hands).round(LATER)
    assert (hands.filed, store.decisions()[0].verdict) == ([], Verdict.HELD)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if not outcome.actionable])
def test_an_outcome_below_degraded_is_not_even_looked_at(store: Store, hands: FakeHands, outcome: Outcome) -> None:
    with_history(store)
    later(store, outcome=outcome)
    assert deciding(AUTOMATIC, store, hands).round(LATER) == 0


def test_a_crash_of_yesterday_read_today_is_news_only(store: Store, hands: FakeHands) -> None:
    with_history(store)
    later(store)
    assert deciding(AUTOMATIC, store, hands).round(LATER + 901 * SECOND) == 0


def test_a_crash_loop_is_proposed_once_a_day(store: Store, hands: FakeHands) -> None:
    worker = deciding(Autonomy(level=Level.APPROVE), store, hands)
    for number in range(5):
        record(store, closed(crash(20_000 + number)), now=LATER)
        assert worker.round(LATER) == 1
    told = [line for line in store.incident(1).timeline if "waits for a yes" in line.text]
    assert len(told) == 1
    assert len(store.decisions(incident=1)) == 5
    assert {one.verdict for one in store.decisions()} == {Verdict.WAITING}
