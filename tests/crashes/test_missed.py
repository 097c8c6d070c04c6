"""A rank dies, and the others notice when their time is up."""

from dataclasses import replace

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import MAIN, RANKS, Said, stamp
from triage.model import Outcome

LATER = 612_000
TRACEBACK = ["Traceback (most recent call last):", *story.traceback_lines(story.FRAMES[4:], "RuntimeError: no room")]
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
OOM = "Memory cgroup out of memory: Killed process 4203 (sglang::schedul) total-vm:1kB, anon-rss:1kB, file-rss:0kB"
GONE = {
    "a thread": [Said(text, RANKS[3], 12_000) for text in ["Exception in thread Thread-5 (forward):", *TRACEBACK]],
    "a rank": story.rank_crash(12_000, 3),
    "a rank by the kernel": [Said(OOM, 0, 12_000)],
    "a device": [Said(XID, 0, 12_000)],
    "a device under a rank": [Said(XID.replace("'<unknown>'", "4203", 1).replace("79,", "119,", 1), 0, 12_000)],
}
BUSY = [*story.starting(), *story.serving(10_000, 40)]


def timed_out(ms, limit=600_000):
    collective = f"WorkNCCL(SeqNum=88, OpType=ALLREDUCE, Timeout(ms)={limit}) ran for {limit + 20} milliseconds"
    lines = []
    for rank in (0, 1, 2, 4, 5, 6, 7):
        text = f"[Rank {rank}] Watchdog caught collective operation timeout: {collective} before timing out."
        said = [
            f"[rank{rank}]:[E1129 12:10:12.481923121 ProcessGroupNCCL.cpp:683] {text}",
            "terminate called after throwing an instance of 'c10::DistBackendError'",
            f"  what():  [PG ID 2 Rank {rank}] Process group watchdog thread terminated with exception: {text}",
        ]
        lines += [Said(each, RANKS[rank], ms) for each in said]
    return [*lines, *story.parent_gives_up(ms + 100), *story.unit_failed(ms + 300)]


def watchdog(ms):
    text = f"[{stamp(ms)} TP1] Watchdog timeout (self.watchdog_timeout=300)"
    return [Said(text, RANKS[1], ms), *story.parent_gives_up(ms + 100), *story.unit_failed(ms + 300)]


@pytest.mark.parametrize("kind", GONE)
@pytest.mark.parametrize("render", [story.as_json, story.as_export])
def test_a_time_out_follows_what_it_waited_for(kind, render):
    for end in (timed_out(LATER), watchdog(320_000)):
        first, last = crashes_of(render([*BUSY, *GONE[kind], *end]))
        assert (last.outcome, last.follows, first.follows) == (Outcome.FATAL, first.id, "")
        assert first.root.cause.exception in last.root.why


@pytest.mark.parametrize("kind", GONE)
def test_what_failed_when_nobody_waited_yet_is_another_matter_unless_a_rank_is_gone(kind):
    *_, last = crashes_of(story.as_json([*BUSY, *GONE[kind], *timed_out(LATER + 500_000)]))
    assert bool(last.follows) == (kind in ("a rank", "a rank by the kernel"))


def test_what_the_server_outlived_is_not_waited_for():
    *_, last = crashes_of(story.as_json([*BUSY, *GONE["a thread"], *story.serving(12_100, 200), *timed_out(LATER)]))
    assert last.follows == ""


def test_requests_that_fail_in_between_hide_nothing():
    request = [Said(text, MAIN, 300_000) for text in [f"[{stamp(300_000)}] Exception in ASGI application", *TRACEBACK]]
    first, _, last = crashes_of(story.as_json([*BUSY, *GONE["a thread"], *request, *timed_out(LATER)]))
    assert last.follows == first.id


def test_a_server_of_another_machine_did_not_wait_for_this_ones_device():
    other = [replace(said, fields={"_HOSTNAME": "gpu-oak"}) for said in [*BUSY, *timed_out(LATER)] if said.pid > 1]
    *_, last = crashes_of(story.as_json(sorted([*other, *GONE["a device"]], key=lambda said: said.ms)))
    assert last.follows == ""


@pytest.mark.parametrize("kind", ["a rank", "a rank by the kernel"])
def test_a_server_that_hangs_without_its_rank_is_degraded(kind):
    stop = [*story.stop_asked(1_200_000), *story.unit_failed(1_201_000)]
    for after in ([], stop):
        (crash,) = crashes_of(story.as_json([*BUSY, *GONE[kind], *quiet(900_000), *after]))
        assert crash.outcome is Outcome.DEGRADED
    (crash,) = crashes_of(story.as_json([*BUSY, *GONE[kind]]))
    assert crash.outcome is Outcome.UNKNOWN  # nobody knows whether the unit ended with it
    first, last = crashes_of(story.as_json([*BUSY, *GONE[kind], *quiet(30_000), *story.unit_failed(40_000)]))
    assert (first.outcome, last.outcome, last.follows) == (Outcome.DEGRADED, Outcome.FATAL, first.id)


@pytest.mark.parametrize("after", [2_000, 8_000])
@pytest.mark.parametrize("kind", ["a rank", "a rank by the kernel"])
def test_a_rank_that_died_before_somebody_stopped_the_unit_was_missed(kind, after):
    stop = [*story.stop_asked(12_000 + after), *story.unit_failed(12_400 + after)]
    (crash,) = crashes_of(story.as_json([*BUSY, *GONE[kind], *stop]))
    assert crash.outcome is Outcome.DEGRADED
    at_once = [*story.stop_asked(12_000), *story.unit_failed(13_000)]  # what a stop itself makes a rank raise
    assert [crash.outcome for crash in crashes_of(story.as_json([*BUSY, *at_once[:1], *GONE[kind], *at_once[1:]]))] in (
        [],
        [Outcome.UNKNOWN],
    )


def quiet(ms):
    return [Said('INFO:     10.1.0.9:52114 - "GET /health HTTP/1.1" 503 Service Unavailable', MAIN, ms)]


@pytest.mark.parametrize("kind", ["a thread", "a device", "a device under a rank"])
def test_whether_the_server_misses_anything_else_is_not_known(kind):
    (crash,) = crashes_of(story.as_json([*BUSY, *GONE[kind], *quiet(30_000)]))
    assert crash.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("pid", [MAIN, 4_300])
def test_no_rank_is_gone_by_the_word_of_who_is_none(pid):
    """The front end writes what requests say; who was never heard as one rank may write for all."""
    told = [replace(said, pid=pid) for said in story.rank_crash(12_000, 3)]
    ranks = [] if pid == MAIN else [Said(f"[{stamp(12_000)} TP{rank}] And so on.", pid, 12_000) for rank in (3, 4)]
    (crash,) = crashes_of(story.as_json([*BUSY, *ranks, *told, *quiet(30_000)]))
    assert crash.outcome is Outcome.UNKNOWN
