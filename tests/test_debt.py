"""The debt list: when a workaround may go, told once a release; what a hand removed is closed through root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.store.made import SECOND, T0, closed, made_finding, made_result, made_store, record
from triage.debt import EVERY, Collector, debt
from triage.model import Refused
from triage.store import ActionRow, Retirement, Store

NOW = T0 + 1000 * SECOND


@dataclass(frozen=True)
class Mended:
    """As much of a rule as is asked for."""

    fixed_in: str | None = "0.5.15"


@dataclass
class FakeHands:
    installed: str | None = "0.5.12"
    removed: bool = False
    busy: bool = False
    filed: list[tuple[str, str, str]] = field(default_factory=list)

    def release(self, unit: str) -> str | None:
        return self.installed

    def removed_by_hand(self, action: ActionRow) -> bool:
        return self.removed

    def rollback(self, action: ActionRow, name: str, who: str, *, reason: str = "") -> None:
        if self.busy:
            raise Refused("something is under way")
        self.filed.append((action.name, name, reason))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = made_store(tmp_path)
    record(made, closed(made_finding(1)), now=T0)
    made.import_result(made_result(), T0 + 60 * SECOND)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("rule", "known", "release", "met"),
    [
        (Mended(), {}, "0.5.12", False),
        (Mended(), {}, "0.5.15", True),
        (Mended(), {}, "0.5.15.post1", True),
        (Mended(), {}, "0.6.0", True),
        (Mended(), {}, "0.5.15rc1", False),
        (Mended(), {}, None, False),
        (Mended(), {}, "a build of ours", False),
        (Mended(), {"failed": ("0.5.15",)}, "0.5.15", False),
        (Mended(), {"failed": ("0.5.15",)}, "0.5.16", True),
        (Mended(None), {}, "9.9", False),
        (None, {}, "9.9", False),
        (None, {"release": "0.5.14"}, "0.5.14", True),
        (None, {"release": "0.5.14"}, "0.5.13", False),
        (None, {"due": NOW}, None, True),
        (None, {"due": NOW + 1}, None, False),
        (None, {"due": NOW, "failed": ("unknown",)}, None, False),
    ],
)
def test_when_it_may_go(store: Store, rule: Any, known: dict[str, Any], release: str | None, met: bool) -> None:
    found = debt(store.action("a1"), rule, Retirement("a1", **known), release, NOW)
    assert bool(found.met) is met
    assert bool(found.condition) is bool((rule and rule.fixed_in) or known.get("release") or known.get("due"))


@pytest.mark.parametrize(("crashed_on", "met"), [("0.5.14", True), ("0.5.15", False), ("0.5.16", False), (None, True)])
def test_a_mend_that_was_there_when_it_crashed_is_none(store: Store, crashed_on: str | None, met: bool) -> None:
    found = debt(store.action("a1"), Mended(), Retirement("a1"), "0.5.16", NOW, crashed_on)  # type: ignore[arg-type]
    assert (bool(found.met), bool(found.condition)) == (met, met)


def collector(store: Store, hands: FakeHands) -> Collector:
    return Collector(store, hands, lambda name: Mended())  # type: ignore[arg-type, return-value]


def test_an_upgrade_past_the_mend_is_proposed_once(store: Store) -> None:
    hands = FakeHands()
    worker = collector(store, hands)
    assert worker.round(NOW) == 0
    hands.installed = "0.5.15"
    assert worker.round(NOW + EVERY - 1) == 0, "files are looked at every half minute"
    assert worker.round(NOW + EVERY) == 1
    assert worker.round(NOW + 2 * EVERY) == 0
    assert collector(store, hands).round(NOW + 3 * EVERY) == 0, "a restarted worker knows from the store"
    (line,) = [line for line in store.incident(1).timeline if "triage workarounds retire a1" in line.text]
    assert "0.5.15 is installed" in line.text
    hands.installed = "0.5.16"
    assert worker.round(NOW + 4 * EVERY) == 1
    assert hands.filed == [], "a person says when it is tried"


def test_what_a_hand_removed_is_closed_through_root(store: Store) -> None:
    hands = FakeHands(removed=True, busy=True)
    worker = collector(store, hands)
    assert worker.round(NOW) == 0
    hands.busy = False
    assert worker.round(NOW + EVERY) == 1
    assert hands.filed == [("a1", "a1-byhand", "its drop-in was removed by hand")]
