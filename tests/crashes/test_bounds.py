"""What the lanes keep is bounded, however many processes begin a traceback."""

from triage.engine.lanes import MAX_LANES, Lanes
from triage.engine.lines import parse
from triage.model import Line


def test_of_processes_that_all_begin_a_traceback_the_newest_are_kept():
    lanes = Lanes()
    text = "Traceback (most recent call last):"
    for pid in range(1, MAX_LANES * 2):
        lanes.feed(Line(text, pid=pid), parse(text), pid)
    assert len(lanes._open) <= MAX_LANES
