"""What the lanes keep is bounded, however many tracebacks begin, and so is what a further line costs."""

import sys

import pytest

from tests.crashes.scanning import crashes_of
from triage.engine import lanes, mixing
from triage.engine.lanes import MAX_LANES, MAX_SAME, Lanes
from triage.engine.lines import parse
from triage.model import Line

HEADER = "Traceback (most recent call last):"
FRAME = '  File "/opt/sglang/srt/layers/topk.py", line 415, in select_experts'
HALVES = {
    "a header": [HEADER],
    "a header and a frame": [HEADER, FRAME],
    "a header, a frame and its source": [HEADER, FRAME, "    topk(logits)"],
    "every second one whole": [HEADER, FRAME, HEADER, FRAME, "ValueError: no room"],
}


def work(lines):
    """How many lines of triage's own code run to read these."""
    ran = 0

    def count(_frame, event, _arg):
        nonlocal ran
        ran += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        crashes_of("\n".join(lines).encode())
    finally:
        sys.settrace(before)
    return ran


def test_of_processes_that_all_begin_a_traceback_the_newest_are_kept():
    kept = Lanes()
    for pid in range(1, MAX_LANES * 2):
        kept.feed(Line(HEADER, pid=pid), parse(HEADER), pid)
    assert len(kept._open) <= MAX_LANES


@pytest.mark.parametrize("half", HALVES)
def test_of_tracebacks_that_one_writer_begins_the_newest_are_kept(half):
    kept = Lanes()
    for text in HALVES[half] * (MAX_SAME * 3):
        kept.feed(Line(text), parse(text), None)
    assert len(kept._open) <= MAX_SAME


@pytest.mark.parametrize("half", HALVES)
def test_half_tracebacks_cost_the_same_however_many_there_are(half, monkeypatch):
    """Once so many are open as are kept, twice the lines are twice the work."""
    monkeypatch.setattr(lanes, "MAX_SAME", 32)
    monkeypatch.setattr(mixing, "MAX_MIX", 128)
    few, many = (work(HALVES[half] * times) for times in (64, 128))
    assert many < 3 * few
