"""What the catalogue of SGLang's flags answers, and what remedies make of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.rules.crashes import book, crash, link, rule, write
from triage.cli import triage
from triage.model import Edit, Remedy
from triage.rulebase.catalogue import catalogue
from triage.rulebase.parser import Parser
from triage.rulebase.rulecheck import check
from triage.rulebase.spelling import doubted, respelled


# Counted in these releases before, by another program.
@pytest.mark.parametrize(
    ("release", "spellings"),
    [
        ("0.4.6.post5", 150),
        ("0.4.10.post2", 192),
        ("0.5.3", 254),
        ("0.5.6", 296),
        ("0.5.9", 341),
        ("0.5.10", 365),
        ("0.5.12", 402),
        ("0.5.15", 451),
        ("0.5.17", 491),
        ("0.5.20", 513),
        ("0.5.23", 559),
    ],
)
def test_no_flag_of_a_release_is_missed(release: str, spellings: int) -> None:
    known = catalogue()
    assert known.near(release) == (release,)
    at = known.releases.index(release)
    assert sum(1 for name in known._flags if known._shape(name, at)) == spellings


FACTS = (Path(__file__).parent / "flags.txt").read_text()


def facts() -> Iterator[tuple[str, str, str]]:
    """Flag, release, what that release's source declares: the table says how it is written."""
    for block in re.split(r"\n\n", FACTS)[1:]:
        flag, *lines = block.strip().splitlines()
        for line in lines:
            releases, _, said = line.partition(": ")
            yield from ((flag, release, said) for release in releases.split())


def told(flag: str, release: str) -> str:
    """The same, out of the catalogue."""
    known = catalogue()
    at = known.releases.index(release)
    shape = known._shape(flag, at)
    if shape is None:
        return "absent"
    kind = "bare" if shape["takes"] == "nothing" else shape.get("type", "text")
    words = [kind + "s" * (shape["takes"] == "list")]
    words += ["=", str(shape["default"])] if "default" in shape else []
    words += ["of", *shape["choices"]] if "choices" in shape else []
    same = [name for name in known._flags if name != flag and known._shape(name, at) == shape]
    words += [word for name in same for word in ("alias", name)]
    words += ["old"] * shape.get("deprecated", False) + (["use", shape["use"]] if "use" in shape else [])
    return " ".join(words)


def test_twenty_flags_are_known_in_five_releases() -> None:
    known = [(flag, release) for flag, release, _ in facts()]
    assert len(known) == len(set(known))
    assert len({flag for flag, _ in known}) >= 20
    assert all(sum(1 for one, _ in known if one == flag) == 5 for flag, _ in known)


@pytest.mark.parametrize(("flag", "release", "said"), [pytest.param(*row, id=" ".join(row[:2])) for row in facts()])
def test_a_flag_is_what_the_source_of_its_release_declares(flag: str, release: str, said: str) -> None:
    assert told(flag, release) == said


def test_choices_are_those_of_the_release() -> None:
    old, new = (catalogue().flag("--attention-backend", release) for release in ("0.5.2", "0.5.23"))
    assert old is not None
    assert new is not None
    assert "fa4" not in old.choices
    assert {"triton", "fa4"} <= set(new.choices)


@pytest.mark.parametrize("release", ["0.3.6", "0.9.0", "0.5.13.dev112+g5a1c", "main", "", None])
def test_of_a_build_nobody_catalogued_it_says_nothing(release: str | None) -> None:
    assert catalogue().near(release) == ()


def test_a_release_between_two_is_spoken_for_by_both() -> None:
    assert catalogue().near("0.5.5.post1") == ("0.5.5", "0.5.5.post3")
    assert catalogue().near("0.4.8") == ("0.4.7.post1", "0.4.8.post1")


@pytest.mark.parametrize(
    ("field", "value", "release", "flag"),
    [
        ("page_size", "1", None, "--page-size"),
        ("tp_size", "8", "0.5.12", "--tp-size"),
        ("page_size", "1", "0.4.0", None),  # that release has no pages
        ("disable_radix_cache", "True", None, "--disable-radix-cache"),
        ("disable_radix_cache", "False", None, None),  # the flag would turn it on
        ("disable_radix_cache", "0", None, None),
        ("feather_count", "7", None, None),
        ("page_siz", "1", None, None),  # nothing is guessed
    ],
)
def test_a_field_of_server_args_is_given_a_value_by_a_flag(
    field: str, value: str, release: str | None, flag: str | None
) -> None:
    assert catalogue().setting(field, value, release) == flag


def test_a_short_form_counts_only_where_it_is_not_ambiguous() -> None:
    known = catalogue()
    assert known.flag("--mem-frac", "0.5.12") == known.flag("--mem-fraction-static", "0.5.12")
    assert known.flag("--cuda-graph-max-bs", "0.5.20") is None  # -decode or -prefill?
    assert known.successor("--cuda-graph-max-bs", "0.5.20") == ("--cuda-graph-max-bs-decode", None)
    assert known.successor("--disable-piecewise-cuda-graph", "0.5.20") == ("--cuda-graph-backend-prefill", "disabled")


@pytest.mark.parametrize(
    ("written", "release", "meant"),
    [
        ("--reasoning_parser", "0.5.12", "--reasoning-parser"),
        ("--reasoning_parser", None, "--reasoning-parser"),
        ("--cuda-graph-max-bs", "0.5.22", "--cuda-graph-max-bs-decode"),
        ("--mem-fraction-statci", "0.5.12", "--mem-fraction-static"),
        ("--fp8-gemm-runner-backend", "0.5.12", "--fp8-gemm-backend"),  # as server_args= calls it
        ("--enable-overlap-schedule", "0.5.12", None),  # the word that is missing here would mean the opposite
        ("--max-num-running-requests", "0.5.12", "--max-running-requests"),
        ("--mem-fraction-static", "0.5.12", None),  # it is there: nothing else was meant
        ("--moon-phase", "0.5.12", None),
    ],
)
def test_what_somebody_meant_who_wrote_a_flag_that_is_not_there(written: str, release: str | None, meant: str) -> None:
    assert catalogue().meant(written, release) == meant


def rungs(folder: Path, edits: str, release: str | None) -> Remedy:
    remedy = f"remedies:\n  - {{id: a, kind: flag, title: Do it, cost: None., confirmed: false, edits: {edits}}}\n"
    write(folder, "one", rule("{exception: ValueError}", remedy))
    (match,) = book(folder).match(crash(link("ValueError", "x"), release=release))
    return match.remedies[0]


@pytest.mark.parametrize(
    ("edits", "release", "spelled", "why"),
    [
        ("[{op: cap-flag, name: --cuda-graph-max-bs, value: 8}]", "0.5.12", ["--cuda-graph-max-bs 8"], None),
        ("[{op: cap-flag, name: --cuda-graph-max-bs, value: 8}]", "0.5.20", ["--cuda-graph-max-bs-decode 8"], None),
        ("[{op: cap-flag, name: --cuda-graph-max-bs, value: 8}]", "0.5.24", ["--cuda-graph-max-bs 8"], None),
        ("[{op: cap-flag, name: --cuda-graph-max-bs, value: 8}]", None, ["--cuda-graph-max-bs 8"], None),
        (
            "[{op: set-flag, name: --disable-piecewise-cuda-graph}]",
            "0.5.21",
            ["--cuda-graph-backend-prefill disabled"],
            None,
        ),
        (
            "[{op: set-flag, name: --moe-runner-backend, value: triton}]",
            "0.4.6",
            ["--moe-runner-backend triton"],
            "sglang 0.4.6 has no --moe-runner-backend (it is in 0.5.1 to 0.5.23)",
        ),
        (  # between two that agree
            "[{op: set-flag, name: --moe-runner-backend, value: triton}]",
            "0.4.8",
            ["--moe-runner-backend triton"],
            "sglang 0.4.8 has no --moe-runner-backend (it is in 0.5.1 to 0.5.23)",
        ),
        ("[{op: cap-flag, name: --cuda-graph-max-bs, value: 8}]", "0.4.8", ["--cuda-graph-max-bs 8"], None),
        (
            "[{op: set-flag, name: --attention-backend, value: fa4}]",
            "0.5.2",
            ["--attention-backend fa4"],
            "--attention-backend takes no fa4 in sglang 0.5.2",
        ),
        (  # of several spellings those of the release; what is not there need not be taken away
            "[{op: cap-flag, name: [--cuda-graph-max-bs, --speculative-dflash-block-size], value: 8},"
            " {op: remove-flag, name: --enable-ep-moe}]",
            "0.5.9",
            ["--cuda-graph-max-bs 8"],
            None,
        ),
        (
            "[{op: cap-flag, name: --speculative-ddtree-budget, value: 8}]",
            "0.5.9",
            ["--speculative-ddtree-budget 8"],
            None,
        ),
    ],
)
def test_a_rung_is_spelled_for_the_release_at_hand(
    tmp_path: Path, edits: str, release: str | None, spelled: list[str], why: str | None
) -> None:
    remedy = rungs(tmp_path, edits, release)
    assert [f"{edit.name} {edit.value}" for edit in remedy.edits] == spelled
    assert (remedy.blocked_by, remedy.applicable) == (why, why is None)


@pytest.mark.parametrize(
    "edit",
    [
        "{op: set-flag, name: --moe-runner-backend, value: triton}",  # the one before has no such flag
        "{op: set-flag, name: --attention-backend, value: trtllm_mha}",  # the one before has no such choice
        "{op: remove-flag, name: --moe-runner-backend}",
    ],
)
def test_where_the_two_around_a_release_differ_nothing_is_guessed(tmp_path: Path, edit: str) -> None:
    """0.5.0: its flags may be those of 0.4.10.post2 or of 0.5.1. The installed server is asked; a log says so much."""
    remedy = rungs(tmp_path, f"[{edit}]", "0.5.0")
    assert remedy.title == "Do it (not known for sglang 0.5.0: 0.4.10.post2 and 0.5.1 differ)"
    assert (remedy.blocked_by, remedy.applicable) == (None, True)
    assert doubted(remedy, "0.5.0") == "not known for sglang 0.5.0: 0.4.10.post2 and 0.5.1 differ"
    assert doubted(remedy, "0.5.1") == ""
    known = Parser(f"options:\n  {edit.split()[3].rstrip(',}')} X\n", "0.5.0")
    assert respelled(remedy, "0.5.0", known).blocked_by is None
    unknown = Parser("options:\n  --moon X\n", "0.5.0")
    assert "sglang 0.5.0 has no " in (respelled(remedy, "0.5.0", unknown).blocked_by or "")
    assert doubted(remedy, "0.5.0", known) == doubted(remedy, "0.5.0", unknown) == ""


def test_a_variable_between_two_that_differ_is_in_doubt_even_for_the_asked_server() -> None:
    """No --help lists variables."""
    edits = (Edit("set-env", "SGLANG_USE_AITER_AR", "1"),)
    remedy = Remedy("one", "env", "Do it", "None.", False, edits, None, True)
    parser = Parser("options:\n  --x X\n", "0.5.5.post1")
    assert doubted(remedy, parser.release, parser) == "not known for sglang 0.5.5.post1: 0.5.5 and 0.5.5.post3 differ"
    assert doubted(remedy, "0.5.5.post3", parser) == ""


def test_a_new_name_is_told_in_the_title(tmp_path: Path) -> None:
    remedy = rungs(tmp_path, "[{op: cap-flag, name: --cuda-graph-max-bs, value: 8}]", "0.5.22")
    assert remedy.title == "Do it (here --cuda-graph-max-bs-decode)"


def test_a_variable_that_the_release_does_not_read_is_no_way_out(tmp_path: Path) -> None:
    remedy = (
        "remedies:\n  - {id: a, kind: env, title: A, cost: None., confirmed: false, edits: [{op: set-env, name: %s}]}\n"
    )
    name = "SGLANG_SANITIZE_NAN_LOGITS, value: 1"
    write(tmp_path, "one", rule("{exception: ValueError}", remedy % name))
    (match,) = book(tmp_path).match(crash(link("ValueError", "x"), release="0.5.9"))
    assert (
        match.remedies[0].blocked_by == "sglang 0.5.9 knows no SGLANG_SANITIZE_NAN_LOGITS (it is in 0.5.14 to 0.5.23)"
    )


REMEDY = "remedies:\n  - {{id: a, kind: {}, title: A, cost: None., confirmed: false, {}}}\n"


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("flag", "edits: [{op: set-flag, name: --turbo}]", "no release of sglang has --turbo"),
        ("flag", "edits: [{op: set-flag, name: --turbo}], forks: --turbo", None),
        ("flag", "edits: [{op: set-flag, name: --attention-backend, value: moon}]", "no release of sglang takes moon"),
        ("env", "edits: [{op: set-env, name: SGLANG_MOON, value: 1}]", "no release of sglang has SGLANG_MOON"),
        ("env", "edits: [{op: set-env, name: MOON, value: 1}]", None),
        ("advice", "requires: [--turbo]", "no release of sglang has --turbo"),
    ],
)
def test_a_remedy_that_no_release_has_fails_the_check(tmp_path: Path, kind: str, more: str, said: str | None) -> None:
    write(tmp_path, "one", rule("{message: the moon is full}", REMEDY.format(kind, more)))
    texts = [p.text for p in check([tmp_path]).problems if "has no sample" not in p.text]
    assert [text.partition(" for ")[0].partition(":")[0] for text in texts] == ([said] if said else [])


def test_check_names_the_rungs_that_a_release_has_no_words_for() -> None:
    told = CliRunner().invoke(triage, ["rules", "check", "--sglang", "0.5.12", "--json"])
    missing = {(row["rule"], row["remedy"]) for row in json.loads(told.stdout)["missing"]}
    assert ("multimodal-out-of-memory", "fewer-images") in missing
    assert ("nan-probabilities", "other-attention") not in missing
    between = CliRunner().invoke(triage, ["rules", "check", "--sglang", "0.5.0", "--json"])
    whys = {row["why"] for row in json.loads(between.stdout)["missing"]}
    assert "not known for sglang 0.5.0: 0.4.10.post2 and 0.5.1 differ" in whys
    unknown = CliRunner().invoke(triage, ["rules", "check", "--sglang", "0.9.9"])
    assert unknown.exit_code != 0
