"""Logs that a viewer saved as CSV."""

import csv
import io
import json
from datetime import UTC, datetime

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from triage.sources.table import table

LINES = [*story.starting(2)[1:], *story.rank_crash(12_000, 1), *story.parent_gives_up(12_300)]
LABELS = json.dumps({"app": "engine", "pod": "engine-0"})


def rows(lines):
    for n, said in enumerate(lines):
        micros = story.START + said.ms * 1000 + n
        yield datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="microseconds"), said.text, micros


FORMS = {
    "Grafana's": lambda lines: [["labels", "Time", "Line", "id"], *[[LABELS, t, x, str(n)] for t, x, n in rows(lines)]],
    "Grafana's, Date first": lambda lines: [["Date", "Line"], *[[t, x] for t, x, _ in rows(lines)]],
    "nanoseconds": lambda lines: [[f"{n}000", x] for _, x, n in rows(lines)],
    "milliseconds": lambda lines: [["timestamp", "message"], *[[str(n // 1000), x] for _, x, n in rows(lines)]],
}


def written(table_rows, quoting=csv.QUOTE_MINIMAL):
    out = io.StringIO()
    csv.writer(out, quoting=quoting).writerows(table_rows)
    return out.getvalue().encode()


def told(crash):
    return crash.root.chain, crash.root.rank, crash.ranks, crash.outcome, crash.grade, crash.phase


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("form", FORMS)
def test_a_table_of_a_logs_lines_is_the_log(form, quoting):
    (plain,) = crashes_of(story.as_text(LINES))
    (crash,) = crashes_of(written(FORMS[form](LINES), quoting))
    assert told(crash) == told(plain)
    assert crash.started // 1_000_000 == (story.START + 12_000_000) // 1_000_000


def test_one_that_begins_with_the_newest_row_is_read_in_order():
    head, *rest = FORMS["Grafana's"](LINES)
    (plain,) = crashes_of(story.as_text(LINES))
    (crash,) = crashes_of(written([head, *rest[::-1]]))
    assert told(crash) == told(plain)


def test_a_cell_may_hold_several_lines():
    head, *rest = FORMS["Grafana's, Date first"](story.starting(2)[1:])
    crash = "\n".join(said.text for said in story.rank_crash(12_000, 1))
    (crash,) = crashes_of(written([head, *rest, ["2026-11-29T12:00:12.000000+00:00", crash]]))
    assert (crash.root.cause.exception, crash.root.rank) == ("AttributeError", "TP1")


def test_what_is_no_such_table_is_read_as_text():
    assert table(story.as_text(LINES)) is None
    assert table(b"name,size\nmodel-1.safetensors,12\nmodel-2.safetensors,13\n") is None
    assert table(b"time,line") is None
    assert table(b'a,"b\n') is None
    (crash,) = crashes_of(b"Loaded, ready, waiting\n" + story.as_text(LINES))
    assert crash.root.rank == "TP1"


def test_a_quotation_that_does_not_end_hides_nothing_before_it():
    whole = written(FORMS["Grafana's, Date first"](LINES))
    (crash,) = crashes_of(whole + b'2026-11-29T12:00:14+00:00,"and so on\n' + b"x" * 3_000_000)
    assert (crash.root.cause.exception, crash.root.rank) == ("AttributeError", "TP1")
