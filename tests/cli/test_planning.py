"""A remedy planned with what is known of the machine: the unit's own spelling, a user's unit, what was tried before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Type
from tests.store.made import SECOND, T0, UNIT, closed, made_finding, made_result, record
from triage.actionmodel import ActionState, Plan, Unit, UnitFile
from triage.model import Edit, Finding, Refused
from triage.request import Requester
from triage.settings import load_settings
from triage.store import Store
from triage.units import userunits
from triage.units.systemctl import Loaded, NotKnown, State

LATER = T0 + 100 * SECOND
SEARCH = {"op": "search-flag", "name": "--max-running-requests", "floor": 1}
FRACTION = "--mem-fraction-static"
RAISE = {"op": "step-flag", "name": FRACTION, "value": 0.05, "floor": 0.5, "ceiling": 0.95}


class Manager:
    """Knows one unit, with these flags."""

    live = True
    active, result, job = "failed", "signal", False

    def __init__(self, flags: str) -> None:
        text = f"[Service]\nExecStart=/opt/sglang/bin/python -m sglang.launch_server --model-path /m {flags}\n"
        self.unit: Unit | None = Unit(UNIT, (UnitFile(f"/etc/systemd/system/{UNIT}", text),))

    def read_unit(self, name: str) -> Unit:
        if self.unit is None:
            raise NotKnown(f"{name} is not known to systemd")
        return self.unit

    def loaded(self, name: str) -> Loaded:
        return Loaded((), (), (), settings={"Service.LimitNOFILE": 1048576})

    def state(self, name: str) -> State:
        return State(self.active, "failed", self.result, "", 5, 0, self.job)


def crash(number: int, signature: str = "aa11", **flags: str) -> Finding:
    found = made_finding(number, signature=signature)
    return replace(found, crash=replace(found.crash, context=replace(found.crash.context, flags=flags)))


def planned(store: Store, manager: Manager, *edits: dict[str, Any], incident: int = 1) -> Plan:
    view = store.incident(incident)
    document = {**view.crashes[0].document}
    match = document["matches"][0]
    rung = {**match["remedies"][0], "id": "it", "edits": list(edits), "applicable": True, "blocked_by": None}
    document["matches"] = [{**match, "remedies": [rung]}]
    hands = Requester(load_settings(), store)
    hands.manager = manager  # type: ignore[assignment]
    return hands.plan(view.incident, document, "it", f"i{incident}-9", LATER)


def test_a_start_limit_that_the_restart_lifts_is_announced(store: Store) -> None:
    record(store, closed(crash(1)), now=T0)
    manager = Manager("")
    edit = {"op": "set-flag", "name": FRACTION, "value": 0.8}
    assert not any("start limit" in note for note in planned(store, manager, edit).notes)
    manager.result = "start-limit-hit"
    assert any("start limit): the restart lifts that first" in note for note in planned(store, manager, edit).notes)


def test_a_unit_that_somebody_stopped_is_not_started_unsaid(store: Store) -> None:
    record(store, closed(crash(1)), now=T0)
    manager = Manager("")
    manager.active, manager.result = "inactive", "success"
    edit = {"op": "set-flag", "name": FRACTION, "value": 0.8}
    assert f"{UNIT} is stopped: to apply this starts it" in planned(store, manager, edit).notes
    manager.active = "deactivating"  # of itself, after a crash
    assert not any("stopped" in note for note in planned(store, manager, edit).notes)
    manager.job = True
    with pytest.raises(Refused, match="is being stopped"):
        planned(store, manager, edit)


def test_an_abbreviation_is_taken_for_the_flag_it_means(store: Store) -> None:
    record(store, closed(crash(1)))
    plan = planned(store, Manager("--mem-frac 0.8"), RAISE)
    assert "--mem-frac 0.85" in plan.drop_in_text
    assert plan.edits[0].also == ("--mem-frac",)
    assert plan.changes == ((FRACTION, "0.8 -> 0.85"),)


def test_a_directive_that_is_in_force_already_is_no_remedy(store: Store) -> None:
    record(store, closed(crash(1)))
    with pytest.raises(Refused, match="LimitNOFILE is 1048576 already"):
        planned(store, Manager(""), {"op": "set-unit", "name": "Service.LimitNOFILE", "value": 1048576})


def test_a_users_unit_is_told_to_the_user(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(store, closed(crash(1)))
    manager = Manager("")
    assert manager.unit is not None
    (tmp_path / UNIT).write_text(manager.unit.files[0].text)
    manager.unit = None
    monkeypatch.setattr(userunits, "_SHARED", (str(tmp_path),))
    with pytest.raises(Refused, match="--disable-cuda-graph\nEND\nsystemctl --user daemon-reload"):
        planned(store, manager, {"op": "set-flag", "name": "--disable-cuda-graph"})
    (tmp_path / UNIT).unlink()
    with pytest.raises(Refused, match="not known to systemd"):
        planned(store, manager, {"op": "set-flag", "name": "--disable-cuda-graph"})


def test_a_search_starts_from_what_the_store_remembers(store: Store) -> None:
    record(store, closed(crash(1, max_running_requests="64")))
    assert planned(store, Manager("--max-running-requests 64"), SEARCH).changes[0][1] == "64 -> 32"
    held = made_result(started=T0 + 5 * SECOND)
    edits = (Edit("set-flag", "--max-running-requests", 60),)
    store.import_result(replace(held, request=replace(held.request, edits=edits)), LATER)
    assert planned(store, Manager("--max-running-requests 64"), SEARCH).changes[0][1] == "64 -> 62"


def test_two_crashes_that_want_opposite_things_stop(store: Store) -> None:
    record(store, closed(crash(1)), closed(crash(2, signature="bb22")))
    lowered = made_result()
    store.import_result(replace(lowered, measured={f"changed {FRACTION}": "0.9 -> 0.8"}), LATER)
    with pytest.raises(Refused, match=r"a1 changed --mem-fraction-static \(0\.9 -> 0\.8\) against incident 1"):
        planned(store, Manager(f"{FRACTION} 0.8"), RAISE, incident=2)
    assert planned(store, Manager(f"{FRACTION} 0.8"), RAISE, incident=1)


def test_what_failed_here_is_said_where_the_remedies_are_listed(store: Store, run: Type) -> None:
    record(store, closed(crash(1)))
    rung = "no-graph: Turn CUDA graphs off"
    assert f"{rung}\n" in run("incidents", "show", "1").output
    store.import_result(made_result(state=ActionState.ROLLED_BACK, started=T0 + 5 * SECOND), LATER)
    said = run("incidents", "show", "1").output
    assert "[does not fit: it was tried here as a1 and its proof failed]" in said
    assert "triage apply 1 --remedy no-graph" not in said
