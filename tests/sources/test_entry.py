"""Journal fields become lines the same way by every road; only trusted fields say where a line comes from."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of, events_of
from triage.model import OWNER, Origin
from triage.sources.entry import COREDUMP, contained, entry_line

UNIT = "sglang-k26.service"
SERVER = {
    "MESSAGE": "[2026-11-29 12:20:28 TP3] Load weight begin.",
    "_PID": "4203",
    "_HOSTNAME": "gpu-a",
    "_SYSTEMD_UNIT": UNIT,
    "_SYSTEMD_INVOCATION_ID": "0af1",
    "_STREAM_ID": "beef",
    "_TRANSPORT": "stdout",
}


def test_a_server_line_has_unit_invocation_pid_and_stream():
    line = entry_line(SERVER, 17)
    assert (line.unit, line.invocation, line.pid, line.stream, line.host, line.time) == (
        UNIT,
        "0af1",
        4203,
        "beef",
        "gpu-a",
        17,
    )
    assert line.origin is Origin.PROCESS
    assert line.position == "t17"


def test_a_user_unit_is_named_by_its_own_unit_not_by_the_user_manager():
    line = entry_line({**SERVER, "_SYSTEMD_UNIT": "user@1000.service", "_SYSTEMD_USER_UNIT": "us.service"}, 1)
    assert (line.unit, line.fields) == ("us.service", {OWNER: "1000"})
    assert entry_line({**SERVER, "_SYSTEMD_UNIT": "user@x.service", "_SYSTEMD_USER_UNIT": "us.service"}, 1).fields == {}


def test_the_manager_speaks_about_a_unit():
    line = entry_line(
        {
            "MESSAGE": "x",
            "_PID": "1",
            "UNIT": UNIT,
            "INVOCATION_ID": "0af1",
            "EXIT_CODE": "killed",
            "_SYSTEMD_UNIT": "init.scope",
        },
        1,
    )
    assert (line.origin, line.unit, line.invocation) == (Origin.MANAGER, UNIT, "0af1")
    assert line.fields["EXIT_CODE"] == "killed"


def test_a_user_manager_speaks_about_its_units():
    fields = {
        "MESSAGE": "x",
        "_PID": "812",
        "_COMM": "systemd",
        "USER_UNIT": "us.service",
        "USER_INVOCATION_ID": "77",
        "_SYSTEMD_UNIT": "user@1000.service",
        "_SYSTEMD_USER_UNIT": "init.scope",
    }
    line = entry_line(fields, 1)
    assert (line.origin, line.unit, line.invocation) == (Origin.MANAGER, "us.service", "77")
    assert line.fields[OWNER] == "1000"


def test_a_process_that_logs_a_unit_field_is_not_the_manager():
    assert entry_line({**SERVER, "UNIT": UNIT, "EXIT_CODE": "killed"}, 1).origin is Origin.PROCESS
    mine = {**SERVER, "_SYSTEMD_UNIT": "user@1000.service", "_SYSTEMD_USER_UNIT": "us.service"}
    assert entry_line({**mine, "_COMM": "systemd", "USER_UNIT": "us.service"}, 1).origin is Origin.PROCESS


def test_kernel_journald_and_core_dump_entries_have_their_origin():
    assert entry_line({"MESSAGE": "NVRM: Xid", "_TRANSPORT": "kernel"}, 1).origin is Origin.KERNEL
    notice = entry_line({"MESSAGE": "Suppressed", "_TRANSPORT": "driver", "OBJECT_SYSTEMD_UNIT": UNIT}, 1)
    assert (notice.origin, notice.unit) == (Origin.JOURNALD, UNIT)
    dump = {
        "MESSAGE": "Process 7 (python3) of user 1 dumped core.",
        "MESSAGE_ID": COREDUMP,
        "COREDUMP_UNIT": UNIT,
        "COREDUMP_PID": "7",
        "_SYSTEMD_UNIT": "systemd-coredump@3.service",
    }
    line = entry_line(dump, 1)
    assert (line.origin, line.unit, line.pid) == (Origin.MANAGER, UNIT, 7)


def test_a_piece_that_journald_broke_off_says_so():
    assert entry_line({**SERVER, "_LINE_BREAK": "line-max"}, 1).cut
    half = entry_line({**SERVER, "_LINE_BREAK": "pid-change"}, 1)
    assert not half.cut
    assert half.fields["_LINE_BREAK"] == "pid-change"


def test_text_that_no_database_takes_is_cleaned():
    assert entry_line({**SERVER, "MESSAGE": "a\0b\ud800"}, 1).text == "a\ufffdb?"


def mixed(*names):
    runs = [[*story.starting(), *story.serving(10_000, 4)] for _ in names]
    runs[-1] = [*story.starting(), *story.rank_crash(12_000, 3), *story.parent_gives_up(12_100)]
    lines = [story.of_container(said, name) for name, run in zip(names, runs, strict=True) for said in run]
    return sorted(lines, key=lambda said: said.ms)


@pytest.mark.parametrize("render", [story.as_json, story.as_export])
def test_each_container_of_docker_is_a_server_of_its_own(render):
    for units in (("docker.service",), ("sglang-b",), ("sglang*.service",)):
        (crash,) = crashes_of(render(mixed("sglang-a", "sglang-b")), units=units)
        assert (crash.unit, crash.root.rank, crash.grade.value) == ("sglang-b", "TP3", "complete")
    assert events_of(render(mixed("sglang-a", "sglang-b")), units=("sglang-a",)) == []


def test_a_containers_name_counts_only_in_dockers_unit():
    line = entry_line({**SERVER, "CONTAINER_NAME": "other"}, 17)
    assert contained(line, {**SERVER, "CONTAINER_NAME": "other"}) is line


def test_a_line_that_docker_broke_is_a_piece():
    fields = {
        "MESSAGE": "x",
        "_SYSTEMD_UNIT": "docker.service",
        "CONTAINER_NAME": "s",
        "CONTAINER_PARTIAL_MESSAGE": "true",
    }
    piece, last = (
        contained(entry_line(each, 1), each) for each in (fields, {**fields, "CONTAINER_PARTIAL_LAST": "true"})
    )
    assert (piece.cut, last.cut, piece.unit, piece.pid) == (True, False, "s", None)
