"""`triage guards`: what holds triage back, and the reset."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import Result

from tests.store.made import SECOND, T0, UNIT, closed, made_finding, made_result, record
from triage.actionmodel import ActionState
from triage.model import Refused, Verify
from triage.settings import Guards
from triage.store import Store

Type = Callable[..., Result]


@pytest.fixture(autouse=True)
def _bad_night(store: Store) -> None:
    store.host = type(store)(f"sqlite:///{store._database.path}").host  # as the commands see it
    record(store, closed(made_finding()))
    for number in range(2):
        store.import_result(made_result(f"a{number}", ActionState.ROLLED_BACK, text="no answer"), T0)
    with pytest.raises(Refused):
        store.reserve(
            made_result("a9").request,
            title="",
            cost="",
            diff="",
            who="ada",
            now=T0,
            limits=Guards(breaker_actions=2),
        )


def test_the_breaker_is_shown_and_reset(store: Store, run: Type) -> None:
    assert "OPEN since" in run("guards").stdout
    assert "the breaker is open" in run("actions", "list").stderr
    shown = json.loads(run("guards", "show", "--json").stdout)
    assert shown["breaker"]["open"]
    assert "the breaker is closed" in run("guards", "reset").stdout
    assert "closed; opens at" in run("guards").stdout
    assert "not open" in run("guards", "reset").stderr
    assert "the breaker is open" not in run("actions", "list").stderr


def test_a_demoted_rule_is_shown_and_trusted_again(store: Store, run: Type) -> None:
    assert UNIT in run("guards", "show").stdout
    assert run("guards", "reset", "dflash-none").exit_code == 2
    assert run("guards", "reset", "dflash-none", UNIT).exit_code == 0
    assert store.guarded().demotions == ()
    assert run("guards", "reset", "dflash-none", UNIT).exit_code == 2


def test_a_workaround_says_what_it_costs(store: Store, run: Type) -> None:
    """Announced by its rule, and measured: before by root or the log, after by the soak."""
    store.reset_breaker("ada", T0 + SECOND)
    result = made_result("b1")
    words = {"title": "t", "cost": "a third of the speed", "diff": "", "who": "ada"}
    store.reserve(result.request, **words, now=T0 + SECOND, limits=Guards(), profile=Verify(soak=30, window=600))
    store.import_result(replace(result, measured={"speed_before": "81.0"}), T0 + 60 * SECOND)
    assert "tokens/s" not in run("workarounds", "list").stdout
    store.soaked("b1", 30, "fine", {"speed_before": "80.0", "speed_after": "52.5"}, T0 + 90 * SECOND)
    assert "80.0 -> 52.5 tokens/s; a third of the speed" in run("workarounds", "list").stdout


def test_a_workaround_says_when_it_may_go(store: Store, run: Type) -> None:
    store.import_result(made_result("b1"), T0)
    assert run("workarounds", "until", "b1").exit_code == 2
    assert run("workarounds", "until", "b1", "--release", "soon").exit_code == 2
    assert run("workarounds", "until", "b1", "--release", "0.6.1", "--date", "2020-01-31").exit_code == 0
    listed = run("workarounds", "list")
    assert "b1: it was to stay until 2020-01-31" in listed.stdout
    assert "triage workarounds retire b1" in listed.stdout
    (item,) = json.loads(run("workarounds", "list", "--json").stdout)["items"]
    assert item["retire_when"] == "release 0.6.1 or 2020-01-31 00:00Z"
    assert item["still_needed_on"] == []
    assert run("workarounds", "until", "b1", "--clear").exit_code == 0
    assert "NOW" not in run("workarounds", "list").stdout
    assert run("workarounds", "until", "a0", "--clear").exit_code == 2
