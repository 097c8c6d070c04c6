"""Whom the ranks waited for, and what a crash leaves behind for the next start."""

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of, documents_of
from tests.crashes.story import MAIN, RANKS, Said, stamp


def waits(rank, sequence=8812, prefix="[rank{}]:"):
    text = (
        f"[E1129 12:10:12.345678901 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={sequence}, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600021 milliseconds"
    )
    return Said(prefix.format(rank) + text, RANKS[rank], 12_000)


def suspected(lines, render=story.as_text):
    (crash,) = crashes_of(render([*story.starting(), *lines, *story.parent_gives_up(12_100)]))
    assert crash.root.cause.exception == "CollectiveTimeout"
    return crash


@pytest.mark.parametrize("render", [story.as_text, story.as_json, story.as_short])
def test_the_rank_that_does_not_report_the_time_out_never_reached_it(render):
    crash = suspected([waits(rank) for rank in range(8) if rank != 5], render)
    assert crash.suspects == ("TP5",)
    assert "TP5 never reached it" in crash.root.why


def test_the_rank_that_waits_for_an_earlier_collective_never_reached_the_later_one():
    assert suspected([waits(rank, 8811 if rank == 2 else 8812) for rank in range(8)]).suspects == ("TP2",)


def test_a_rank_is_known_from_the_text_where_no_prefix_names_it():
    assert suspected([waits(rank, prefix="") for rank in range(7)], story.as_json).suspects == ("TP7",)


def aborts(rank, ms=12_000):
    what = (
        f"  what():  [PG ID 2 PG GUID 3 Rank {rank}] Process group watchdog thread terminated with exception: time-out"
    )
    text = "terminate called after throwing an instance of 'c10::DistBackendError'"
    return [Said(text, RANKS[rank], ms), Said(what, RANKS[rank], ms)]


@pytest.mark.parametrize("step", [1, 99])
@pytest.mark.parametrize("render", [story.as_text, story.as_json, story.as_short])
def test_what_the_ranks_die_of_behind_the_time_out_is_not_its_cause(render, step):
    ranks = [[waits(rank), *aborts(rank)] for rank in range(8) if rank != 5]
    crash = suspected(story.interleaved(ranks, step), render)
    assert crash.suspects == ("TP5",)
    assert crash.root.rank == "TP0"


def test_the_rank_that_an_abort_names_in_its_own_words_is_known():
    (crash,) = crashes_of(story.as_text([*story.starting(), *aborts(4), *story.parent_gives_up(12_100)]))
    assert (crash.root.cause.exception, crash.root.rank) == ("c10::DistBackendError", "TP4")


def test_an_abort_behind_the_servers_own_watchdog_is_not_its_cause():
    fired = [
        Said(f"[{stamp(12_000)} TP{n}] Watchdog timeout (self.watchdog_timeout=300)", RANKS[n], 12_000 + n)
        for n in range(7)
    ]
    abort = [Said("terminate called after throwing an instance of 'c10::Error'", RANKS[1], 12_500)]
    abort.append(Said("  what():  CUDA error: driver shutting down", RANKS[1], 12_500))
    (crash,) = crashes_of(story.as_json([*story.starting(), *fired, *abort, *story.unit_failed(12_900)]))
    assert (crash.root.cause.exception, crash.root.rank) == ("WatchdogTimeout", "TP0")


def untagged(lines):
    """The same log without SGLang's own tags: a server of another release, or only the end of a log."""
    return [Said(said.text, said.pid, said.ms) for said in lines if "TP" not in said.text]


@pytest.mark.parametrize("flags", [True, False])
def test_without_tags_the_ranks_are_numbered_as_torch_does_it(flags):
    head = untagged(story.starting()) if flags else []
    (crash,) = crashes_of(story.as_text([*head, *(waits(rank) for rank in range(8) if rank != 5)]))
    assert crash.suspects == ("rank5",)


def told(rank, last, form="another rank"):
    text = (
        f"[rank{rank}]:[W1129 12:10:12.4 ProcessGroupNCCL.cpp:1700] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        f"Received a dump signal due to a collective timeout from {form} and we will try our best to dump debug info. "
        f"Last enqueued NCCL work: {last}, last completed NCCL work: {last}."
    )
    return Said(text, RANKS[rank], 12_050)


@pytest.mark.parametrize("form", ["another rank", " rank 0"])
def test_a_rank_that_others_told_of_the_time_out_had_not_begun_it(form):
    lines = [*(waits(rank) for rank in range(4)), *(told(rank, 8812) for rank in (4, 5)), told(6, 8811, form)]
    assert suspected(lines).suspects == ("TP6",)
    (crash,) = crashes_of(story.as_text(lines))
    assert crash.suspects == ("rank6",)


def test_numbers_of_different_groups_are_not_compared():
    lines = [waits(rank, 57 if rank == 2 else 8812) for rank in range(8)]
    assert suspected(lines).suspects == ()
    assert suspected([*lines[:7], told(7, 3)]).suspects == ()


@pytest.mark.parametrize("ranks", [range(8), range(3), [1]])
def test_nobody_is_suspected_where_all_report_or_most_do_not(ranks):
    assert suspected([waits(rank) for rank in ranks]).suspects == ()


def test_a_barrier_says_itself_whom_it_missed():
    last = "RuntimeError: Rank 0 reported: Ranks 3, 6 failed to pass monitoredBarrier in 600000 ms"
    lines = [*story.starting(), *story.rank_crash(12_000, 0, last), *story.unit_failed(12_500)]
    (crash,) = documents_of(story.as_json(lines))
    assert crash["suspects"] == ["TP3", "TP6"]


# ---------------------------------------------------------------- the next start


def start(run, at, message, exception="RuntimeError", ms=3_000):
    """A start that fails while it loads."""
    lines = [said for said in story.starting() if said.ms < ms]
    crash = story.rank_crash(ms, 0, f"{exception}: {message}")
    return [
        Said(said.text, said.pid, said.ms + at, said.fields, run * 32)
        for said in [*lines, *crash, *story.unit_failed(ms + 200)]
    ]


MEMORY = "Not enough memory. Please try to increase --mem-fraction-static."


def test_a_start_that_finds_no_memory_right_after_a_crash_follows_it():
    loop = [*story.story(), *start("a", 20_000, MEMORY), *start("b", 40_000, MEMORY)]
    first, second, third = crashes_of(story.as_json(loop))
    assert (first.follows, second.follows, third.follows) == ("", first.id, first.id)
    assert "AttributeError" in second.root.why


def test_a_busy_port_after_a_crash_follows_it():
    text = f"[{stamp(9_000)}] ERROR:    [Errno 98] error while attempting to bind on address: address already in use"
    busy = [
        *[s for s in story.starting() if s.ms < 9_000],
        Said(text, MAIN, 9_000),
        *story.unit_failed(9_200, "exited", "1"),
    ]
    again = [Said(s.text, s.pid, s.ms + 20_000, s.fields, "a" * 32) for s in busy]
    first, second = crashes_of(story.as_json([*story.story(), *again]))
    assert second.follows == first.id


def test_the_same_want_of_memory_again_follows_nothing():
    first, second = crashes_of(story.as_json([*start("a", 0, MEMORY), *start("b", 20_000, MEMORY)]))
    assert (first.follows, second.follows) == ("", "")


@pytest.mark.parametrize(
    ("message", "at"), [("shape mismatch", 20_000), (MEMORY, 3_600_000)], ids=["another failure", "an hour later"]
)
def test_what_has_nothing_to_do_with_the_crash_before_follows_nothing(message, at):
    assert [c.follows for c in crashes_of(story.as_json([*story.story(), *start("a", at, message)]))] == ["", ""]


def test_a_crash_of_another_unit_is_nobodys_aftermath():
    other = [Said(s.text, s.pid, s.ms, s.fields, s.run, "sglang-other.service") for s in start("a", 20_000, MEMORY)]
    assert [c.follows for c in crashes_of(story.as_json([*story.story(), *other]))] == ["", ""]


def test_a_plain_log_of_two_starts_tells_it_too():
    again = [Said(said.text.replace(" 12:00:", " 12:01:"), said.pid) for said in start("a", 0, MEMORY) if said.pid > 1]
    first, second = crashes_of(story.as_text([*story.story(), *again]))
    assert second.follows == first.id


def test_nobody_is_suspected_where_not_all_ranks_have_been_seen():
    lines = [said for said in story.starting() if said.pid not in RANKS[3:]]
    (crash,) = crashes_of(story.as_text([*lines, *[waits(rank) for rank in (0, 1)], *story.parent_gives_up(12_100)]))
    assert crash.suspects == ()


def fired(*ranks):
    text = "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"
    lines = [Said(f"[{stamp(12_000)} TP{rank}] {text}", RANKS[rank], 12_000) for rank in ranks]
    (crash,) = crashes_of(story.as_text([*story.starting(), *lines, *story.parent_gives_up(12_100)]))
    assert crash.root.cause.exception == "WatchdogTimeout"
    return crash


def test_the_one_rank_whose_watchdog_did_not_fire_held_the_others_up():
    crash = fired(0, 1, 2, 4, 5, 6, 7)
    assert crash.suspects == ("TP3",)
    assert "TP3's watchdog alone did not fire" in crash.root.why


@pytest.mark.parametrize("ranks", [range(8), range(6), [0], [3, 4]])
def test_of_watchdogs_nobody_is_suspected_where_none_or_several_are_silent(ranks):
    assert fired(*ranks).suspects == ()


def store(came, tags):
    last = (
        f"torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. {came}/8 clients joined."
    )
    lines = [Said(f"[{stamp(2_000)} {tag}] Init torch distributed begin.", RANKS[0], 2_000) for tag in tags]
    return crashes_of(story.as_text([*lines, *story.rank_crash(12_000, 0, last), *story.parent_gives_up(12_100)]))


def test_the_ranks_that_wrote_nothing_never_came_to_the_store():
    (crash,) = store(6, [f"TP{rank}" for rank in (0, 1, 2, 4, 6, 7)])
    assert crash.suspects == ("TP3", "TP5")
    (crash,) = store(7, [f"DP{rank} TP{rank}" for rank in range(7)])
    assert crash.suspects == ("rank7",)


@pytest.mark.parametrize(("came", "ranks"), [(6, range(8)), (7, range(6)), (5, range(6))])
def test_whoever_came_to_the_store_is_not_known_where_more_or_fewer_wrote(came, ranks):
    (crash,) = store(came, [f"TP{rank}" for rank in ranks])
    assert crash.suspects == ()


def test_replicas_with_ranks_of_the_same_numbers_tell_nobody_apart():
    text = "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"
    lines = [f"[{stamp(2_000)} DP{dp} TP{tp}] Init torch distributed begin." for dp in range(2) for tp in range(3)]
    lines += [f"[{stamp(12_000)} DP0 TP{tp}] {text}" for tp in range(2)]
    (crash,) = crashes_of("\n".join([*lines, story.parent_gives_up(12_100)[0].text, ""]).encode())
    assert (crash.root.cause.exception, crash.suspects) == ("WatchdogTimeout", ())
