"""Speeds are compared at equal loads, and only then."""

from __future__ import annotations

from triage.model import Pace
from triage.speed import compare


def test_half_the_speed_is_half() -> None:
    found = compare((Pace(1, 10, 80.0), Pace(8, 30, 400.0)), (Pace(1, 10, 40.0), Pace(8, 30, 200.0)))
    assert found.share == 0.5
    assert "0.50 of the speed before (400.0 -> 200.0 tokens/s by its own lines)" in found.text


def test_more_running_requests_are_no_slowness() -> None:
    found = compare((Pace(1, 50, 80.0),), (Pace(16, 50, 20.0),))
    assert found.share is None
    assert found.text == "no speed is known to compare with"


def test_a_few_lines_prove_nothing() -> None:
    assert compare((Pace(1, 2, 80.0),), (Pace(1, 50, 20.0),)).share is None


def test_drafts_that_are_not_accepted_any_more_show() -> None:
    found = compare((Pace(1, 10, 80.0, 3.6),), (Pace(1, 10, 79.0, 1.0),))
    assert found.accepted is not None
    assert round(found.accepted, 2) == 0.28


def test_without_speculation_before_nothing_is_accepted_less() -> None:
    assert compare((Pace(1, 10, 80.0, 0.0),), (Pace(1, 10, 79.0, 0.0),)).accepted is None


def test_a_timed_request_decides_where_the_lines_cannot() -> None:
    found = compare((), (), 60.0, 20.0)
    assert found.share is not None
    assert round(found.share, 2) == 0.33
    assert "for one request" in found.text


def test_a_timed_request_among_others_says_nothing() -> None:
    assert compare((), (Pace(1, 3, 60.0), Pace(30, 40, 500.0)), 60.0, 20.0).share is None


def test_without_speculation_after_only_the_speed_counts() -> None:
    found = compare((Pace(1, 10, 80.0, 3.6),), (Pace(1, 10, 30.0, 0.0),))
    assert (found.accepted, found.share) == (None, 0.375)
