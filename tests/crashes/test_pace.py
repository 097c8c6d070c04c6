"""How fast a server was stands in its own lines; reading them costs nothing that counts."""

from __future__ import annotations

from tests.crashes import story
from triage.engine.assemble import Assembler
from triage.engine.milestones import Progress
from triage.engine.pace import COUNTED, Speedometer
from triage.model import Line, Origin, Phase

NEW = (
    "[2026-03-02 09:14:55 TP0] Decode batch, #running-req: {n}, #token: 21, token usage: 0.00, accept len: 3.52, "
    "accept rate: 0.44, cuda graph: True, gen throughput (token/s): {speed}, #queue-req: 0"
)
OLD = (
    "[2025-03-02 09:14:55 TP0] Decode batch. #running-req: 2, #token: 21, token usage: 0.00, "
    "gen throughput (token/s): 50.5, #queue-req: 0"
)


def test_lines_of_old_and_new_releases_tell_load_speed_and_drafts() -> None:
    meter = Speedometer()
    meter.note(NEW.format(n=1, speed="41.90"))
    meter.note(OLD)
    one, two = meter.pace()
    assert (one.running, one.speed, one.accepted) == (1, 41.9, 3.52)
    assert (two.running, two.speed, two.accepted) == (2, 50.5, 0.0)


def test_a_pause_between_requests_does_not_make_it_slow() -> None:
    meter = Speedometer()
    for speed in ("40", "41", "3", "42", "40", "2", "41", "40"):
        meter.note(NEW.format(n=1, speed=speed))
    assert meter.pace()[0].speed >= 40


def test_of_many_lines_a_few_are_read_and_nothing_grows() -> None:
    meter = Speedometer()
    for number in range(5000):
        meter.note(NEW.format(n=number % 3, speed="40"))
    assert sum(one.samples for one in meter.pace()) <= 3 * 64


def test_hostile_numbers_do_no_harm() -> None:
    meter = Speedometer()
    meter.note(NEW.format(n="9" * 400, speed="1.2.3"))
    assert meter.pace()[0].speed == 0.0


def test_answers_are_counted_from_readiness_on_and_not_without_end() -> None:
    progress = Progress()
    answer = '[2026-03-02 09:14:55] INFO:     127.0.0.1:4711 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    progress.answer(answer)
    assert progress.context().answered == 0
    progress.note("The server is fired up and ready to roll!", Line("x"))
    progress.answer(answer)
    progress.answer('INFO:     127.0.0.1:4711 - "GET /health HTTP/1.1" 200 OK')
    assert progress.context().answered == 1
    for _ in range(200):
        progress.answer(answer)
    assert progress.context().answered == COUNTED


def test_a_restarted_watch_knows_what_it_knew() -> None:
    first = Speedometer()
    first.note(NEW.format(n=1, speed="41.90"))
    again = Speedometer(7, first.pace())
    assert again.answered == 7
    assert again.pace() == first.pace()
    again.note(NEW.format(n=1, speed="20"))
    assert again.pace()[0].speed == 20.0


def test_a_server_that_told_nothing_of_its_start_is_at_work_with_its_first_step() -> None:
    """A log that lost its beginning: were the start awaited for ever, every line would be read."""
    assembler = Assembler()
    about = {"unit": story.UNIT, "invocation": story.RUN, "time": story.START}
    assembler.feed(Line(f"Started {story.UNIT}.", origin=Origin.MANAGER, **about))
    assert not assembler.quiet
    assembler.feed(Line(NEW.format(n=1, speed=50.0), **about))
    assert assembler.quiet
    (context,) = assembler.contexts().values()
    assert context.phase is Phase.SERVING
