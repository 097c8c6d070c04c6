"""The benchmark's own parts: traffic that is the same each time, and a page that says which peer is missing."""

from itertools import islice

from benchmarks.__main__ import Row, told
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
    rows = [Row("peer", None, "", ""), Row("loop", ("x",), "", "", [1.0, 2.0]), Row("own", ("x",), "loop", "2", [1, 3])]
    page = told(rows, 10, 2)
    assert "| peer | not run: it is missing here |" in page
    assert "| own | 2.00 | loop | 1.25 | 2 |" in page
