"""`triage apply`, `rollback`, `actions`, `workarounds` below a folder: the real one-shot, files byte for byte."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import Result

from tests.store.made import HOST, REMEDY, T0, UNIT, closed, made_finding, record
from triage import cli
from triage.actionmodel import ActionState
from triage.document import find_remedy
from triage.model import Busy, Damaged, Edit, InputError, NotPermitted, Outcome, Refused, Unreachable, Verify
from triage.request import Requester
from triage.settings import load_settings
from triage.store import ProofRow, ProofState, Store, WantedRollback

Type = Callable[..., Result]
TEXT = "[Service]\nExecStart=/opt/sglang/bin/python -m sglang.launch_server --model-path /m --tp 8 --api-key s3cret\n"


@pytest.fixture
def root(home: Path) -> Path:
    folder = home / "machine"
    (folder / "etc/systemd/system").mkdir(parents=True)
    (folder / "etc/systemd/system" / UNIT).write_text(TEXT)
    return folder


@pytest.fixture
def incident(store: Store) -> int:
    record(store, closed(made_finding()))
    return 1


def drop_in(root: Path) -> Path:
    return root / f"etc/systemd/system/{UNIT}.d/zzz-triage.conf"


def files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_applied_shown_and_undone(store: Store, run: Type, root: Path, incident: int) -> None:
    before = files(root)
    result = run("apply", "1", "--yes", "--root", str(root))
    assert result.exit_code == 0, result.output
    assert "+    --disable-cuda-graph" in result.stdout
    assert "a third of the speed" in result.stdout
    assert "s3cret" not in result.output
    assert "✓ write" in result.stderr
    assert "--disable-cuda-graph" in drop_in(root).read_text()
    row = store.action("i1-1")
    assert (row.state, row.incident, row.edits[0].name) == (ActionState.UNVERIFIED, 1, "--disable-cuda-graph")
    assert "unverified" in run("actions", "list").stdout
    shown = run("actions", "show", "i1-1").stdout
    assert "Turn CUDA graphs off" in shown
    assert "✓ write" in shown
    assert json.loads(run("actions", "show", "i1-1", "--json").stdout)["action"]["state"] == "unverified"
    assert "i1-1" in run("workarounds").stdout
    assert json.loads(run("workarounds", "list", "--json").stdout)["items"][0]["name"] == "i1-1"
    assert json.loads(run("workarounds", "--json").stdout) == json.loads(run("workarounds", "list", "--json").stdout)
    assert json.loads(run("workarounds", "--json", "--unit", "sglang-x.service").stdout)["items"] == []
    assert run("workarounds", "--json", "list").exit_code == 2
    again = run("apply", "1", "--yes", "--root", str(root))
    assert again.exit_code == 3
    assert "already there" in str(again.exception)
    undone = run("rollback", "i1-1", "--yes", "--root", str(root))
    assert undone.exit_code == 0, undone.output
    assert f"{root} is gone; nothing was restarted" in undone.stdout
    assert files(root) == before
    assert not drop_in(root).parent.exists()
    assert store.action("i1-1").state is ActionState.UNDONE
    assert run("workarounds", "list").stdout == ""


def test_an_unconfirmed_remedy_below_one_by_hand_has_to_be_named(store: Store, run: Type, root: Path) -> None:
    finding = made_finding()
    by_hand = replace(REMEDY, id="upgrade", kind="upgrade", title="Move to 0.5.13", edits=(), applicable=False)
    ladder = (by_hand, replace(REMEDY, confirmed=False))
    record(store, closed(replace(finding, matches=(replace(finding.matches[0], remedies=ladder),))))
    result = run("apply", "1", "--yes", "--root", str(root))
    assert result.exit_code == 3
    assert "the first way is by hand: Move to 0.5.13; to take another name it with --remedy ID: no-graph" in str(
        result.exception
    )
    assert not drop_in(root).exists()
    assert run("apply", "1", "--remedy", "no-graph", "--yes", "--root", str(root)).exit_code == 0


def test_a_remedy_that_is_not_there_names_each_of_the_others_once(store: Store, run: Type, root: Path) -> None:
    finding = made_finding()
    other = replace(finding.matches[0], rule="wider", remedies=(REMEDY, replace(REMEDY, id="less")))
    record(store, closed(replace(finding, matches=(*finding.matches, other))))
    result = run("apply", "1", "--remedy", "none", "--root", str(root))
    assert (result.exit_code, str(result.exception).count("no-graph"), "less" in str(result.exception)) == (2, 1, True)


def test_a_remedy_outside_the_policy_leads_to_the_next(store: Store, run: Type, root: Path) -> None:
    finding = made_finding()
    outside = replace(REMEDY, id="more", confirmed=False, edits=(Edit("set-flag", "--max-running-requests", 1234567),))
    ladder = (outside, REMEDY)
    record(store, closed(replace(finding, matches=(replace(finding.matches[0], remedies=ladder),))))
    result = run("apply", "1", "--yes", "--root", str(root))
    assert result.exit_code == 0, result.output
    assert "passed over: more: --max-running-requests 1234567 is outside the pattern" in result.stdout
    assert "--disable-cuda-graph" in drop_in(root).read_text()


def test_a_command_changed_below_an_action_is_told(run: Type, root: Path, incident: int) -> None:
    plan = run("apply", "1", "--yes", "--root", str(root)).stdout
    assert f"will hide later changes of the command in {UNIT}: undo it first" in plan
    assert "later changes of it in other files have no effect" in drop_in(root).read_text()
    assert "note" not in run("workarounds").stderr
    (drop_in(root).parent / "override.conf").write_text("[Service]\nExecStart=\nExecStart=/bin/other\n")
    assert f"other files of {UNIT} changed since i1-1" in run("workarounds").stderr
    assert "changed since i1-1" in json.loads(run("workarounds", "--json").stdout)["items"][0]["note"]


def test_a_dry_run_changes_nothing(run: Type, root: Path, incident: int, home: Path) -> None:
    before = files(root)
    result = run("apply", "1", "--dry-run", "--root", str(root))
    assert result.exit_code == 0
    assert "+    --disable-cuda-graph" in result.stdout
    assert files(root) == before
    assert "No actions" in run("actions", "list").stderr


def test_without_a_terminal_and_without_yes_it_refuses(run: Type, root: Path, incident: int) -> None:
    before = files(root)
    result = run("apply", "1", "--root", str(root))
    assert result.exit_code == 3
    assert "no --yes" in str(result.exception)
    assert files(root) == before


def test_a_plan_of_a_crash_that_harmed_nobody_is_refused(store: Store, run: Type, root: Path) -> None:
    record(store, closed(made_finding(outcome=Outcome.UNKNOWN)))
    result = run("apply", "1", "--yes", "--root", str(root))
    assert result.exit_code == 3
    assert "only a fatal or degraded crash" in str(result.exception)


def test_an_unknown_remedy_action_or_incident_is_an_input_error(run: Type, root: Path, incident: int) -> None:
    for words in (("apply", "1", "--remedy", "magic"), ("apply", "9"), ("rollback", "i9-9"), ("actions", "show", "x")):
        more = () if words[0] == "actions" else ("--yes", "--root", str(root))
        result = run(*words, *more)
        assert result.exit_code == 2
        assert isinstance(result.exception, InputError)


def test_what_sglangs_own_file_sets_is_seen(run: Type, root: Path, incident: int) -> None:
    (root / "etc/systemd/system" / UNIT).write_text(TEXT.replace("--tp 8", "--config /etc/server.yaml"))
    (root / "etc/server.yaml").write_text("tp: 8\ndisable-cuda-graph: true\n")
    refused = run("apply", "1", "--remedy", "no-graph", "--yes", "--root", str(root))
    assert refused.exit_code == 3
    assert "--disable-cuda-graph is already there, in /etc/server.yaml" in str(refused.exception)
    (root / "etc/server.yaml").write_text("tp: 8\n")
    assert run("apply", "1", "--yes", "--root", str(root)).exit_code == 0


def test_undoing_without_the_folder_says_where_it_was_applied(
    run: Type, root: Path, incident: int, store: Store
) -> None:
    run("apply", "1", "--yes", "--root", str(root))
    store.host = store.action("i1-1").host
    with pytest.raises(Refused, match=f"add --root {root}"):
        Requester(load_settings(), store).plan_rollback(store.action("i1-1"), "i1-2", T0)


def test_retiring_is_an_undoing_with_its_reason(run: Type, root: Path, incident: int, store: Store) -> None:
    run("apply", "1", "--yes", "--root", str(root))
    assert run("workarounds", "retire", "i1-1", "--yes", "--root", str(root)).exit_code == 0
    assert store.action("i1-2").reason == "retired: needed no more"
    assert not drop_in(root).exists()


def test_retiring_is_proved_as_the_apply_was_but_may_cost_nothing(
    run: Type, root: Path, incident: int, store: Store
) -> None:
    run("apply", "1", "--yes", "--root", str(root))
    store.host = store.action("i1-1").host
    requester = Requester(load_settings(), store, root=root)
    row = store.action("i1-1")
    assert requester.plan_rollback(row, "i1-2", T0).verify == Verify()
    usual = requester.plan_rollback(row, "i1-2", T0, retire=True).verify
    assert (usual.soak, usual.window, usual.min_speed) == (150, 600, 0.6)
    profile = Verify(soak=7, window=5.0, min_speed=0.2)
    proof = ProofRow(ProofState.PROVED, 7, 7, "", {}, T0, profile)
    same = requester.plan_rollback(replace(row, proof=proof), "i1-2", T0, retire=True).verify
    assert same == replace(profile, min_speed=0.6)


def test_a_unit_of_another_host_is_applied_there(store: Store, incident: int) -> None:
    store.host = "elsewhere"
    requester = Requester(load_settings(), store)
    view = store.incident(1)
    with pytest.raises(Refused, match=f"runs on {HOST}"):
        requester.plan(view.incident, view.crashes[0].document, "no-graph", "i1-1", T0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_without_rights_the_command_that_has_them_is_told(store: Store, root: Path, incident: int) -> None:
    requester = Requester(load_settings(), store)
    assert not requester.listening()
    view = store.incident(1)
    plan = Requester(load_settings(), store, root=root).plan(
        view.incident, view.crashes[0].document, "no-graph", "i1-1", T0
    )
    with pytest.raises(NotPermitted, match="sudo"):
        requester.apply(plan, "i1-1", T0, "me")


class Idle:
    """A one-shot that never gets to the request."""

    def wait(self) -> int:
        return 0

    def poll(self) -> None:
        return None


def test_one_action_at_a_time_on_a_unit(
    run: Type, store: Store, root: Path, incident: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    requester = Requester(load_settings(), store, root=root)
    monkeypatch.setattr(requester, "_start_one_shot", lambda: Idle())
    view = store.incident(1)
    document = view.crashes[0].document
    plan = requester.plan(view.incident, document, "no-graph", "i1-1", T0)
    requester.apply(plan, "i1-1", T0, "me")
    assert requester.action_name(1) == "i1-2"
    under_way = f"^i1-1 is under way on {UNIT} since [0-9:]{{8}} UTC: wait"
    for name, reason in (("i1-2", under_way), ("i1-1", "exists already")):
        with pytest.raises(Refused, match=reason):
            requester.apply(plan, name, T0, "me")
    with pytest.raises(Busy, match=under_way):  # even where root's half-done file lies there, nobody is told to move it
        requester.plan(view.incident, document, "no-graph", "i1-2", T0)
    with pytest.raises(Busy, match=under_way):
        requester.plan_rollback(store.action("i1-1"), "i1-2", T0)
    drop_in(root).parent.mkdir()
    drop_in(root).write_text("[Service]\n")
    for words in (("apply", "1", "--dry-run"), ("rollback", "i1-1", "--yes")):
        result = run(*words, "--root", str(root))
        assert (result.exit_code, str(result.exception)[:17]) == (3, "i1-1 is under way")


def test_a_full_disk_of_roots_side_is_named(
    store: Store, root: Path, incident: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    requester = Requester(load_settings(), store, root=root)
    monkeypatch.setattr(requester, "_start_one_shot", lambda: Idle())
    monkeypatch.setattr("triage.request.PICKED_UP", -1.0)
    view = store.incident(1)

    def ask(name: str) -> None:
        plan = requester.plan(view.incident, view.crashes[0].document, "no-graph", name, T0)
        requester.apply(plan, name, T0, "me")

    ask("i1-1")
    with pytest.raises(Unreachable, match="systemctl status"):
        list(requester.follow("i1-1"))
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda place: full)
    ask("i1-2")
    with pytest.raises(Unreachable, match="is full, make room"):
        list(requester.follow("i1-2"))
    assert not requester.spool.waiting()
    ask("i1-3")
    requester.ledger.create()
    requester.ledger.claim(requester.spool.waiting_requests()[0])
    requester.spool.withdraw("i1-3")
    with pytest.raises(Unreachable, match="i1-3 is taken and begins as soon as there is room"):
        list(requester.follow("i1-3"))


def test_the_worker_files_a_rollback_once_and_notes_what_it_cannot_file(
    store: Store, run: Type, root: Path, incident: int
) -> None:
    run("apply", "1", "--yes", "--root", str(root))
    store.host = host = store.action("i1-1").host
    requester = Requester(load_settings(), store, root=root)
    wanted = WantedRollback("i1-1", host, UNIT, 1, "the signature came back 7 s after", T0)
    assert requester.file_rollback(wanted, T0) == "i1-1-back"
    assert requester.file_rollback(wanted, T0) == "i1-1-back"
    assert [result.state for result in requester.follow("i1-1-back")][-1] is ActionState.UNDONE
    assert not drop_in(root).exists()
    assert store.action("i1-1-back").reason == wanted.reason
    run("apply", "1", "--yes", "--root", str(root))
    drop_in(root).write_text("# by hand\n")
    again = WantedRollback(store.workarounds()[0].name, host, UNIT, 1, "came back", T0)
    requester.file_rollback(again, T0)
    assert any("changed by hand" in line.text for line in store.incident(1).timeline)


def test_a_damaged_account_of_roots_puts_a_rollback_off_and_names_the_file(
    store: Store, run: Type, root: Path, incident: int
) -> None:
    run("apply", "1", "--yes", "--root", str(root))
    store.host = host = store.action("i1-1").host
    requester = Requester(load_settings(), store, root=root)
    damaged = requester.ledger.folder / "results" / "i1-0"
    damaged.write_text("")
    with pytest.raises(Damaged, match=str(damaged)):
        requester.file_rollback(WantedRollback("i1-1", host, UNIT, 1, "came back", T0), T0)
    said = run("rollback", "i1-1", "--yes", "--root", str(root))
    assert said.exit_code == 3
    assert f"{damaged} is damaged" in str(said.exception)
    looks = json.loads(run("doctor", "--json").stdout)["items"]
    assert any(str(damaged) in look["text"] for look in looks if look["name"] == "root's accounts")
    damaged.unlink()
    assert run("rollback", "i1-1", "--yes", "--root", str(root)).exit_code == 0


def test_remedies_are_found_by_their_id_in_the_document(store: Store, incident: int) -> None:
    document = store.incident(1).crashes[0].document
    rule, remedy = find_remedy(document, "no-graph")
    assert (rule, remedy.edits[0].op) == ("dflash-none", "set-flag")


def test_every_command_is_registered() -> None:
    for name in cli.VERBS:
        command = cli.triage.get_command(click.Context(cli.triage), name)
        assert command is not None
        assert command.name == name
