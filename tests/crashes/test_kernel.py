"""Whose a kernel's line is: this server's, another program's, or nobody's."""

from __future__ import annotations

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import MAIN, RANKS, UNIT, Said, stamp
from triage.model import Crash, Outcome

LOST = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
CONTAINED = "NVRM: Xid (PCI:0000:9b:00): 94, pid={pid}, name=python3, Contained: SM (0x1)"
REMAPPED = "NVRM: Xid (PCI:0000:9b:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x1) marked"
OURS = f"/system.slice/{UNIT}"


def said(text: str, ms: int) -> Said:
    return Said(text, 0, ms)


def oom(ms: int, pid: int, group: str) -> list[Said]:
    about = f"oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg={group},task_memcg={group},task=python3,pid={pid},uid=7"
    kill = f"Memory cgroup out of memory: Killed process {pid} (python3) total-vm:9kB, anon-rss:8kB, UID:7"
    return [said(about, ms), said(kill, ms)]


def crash(ms: int = 12_000) -> list[Said]:
    return [*story.rank_crash(ms, 3), *story.parent_gives_up(ms + 200), *story.unit_failed(ms + 400)]


def read(*lines: Said, start: list[Said] | None = None) -> list[Crash]:
    return crashes_of(story.as_export([*(story.starting() if start is None else start), *lines]))


FOREIGN = {
    "another unit's": oom(11_800, 777, "/system.slice/notebook.service"),
    "a pod's": oom(11_800, 777, "/kubepods.slice/kubepods-pod5.slice/cri-containerd-5a.scope"),
    "a session's": oom(11_800, 777, "/user.slice/user-1000.slice/session-3.scope"),
    "a contained error of another": [said(CONTAINED.format(pid=777), 11_800)],
    "a row that is to be replaced": [said(REMAPPED, 11_800)],
}


@pytest.mark.parametrize("lines", FOREIGN.values(), ids=FOREIGN)
def test_what_befell_another_program_is_no_reason_of_a_crash_near_it(lines):
    (found,) = read(*lines, *crash())
    assert (found.root.cause.exception, found.root.rank) == ("AttributeError", "TP3")
    assert all(failure.pid != 777 for failure in found.failures)


@pytest.mark.parametrize("lines", FOREIGN.values(), ids=FOREIGN)
def test_what_befell_another_program_is_no_crash(lines):
    assert read(*lines, *story.serving(12_000, 400)) == []


def test_a_kill_of_a_named_unit_that_is_none_of_ours_is_no_crash_though_no_server_wrote():
    assert read(*oom(11_800, 777, "/system.slice/notebook.service"), start=[]) == []


@pytest.mark.parametrize("group", [OURS, f"{OURS}/payload", f"/user.slice/user@7.service/app.slice/{UNIT}"])
def test_a_process_that_wrote_nothing_is_known_by_its_unit(group):
    (found,) = read(*oom(11_800, 777, group), *crash())
    assert (found.root.cause.exception, found.unit) == ("HostOutOfMemory", UNIT)


@pytest.mark.parametrize(
    "group", ["/system.slice/docker-5a.scope", "/system.slice/containerd.service/kubepods-pod5:cri-containerd:5a"]
)
def test_in_a_container_the_processes_are_not_known(group):
    lines = [Said(each.text, min(each.pid, MAIN), each.ms, each.fields) for each in [*story.starting(), *crash()]]
    cut = len(story.starting())
    (found,) = read(*oom(11_800, 777, group), *lines[cut:], start=lines[:cut])
    assert found.root.cause.exception == "HostOutOfMemory"


@pytest.mark.parametrize("number", [48, 79, 95])
def test_a_gpu_that_is_gone_is_so_for_all_whoever_met_it(number):
    lines = [said(f"NVRM: Xid (PCI:0000:9b:00): {number}, pid=777, name=nvidia-smi, gone", 11_800)]
    (found,) = read(*lines, *crash())
    assert found.root.cause.exception == f"Xid {number}"


@pytest.mark.parametrize("before", [300, 3_000, 8_000])
@pytest.mark.parametrize("parent", [True, False])
def test_ranks_that_die_silently_died_of_the_gpu_that_is_gone(before, parent):
    end = 12_000 + before
    gone = [*(story.parent_gives_up(end - 100) if parent else ()), *story.unit_failed(end)]
    (found,) = read(said(LOST, 12_000), *gone)
    assert (found.root.cause.exception, found.unit, found.outcome) == ("Xid 79", UNIT, Outcome.FATAL)


def test_the_kernels_line_may_come_behind_the_managers():
    (found,) = read(*story.unit_failed(12_000), said(LOST, 12_500))
    assert (found.root.cause.exception, found.unit) == ("Xid 79", UNIT)


def test_long_before_an_end_it_is_a_crash_of_its_own():
    lost, end = read(said(LOST, 12_000), *story.unit_failed(24_000))
    assert (lost.root.cause.exception, lost.unit) == ("Xid 79", None)
    assert (end.root.cause.exception, end.unit) == ("SIGKILL", UNIT)


@pytest.mark.parametrize("stop", ["stop", "restart"])
def test_an_end_that_was_asked_for_is_not_the_gpus(stop):
    (lost,) = read(said(LOST, 12_000), *story.stop_asked(12_100, stop), *story.unit_failed(12_400))
    assert lost.unit is None


def test_the_fault_of_a_silent_rank_says_more_than_its_signal():
    fault = "NVRM: Xid (PCI:0000:9b:00): 13, pid={pid}, name=sglang::schedul, Graphics SM Warp Exception"
    (found,) = read(said(fault.format(pid=RANKS[5]), 12_000), *story.unit_failed(12_900))
    assert (found.root.cause.exception, found.root.rank) == ("Xid 13", "TP5")
    (found,) = read(said(fault.format(pid=777), 12_000), *story.unit_failed(12_900))
    assert found.root.cause.exception == "SIGKILL"


def test_a_request_that_fails_later_makes_no_crash_of_it():
    """Whoever sends a bad request must not make a failure of this unit out of a GPU that another server lost."""
    bad = [
        f"[{stamp(14_000)}] Exception in ASGI application",
        "Traceback (most recent call last):",
        *story.traceback_lines(story.FRAMES[:1], "ValueError: bad image"),
    ]
    found = read(said(LOST, 12_000), *[Said(text, MAIN, 14_000) for text in bad], *story.serving(15_000, 400))
    assert sorted((crash.outcome.value, crash.unit or "") for crash in found) == [
        ("request-error", UNIT),
        ("unknown", ""),
    ]


KILLED = "Out of memory: Killed process 9911 (cicc) total-vm:1kB, anon-rss:1kB, file-rss:0kB"
CGROUP = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task_memcg=/system.slice/{},task=cicc,pid=9911"
NINJA = story.rank_crash(12_000, 1, "RuntimeError: Ninja build failed. Ninja output: subcommand failed.")


@pytest.mark.parametrize(("unit", "root"), [(story.UNIT, "HostOutOfMemory"), ("build.service", "RuntimeError")])
def test_a_compiler_that_the_kernel_killed_in_the_unit_is_why_the_build_failed(unit, root):
    told = [Said(CGROUP.format(unit), 0, 11_900), Said(KILLED, 0, 11_901)]
    loading = [said for said in story.starting(2) if said.ms < 7_000]
    (crash,) = crashes_of(story.as_json([*loading, *told, *NINJA, *story.unit_failed(12_400)]))
    assert (crash.root.cause.exception, crash.outcome) == (root, Outcome.FATAL)


@pytest.mark.parametrize("render", [story.as_json, story.as_short])
def test_another_ones_compiler_is_nothing_to_a_server(render):
    told = [
        Said("cicc invoked oom-killer: gfp_mask=0x140cca, order=0, oom_score_adj=0", 0, 11_900),
        Said(KILLED, 0, 11_901),
    ]
    assert crashes_of(render([*story.starting(2), *told, *story.serving(13_000, 900)])) == []


def test_the_kernels_word_of_a_compiler_is_read_in_a_copy_of_its_log():
    asked = "[12345.678901] cicc invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0"
    for lines in ([asked], [f"[12345.678999] {KILLED}"], [asked, f"[12345.678999] {KILLED}"]):
        (crash,) = crashes_of("".join(f"{line}\n" for line in lines).encode())
        assert (crash.root.cause.exception, crash.outcome) == ("HostOutOfMemory", Outcome.UNKNOWN)
