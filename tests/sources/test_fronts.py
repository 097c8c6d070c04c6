"""What a viewer of logs puts before each line, with brackets, braces, quotes and '=' in it."""

import io
from dataclasses import replace

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from triage.engine.assemble import Assembler
from triage.engine.gate import Gate
from triage.model import Outcome
from triage.sources.fronts import front
from triage.sources.stream import StreamSource

FRONTS = {
    "labels": '{app="sglang", pod="llm-0"} ',
    "labels without blanks": '{app="sglang",level="info",pod="llm-0"} ',
    "pairs": "app=sglang pod=llm-0 ",
    "a pair in quotes": 'app="sglang serve" ',
    "a container": "(sglang) ",
    "a pod and its container": "llm-0 (sglang) ",
    "syslog's data": '<14>1 2026-11-29T12:00:12.25Z gpu-ash sglang 881 - [meta k="v" n="a \\"b\\" ] c"][more@7 x=""] ',
}
UP = story.starting(2)
CRASH = [*UP, *story.serving(10_000, 9), *story.rank_crash(12_000, 1), *story.parent_gives_up(12_300)]
PLAIN = story.as_text(CRASH)


def behind(front, data):
    return "".join(f"{front}{line}\n" for line in data.decode().splitlines()).encode()


def gated(data):
    assembler = Assembler()
    source = StreamSource("test", io.BytesIO(data), tz="UTC", gate=Gate(assembler))
    events = [event for batch in source.batches() for line in batch.lines for event in assembler.feed(line)]
    return [event.crash for event in events + assembler.finish()][-1]


def notices(data):
    return [text for batch in StreamSource("test", io.BytesIO(data)).batches() for text in batch.notices]


@pytest.mark.parametrize("front", FRONTS.values(), ids=FRONTS)
def test_it_is_taken_off(front):
    (plain,), data = crashes_of(PLAIN), behind(front, PLAIN)
    for crash in (*crashes_of(data), gated(data)):
        assert (crash.root.cause, crash.root.rank, crash.outcome) == (plain.root.cause, "TP1", Outcome.FATAL)
        assert (crash.phase, crash.context.flags) == (plain.phase, plain.context.flags)
    assert notices(data) == []
    killed = behind(front, story.as_text([*UP, *story.serving(10_000, 30)]) + b"Killed\n")
    assert [crash.root.cause.exception for crash in crashes_of(killed)] == ["SIGKILL"]


@pytest.mark.parametrize("form", ["({}) ", "x ({}) ", '{{pod="{}"}} ', "app=x pod={} "])
def test_it_tells_whose_a_line_is(form):
    lanes = [[*UP, *story.serving(10_000, 80)], CRASH]
    said = [
        [replace(said, text=form.format(name) + said.text) for said in lane if said.pid > 1]
        for name, lane in zip(("a", "b"), lanes, strict=True)
    ]
    (crash,) = crashes_of(story.as_text(story.interleaved(said)))
    name = {"x ({}) ": "x-b", "app=x pod={} ": "x-b"}.get(form, "b")
    assert (crash.unit, crash.outcome, crash.grade.value) == (name, Outcome.FATAL, "complete")


@pytest.mark.parametrize(
    "front",
    [
        "app=sglang seq={} ",
        "timestamp=2026-11-29T12:00:{:02}Z app=sglang ",
        '{{app="sglang", offset="{}20"}} ',
        '{{app="sglang", trace_id="97b750923ceb3{:03x}"}} ',
        "n={} ",
        "({}) ",
    ],
)
def test_a_number_that_differs_from_line_to_line_is_nobodys_name(front):
    lines = PLAIN.decode().splitlines()
    data = "".join(f"{front.format(at)}{line}\n" for at, line in enumerate(lines)).encode()
    (plain,), (crash,) = crashes_of(PLAIN), crashes_of(data)
    assert (crash.root.cause, crash.root.rank, crash.grade) == (plain.root.cause, "TP1", plain.grade)
    assert crash.context.flags == plain.context.flags


@pytest.mark.parametrize(
    ("form", "name"), [("app=x pid={} ", "x-7"), ("pod=llm-{} ", "llm-7"), ("(llm-{}) ", "llm-7"), ("n={} app=x ", "x")]
)
def test_a_name_that_differs_is_one(form, name):
    """As many writers as lines at the beginning."""
    line = "[2026-11-29 12:00:00] Load weight begin."
    found = front("".join(f"{form.format(at)}{line}\n" for at in range(70)).encode())
    assert found is not None
    assert found.off(f"{form.format(7)}{line}".encode()) == f"{name} | {line}".encode()


def test_what_a_line_itself_begins_with_is_its_own():
    """Pairs behind those that each line has, brackets where only some lines have them."""
    crash = [*CRASH[:-1], story.Said("rank=3 step=9 of it", story.RANKS[1], 12_000), CRASH[-1]]
    (found,) = crashes_of(behind("app=sglang ", story.as_text(crash)))
    assert found.root.cause.message.endswith("\nrank=3 step=9 of it")
    crash = [*CRASH[:-1], story.Said("(perhaps) so", story.RANKS[1], 12_000), CRASH[-1]]
    (found,) = crashes_of(story.as_text(crash))
    assert found.root.cause.message.endswith("\n(perhaps) so")


@pytest.mark.parametrize("front", ["{sglang} ", "sglang='a' ", "<a=b>: "])
def test_of_one_that_is_not_known_a_notice_says_so(front):
    data = behind(front, PLAIN)
    (text, *_) = notices(data)
    assert "what stands before each line is not known" in text
    assert notices(PLAIN) == notices(behind("gpu-7: ", PLAIN)) == []
