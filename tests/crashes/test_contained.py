"""Containers of docker's journald driver: no manager writes of their ends, so that their own lines have to tell."""

import io
from dataclasses import replace

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import MAIN, Said
from triage.engine.assemble import Assembler
from triage.model import Change, Outcome
from triage.sources.stream import StreamSource

UP = story.starting()
DIES = [*story.rank_crash(12_000, 3), *story.parent_gives_up(12_100)]
MINUTE = 60_000


def later(lines, ms):
    return [replace(said, ms=said.ms + ms) for said in lines]


def checked(ms):
    return [Said('INFO:     10.1.0.9:52114 - "GET /health HTTP/1.1" 200 OK', MAIN, ms)]


def worked(ms):
    return [Said(f"[{story.stamp(ms)} TP3] Decode batch, #running-req: 3, #token: 90, token usage: 0.31", MAIN, ms)]


def journal(*parts):
    """Each part: a container's lines, under its name or under its name and id."""
    lines = [story.of_container(said, *names) for names, said_all in parts for said in said_all if said.pid > 1]
    return story.as_export(sorted(lines, key=lambda said: said.ms))


def told(data):
    return [(crash.unit, crash.root.rank, crash.outcome.value, crash.grade.value) for crash in crashes_of(data)]


A = ("sglang-a",)
FATAL = ("sglang-a", "TP3", "fatal", "complete")


def test_it_is_judged_as_its_text_would_be():
    assert told(journal((A, [*UP, *DIES]))) == [FATAL]
    assert told(journal((A, [*UP, *story.rank_crash(12_000, 3)[:-1]]))) != [FATAL]


@pytest.mark.parametrize("later_by", [12_000, 100_000])
def test_its_end_may_be_told_long_after_it_failed(later_by):
    raised, given_up = story.rank_crash(12_000, 3), story.parent_gives_up(12_100)
    assert told(journal((A, [*UP, *raised, *later(given_up, later_by)]))) == [FATAL]


def test_its_next_start_ends_it_and_so_does_a_container_that_takes_its_name():
    again = later(UP, 20_000)
    assert told(journal((A, [*UP, *DIES, *again]))) == [FATAL]
    assert told(journal((A, [*UP, *DIES, *again, *later(DIES, 20_000)]))) == [FATAL, FATAL]
    renewed = journal(((*A, "a1"), [*UP, *DIES]), ((*A, "a2"), [*again, *story.serving(40_000, 2000)]))
    assert told(renewed) == [FATAL]


def closing(data):
    """As what its crash was closed while the journal goes on."""
    source, assembler = StreamSource("test", io.BytesIO(data), units=("sglang*",), tz="UTC"), Assembler()
    events = [event for batch in source.batches() for line in batch.lines for event in assembler.feed(line)]
    (closed,) = [event for event in events if event.change is Change.CLOSED]
    assert assembler.idle
    return closed.crash.outcome


def test_another_container_that_works_on_tells_nothing_of_it():
    assert closing(journal((A, [*UP, *DIES]), (("sglang-b",), [*UP, *story.serving(10_000, 5000)]))) is Outcome.FATAL


@pytest.mark.parametrize(("sign", "outcome"), [(checked, Outcome.UNKNOWN), (worked, Outcome.RECOVERED)])
def test_one_that_lives_all_the_same_did_not_die(sign, outcome):
    """A request can write what a server's end looks like; an idle one is asked for its health."""
    lives = journal((A, [*UP, *DIES, *sign(12_000 + MINUTE), *sign(12_000 + 4 * MINUTE)]))
    assert closing(lives) is outcome  # the rank itself outlived it where it works on


def test_a_start_that_says_nothing_more_is_waited_for_two_minutes():
    start = later(UP[:2], 20_000)
    other = [*UP, *later(worked(12_000), 3 * MINUTE)]
    assert closing(journal((A, [*UP, *DIES, *start]), (("sglang-b",), other))) is Outcome.FATAL


def test_one_that_was_told_to_stop_did_not_fail():
    stop = [Said(f"[{story.stamp(11_000)}] SIGTERM received. signum=15. Draining requests and shutting down...", MAIN)]
    assert [outcome for *_, outcome, _ in told(journal((A, [*UP, *stop, *DIES])))] in ([], ["unknown"])


@pytest.mark.parametrize("folder", ["/system.slice/docker-{}.scope", "/docker/{}"])
def test_the_kernels_word_is_of_the_container_that_it_names(folder):
    """No line of a container tells its processes' numbers."""
    about = "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg={0},task_memcg={0},task=python3,pid=777,uid=0"
    kill = Said(
        "Memory cgroup out of memory: Killed process 777 (python3) total-vm:9kB, anon-rss:8kB, UID:0", 0, 11_990
    )
    ids = {name: name.encode().hex() * 4 for name in ("sglang-a", "sglang-b")}
    up = [story.of_container(said, name, of) for name, of in ids.items() for said in UP if said.pid > 1]

    def found(name):
        killed = [Said(about.format(folder.format(ids[name])), 0, 11_980), kill]
        gone = [story.of_container(said, "sglang-b", ids["sglang-b"]) for said in story.parent_gives_up(12_100)]
        lines = sorted([*up, *killed, *gone], key=lambda said: said.ms)
        return [(crash.unit, crash.root.cause.exception) for crash in crashes_of(story.as_export(lines))]

    assert found("sglang-b") == [("sglang-b", "HostOutOfMemory")]
    assert ("sglang-b", "HostOutOfMemory") not in found("sglang-a")
