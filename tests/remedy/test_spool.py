"""The privilege line: what root takes out of the spool, what it throws out, and that it always empties it."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remedy.machine import NOW
from triage.actionmodel import ActionResult, ActionState, Request, Step, StepState
from triage.actions import wire
from triage.actions.ledger import Ledger
from triage.actions.spool import Spool
from triage.model import Edit, Refused

REQUEST = Request(
    action="i3-1",
    kind="apply",
    unit="sglang-k26-dflash.service",
    incident=3,
    rule="dflash-graph-replay-none",
    remedy="disable-cuda-graph",
    edits=(Edit("set-flag", "--disable-cuda-graph"), Edit("scale-flag", "--mem-fraction-static", 0.9, 0.5)),
    seen_digest="a" * 64,
    result_digest="b" * 64,
    uid=1000,
    sudo_uid=None,
    time=NOW,
    reason="operator",
)


class Line:
    """Both sides of the line, and what root said."""

    def __init__(self, folder: Path) -> None:
        self.spool = Spool(folder / "state" / "spool")
        self.spool.create()
        self.requests = self.spool.folder / "requests"
        self.ledger = Ledger(folder / "root")
        self.ledger.create()
        self.said: list[str] = []

    def claim(self) -> list[str]:
        assert self.spool.claim(self.ledger, self.said.append)
        assert self.spool.waiting() == ()
        return [request.action for request in self.ledger.claims()]


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


def test_a_request_crosses_the_line_unchanged(line: Line) -> None:
    line.spool.file(REQUEST)
    assert line.spool.waiting() == ("i3-1",)
    assert line.claim() == ["i3-1"]
    assert line.ledger.claims() == (REQUEST,)


def test_a_name_is_taken_once(line: Line) -> None:
    line.spool.file(REQUEST)
    with pytest.raises(Refused, match="meanwhile"):
        line.spool.file(REQUEST)
    line.claim()
    line.spool.file(replace(REQUEST, incident=4))
    assert line.claim() == ["i3-1"]
    assert line.ledger.claims() == (REQUEST,)
    assert "known already" in line.said[0]


def hostile_link(folder: Path) -> None:
    (folder / "i3-1").symlink_to("/etc/shadow")


def hostile_link_to_a_good_one(folder: Path) -> None:
    (folder / ".good").write_bytes(wire.dump_request(REQUEST))
    (folder / "i3-1").symlink_to(folder / ".good")


def hostile_hard_link(folder: Path) -> None:
    (folder / ".good").write_bytes(wire.dump_request(REQUEST))
    os.link(folder / ".good", folder / "i3-1")


def hostile_fifo(folder: Path) -> None:
    os.mkfifo(folder / "i3-1")


def hostile_folder(folder: Path) -> None:
    (folder / "i3-1").mkdir()


def hostile_full_folder(folder: Path) -> None:
    (folder / "i3-1" / "deep" / "deeper").mkdir(parents=True)


def hostile_size(folder: Path) -> None:
    (folder / "i3-1").write_bytes(wire.dump_request(REQUEST) + b" " * 70_000)


def hostile_name(folder: Path) -> None:
    (folder / "I3 1\n").write_bytes(wire.dump_request(REQUEST))


def hostile_other_name(folder: Path) -> None:
    (folder / "i3-2").write_bytes(wire.dump_request(REQUEST))


def hostile_emptiness(folder: Path) -> None:
    (folder / "i3-1").touch()


def hostile_nesting(folder: Path) -> None:
    (folder / "i3-1").write_text('{"action":' + "[" * 30_000 + "]" * 30_000 + "}")


def hostile_drop_in_text(folder: Path) -> None:
    content = json.loads(wire.dump_request(REQUEST))
    (folder / "i3-1").write_text(json.dumps({**content, "drop_in_text": "[Service]\nUser=root\n"}))


@pytest.mark.parametrize(
    "place",
    [value for name, value in sorted(globals().items()) if name.startswith("hostile_")],
    ids=lambda f: f.__name__,
)
def test_whatever_is_no_request_is_thrown_out(line: Line, place) -> None:  # type: ignore[no-untyped-def]
    place(line.requests)
    assert line.claim() == []
    assert len(line.said) == 1
    assert "\n" not in line.said[0]


def test_a_socket_is_thrown_out(line: Line) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(line.requests)  # a socket's path must be short
        try:
            server.bind("i3-1")
        finally:
            os.chdir(here)
    assert line.claim() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_request_of_another_user_is_thrown_out(line: Line) -> None:
    line.spool.file(REQUEST)
    os.chown(line.requests / "i3-1", 12345, 12345)
    assert line.claim() == []
    os.chown(line.requests, 12345, 12345)
    line.spool.file(REQUEST)
    os.chown(line.requests / "i3-1", 12345, 12345)
    assert line.claim() == ["i3-1"]


def test_a_spool_that_became_a_link_is_not_entered(line: Line, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    line.requests.rmdir()
    line.requests.symlink_to(precious)
    assert not line.spool.claim(line.ledger, line.said.append)
    assert (precious / "file").exists()
    line.requests.unlink()
    line.spool.folder.rmdir()
    line.spool.folder.symlink_to(tmp_path)
    assert not line.spool.claim(line.ledger, line.said.append)


def test_a_swap_after_the_claim_changes_nothing(line: Line) -> None:
    line.spool.file(REQUEST)
    line.claim()
    (line.requests / "i3-1").write_bytes(wire.dump_request(replace(REQUEST, unit="sshd.service")))
    line.claim()
    assert line.ledger.claims() == (REQUEST,)


def test_a_flood_is_emptied_and_said_once(line: Line) -> None:
    for number in range(1000):
        (line.requests / f"bad-{number}").write_text("{}")
    line.spool.file(REQUEST)
    assert line.claim() == ["i3-1"]
    assert len(line.said) == 21
    assert "980 more" in line.said[-1]


def test_a_flood_of_well_formed_requests_is_cut(line: Line) -> None:
    for number in range(100):
        line.spool.file(replace(REQUEST, action=f"flood-{number:03}"))
    assert len(line.claim()) == 32


def test_half_written_requests_are_left_to_their_writer(line: Line) -> None:
    (line.requests / ".i3-1.tmp").write_text("{")
    assert line.claim() == []
    assert (line.requests / ".i3-1.tmp").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"action": "../x"},
        {"action": ".hidden"},
        {"action": "x" * 65},
        {"kind": "delete"},
        {"unit": "../sshd.service"},
        {"unit": "sshd.socket"},
        {"rule": "a b"},
        {"rule": "a\nExecStart=/bin/sh"},
        {"remedy": "A"},
        {"incident": -1},
        {"incident": True},
        {"incident": "3"},
        {"edits": []},
        {"edits": [{"op": "set-flag"}]},
        {"edits": [{"op": "set-flag", "name": "--x", "value": "a\nb", "floor": None, "ceiling": None}]},
        {"edits": [{"op": "set-flag", "name": "--x", "value": ["a"], "floor": None, "ceiling": None}]},
        {"edits": [{"op": "run", "name": "--x", "value": "a", "floor": None, "ceiling": None}]},
        {"edits": [{"op": "set-flag", "name": "--x", "value": None, "floor": None, "ceiling": None}] * 17},
        {"seen_digest": "a"},
        {"result_digest": "zz"},
        {"target": "../x"},
        {"kind": "retire"},
        {"verify": 1},
        {"reason": "x" * 501},
        {"reason": "a\x1b[31m"},
        {"time": 1.5},
        {"more": 1},
    ],
)
def test_a_request_of_another_form_is_refused(change: dict) -> None:  # type: ignore[type-arg]
    content = json.loads(wire.dump_request(REQUEST))
    with pytest.raises(Refused):
        wire.load_request(json.dumps({**content, **change}).encode())


@pytest.mark.parametrize("data", [b"\xff", b"[]", b'{"a":1,"a":2}', b'{"a":NaN}', b"1" * 5000, b"null"])
def test_bytes_that_are_no_request_are_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        wire.load_request(data)


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    with pytest.raises(Refused):
        wire.load_request(data)


def test_results_come_back_as_they_were_and_old_ones_are_still_read(line: Line) -> None:
    steps = (Step("write", StepState.DONE, NOW, "é"),)
    result = ActionResult(
        REQUEST, ActionState.VERIFIED, steps, NOW, NOW + 1, "fine", {"ready_seconds": "210"}, "c" * 64
    )
    line.ledger.write_result(result)
    assert line.ledger.results() == (result,)
    content = json.loads(wire.dump_result(result))
    del content["request"]["root"]
    content["request"]["of_a_newer_release"] = 1
    with pytest.raises(Refused):
        wire.load_result(json.dumps({"request": {}}).encode())
    del content["request"]["of_a_newer_release"]
    assert wire.load_result(json.dumps(content).encode()) == result


def test_only_the_newest_refusals_are_kept(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triage.actions.ledger._KEPT_REFUSALS", 3)
    for number in range(9):
        state = ActionState.VERIFIED if number == 0 else ActionState.REFUSED
        request = replace(REQUEST, action=f"a-{number}")
        line.ledger.write_result(ActionResult(request, state, (), NOW, NOW, kept={"sequence": str(number)}))
    line.ledger.prune()
    assert [result.request.action for result in line.ledger.results()] == ["a-0", "a-6", "a-7", "a-8"]


def test_results_may_be_read_by_the_group_and_old_bytes_by_root_alone(line: Line) -> None:
    line.ledger.save_old("i3-1", b"secret")
    line.ledger.write_result(ActionResult(REQUEST, ActionState.RUNNING, (), NOW))
    assert (line.ledger.folder / "old" / "i3-1").stat().st_mode & 0o777 == 0o600
    assert (line.ledger.folder / "old").stat().st_mode & 0o777 == 0o700
    assert (line.ledger.folder / "results" / "i3-1").stat().st_mode & 0o777 == 0o640
    assert line.ledger.old("i3-1") == b"secret"
