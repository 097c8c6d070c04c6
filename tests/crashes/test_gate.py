"""With the gate and without it: the same crashes, the same numbers, the same knowledge; and no reader without words."""

import io
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crashes import story
from triage.automaton import FAST, Automaton, Spots
from triage.engine.assemble import Assembler
from triage.engine.gate import CONTEXT, PIECES, Gate, words
from triage.model import Batch, CrashEvent, Line
from triage.rulebase.rulefile import load_proof, load_rules
from triage.shipped import rule_folders
from triage.sources.stream import StreamSource

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.log"))
HEALTHY = [said.text.encode() for said in story.serving(10_000, 600)]
TELLING = [
    *(said.text.encode() for said in story.story()),
    b"[2026-11-29 12:00:20 TP1] Scheduler hit an exception: Traceback (most recent call last):",
    b"ERROR:    Exception in ASGI application",
    b"Traceback (most recent call last):",
    b'  File "/x/sglang/srt/a.py", line 7, in run',
    b"    step()",
    b"ValueError: no",
    b"RuntimeError",
    b"During handling of the above exception, another exception occurred:",
    b"[rank3]:[E1129 12:00:21.003 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout",
    b"terminate called after throwing an instance of 'c10::Error'",
    b"[2026-11-29 12:00:22] Receive: obj=GenerateReqInput(text='tell me",
    b"of a Traceback (most recent call last):",
    b"', sampling_params={'n': 1})",
    b"[2026-11-29 12:00:23] SIGTERM received. signum=15 frame=None. Draining requests and shutting down...",
    b"[2026-11-29 12:00:24 TP0] Ignore import error when loading sglang.srt.models.x",
    b"sglang version: 0.5.12",
    b"kernel: NVRM: Xid (PCI:0000:dc:00): 79, pid=77, GPU has fallen off the bus",
    b"\x1b[31mCUDA er\x1b[0mror: an illegal memory access",
    b"loading: 40%|####      | 4/10 [00:01<00:02,  2.00it/s][2026-11-29 12:00:25 TP0] Load weight end.",
    b"Killed",
    *[b"[2026-11-29 12:00:26] Health check failed. Server couldn't get a response from detokenizer"] * 3,
    b'INFO:     10.1.0.9:52114 - "GET /health HTTP/1.1" 503 Service Unavailable',
    b"bytes \xff\xfe that are no text",
    b"",
    b"[2026-11-29 11:00:00 TP2] the clock was set back",
    b"[2026-11-29 12:20:00 TP2] long after that",
]


class Pieces(io.RawIOBase):
    """A file that gives a few bytes at a time, so that blocks end anywhere."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size, self._at = data, size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        size = min(self._size, len(buffer), len(self._data) - self._at)
        buffer[:size] = self._data[self._at : self._at + size]
        self._at += size
        return size


def loop(block: bytes) -> list[int]:
    """The oracle: each word sought in each line."""
    spots, at, sought = [], 0, [word.encode() for word in words()]
    for line in block.split(b"\n"):
        if any(word in line for word in sought):
            spots.append(at)
        at += len(line) + 1
    return spots


def told(data: bytes, search=None, *, gated: bool = True, size: int = 1 << 18):
    """All that a reading gives: events, count, notices, contexts."""
    assembler = Assembler()
    gate = Gate(assembler, search) if gated else None
    events, count, notices, read = [], 0, [], 0
    for batch in StreamSource("x", Pieces(data, size), tz="UTC", gate=gate).batches():
        count += batch.size
        read += len(batch.lines)
        notices += batch.notices
        assembler.pass_over(batch.passed)
        for line in batch.lines:
            events += assembler.feed(line)
    contexts = {run: replace(context, pace=()) for run, context in assembler.contexts().items()}
    return ([but_pace(event) for event in events + assembler.finish()], count, notices, contexts), read


def but_pace(event: CrashEvent) -> CrashEvent:
    """The speed is taken from some of the lines, whichever are read."""
    crash = event.crash
    return replace(event, crash=replace(crash, context=replace(crash.context, pace=())))


def is_told_alike(data: bytes, **options) -> None:
    assert told(data, **options)[0] == told(data, gated=False)[0]


def but_lines(event: CrashEvent) -> CrashEvent:
    """Beside a cut traceback there may stand other lines: those between two words are not handed on afterwards."""
    crash = event.crash
    failures = tuple(replace(failure, lines=()) for failure in crash.failures)
    return replace(event, crash=replace(crash, evidence=(), root=failures[0], failures=failures))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_golden_crashes_are_told_alike(path):
    traffic = b"\n".join(HEALTHY) + b"\n"
    is_told_alike(path.read_bytes())
    is_told_alike(traffic + path.read_bytes() + traffic, size=3_000)


def test_samples_and_near_misses_of_the_rules_are_told_alike():
    traffic = b"\n".join(HEALTHY[:60]) + b"\n"
    for rule in load_rules(rule_folders()).rules[::5]:
        proof, _ = load_proof(rule.path)
        for each in (*proof.samples, *proof.near_misses):
            is_told_alike(traffic + each.log.encode() + b"\n" + traffic)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), size=st.sampled_from([300, 5_000, 1 << 18]), oracle=st.booleans())
def test_any_mix_of_lines_is_told_alike(seed, size, oracle):
    pick = random.Random(seed)
    lines = []
    for _ in range(pick.randrange(12)):
        lines += [pick.choice(HEALTHY) for _ in range(pick.randrange(40))]
        at = pick.randrange(len(TELLING))
        lines += TELLING[at : at + pick.randrange(1, 9)] if pick.random() < 0.5 else pick.sample(TELLING, 3)
    data = b"\n".join(lines) + pick.choice([b"", b"\n"])
    (events, *rest), _ = told(data, size=size, search=loop if oracle else None)
    (wanted, *known), _ = told(data, gated=False)
    assert rest == known
    assert [but_lines(event) for event in events] == [but_lines(event) for event in wanted]
    for event, other in zip(events, wanted, strict=True):
        for failure, same in zip(event.crash.failures, other.crash.failures, strict=True):
            here, there = ({line.n for line in lines} for lines in (failure.lines, same.lines))
            assert all(any(0 < own - n <= CONTEXT for own in here & there) for n in here ^ there)


def test_healthy_lines_are_passed_over():
    data = b"\n".join(TELLING[:20] + HEALTHY * 20)
    (_, count, _, _), read = told(data)
    assert count == 20 + len(HEALTHY) * 20
    assert read < count / 10


def test_the_search_finds_the_same_lines_as_the_oracle():
    sparse = b"\n".join(line for one in TELLING for line in (one, *HEALTHY[:40])).replace(b"\x1b", b"")
    blocks = [path.read_bytes() for path in GOLDEN] + [b"\n".join(TELLING + HEALTHY) + b"\n", sparse]
    for find in (Spots(words(), PIECES), Spots(words())):
        for block in blocks:
            lines = {block.rfind(b"\n", 0, spot) + 1 for spot in find(block)}
            assert lines == set(loop(block))


def test_each_word_is_found_by_a_piece_of_it_wherever_it_stands():
    find = Spots(words(), PIECES)
    plain = b"".join(line + b"\n" for line in HEALTHY[:25] if not loop(line))
    for word in words():
        block = plain + b"a line with " + word.encode() + b" in it"
        assert find(block)
        assert min(find(block)) >= len(plain)
        assert find(block + b"\n" + plain) == find(block)


def test_the_pieces_are_few_and_seldom():
    rest = [word for word in words() if not any(piece in word for piece in PIECES)]
    assert len(PIECES) + len(rest) <= 1.5 * FAST
    assert min(map(len, PIECES)) >= 4
    chatty = sum(any(piece.encode() in line for piece in PIECES) for line in HEALTHY)
    assert chatty <= len(HEALTHY) / 20


def test_no_word_hides_another():
    assert Automaton(["error", "cuda error", "a e"]).which("a cuda error") == {0, 1, 2}


def every_line():
    yield from (line.decode("utf-8", "replace") for line in TELLING)
    for path in GOLDEN:
        yield from path.read_text(errors="replace").splitlines()
    for rule in load_rules(rule_folders()).rules:
        proof, _ = load_proof(rule.path)
        for each in (*proof.samples, *proof.near_misses):
            yield from each.log.splitlines()


def test_a_line_that_changes_anything_holds_a_word():
    """Whatever a reader learns to understand has to be in its WORDS: a line without one must leave no trace."""
    find, forgotten = Spots(words()), []
    for text in dict.fromkeys(every_line()):
        if find(text.encode()):
            continue
        assembler = Assembler()
        for n, opening in enumerate(("[2026-11-29 12:00:00 TP0] Decode batch, #running-req: 1", "[x] ok"), 1):
            assembler.feed(Line(opening, n=n, time=story.START))
        before = assembler.contexts()
        assert assembler.quiet
        events = assembler.feed(Line(text, n=3, time=story.START))
        if events or not assembler.quiet or assembler.contexts() != before:
            forgotten.append(text)
    assert forgotten == []


def test_a_gap_between_two_lines_without_a_time_is_bridged():
    """The time of a failure without one is that of the last line before it, passed over or not."""
    late = b"[2026-11-29 13:00:00 TP0] nothing to see"
    data = b"\n".join([*TELLING[:20], *HEALTHY, late, *[b"a line without a time"] * 200, b"ValueError: no", b""])
    (events, _, _, _), read = told(data, size=2_000)
    assert events[0].crash.started == story.START + 3_600_000_000
    assert read < 300
    is_told_alike(data, size=2_000)


def test_what_was_passed_over_is_counted_by_unit():
    assert Batch((Line("a"),), passed={None: 3, "x.service": 4}).size == 8
