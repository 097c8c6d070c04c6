"""A line that journald or a container engine broke into pieces is one line: a further piece begins nothing."""

import io
import json
import tracemalloc

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import MAIN, Said, stamp
from triage.engine.assemble import Assembler
from triage.model import Line, Outcome
from triage.sources.stream import StreamSource

MAX = 48 * 1024
BROKEN = {"_LINE_BREAK": "line-max"}
FAKE = [
    f"[{stamp(10_500)} TP0] Scheduler hit an exception: Traceback (most recent call last):",
    *story.traceback_lines(story.FRAMES, "ValueError: imitated"),
    "Fatal Python error: Segmentation fault",
    f"[{stamp(10_500)}] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
]
ASKED = f"[{stamp(10_500)}] Receive: obj=GenerateReqInput(rid='7', text='"
ENDED = "', sampling_params={'n': 1}, stream=True)"


def pieces(text, size=MAX, ms=10_500, pid=MAIN):
    """One line as journald keeps it."""
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    return [Said(part, pid, ms, BROKEN if n < len(parts) - 1 else {}) for n, part in enumerate(parts)]


def asked(fake, pad=MAX):
    """A request whose text is so long that what imitates a crash stands at the head of a piece of its own."""
    return pieces(ASKED + "x" * (pad - len(ASKED)) + fake + ENDED)


def as_cri(lines):
    rows = []
    for said in lines:
        text = said.text
        while len(text) > 16_384:
            rows.append(f"2026-11-29T12:00:10.500000000Z stderr P {text[:16_384]}")
            text = text[16_384:]
        rows.append(f"2026-11-29T12:00:10.500000000Z stderr F {text}")
    return "".join(f"{row}\n" for row in rows).encode()


def as_docker(lines):
    rows = []
    for said in lines:
        text = said.text + "\n"
        rows += [
            {"log": text[at : at + 16_384], "stream": "stderr", "time": "2026-11-29T12:00:10.5Z"}
            for at in range(0, len(text), 16_384)
        ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize("fake", FAKE[:1] + FAKE[-2:])
@pytest.mark.parametrize("render", [story.as_json, story.as_export, story.as_short])
def test_what_imitates_a_crash_at_the_head_of_a_piece_is_none(fake, render):
    lines = [*story.starting(), *asked(fake), *asked(fake, 2 * MAX), *story.serving(10_600, 20)]
    assert crashes_of(render(lines)) == []


@pytest.mark.parametrize("render", [story.as_json, story.as_short])
def test_nor_is_it_where_the_requests_text_goes_on_over_lines(render):
    first = pieces(ASKED + "x" * (MAX - len(ASKED)) + FAKE[0])
    rest = [Said(text, MAIN, 10_500) for text in [*FAKE[1:], ENDED]]
    lines = [*story.starting(), *first, *rest, *story.serving(10_600, 20)]
    assert crashes_of(render(lines)) == []


@pytest.mark.parametrize("render", [story.as_json, story.as_export])
def test_a_line_that_journald_broke_at_its_nuls_is_one(render):
    parts = [f"[{stamp(10_500)}] Receive: obj=GenerateReqInput(text='a", *FAKE, "b', n={'n': 1}, stream=True)"]
    said = [Said(part, MAIN, 10_500, {"_LINE_BREAK": "nul"} if part is not parts[-1] else {}) for part in parts]
    assert crashes_of(render([*story.starting(), *said, *story.serving(10_600, 20)])) == []


@pytest.mark.parametrize("render", [as_cri, as_docker])
def test_a_container_engines_pieces_are_no_lines(render):
    whole = ASKED + "x" * (16_384 - len(ASKED)) + FAKE[-2] + ENDED
    healthy = [said for said in [*story.starting(), *story.serving(10_000, 20)] if said.pid > 1]
    assert crashes_of(render([*healthy, Said(whole), *healthy[-9:]])) == []
    (crash,) = crashes_of(render([*healthy, Said(whole), *story.rank_crash(12_000, 3), *story.parent_gives_up(12_100)]))
    assert (crash.root.cause.exception, crash.outcome) == ("AttributeError", Outcome.FATAL)


def test_flags_behind_the_first_piece_are_read():
    flags = f"[{stamp(900)}] server_args=ServerArgs(tp_size=2, a='{'x' * 2 * MAX}', page_size=64, api_key='sk-secret')"
    assembler = Assembler()
    for batch in StreamSource("x", io.BytesIO(story.as_json(pieces(flags, ms=900)))).batches():
        for line in batch.lines:
            assembler.feed(line)
    (context,) = assembler.contexts().values()
    assert (context.flags["tp_size"], context.flags["page_size"]) == ("2", "64")
    assert "sk-secret" not in str(context.flags)


def test_a_crash_right_behind_a_line_that_just_fits_is_found():
    """journald cannot say whether a line of just its limit goes on: the next one may be taken for its rest."""
    fits = Said("x" * MAX, MAIN, 11_999, BROKEN)
    crash = [Said(said.text, MAIN, said.ms) for said in story.rank_crash(12_000, 3)]
    (crash,) = crashes_of(story.as_json([*story.starting(), fits, *crash, *story.unit_failed(12_400)]))
    assert (crash.root.cause.exception, len(crash.root.cause.frames)) == ("AttributeError", len(story.FRAMES))


def test_a_line_that_just_fits_does_not_hold_the_cursor_for_ever():
    assembler = Assembler()
    fits = story.as_json([*story.starting(), Said("x" * MAX, MAIN, 11_000, BROKEN)])
    for batch in StreamSource("x", io.BytesIO(fits)).batches():
        for line in batch.lines:
            assembler.feed(line)
    assert not assembler.idle
    assembler.tick(story.START + 17_000_000)
    assert assembler.idle


def test_a_crash_whose_message_came_in_pieces_is_the_same_as_in_the_text():
    last = "ValueError: " + "y" * 60_000
    crash = story.rank_crash(12_000, 3, last)
    broken = [part for said in crash for part in (pieces(said.text, ms=12_000, pid=said.pid))]
    (plain,) = crashes_of(story.as_text([*story.starting(), *crash, *story.parent_gives_up(12_100)]))
    (kept,) = crashes_of(story.as_json([*story.starting(), *broken, *story.parent_gives_up(12_100)]))
    assert plain.id == kept.id
    assert plain.root.chain == kept.root.chain


def test_what_is_kept_of_long_source_lines_is_bounded():
    assembler = Assembler()
    tracemalloc.start()
    assembler.feed(Line("Traceback (most recent call last):", n=1))
    for n in range(590):
        assembler.feed(Line(f'  File "/x/{n}.py", line {n}, in f', n=n))
        assembler.feed(Line("    " + chr(97 + n % 26) * 100_000, n=n))
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 2_000_000
