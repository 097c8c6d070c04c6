"""A healthy day is no crash, whatever words are in it; `make noise` reads a million lines of it."""

from tests.crashes.noise import roads


def test_a_healthy_day_beside_other_programs_gives_nothing_fatal_or_degraded():
    found = roads(12_000)
    assert found["text"] == found["journal"] == {}
    assert {outcome for outcome, _ in found["every unit"]} <= {"unknown", "recovered"}
