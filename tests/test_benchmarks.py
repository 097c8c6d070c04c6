"""The benchmark's own parts: traffic that is the same each time, and a page that says which peer is missing."""

import pickle
from itertools import islice

from benchmarks.__main__ import Row, told, told_others
from benchmarks.ruled import write_rules
from benchmarks.traffic import traffic, write_text
from tests.crashes.scanning import crashes_of


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    one, two = (write_text(tmp_path / name, 500).read_bytes() for name in "ab")
    assert one == two
    assert one.count(b"\n") == 500


def test_each_run_ends_in_one_fatal_crash():
    lines = list(islice(traffic(1, crash_every=1_000), 1_400))
    text = "\n".join(said.text for said in lines if said.pid > 1).encode()
    assert [crash.root.cause.exception for crash in crashes_of(text)] == ["AttributeError"]


def test_the_page_says_what_is_missing_and_gives_ratios():
    rows = [
        Row("peer", None, "", ""),
        Row("loop", ("x",), "", "", seconds=[1.0, 2.0]),
        Row("own", ("x",), "loop", "2", seconds=[1, 3]),
    ]
    page = told(rows, 10, 2)
    assert "| peer | not run: it is missing here |" in page
    assert "| own | 2.00 | loop | 1.25 | 2 |" in page


def test_a_slow_peer_is_held_against_by_line():
    rows = [Row("own", ("x",), "", "", 1000, None, [1.0]), Row("peer", ("x",), "own", ">= 50 a line", 100, None, [8.0])]
    assert "| peer | 8.00 | own | 80.00 | >= 50 a line |" in told(rows, 10, 1)


def test_what_could_not_run_is_said_to_be_so():
    assert told_others(None, None).count("not run here") == 6
    live = {"row": {"crashes": 9, "p50_ms": 20.0, "p99_ms": 70.0}, "idle": {"core_percent": 1.5}, "private_mb": 50.0}
    page = told_others({"first_ms": 104.0, "again_ms": 0.2}, live)
    assert "| p99, of 9 crashes | 70.0 ms | 100 ms |" in page


def test_more_rules_are_other_rules(tmp_path):
    rules = pickle.loads(write_rules(tmp_path / "rules", 500).read_bytes())
    assert len({rule.id for rule in rules}) == 500
