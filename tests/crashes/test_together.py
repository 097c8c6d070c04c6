"""Several servers in one text: where its lines say whose they are, each has its own crash."""

from dataclasses import replace

import pytest

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import Said

OTHER = "sglang-other.service"
UP = story.starting(2)
CRASH = [*UP, *story.rank_crash(12_000, 1), *story.parent_gives_up(12_300)]
SERVES = [*UP, *story.serving(10_000, 200)]


def other(lines: list[Said]) -> list[Said]:
    """The same of another server, which fails of something else."""
    words = (("AttributeError", "KeyError"), (story.UNIT, OTHER))
    for old, new in words:
        lines = [replace(said, text=said.text.replace(old, new)) for said in lines]
    return [replace(said, unit=OTHER) for said in lines]


def told(data: bytes) -> list[tuple[object, ...]]:
    return [
        (crash.unit, crash.root.cause.exception, crash.root.rank, crash.outcome.value, crash.grade.value)
        for crash in crashes_of(data)
    ]


def behind(names: tuple[str, str], one: list[Said], two: list[Said]) -> bytes:
    lanes = zip(names, (one, two), strict=True)
    lines = [[replace(said, text=name + said.text) for said in lane if said.pid != 1] for name, lane in lanes]
    return story.as_text(story.interleaved(lines))


TIME = "2026-11-29T12:00:12.123456789Z "
CONTAINERS = {
    "compose": (("engine-1  | ", "engine-2  | "), ("engine-1", "engine-2")),
    "kubectl": (("[pod/a-0/main] ", "[pod/b-0/main] "), ("pod/a-0/main", "pod/b-0/main")),
    "swarm": (
        (f"{TIME}llm_a.1.k2hq@ash    | ", f"{TIME}llm_b.1.k2hr@ash    | "),
        ("llm_a.1.k2hq@ash", "llm_b.1.k2hr@ash"),
    ),
}


@pytest.mark.parametrize("form", CONTAINERS)
def test_two_containers_in_one_text_have_a_crash_each(form):
    heads, (a, b) = CONTAINERS[form]
    first = (a, "AttributeError", "TP1", "fatal", "complete")
    second = (b, "KeyError", "TP1", "fatal", "complete")
    assert told(behind(heads, CRASH, other(CRASH))) == [first, second]
    assert told(behind(heads, CRASH, other(SERVES))) == [first]  # another server that works does not outlive it
    assert told(behind(heads, SERVES, other(CRASH))) == [second]


def test_a_container_that_starts_again_amid_anothers_lines_counts_each_time():
    again = [*CRASH, *CRASH]
    found = told(behind(CONTAINERS["compose"][0], SERVES, other(again)))
    assert [(unit, exception) for unit, exception, *_ in found] == [("engine-2", "KeyError")] * 2


def test_nodes_and_ranks_of_one_server_have_one():
    text = behind(CONTAINERS["compose"][0], CRASH, CRASH)
    assert len(told(text.replace(b"tp_size=8", b"tp_size=8, nnodes=2"))) == 1
    assert len(told(behind(("[1,0]<stdout>:", "[1,1]<stdout>:"), CRASH, CRASH))) == 1
    assert len(told(behind(("engine-1  | ", "engine-1  | "), CRASH, []))) == 1


def test_flags_that_somebody_quotes_make_no_server_of_a_container():
    quoted = [
        replace(said, text=said.text.replace("server_args", "asked for server_args"))
        for said in UP
        if "server_args" in said.text
    ]
    router = [*quoted, *story.serving(10_000, 20)]
    assert told(behind(("engine-1  | ", "router-1  | "), CRASH, router))[0][:2] == (None, "AttributeError")


def with_unit(lines: list[Said]) -> bytes:
    """`journalctl -o with-unit` of several units."""
    out = ""
    for said in lines:
        who = "init.scope[1]" if said.pid == 1 else f"{said.unit}[{said.pid}]"
        out += f"Sun 2026-11-29 12:00:{said.ms // 1000:02d} UTC gpu-ash {who}: {said.text}\n"
    return out.encode()


def test_two_units_in_one_text_that_names_them_have_a_crash_each():
    ended = [*CRASH, *story.unit_failed(12_500)]
    first = (story.UNIT, "AttributeError", "TP1", "fatal", "complete")
    second = (OTHER, "KeyError", "TP1", "fatal", "complete")
    assert told(with_unit(story.interleaved([ended, other(ended)]))) == [first, second]
    assert told(with_unit(story.interleaved([ended, other(SERVES)]))) == [first]
    assert told(with_unit(story.interleaved([SERVES, other(ended)]))) == [second]
    again = [*ended, *ended]
    assert told(with_unit(again)) == [first, first]


def short(lines: list[Said], idents: dict[str, str]) -> bytes:
    """`journalctl` of several units, whose `SyslogIdentifier=` is given."""
    out = ""
    for said in lines:
        who = "systemd[1]" if said.pid == 1 else f"{idents[said.unit]}[{said.pid + 900 * (said.unit == OTHER)}]"
        out += f"2026-11-29T12:00:{said.ms // 1000:02d}+00:00 gpu-ash {who}: {said.text}\n"
    return out.encode()


STEMS = {story.UNIT: story.UNIT.removesuffix(".service"), OTHER: OTHER.removesuffix(".service")}


@pytest.mark.parametrize("idents", [STEMS, {story.UNIT: "oak", OTHER: "elm"}])
def test_two_servers_that_journalctls_identifiers_tell_apart_have_a_crash_each(idents):
    a, b = idents[story.UNIT], idents[OTHER]
    first, second = [(name, "TP1", "fatal", "complete") for name in ("AttributeError", "KeyError")]
    both = told(short(story.interleaved([CRASH[1:], other(CRASH)[1:]]), idents))
    assert [each[1:] for each in both] == [first, second]
    assert both[1][0] == b != a
    assert [each[1:] for each in told(short(story.interleaved([CRASH[1:], other(SERVES)[1:]]), idents))] == [first]
    assert [each[1:] for each in told(short(story.interleaved([SERVES[1:], other(CRASH)[1:]]), idents))] == [second]


def test_the_managers_words_go_to_the_server_whose_identifier_is_the_units_name():
    ended = [*CRASH, *story.unit_failed(12_500)]
    later = [replace(said, text=said.text.replace(story.UNIT, OTHER)) for said in story.unit_failed(13_500)]
    told_of = told(short(story.interleaved([ended, [*other(CRASH), *[replace(s, unit=OTHER) for s in later]]]), STEMS))
    assert [(exception, outcome, grade) for _, exception, _, outcome, grade in told_of] == [
        ("AttributeError", "fatal", "complete"),
        ("KeyError", "fatal", "complete"),
    ]
    alive = told(short(story.interleaved([SERVES, [*other(CRASH), *[replace(s, unit=OTHER) for s in later]]]), STEMS))
    assert [(exception, outcome, grade) for _, exception, _, outcome, grade in alive] == [
        ("KeyError", "fatal", "complete")
    ]


def test_two_servers_under_one_identifier_are_mixed():
    idents = {story.UNIT: "python3", OTHER: "python3"}
    found = told(short(story.interleaved([CRASH[1:], other(CRASH)[1:]]), idents))
    assert {grade for *_, grade in found} == {"mixed"}


def test_a_container_engines_number_is_no_servers_name():
    """It is another at each start, so what a start left to the next one would be lost."""
    idents = {story.UNIT: "3f2a9c0d1b7e", OTHER: "77aa9c0d1b7e"}
    found = told(short([*CRASH[1:], *other(CRASH)[1:]], idents))
    assert [unit for unit, *_ in found] == [None, None]
