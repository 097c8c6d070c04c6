"""What watch counts, by the names that /metrics tells."""

from __future__ import annotations

from triage.meter import Meter
from triage.model import Batch, Crash, Failure, Finding, Line, Link, Outcome, Phase, Role, Severity, Signature


def told(meter: Meter) -> dict[tuple[str, ...], float]:
    return {(c.name, *(value for _, value in c.labels)): c.value for c in meter.counters()}


def test_lines_are_counted_by_unit_and_lag_is_that_of_the_newest_line() -> None:
    meter = Meter()
    meter.saw(Batch((Line("a", unit="x", time=1_000_000), Line("b", unit="x", time=2_000_000), Line("k"))), 5_000_000)
    assert told(meter)["lines_total", "x"] == 2
    assert told(meter)["lines_total", ""] == 1
    assert told(meter)["lag_seconds", "x"] == 3.0


def test_a_quiet_unit_has_no_lag() -> None:
    meter = Meter()
    meter.saw(Batch((Line("a", unit="x", time=1_000_000),)), 5_000_000)
    meter.saw(Batch(()), 9_000_000)
    assert told(meter)["lag_seconds", "x"] == 0.0


def test_every_diagnosis_is_in_one_bucket_even_one_that_fails() -> None:
    root = Failure(Role.ROOT, (Link("ValueError", "x"),), ())
    crash = Crash("id", "n1", Phase.SERVING, Outcome.FATAL, root, (root,), (), ())
    meter = Meter()
    measured = meter.timed(lambda crash: Finding(crash, Signature(1, "k", "t", ()), Severity.ERROR))
    measured(crash)
    measured(crash)
    values = told(meter)
    assert values["rule_seconds_bucket", "+Inf"] == 2 == values["rule_seconds_count",]
    assert values["rule_seconds_sum",] > 0
