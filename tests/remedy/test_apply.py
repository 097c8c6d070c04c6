"""Root's one-shot as a process: standard library only, --root without rights, nothing left behind in the spool."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.remedy.fixtures import DISABLE_GRAPH, remedy
from tests.remedy.machine import UNIT, Machine, as_request
from triage.actionmodel import ActionState, Request
from triage.actions import apply
from triage.actions.ledger import Ledger, Record
from triage.actions.spool import Spool
from triage.model import Refused
from triage.remedy import plan
from triage.shipped import shipped
from triage.units.dropin import Standing
from triage.units.systemctl import Folder

CHECKOUT = Path(__file__).parent.parent.parent
POLICY = shipped("packaging") / "policy.toml"


def test_it_imports_the_standard_library_only() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); import triage.actions.apply\n"
        "import json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    foreign = {name for name in json.loads(done.stdout) if name not in sys.stdlib_module_names}
    assert foreign <= {"triage", "__main__"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def filed(machine: Machine, tmp_path: Path, policy: Path = POLICY) -> list[str]:
    root = str(machine.folder)
    unit = Folder(machine.folder).read_unit(UNIT)
    result = plan(unit, 3, "some-rule", remedy(DISABLE_GRAPH), Standing(), action="i3-1", now=apply.now(), root=root)
    spool = Spool(tmp_path / "state" / "spool")
    spool.create()
    spool.file(as_request(result, "apply"))
    return ["--spool", str(spool.folder), "--dir", str(tmp_path / "own"), "--policy", str(policy), "--root", root]


def test_below_a_folder_the_file_is_written_and_nothing_restarted(machine: Machine, tmp_path: Path) -> None:
    arguments = filed(machine, tmp_path)
    starts = machine.manager.facts()["starts"]
    assert apply.main(arguments) == 0
    result = Ledger(tmp_path / "own").result("i3-1")
    assert result is not None
    assert result.state is ActionState.UNVERIFIED
    assert f"--root {machine.folder}" in machine.drop_in.read_text()
    assert machine.manager.facts()["starts"] == starts
    assert apply.main(arguments) == 0


def test_a_request_for_the_machine_is_not_carried_out_below_a_folder(machine: Machine, tmp_path: Path) -> None:
    arguments = filed(machine, tmp_path)
    assert apply.main([*arguments[:-1], str(tmp_path)]) == 0
    assert not machine.drop_in.exists()
    assert Ledger(tmp_path / "own").names() == frozenset()


def test_a_policy_that_others_may_write_is_none(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('units = ["*"]\n')
    policy.chmod(0o666)
    with pytest.raises(Refused, match="others than root"):
        apply.load_policy(policy)
    policy.chmod(0o644)
    assert apply.load_policy(policy).units == ("*",)
    policy.unlink()
    with pytest.raises(Refused, match="without a policy"):
        apply.load_policy(policy)


def test_a_missing_policy_refuses_and_changes_nothing(machine: Machine, tmp_path: Path) -> None:
    assert apply.main(filed(machine, tmp_path, tmp_path / "none.toml")) == 0
    result = Ledger(tmp_path / "own").result("i3-1")
    assert result is not None
    assert (result.state, machine.drop_in.exists()) == (ActionState.REFUSED, False)


def test_an_action_under_way_is_taken_up_at_the_next_start(machine: Machine, tmp_path: Path) -> None:
    arguments = filed(machine, tmp_path)
    own = Ledger(tmp_path / "own")
    own.create()
    Spool(tmp_path / "state" / "spool").claim(own, print, str(machine.folder))
    assert [request.action for request in own.claims()] == ["i3-1"]
    assert apply.main(arguments) == 0
    assert own.claims() == ()
    assert machine.drop_in.exists()


def test_units_are_worked_on_side_by_side_and_one_unit_in_its_order(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = filed(machine, tmp_path)
    spool, own = Spool(tmp_path / "state" / "spool"), Ledger(tmp_path / "own")
    first = spool.waiting_requests()[0]
    spool.file(replace(first, action="i3-2", time=first.time + 1))
    order: list[str] = []
    other_done = threading.Event()

    class Slow:
        """The first action is in its proof; another unit's is filed meanwhile, and has to be through before."""

        def __init__(self, *_: object) -> None: ...

        def carry(self, request: Request) -> Record:
            record = Record.open(own, request, apply.now)
            if request.action == "i3-1":
                spool.file(replace(first, action="i4-1", unit="sglang-other.service"))
                assert other_done.wait(20)
            order.append(request.action)
            record.settle(ActionState.REFUSED, "enough", "")
            own.finish(request.action)
            if request.action == "i4-1":
                other_done.set()
            return record

    monkeypatch.setattr("triage.actions.apply.Carrier", Slow)
    assert apply.main(arguments) == 0
    assert order == ["i4-1", "i3-1", "i3-2"]
    assert sorted(result.kept["sequence"] for result in own.results()) == ["1", "2", "3"]


def test_a_fault_in_one_units_action_lets_the_others_end(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = filed(machine, tmp_path)
    spool, own = Spool(tmp_path / "state" / "spool"), Ledger(tmp_path / "own")
    spool.file(replace(spool.waiting_requests()[0], action="i4-1", unit="sglang-other.service"))
    failed = threading.Event()

    class Faulty:
        def __init__(self, *_: object) -> None: ...

        def carry(self, request: Request) -> Record:
            if request.action == "i3-1":
                failed.set()
                raise OSError(28, "No space left on device")
            assert failed.wait(20)
            record = Record.open(own, request, apply.now)
            record.settle(ActionState.REFUSED, "enough", "")
            own.finish(request.action)
            return record

    monkeypatch.setattr("triage.actions.apply.Carrier", Faulty)
    assert apply.main(arguments) == 70
    assert [request.action for request in own.claims()] == ["i3-1"], "taken up again at the next start"


def test_a_spool_that_cannot_be_emptied_is_not_tried_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("triage.actions.apply.time.sleep", waited.append)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "spool").symlink_to("/etc")
    arguments = ["--spool", str(tmp_path / "state/spool"), "--dir", str(tmp_path / "own"), "--root", str(tmp_path)]
    assert apply.main(arguments) == 0
    assert waited == [apply._BREATH]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_without_root_only_a_folder_is_changed(tmp_path: Path) -> None:
    assert apply.main(["--dir", str(tmp_path)]) == 7
