"""The crash triage was born from, by every road in: eight ranks, one root, one crash."""

import gzip
import lzma

import pytest
import zstandard

from tests.crashes import story
from tests.crashes.scanning import crashes_of, documents_of, events_of
from triage.engine.signature import sign
from triage.model import Change, Outcome, Phase, Role

ROADS = {
    "text": story.as_text,
    "short": story.as_short,
    "json": story.as_json,
    "export": story.as_export,
    "export-binary": lambda lines: story.as_export(lines, binary=True),
    "gzip": lambda lines: gzip.compress(story.as_text(lines)),
    "xz": lambda lines: lzma.compress(story.as_json(lines)),
    "zstd": lambda lines: zstandard.compress(story.as_export(lines)),
}


@pytest.mark.parametrize("road", ROADS)
def test_eight_ranks_are_one_crash_with_one_root(road):
    (crash,) = crashes_of(ROADS[road](story.story()))
    root = crash.root.cause
    assert (root.exception, root.message) == ("AttributeError", "'NoneType' object has no attribute 'hidden_states'")
    assert root.frame is not None
    assert (root.frame.file, root.frame.function, root.frame.line) == ("dflash_worker.py", "_take_draft_hidden", 715)
    assert sorted(crash.ranks) == [f"TP{n}" for n in range(8)]
    assert crash.ranks[0] == crash.root.rank
    assert crash.outcome is Outcome.FATAL
    assert crash.phase is Phase.SERVING
    same = [f for f in crash.failures if f.role is Role.CASCADE and f.cause.exception == "AttributeError"]
    assert len(same) == 7


def test_the_same_crash_has_the_same_id_and_signature_by_every_road():
    crashes = [crashes_of(render(story.story()))[0] for render in ROADS.values()]
    assert len({crash.id for crash in crashes}) == 1
    assert len({sign(crash).key for crash in crashes}) == 1


def test_the_crash_opens_with_the_first_exception_and_keeps_its_key():
    lines = story.story()
    first = next(n for n, said in enumerate(lines) if said.text == story.NONE_TYPE)
    (opened,) = events_of(story.as_json(lines[: first + 1]))[:1]
    assert opened.change is Change.OPENED
    everything = events_of(story.as_json(lines))
    assert {event.crash.key for event in everything} == {opened.crash.key}
    assert [event.change for event in everything][:: len(everything) - 1] == [Change.OPENED, Change.CLOSED]
    assert everything[0].crash.outcome is Outcome.UNKNOWN


def test_the_journal_names_host_unit_and_invocation_and_the_end():
    (crash,) = documents_of(story.as_export(story.story()))
    assert (crash["host"], crash["unit"], crash["invocation"]) == (story.HOST, story.UNIT, story.RUN)
    assert crash["end"]["result"] == "signal"
    assert crash["started"] == "2026-11-29T12:00:12Z"


def test_flags_are_known_and_the_key_is_not():
    (crash,) = documents_of(story.as_text(story.story()))
    flags = crash["context"]["flags"]
    assert flags["speculative_dflash_block_size"] == "8"
    assert flags["extra"] == "{'a': (1, 2)}"
    assert "api_key" not in flags
    assert "sk-not-to-be-seen" not in str(crash)


def test_a_restart_loop_counts_each_crash():
    one = story.story()
    again = [story.Said(s.text, s.pid, s.ms + 60_000, s.fields, "f" * 32, s.unit) for s in one]
    first, second = crashes_of(story.as_json([*one, *again]))
    assert first.id == second.id
    assert first.key != second.key
    assert second.outcome is Outcome.FATAL


def test_what_changed_since_the_last_good_run_is_told():
    good = story.story()
    bad = [
        story.Said(
            s.text.replace("disable_cuda_graph=False", "disable_cuda_graph=True, random_seed=7"),
            s.pid,
            s.ms + 60_000,
            s.fields,
            "f" * 32,
        )
        for s in good
    ]
    first, second = documents_of(story.as_json([*good, *bad]))
    assert first["context"]["changed"] is None
    assert second["context"]["changed"] == [{"name": "disable_cuda_graph", "before": "False", "now": "True"}]
    (_, again) = documents_of(story.as_text([*good, *bad]))
    assert again["context"]["changed"] == second["context"]["changed"]
