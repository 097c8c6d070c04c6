"""A unit on several nodes: one crash, seen from each host."""

import io
import json

import pytest

from tests.crashes import story
from tests.crashes.story import Said
from triage.engine.assemble import Assembler
from triage.model import Change, Grade, Outcome
from triage.sources.stream import StreamSource

PEER = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4242"


def node(host, rank, crash, flags="nnodes=2, dist_init_addr='10.0.0.1:5000', node_rank=0"):
    """One node's entries: it comes up, and fails."""
    lines = [(s, s.text.replace("tp_size=8", f"tp_size=16, {flags}")) for s in story.starting(1)]
    lines = [(s, text.replace(" TP0]", f" TP{rank}]")) for s, text in lines] + [(s, s.text) for s in crash]
    return [(host, Said(text, s.pid, s.ms, s.fields, host * 32)) for s, text in lines]


def crashes_of(entries):
    data = b""
    for host, said in sorted(entries, key=lambda entry: entry[1].ms):
        data += json.dumps({**story.entry_fields(said), "_HOSTNAME": f"gpu-{host}"}).encode() + b"\n"
    source = StreamSource("journal", io.BytesIO(data), units=("*",))
    assembler = Assembler()
    events = [e for batch in source.batches() for line in batch.lines for e in assembler.feed(line)]
    events += assembler.finish()
    opened = {event.crash.key for event in events if event.change is Change.OPENED}
    closed = [event.crash for event in events if event.change is Change.CLOSED]
    assert opened == {crash.key for crash in closed}
    assert len(closed) == len(opened)
    return closed


def test_two_nodes_that_fail_together_are_one_crash():
    first = node("a", 0, [*story.rank_crash(12_000, 0), *story.unit_failed(14_000)])
    second = node("b", 7, [*story.rank_crash(12_300, 7), *story.unit_failed(13_900)])
    (crash,) = crashes_of([*first, *second])
    assert (crash.host, crash.ranks, crash.outcome) == ("gpu-a", ("TP0", "TP7"), Outcome.FATAL)


@pytest.mark.parametrize("noticed", [11_500, 12_000, 12_300])
@pytest.mark.parametrize(("end", "other_end"), [(14_000, 13_900), (13_900, 14_000)])
def test_a_node_that_only_sees_the_others_gone_is_in_their_crash(noticed, end, other_end):
    first = node("a", 0, [*story.rank_crash(12_000, 0), *story.parent_gives_up(12_400), *story.unit_failed(end)])
    lost = [*story.rank_crash(noticed, 7, PEER), *story.parent_gives_up(12_500), *story.unit_failed(other_end)]
    (crash,) = crashes_of([*first, *node("b", 7, lost)])
    assert (crash.host, crash.root.rank, crash.ranks, crash.outcome) == ("gpu-a", "TP0", ("TP0", "TP7"), Outcome.FATAL)


def test_the_crash_with_the_reason_does_not_follow_the_one_that_only_saw_others_gone():
    lost = node(
        "b", 7, [*story.rank_crash(10_000, 7, PEER), *story.parent_gives_up(10_100), *story.unit_failed(10_200)]
    )
    real = node("a", 0, [*story.rank_crash(12_000, 0), *story.unit_failed(12_200)])
    assert {(crash.host, crash.follows) for crash in crashes_of([*lost, *real])} == {("gpu-a", ""), ("gpu-b", "")}


def test_the_node_that_notices_later_follows_the_first():
    first = node("a", 0, [*story.rank_crash(12_000, 0), *story.unit_failed(12_200)])
    second = node("b", 7, [*story.rank_crash(20_000, 7, PEER), *story.unit_failed(20_200)])
    one, two = crashes_of([*first, *second])
    assert (one.host, one.follows, two.host, two.follows) == ("gpu-a", "", "gpu-b", one.id)
    assert "gpu-a" in two.root.why


@pytest.mark.parametrize("flags", ["nnodes=1, dist_init_addr=None", "nnodes=2, dist_init_addr='10.0.0.9:5000'"])
def test_servers_that_only_share_their_units_name_have_their_own_crashes(flags):
    first = node("a", 0, [*story.rank_crash(12_000, 0), *story.unit_failed(14_000)])
    second = node("b", 7, [*story.rank_crash(12_300, 7), *story.unit_failed(13_900)], flags)
    assert {(crash.host, crash.follows) for crash in crashes_of([*first, *second])} == {("gpu-a", ""), ("gpu-b", "")}


def test_a_lost_peer_whose_end_another_node_tells_lacks_no_reason():
    real = node("a", 0, [*story.rank_crash(10_000, 0), *story.unit_failed(10_200)])
    lost = node("b", 7, [*story.rank_crash(22_000, 7, PEER), *story.unit_failed(22_200)])
    one, two = crashes_of([*real, *lost])
    assert (two.follows, two.grade) == (one.id, Grade.COMPLETE)
    (alone,) = crashes_of(lost)
    assert (alone.follows, alone.grade) == ("", Grade.CUT)
