"""Rules and a crash come in, matches go out, best first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.crashes import book, crash, link, rule, write
from triage.document import find_remedy, remedy_document
from triage.model import Failure, Line, Link, Outcome, Phase, Role, UnitEnd
from triage.rulebase.evidence import Evidence
from triage.rulebase.offer import fill
from triage.rulebase.rulebook import Rulebook
from triage.rulebase.spelling import respelled
from triage.shipped import rule_folders

REMEDY = """remedies:
  - id: cap
    kind: flag
    title: "Cap at {limit}"
    cost: "Some speed"
    confirmed: true
    edits: [{op: cap-flag, name: [--a-tokens, --b-tokens], value: "{limit}"}]
  - id: newer
    kind: upgrade
    title: Newer
    cost: A new release
    confirmed: false
    versions: sglang>=0.5.15
"""


def ids(folder: Path, *args: object, **kwargs: object) -> list[str]:
    return [m.rule for m in book(folder).match(crash(*args, **kwargs))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("match", "hits"),
    [
        ("{exception: [AttributeError, TypeError]}", True),
        ("{exception: [torch.AttributeError]}", False),
        ("{exception: [KeyError]}", False),
        ("{message: \"'NoneType' object has no attribute '(?P<name>[a-z_]+)'\"}", True),
        ("{exception: [RuntimeError], message: NoneType}", False),  # both hold, but not for one link
        ("{exception: [RuntimeError], message: Capture cuda graph failed}", True),
        ("{at: 'dflash_*.py'}", True),
        ("{at: 'dflash_*.py:draft'}", True),
        ("{at: 'scheduler.py'}", False),  # only the outermost frame is there
        ("{at: 'sglang/dflash_*.py:draft'}", True),
        ("{at: 'lang/dflash_*.py'}", False),  # a folder is named whole
        ("{at: 'srt/dflash_*.py'}", False),
        ("{frame: 'scheduler.py:run_*'}", True),
        ("{exception: AttributeError, phase: [capture]}", False),
        ("{exception: AttributeError, phase: [serving]}", True),
        ("{exception: AttributeError, outcome: [unknown]}", False),
        ("{lines: 'TP3[^\\n]*hit an exception'}", True),
        ("{exception: AttributeError, flags: {flag: [draft_tokens, block_size], above: 8}}", True),
        ("{exception: AttributeError, flags: {flag: draft_tokens, above: 16}}", False),
        ("{exception: AttributeError, flags: {flag: other, above: 8}}", False),
        ("{exception: AttributeError, flags: {flag: other, above: 8, or_unknown: true}}", True),
        ("{exception: AttributeError, flags: {flag: algorithm, is: dflash}}", True),
        ("{exception: AttributeError, flags: {flag: algorithm, present: false}}", False),
        ("{exception: AttributeError, unless: {message: NoneType}}", False),
        ("{exception: AttributeError, unless: [{message: ZeroType}, {phase: [load]}]}", True),
        ("{unit: {result: [core-dump], status: [ABRT, SEGV]}}", True),
        ("{unit: {result: [oom-kill]}}", False),
    ],
)
def test_a_clause_holds_when_all_it_says_holds(tmp_path: Path, match: str, hits: bool) -> None:
    write(tmp_path, "one", rule(match))
    found = ids(
        tmp_path,
        link(
            "AttributeError",
            "'NoneType' object has no attribute 'hidden'",
            "scheduler.py:run_batch",
            "dflash_w.py:draft",
        ),
        link("RuntimeError", "Capture cuda graph failed: something"),
        lines=("[2026-01-01 00:00:00 TP3] Scheduler hit an exception: Traceback",),
        flags={"draft_tokens": "16", "algorithm": "'DFLASH'"},
        end=UnitEnd("core-dump", "dumped", "SEGV"),
    )
    assert found == (["one"] if hits else [])


def test_one_of_several_clauses_is_enough(tmp_path: Path) -> None:
    write(tmp_path, "one", rule("[{exception: KeyError}, {exception: ValueError}]"))
    assert ids(tmp_path, link("ValueError", "x")) == ["one"]


def test_the_more_specific_rule_comes_first_and_rank_has_the_last_word(tmp_path: Path) -> None:
    write(tmp_path, "broad", rule("{exception: OutOfMemoryError}"))
    write(tmp_path, "narrow", rule("{exception: OutOfMemoryError, message: out of memory, phase: [serving]}"))
    write(tmp_path, "sure", rule("{exception: OutOfMemoryError}", "confidence: 0.9\n"))
    oom = link("torch.OutOfMemoryError", "CUDA out of memory")
    assert ids(tmp_path, oom) == ["narrow", "sure", "broad"]
    write(tmp_path, "broad", rule("{exception: OutOfMemoryError}", "rank: 1\n"))
    assert ids(tmp_path, oom)[0] == "broad"


def test_captures_fill_texts_and_edits(tmp_path: Path) -> None:
    write(tmp_path, "one", rule("{message: 'at most (?P<limit>\\d+) tokens'}", REMEDY))
    (match,) = book(tmp_path).match(crash(link("ValueError", "at most 8 tokens, not 16")))
    cap = match.remedies[0]
    assert match.captures == {"limit": "8"}
    assert (cap.title, cap.applicable, cap.blocked_by) == ("Cap at 8", True, None)
    assert [(e.op, e.name, e.value) for e in cap.edits] == [
        ("cap-flag", "--a-tokens", 8),
        ("cap-flag", "--b-tokens", 8),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("It is {moon} ({sun})", "It is full"),
        ("It is {moon} ({sun}{moon})", "It is full (full)"),
        ("It is {moon} ({sun}{moon}, then dark)", "It is full (full, then dark)"),
        ("It is {sun}", "It is …"),
        ("It is dark ({sun} at {moon})", "It is dark (… at full)"),
        ("It is dark ({none}) {none}now", "It is dark now"),
    ],
)
def test_what_the_log_did_not_tell_leaves_no_hole(text: str, told: str) -> None:
    assert fill(text, {"moon": "full", "none": ""}) == told


def test_a_rung_whose_flag_the_log_does_not_name_is_left_out(tmp_path: Path) -> None:
    rung = "{id: give, kind: flag, title: 'Give {flag_name}', cost: none, confirmed: false, edits: [EDIT]}"
    edit = "{op: set-flag, name: '{flag_name}', value: 4}"
    ladder = f"remedies: [{rung.replace('EDIT', edit)}]\n"
    write(tmp_path, "one", rule("{message: 'herons want (?:(?P<flag_name>--[a-z-]+)|more)'}", ladder))
    crashes = [crash(link("ValueError", f"herons want {what}")) for what in ("--page-size", "more")]
    offered = [book(tmp_path).match(one)[0].remedies for one in crashes]
    assert [[rung.title for rung in rungs] for rungs in offered] == [["Give --page-size"], []]


def test_a_remedy_whose_value_the_log_does_not_tell_is_blocked_and_goes_behind(tmp_path: Path) -> None:
    write(tmp_path, "one", rule("{message: 'at most (?:(?P<limit>\\d+)|many) tokens'}", REMEDY))
    (match,) = book(tmp_path).match(crash(link("ValueError", "at most many tokens")))
    assert [r.id for r in match.remedies] == ["newer", "cap"]
    assert match.remedies[1].blocked_by == "the log does not tell the limit that the edit needs"
    assert not match.remedies[1].applicable


def test_a_captured_name_of_a_flag_has_to_be_one(tmp_path: Path) -> None:
    more = (
        REMEDY.replace("[--a-tokens, --b-tokens]", '"{limit}"')
        .replace("cap-flag", "remove-flag")
        .replace(', value: "{limit}"', "")
    )
    write(tmp_path, "one", rule("{message: 'unrecognized arguments: (?P<limit>.+)'}", more))
    (good,) = book(tmp_path).match(crash(link("UsageError", "unrecognized arguments: --turbo")))
    assert good.remedies[0].edits[0].name == "--turbo"
    (bad,) = book(tmp_path).match(crash(link("UsageError", "unrecognized arguments: --turbo; rm")))
    assert bad.remedies[-1].blocked_by == "'--turbo; rm' is no flag"


NAMED = """remedies:
  - id: give
    kind: flag
    title: "Start with {want}"
    cost: Some.
    confirmed: false
    edits:
      - {op: set-flag, name: "{want}", value: "{value}"}
  - id: take
    kind: flag
    title: "Start without {drop}"
    cost: Some.
    confirmed: false
    edits:
      - {op: remove-flag, name: "{drop}"}
  - id: set
    kind: env
    title: "Set {variable}"
    cost: Some.
    confirmed: false
    edits:
      - {op: set-env, name: "{variable}", value: "1"}
  - id: by-hand
    kind: advice
    title: "Give {want} a value"
    cost: Nothing.
    confirmed: false
"""
SAYS = "(?:use (?P<want>\\S+)(?: to be (?P<value>\\w+))?|not (?P<drop>\\S+)|export (?P<variable>\\S+)|neither)"


@pytest.mark.parametrize(
    ("message", "flags", "rung", "why"),
    [
        ("use --attention-backend to be triton", {}, "give", None),
        ("use --disable-radix-cache to be sure", {}, "give", None),
        ("use --attention-backend", {}, "give", "the log does not tell the value that the edit needs"),
        ("use --attention-backend to be evil", {}, "give", "--attention-backend takes no evil"),
        ("use --moonlight to be full", {}, "give", "no release of sglang has --moonlight"),
        (
            "use --trust-remote-code",
            {},
            "give",
            "--trust-remote-code is never changed by triage, whatever the policy says",
        ),
        ("use --model to be heron", {}, "give", "--model is never changed by triage, whatever the policy says"),
        ("not --model-path", {}, "take", "--model-path is never changed by triage, whatever the policy says"),
        ("not --enable-lora", {}, "take", None),
        ("not --enable-lora", {"enable_lora": "True"}, "take", None),
        ("not --enable-lora", {"enable_lora": "None"}, "take", "the server does not run with --enable-lora"),
        ("export SGLANG_USE_AITER", {}, "set", None),
        ("export LD_PRELOAD", {}, "set", "LD_PRELOAD is never changed by triage, whatever the policy says"),
        ("export HERON_NEST", {}, "set", "no release of sglang has the variable HERON_NEST"),
        ("use --attention-backend", {}, "by-hand", None),
    ],
)
def test_a_name_out_of_a_log_is_looked_up_before_it_is_offered(
    tmp_path: Path, message: str, flags: dict[str, str], rung: str, why: str | None
) -> None:
    write(tmp_path, "one", rule(f"{{message: '{SAYS}', anchors: [ValueError]}}", NAMED))
    (match,) = book(tmp_path).match(crash(link("ValueError", message), flags=flags))
    (remedy,) = (remedy for remedy in match.remedies if remedy.id == rung)
    assert remedy.blocked_by == why
    if "radix" in message:
        assert remedy.edits[0].value is None, "what stands behind a flag without a value is none"


def test_a_rung_whose_title_needs_what_the_log_did_not_tell_is_left_out(tmp_path: Path) -> None:
    text = NAMED.replace('title: "Start with {want}"', 'title: "Start for {variable} without {drop}"').replace(
        '{op: set-flag, name: "{want}", value: "{value}"}', "{op: set-flag, name: --disable-radix-cache}"
    )
    write(tmp_path, "one", rule(f"{{message: '{SAYS}', anchors: [ValueError]}}", text))
    (match,) = book(tmp_path).match(crash(link("ValueError", "not --enable-lora")))
    assert "give" not in {remedy.id for remedy in match.remedies}
    assert match.remedies


@pytest.mark.parametrize(
    ("flags", "title"),
    [
        (
            {
                "enable_torch_compile": "True",
                "enable_dp_attention": "False",
                "kv_cache_dtype": "'fp8_e5m2'",
                "pp_size": "1",
            },
            "By hand: leave out --enable-torch-compile, --kv-cache-dtype",
        ),
        ({"kv_cache_dtype": "'auto'", "speculative_algorithm": "None"}, None),
        ({}, None),
    ],
)
def test_options_in_force_are_named(tmp_path: Path, flags: dict[str, str], title: str | None) -> None:
    rung = "{id: less, kind: advice, title: 'Leave out {switched_on}', cost: some, confirmed: false}"
    write(tmp_path, "one", rule("{message: 'the moon is full'}", f"remedies: [{rung}]\n"))
    (match,) = book(tmp_path).match(crash(link("ValueError", "the moon is full"), flags=flags))
    assert [(less.title, less.blocked_by) for less in match.remedies] == ([(title, None)] if title else [])


def test_control_characters_of_a_log_do_not_reach_the_texts(tmp_path: Path) -> None:
    write(tmp_path, "one", rule("{message: '(?s)at most (?P<limit>.+) tokens'}", REMEDY))
    (match,) = book(tmp_path).match(crash(link("ValueError", "at most \x1b[31m8\n\n9 tokens")))
    assert match.captures == {"limit": "[31m8 9"}


@pytest.mark.parametrize(
    ("more", "flags", "why"),
    [
        ("when: {release: '<0.5.15'}", {}, "it is for sglang <0.5.15, this is 0.5.20"),
        ("when: {release: '>=0.5.15'}", {}, None),
        ("requires: [--enable-lora]", {"enable_lora": "None"}, "the server does not run with --enable-lora"),
        ("requires: [--enable-lora]", {"enable_lora": "True"}, None),
        ("requires: [--enable-lora]", {}, None),
        ("conflicts: [--enable-lora]", {"enable_lora": "True"}, "it does not go together with --enable-lora"),
        (
            "known_bad: {release: '>=0.5.19,<0.5.21', why: every rank hangs}",
            {},
            "it is known to make it worse in sglang 0.5.20: every rank hangs",
        ),
        ("known_bad: {release: '<0.5.19', why: every rank hangs}", {}, None),
        (
            "known_bad: [{flags: {flag: tp_size, above: 1}, why: the ranks wait}]",
            {"tp_size": "8"},
            "it is known to make it worse here: the ranks wait",
        ),
        ("known_bad: [{flags: {flag: tp_size, above: 1}, why: the ranks wait}]", {}, None),
        ("known_bad: {release: '>=0.5.19', flags: {flag: tp_size, above: 1}, why: x}", {"tp_size": "1"}, None),
        ("when: {phase: [load]}", {}, "it helps only in load, this one came in serving"),
        ("when: {flags: {flag: tp_size, above: 1}}", {"tp_size": "1"}, "the server's --tp-size says otherwise"),
        ("when: {flags: {flag: tp_size, above: 1}}", {"tp_size": "8"}, None),
        ("when: {flags: {flag: tp_size, above: 1}}", {}, None),
    ],
)
def test_a_rung_that_does_not_fit_says_why(tmp_path: Path, more: str, flags: dict[str, str], why: str | None) -> None:
    remedies = f"""remedies:
  - {{id: a, kind: advice, title: A, cost: none, confirmed: true, {more}}}
"""
    write(tmp_path, "one", rule("{exception: ValueError}", remedies))
    (match,) = book(tmp_path).match(crash(link("ValueError", "x"), flags=flags, release="0.5.20"))
    assert match.remedies[0].blocked_by == why


@pytest.mark.parametrize(
    ("where", "flags", "first"),
    [
        ("frame: 'dflash_*.py'", {}, "b"),
        ("frame: ['ngram*.py', 'sglang/dflash_*.py:draft']", {}, "b"),
        ("frame: 'ngram*.py'", {}, "a"),
        ("flags: {flag: tp_size, above: 1}", {"tp_size": "2"}, "b"),
        ("flags: {flag: tp_size, above: 1}", {"tp_size": "1"}, "a"),
        ("flags: {flag: tp_size, above: 1}", {}, "a"),  # what the log does not tell moves nothing
        ("frame: 'dflash_*.py', flags: {flag: tp_size, above: 1}", {"tp_size": "1"}, "a"),
        ("frame: 'ngram*.py', flags: {flag: tp_size, above: 1}", {"tp_size": "2"}, "a"),
    ],
)
def test_a_rung_comes_first_where_the_crash_came_through_its_feature(
    tmp_path: Path, where: str, flags: dict[str, str], first: str
) -> None:
    remedies = f"""remedies:
  - {{id: a, kind: advice, title: A, cost: none, confirmed: false}}
  - {{id: b, kind: advice, title: B, cost: none, confirmed: false, first_where: {{{where}}}}}
"""
    write(tmp_path, "one", rule("{exception: AttributeError}", remedies))
    seen = crash(link("AttributeError", "x", "scheduler.py:run", "dflash_worker.py:draft"), flags=flags)
    (match,) = book(tmp_path).match(seen)
    assert [one.id for one in match.remedies] == [first, "b" if first == "a" else "a"]


def test_a_rung_that_does_not_fit_is_not_first_wherever_the_crash_came_through(tmp_path: Path) -> None:
    remedies = """remedies:
  - {id: a, kind: advice, title: A, cost: none, confirmed: false}
  - {id: b, kind: advice, title: B, cost: none, confirmed: false, when: {phase: load}, first_where: {frame: '*.py'}}
"""
    write(tmp_path, "one", rule("{exception: AttributeError}", remedies))
    (match,) = book(tmp_path).match(crash(link("AttributeError", "x", "dflash_worker.py:draft")))
    assert [one.id for one in match.remedies] == ["a", "b"]


@pytest.mark.parametrize("release", [None, "a-nightly-build"])
def test_where_the_log_tells_no_release_planning_asks_the_installed_one_whether_a_rung_is_bad(
    tmp_path: Path, release: str | None
) -> None:
    bad = "known_bad: [{release: '>=0.5.19,<0.5.21', why: every rank hangs}]"
    edits = "edits: [{op: set-flag, name: --disable-overlap-schedule}]"
    text = f"remedies: [{{id: a, kind: flag, title: A, cost: none, confirmed: true, {bad}, {edits}}}]\n"
    write(tmp_path, "one", rule("{exception: ValueError}", text))
    (match,) = book(tmp_path).match(crash(link("ValueError", "x"), release=release))
    (offered,) = match.remedies
    assert offered.blocked_by is None
    document = {"matches": [{"rule": "one", "remedies": [remedy_document(offered)]}]}
    _, stored = find_remedy(document, "a")  # as planning reads it out of the store
    assert respelled(stored, "0.5.20").blocked_by == "it is known to make it worse in sglang 0.5.20: every rank hangs"
    assert respelled(stored, "0.5.21").blocked_by is None
    assert respelled(stored, None).blocked_by is None


@pytest.mark.parametrize(
    ("release", "why"),
    [
        ("0.5.14", None),
        ("0.5.15", "sglang 0.5.15 is >=0.5.15 already"),
        ("0.5.20.post1", "sglang 0.5.20.post1 is >=0.5.15 already"),
        ("a-nightly-build", None),  # nobody can place it: it is not said to be new enough
        (None, None),
    ],
)
def test_an_upgrade_to_what_is_there_already_does_not_fit(tmp_path: Path, release: str | None, why: str | None) -> None:
    write(tmp_path, "one", rule("{message: 'at most (?P<limit>\\d+) tokens'}", REMEDY))
    (match,) = book(tmp_path).match(crash(link("ValueError", "at most 8 tokens"), release=release))
    assert next(r.blocked_by for r in match.remedies if r.id == "newer") == why
    onward = [r for r in match.remedies if r.id == "newer-still"]
    assert [(r.versions, r.confirmed, r.blocked_by) for r in onward] == (
        [(f"sglang>{release}", False, None)] if why else []
    )


def test_the_way_past_the_release_that_was_to_mend_it_stands_where_that_rung_stood(tmp_path: Path) -> None:
    remedies = """remedies:
  - {id: first, kind: advice, title: A, cost: none, confirmed: false}
  - {id: newer, kind: upgrade, title: B, cost: none, confirmed: true, versions: sglang>=0.5.15}
  - {id: last, kind: advice, title: C, cost: none, confirmed: false}
"""
    write(tmp_path, "one", rule("{exception: ValueError}", remedies))
    (match,) = book(tmp_path).match(crash(link("ValueError", "x"), release="0.5.20"))
    assert [r.id for r in match.remedies] == ["first", "newer-still", "last", "newer"]


def test_no_way_on_where_another_upgrade_fits(tmp_path: Path) -> None:
    remedies = """remedies:
  - {id: newer, kind: upgrade, title: B, cost: none, confirmed: true, versions: sglang>=0.5.15}
  - {id: newest, kind: upgrade, title: C, cost: none, confirmed: false, versions: sglang}
"""
    write(tmp_path, "one", rule("{exception: ValueError}", remedies))
    (match,) = book(tmp_path).match(crash(link("ValueError", "x"), release="0.5.20"))
    assert [r.id for r in match.remedies] == ["newest", "newer"]


@pytest.mark.parametrize(
    ("applies", "release", "hits"),
    [
        (">=0.5.0,<0.5.15", "0.5.12", True),
        (">=0.5.0,<0.5.15", "0.5.9.post2", True),
        (">=0.5.0,<0.5.15", "0.5.15rc1", True),
        (">=0.5.0,<0.5.15", "0.5.15", False),
        (">=0.5.0,<0.5.15", "0.4.10", False),
        (">=0.5.0,<0.5.15", None, True),
        ("<0.5.15", "a-nightly-build", True),
        ("~=0.5.3", "0.5.20", True),
        ("~=0.5.3", "0.6.0", False),
    ],
)
def test_a_rule_is_about_certain_releases(tmp_path: Path, applies: str, release: str | None, hits: bool) -> None:
    write(tmp_path, "one", rule("{exception: ValueError}", f"applies: '{applies}'\n"))
    assert bool(ids(tmp_path, link("ValueError", "x"), release=release)) is hits


def test_the_flag_dump_and_printed_advice_match_nothing(tmp_path: Path) -> None:
    write(tmp_path, "one", rule("{lines: enable_nan_detection}"))
    dump = "[2026-01-01 00:00:00] server_args=ServerArgs(model_path='m', enable_nan_detection=False)"
    assert ids(tmp_path, link("ValueError", "x"), lines=(dump,)) == []
    assert ids(tmp_path, link("ValueError", "x"), lines=("enable_nan_detection found one",)) == ["one"]


def test_a_catastrophic_pattern_costs_time_once(tmp_path: Path) -> None:
    write(tmp_path, "bad", rule("{message: 'evil (a|aa)+$', exception: [ValueError]}"))
    write(tmp_path, "good", rule("{exception: ValueError}"))
    rules = book(tmp_path)
    hostile = crash(link("ValueError", "evil " + "a" * 5000 + "!"))
    assert [m.rule for m in rules.match(hostile)] == ["good"]
    assert list(rules.quarantined) == ["bad"]
    assert rules.notices == [
        f"rule bad is out of force until the next start, or until rules change: {rules.quarantined['bad']}"
    ]
    assert [m.rule for m in rules.match(crash(link("ValueError", "evil a")))] == ["good"]


def test_a_pattern_that_is_no_regex_puts_only_its_own_rule_out_of_force(tmp_path: Path) -> None:
    write(tmp_path, "bad", rule("{message: 'broken (pattern', anchors: [broken]}"))
    write(tmp_path, "good", rule("{exception: ValueError}"))
    rules = book(tmp_path)
    assert [m.rule for m in rules.match(crash(link("ValueError", "broken (pattern")))] == ["good"]
    assert "bad" in rules.quarantined


def test_an_unknown_crash_matches_nothing(tmp_path: Path) -> None:
    write(tmp_path, "one", rule("{exception: ValueError}"))
    assert ids(tmp_path, link("ZeroDivisionError", "division by zero"), outcome=Outcome.UNKNOWN) == []


def test_short_anchors_do_not_hide_longer_ones(tmp_path: Path) -> None:
    write(tmp_path, "short", rule("{exception: [Error]}"))
    write(tmp_path, "long", rule("{message: 'OutOfMemoryError: CUDA'}"))
    write(tmp_path, "inner", rule("{message: MemoryError}"))
    made = crash(link("Exception", "torch.OutOfMemoryError: CUDA out of memory"), phase=Phase.LOAD)
    rules = book(tmp_path)
    numbers = rules.candidates(Evidence.of(made))
    assert {rules.rules[n].id for n in numbers} == {"short", "long", "inner"}


@pytest.mark.parametrize(
    ("kind", "title", "told"),
    [
        ("install", "Install the pinned torch", "By hand: install the pinned torch"),
        ("system", "CUDA 13 or newer", "By hand: CUDA 13 or newer"),
        ("install", "DeepGEMM of this release", "By hand: DeepGEMM of this release"),
        ("advice", "{what} is asked for too early", "By hand: Moon is asked for too early"),
        ("request", "By hand, in front: refuse it", "By hand, in front: refuse it"),
        ("flag", "Start without graphs", "Start without graphs"),
    ],
)
def test_a_rung_for_people_says_that_it_is_done_by_hand(tmp_path: Path, kind: str, title: str, told: str) -> None:
    edits = "\n    edits: [{op: set-flag, name: --disable-cuda-graph}]" if kind == "flag" else ""
    remedies = (
        f'remedies:\n  - id: a\n    kind: {kind}\n    title: "{title}"\n    cost: none\n    confirmed: true{edits}\n'
    )
    write(tmp_path, "moon", rule("{message: 'the (?P<what>Moon) is full'}", remedies))
    (match,) = book(tmp_path).match(crash(link("ValueError", "the Moon is full")))
    assert [remedy.title for remedy in match.remedies] == [told]


@pytest.mark.parametrize(
    ("edit", "flags", "why"),
    [
        (
            "{op: set-flag, name: --disable-cuda-graph}",
            {"disable_cuda_graph": "True"},
            "with --disable-cuda-graph already",
        ),
        ("{op: set-flag, name: --disable-cuda-graph}", {"disable_cuda_graph": "False"}, None),
        ("{op: set-flag, name: --disable-cuda-graph}", {"tp_size": "8"}, None),
        (
            "{op: set-flag, name: --deepep-mode, value: auto}",
            {"deepep_mode": "auto"},
            "with --deepep-mode auto already",
        ),
        ("{op: set-flag, name: --deepep-mode, value: auto}", {"deepep_mode": "normal"}, None),
        (
            "{op: remove-flag, name: --enable-mixed-chunk}",
            {"enable_mixed_chunk": "False"},
            "without --enable-mixed-chunk already",
        ),
        ("{op: remove-flag, name: --enable-mixed-chunk}", {"enable_mixed_chunk": "True"}, None),
        (
            "{op: step-flag, name: --mem-fraction-static, value: -0.05, floor: 0.5, ceiling: 0.95}",
            {"mem_fraction_static": "0.5"},
            "--mem-fraction-static is 0.5 already, and 0.5 is as far as this goes",
        ),
        (
            "{op: step-flag, name: --mem-fraction-static, value: -0.05, floor: 0.5, ceiling: 0.95}",
            {"mem_fraction_static": "0.55"},
            None,
        ),
        # what the server says of itself bears another name than the flag
        ("{op: set-flag, name: --ep, value: 8}", {"ep_size": "8"}, "with --ep 8 already"),
        ("{op: set-flag, name: --ep, value: 8}", {"ep_size": "1"}, None),
        ("{op: set-flag, name: --tp, value: 4, floor: 4}", {"tp_size": "4"}, "with --tp 4 already"),
        (
            "{op: set-flag, name: --fp8-gemm-backend, value: triton}",
            {"fp8_gemm_runner_backend": "triton"},
            "with --fp8-gemm-backend triton already",
        ),
        (
            "{op: remove-flag, name: --fp4-gemm-backend}",
            {"fp4_gemm_runner_backend": "None"},
            "without --fp4-gemm-backend already",
        ),
        # a switch that fills another field may be its opposite
        ("{op: set-flag, name: --no-lora-strict-loading}", {"lora_strict_loading": "True"}, None),
    ],
)
def test_a_rung_that_would_change_nothing_does_not_fit(
    tmp_path: Path, edit: str, flags: dict[str, str], why: str | None
) -> None:
    ladder = "remedies:\n  - {id: it, kind: flag, title: It, cost: None, confirmed: false, edits: [" + edit + "]}\n"
    write(tmp_path, "moon", rule("{exception: AttributeError}", "rank: -1\n" + ladder))
    (match,) = book(tmp_path).match(crash(link("AttributeError", "x"), flags=flags))
    (remedy,) = match.remedies
    assert (remedy.blocked_by or "").removeprefix("the server runs ") == (why or "")


@pytest.mark.parametrize(
    ("fit", "flags", "why"),
    [
        (
            "when: {flags: {flag: fp8_gemm_backend, is: triton}}",
            {"fp8_gemm_runner_backend": "cutlass"},
            "says otherwise",
        ),
        ("when: {flags: {flag: fp8_gemm_backend, is: triton}}", {"fp8_gemm_runner_backend": "triton"}, None),
        ("requires: --ep", {"ep_size": "None"}, "does not run with --ep"),
        ("requires: --ep", {"ep_size": "8"}, None),
        ("conflicts: --ep", {"ep_size": "8"}, "not go together with --ep"),
    ],
)
def test_a_condition_knows_the_name_that_the_server_has_for_a_flag(
    tmp_path: Path, fit: str, flags: dict[str, str], why: str | None
) -> None:
    ladder = "remedies:\n  - {id: it, kind: flag, title: It, cost: None, confirmed: false, " + fit
    ladder += ", edits: [{op: set-flag, name: --disable-cuda-graph}]}\n"
    write(tmp_path, "moon", rule("{exception: AttributeError}", "rank: -1\n" + ladder))
    (match,) = book(tmp_path).match(crash(link("AttributeError", "x"), flags=flags))
    blocked = match.remedies[0].blocked_by
    assert blocked is None if why is None else (blocked or "").endswith(why)


SHIPPED = Rulebook.load(rule_folders())
KERNELS = "NVRM: Xid (PCI:0000:4b:00): 79, pid=1, GPU has fallen off the bus."


def shipped(*chain: Link, lines: tuple[str, ...] = ()) -> set[str]:
    return {match.rule for match in SHIPPED.match(crash(*chain, lines=lines))}


@pytest.mark.parametrize(
    ("words", "rule_id"),
    [
        (KERNELS, "xid-79"),
        ("uncorrectable ECC error encountered", "uncorrectable-ecc"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "serving-out-of-memory"),
        ("No module named 'deep_ep'", "deepep-version"),
        ("[Errno 98] Address already in use", "port-in-use"),
    ],
)
def test_words_that_a_request_brought_into_a_message_decide_nothing(words, rule_id):
    for between in (" ", "\n", "' ", "'\n"):  # it may write the closing mark itself
        message = f"cannot parse 'x{between}{words}\n'"
        lines = ("Traceback (most recent call last):", *f"ValueError: {message}".split("\n"))
        assert rule_id not in shipped(link("ValueError", message, "srt/a.py:parse"), lines=lines)
    whole = f"RuntimeError: {words}"  # what says so itself is believed, but for the kernel's words
    believed = rule_id in shipped(link("RuntimeError", words, "srt/a.py:parse"), lines=(whole,))
    assert believed is (words is not KERNELS)


@pytest.mark.parametrize(
    ("words", "rule_id"),
    [
        ("Not enough memory. Please try to increase --mem-fraction-static. is no tool", "static-fraction-too-small"),
        ("a tool: error while attempting to bind on address ('0.0.0.0', 30000): address already in use", "port-in-use"),
        ("Error while creating shared memory segment /dev/shm/nccl-abc (size 9637888)", "shared-memory-too-small"),
        (
            "a tool: sglang-kernel is installed with version 0.2, which is less than the minimum required version 0.4",
            "below-minimum-version",
        ),
        (
            "bad regex [rank3]:[E1103 ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout: WorkNCCL",
            "collective-timeout",
        ),
    ],
)
def test_nor_do_words_of_another_failure_without_a_mark_before_them(words, rule_id):
    for name in ("ValueError", "AssertionError", "jinja2.exceptions.TemplateError"):
        lines = ("Traceback (most recent call last):", f"{name}: {words}")
        assert rule_id not in shipped(link(name, words, "srt/a.py:parse"), lines=lines)
    whole = f"RuntimeError: {words}"
    assert rule_id in shipped(link("RuntimeError", words, "srt/a.py:parse"), lines=(whole,))


def test_an_exception_about_the_code_is_read_whole_and_so_is_any_before_requests_came():
    words = "'NoneType' object has no attribute 'shape': CUDA error"
    assert Evidence.of(crash(link("AttributeError", words))).chain[0][1] == words
    words = "heron: CUDA error"
    for phase, seen in ((Phase.LOAD, words), (Phase.UNKNOWN, words), (Phase.SERVING, "…")):
        assert Evidence.of(crash(link("ValueError", words), phase=phase)).chain[0][1] == seen


def test_of_one_failed_request_the_rules_about_requests_come_first():
    """What a request met says nothing of the server, however sure a rule of servers is of the words."""
    failed = crash(link("RuntimeError", "[Errno 98] address already in use", "srt/a.py:parse"))
    assert next(match.rule for match in SHIPPED.match(failed)) == "port-in-use"
    lines = ("Traceback (most recent call last):", "RuntimeError: [Errno 98] address already in use")
    failed = crash(
        link("RuntimeError", "[Errno 98] address already in use"), lines=lines, outcome=Outcome.REQUEST_ERROR
    )
    first = [match.rule for match in SHIPPED.match(failed)]
    assert first[0] == "request-failed"
    assert "port-in-use" in first
    long = "The input (140000 tokens) is longer than the model's context length (131072 tokens)."
    lines = ("Traceback (most recent call last):", f"ValueError: {long}")
    failed = crash(link("ValueError", long), lines=lines, outcome=Outcome.REQUEST_ERROR)
    assert next(match.rule for match in SHIPPED.match(failed)) == "longer-than-the-context"


def test_the_kernels_words_are_believed_of_the_kernel():
    assert "xid-79" in shipped(link("Xid 79", KERNELS), lines=(KERNELS,))
    assert "xid-79" in shipped(link("NVRM", "NVRM: GPU 0000:41:00.0: GPU has fallen off the bus."))


def test_a_message_that_quotes_names_is_read_whole():
    message = "Unknown backend: 'abc def'. Valid ones are 'fa3', 'triton'"
    assert Evidence.of(crash(link("ValueError", message))).chain[0][1] == message


TOLD = "GPU 3 has 139.72 GiB. Process 881 has 100.60 GiB memory in use. {own} has 37.00 GiB memory in use."


def test_what_came_of_another_crash_is_not_mended_here(tmp_path: Path) -> None:
    ladder = REMEDY.replace('"{limit}"', "4").replace("{limit}", "4") + (
        "  - {id: look, kind: system, title: Look what holds it, cost: None, confirmed: false}\n"
    )
    write(tmp_path, "moon", rule("{exception: [OutOfMemoryError]}", ladder))
    rules = book(tmp_path)
    alone = crash(link("OutOfMemoryError", TOLD.format(own="Process 7")))  # in a container nobody knows which is whose
    (match,) = rules.match(alone)
    assert [(one.id, one.blocked_by) for one in match.remedies] == [("cap", None), ("newer", None), ("look", None)]
    (match,) = rules.match(replace(alone, follows="the-other"))
    assert [one.id for one in match.remedies] == ["mend-the-one-before", "look", "cap", "newer"]
    assert [one.applicable for one in match.remedies] == [False] * 4
    (match,) = rules.match(crash(link("torch.OutOfMemoryError", TOLD.format(own="this process"))))
    assert [one.id for one in match.remedies] == ["end-the-other-process", "look", "cap", "newer"]
    assert match.remedies[2].blocked_by == "process 881 holds 100.60 GiB of that GPU"
    (match,) = rules.match(crash(link("OutOfMemoryError", TOLD.format(own="this process").replace("100.60", "0.50"))))
    assert match.remedies[0].id == "cap"


def test_a_rung_names_the_ranks_that_never_came(tmp_path: Path) -> None:
    ladder = "remedies:\n  - {id: look, kind: advice, title: 'Look at {missing}', cost: None, confirmed: false}\n"
    write(tmp_path, "moon", rule("{exception: [CollectiveTimeout]}", ladder))
    late = crash(link("CollectiveTimeout", "slow"))
    for suspects, said in ((("TP3", "TP5"), "look at TP3, TP5"), ((), "look at the rank that does not report")):
        (match,) = book(tmp_path).match(replace(late, suspects=suspects))
        assert match.remedies[0].title.startswith(f"By hand: {said}")


def test_no_rule_looks_at_what_only_a_request_may_have_written(tmp_path: Path) -> None:
    write(tmp_path, "one", rule("{lines: 'illegal memory access was encountered'}"))
    real = crash(link("AssertionError", "bad 5"))
    text = "RuntimeError: an illegal memory access was encountered"
    forged = Failure(Role.NOISE, (Link("RuntimeError", text.partition(": ")[2]),), (Line(text),))
    beside = replace(real, failures=(*real.failures, forged), evidence=(*real.evidence, *forged.lines))
    assert book(tmp_path).match(beside) == ()
    cascade = replace(forged, role=Role.CASCADE)
    (match,) = book(tmp_path).match(replace(beside, failures=(*real.failures, cascade)))
    assert match.rule == "one"
