"""Settings that a failing check names: in its message, in its source line, as the release writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rules.crashes import book, crash, link, rule, write
from triage.model import Frame, Link
from triage.rulebase import checks
from triage.rulebase.checks import failed_part, known_classes, named, named_part, switch_of, switch_off
from triage.shipped import shipped


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("Herons need --page-size 64", ["--page-size"]),
        ("the moon needs page_size 64 or 128, got 7", ["--page-size"]),
        ("herons go with cfg.page_size > 1 alone", ["--page-size"]),
        ("Page size must divide the chunked prefill size", ["--page-size", "--chunked-prefill-size"]),
        ("herons do not fly with two-batch overlap", ["--enable-two-batch-overlap"]),
        (
            "dp_size and ep_size and page_size and load_format and pp_size",
            ["--dp-size", "--ep-size", "--page-size", "--load-format"],
        ),
        ("SGLANG_USE_AITER is not for herons", ["SGLANG_USE_AITER"]),
        ("--heron-size and SGLANG_HERON_NEST and heron_size", []),
        ("set_page_size(7) failed", []),
        ("enable trust_remote_code, or --trust-remote-code, or give --api-key", []),
        ("model_path is empty", []),
        ("pipeline parallelism and prefix caching exclude each other", ["--pp-size", "--disable-radix-cache"]),
        ("x" * 700 + " page_size", []),
    ],
)
def test_what_a_message_names(message: str, names: list[str]) -> None:
    assert list(named(crash(link("ValueError", message)))) == names


def test_what_a_request_wrote_names_nothing() -> None:
    assert named(crash(link("ValueError", "Not enough memory. Please try to increase --mem-fraction-static."))) == ()


@pytest.mark.parametrize(
    ("exception", "source", "names"),
    [
        ("AssertionError", ["assert server_args.page_size > 1"], ("--page-size",)),
        ("AssertionError", ["self.page_size == 1"], ("--page-size",)),
        ("AssertionError", ["assert (", "    self.pp_size == 1", "), 'no stages'"], ("--pp-size",)),
        ("ValueError", ["if server_args.page_size > 1: raise ValueError"], ("--page-size",)),
        ("ValueError", ["self.pool.alloc(page_size)"], ()),
        ("AssertionError", ["^^^^^^^^^^^^"], ()),
        ("AttributeError", ["assert server_args.page_size > 1"], ()),
    ],
)
def test_what_the_source_line_names(exception: str, source: list[str], names: tuple[str, ...]) -> None:
    place = Frame("/opt/lake/sglang/srt/nests.py", "__init__", 44)
    lines = ['  File "/opt/lake/sglang/srt/nests.py", line 44, in __init__', *(f"    {text}" for text in source)]
    found = crash(Link(exception, "", place, (place,)), lines=(*lines, exception, "page_size"))
    assert named(found) == names


def test_flags_are_spelled_for_the_release() -> None:
    assert named(crash(link("ValueError", "cuda graph max bs is 7"), release="0.5.10")) == ("--cuda-graph-max-bs",)


@pytest.mark.parametrize(
    ("flags", "title"),
    [
        ({"page_size": "1", "enable_mixed_chunk": "True"}, "--page-size (now 1), --enable-mixed-chunk"),
        ({"page_size": "None"}, "--page-size, --enable-mixed-chunk"),
        ({}, "--page-size, --enable-mixed-chunk"),
    ],
)
def test_a_flag_is_named_with_its_value_in_force(tmp_path: Path, flags: dict[str, str], title: str) -> None:
    rung = "{id: look, kind: advice, title: 'Look at {checked}', cost: some, confirmed: false}"
    write(tmp_path, "moon", rule("{exception: ValueError, message: herons}", f"remedies:\n  - {rung}\n"))
    made = crash(link("ValueError", "herons want page_size 64 and enable_mixed_chunk"), flags=flags)
    (offered,) = book(tmp_path).match(made)[0].remedies
    assert offered.title == f"By hand: look at {title}"


def test_a_rung_is_offered_only_where_something_is_named(tmp_path: Path) -> None:
    rung = "{id: look, kind: advice, title: 'Look at {checked}', cost: some, confirmed: false}"
    write(tmp_path, "one", rule("{message: heron}", f"remedies: [{rung}]\n"))
    (match,) = book(tmp_path).match(crash(link("ValueError", "heron page_size")))
    assert match.remedies[0].title == "By hand: look at --page-size"
    (match,) = book(tmp_path).match(crash(link("ValueError", "heron")))
    assert not match.remedies


@pytest.mark.parametrize(
    ("files", "flag"),
    [
        (["managers/scheduler.py", "multiplex/herons.py"], "--enable-pdmux"),
        (["mem_cache/storage/lmcache/nest.py"], "--enable-lmcache"),
        (["mem_cache/storage/herons/nest.py"], "--hicache-storage-backend"),
        (["mem_cache/hicache_storage.py"], "--hicache-storage-backend"),
        (["mem_cache/hiradix_cache.py", "layers/radix_attention.py"], "--enable-hierarchical-cache"),
        (["distributed/device_communicators/pymscclpp.py"], "--enable-mscclpp"),
        (["managers/scheduler.py", "layers/sampler.py"], ""),
        (["lora/nests.py"], "--enable-lora"),
        (["models/heron_nextn.py"], "--speculative-algorithm"),
        (["models/heron_nextn_nest.py"], ""),
        (["layers/moe/token_dispatcher/herons.py"], "--moe-a2a-backend"),
        (["layers/moe/token_dispatcher/standard.py"], ""),
        (["parser/reasoning_parser.py"], "--reasoning-parser"),
        (["layers/dp_attention.py", "layers/linear.py"], "--enable-dp-attention"),
        (["models/my_hiradix_cache.py"], ""),
    ],
)
def test_the_part_that_failed_is_told_by_its_files(files: list[str], flag: str) -> None:
    frames = tuple(Frame(f"/opt/lake/sglang/srt/{file}", "count", 7) for file in files)
    assert failed_part(crash(Link("KeyError", "'heron'", frames[-1], frames))) == flag


@pytest.mark.parametrize(
    ("paths", "flag"),
    [
        (["sglang/srt/compilation/herons.py", "torch/nn/modules/linear.py"], "--disable-piecewise-cuda-graph"),
        (["sglang/srt/mem_cache/swa_radix_cache.py"], "--disable-radix-cache"),
        (["sglang/srt/mem_cache/hiradix_cache.py"], ""),
        (["herons/srt/mem_cache/radix_cache.py"], ""),
    ],
)
def test_what_switches_off_a_part_that_runs_unasked_is_told_by_its_files(paths: list[str], flag: str) -> None:
    frames = tuple(Frame(f"/opt/lake/{path}", "count", 7) for path in paths)
    assert switch_off(crash(Link("KeyError", "'heron'", frames[-1], frames))) == flag


def test_a_release_without_the_switch_is_not_told_of_it() -> None:
    place = Frame("/opt/lake/sglang/srt/compilation/nest.py", "count", 7)
    assert switch_off(crash(Link("KeyError", "heron", place, (place,)), release="0.4.6")) == ""


def test_a_part_that_is_switched_off_already_is_not_switched_off(tmp_path: Path) -> None:
    rung = "{id: switch, kind: flag, title: 'Switch it off ({off})', cost: some, confirmed: false, "
    edits = "edits: [{op: set-flag, name: '{off}'}]}"
    write(tmp_path, "one", rule("{message: heron}", f"remedies: [{rung}{edits}]\n"))
    place = Frame("/opt/lake/sglang/srt/mem_cache/radix_cache.py", "count", 7)
    off = crash(Link("KeyError", "heron", place, (place,)), flags={"disable_radix_cache": "True"})
    assert not book(tmp_path).match(off)[0].remedies
    on = crash(Link("KeyError", "heron", place, (place,)), flags={"disable_radix_cache": "False"})
    assert book(tmp_path).match(on)[0].remedies[0].title == "Switch it off (--disable-radix-cache)"


def test_a_part_of_another_package_is_none() -> None:
    place = Frame("/opt/lake/herons/multiplex/nest.py", "count", 7)
    assert failed_part(crash(Link("KeyError", "'heron'", place, (place,)))) == ""


@pytest.mark.parametrize(
    ("message", "flag"),
    [
        ("'HiRadixCache' object has no attribute 'reeds'", "--enable-hierarchical-cache"),
        ("HiRadixCache.__init__() got an unexpected keyword argument 'reeds'", "--enable-hierarchical-cache"),
        ("'MultiTokenizerRouter' object has no attribute 'reeds'", "--tokenizer-worker-num"),
        ("'DeepEPLLDispatchOutput' object has no attribute 'reeds'", "--moe-a2a-backend"),
        ("cannot unpack non-iterable EagleDraftInput object", "--speculative-algorithm"),
        ("EagleDraftInput is no EagleVerifyInput", "--speculative-algorithm"),  # both of one part
        ("HiRadixCache is no EagleDraftInput", ""),
        ("MyHiRadixCache and HiRadixCacheNest", ""),
        ("'Scheduler' object has no attribute 'reeds'", ""),
        ("ForwardMetadata", ""),  # of many backends
        ("x" * 700 + " HiRadixCache", ""),
    ],
)
def test_the_part_is_told_by_a_class_where_no_frame_is_ours(message: str, flag: str) -> None:
    assert failed_part(crash(Link("TypeError", message))) == flag
    assert named_part(crash(Link("TypeError", message))) == flag
    theirs = Frame("/opt/lake/torch/nests.py", "lay", 7)
    assert named_part(crash(Link("TypeError", message, theirs, (theirs,)))) == flag


@pytest.mark.parametrize(
    ("one", "part"),
    [
        (link("TypeError", "HiRadixCache", "/opt/lake/sglang/srt/managers/scheduler.py:lay"), ""),
        (link("TypeError", "HiRadixCache", "/opt/lake/sglang/srt/lora/nests.py:lay"), "--enable-lora"),
        (link("ImportError", "HiRadixCache"), ""),
        (link("torch.OutOfMemoryError", "HiRadixCache"), ""),
    ],
)
def test_a_class_tells_nothing_where_a_frame_says_more_or_it_was_only_asked_for(one: Link, part: str) -> None:
    assert failed_part(crash(one)) == part
    assert named_part(crash(one)) == ""


def test_a_class_tells_what_runs_unasked() -> None:
    assert switch_off(crash(link("TypeError", "'SWARadixCache' object is not iterable"))) == "--disable-radix-cache"


def test_a_class_of_a_release_that_lacks_the_switch_tells_nothing() -> None:
    assert named_part(crash(link("TypeError", "MultiTokenizerRouter"), release="0.4.6")) == ""


def test_a_rung_for_a_named_class_stands_only_where_one_is_named(tmp_path: Path) -> None:
    rung = "{id: out, kind: flag, title: 'Without {named_part}', cost: some, confirmed: false, "
    edits = "edits: [{op: remove-flag, name: '{named_part}'}]}"
    write(tmp_path, "one", rule("{message: Cache}", f"remedies: [{rung}{edits}]\n"))
    (match,) = book(tmp_path).match(crash(link("TypeError", "HiRadixCache")))
    assert match.remedies[0].title == "Without --enable-hierarchical-cache"
    (match,) = book(tmp_path).match(crash(link("TypeError", "LakeCache")))
    assert not match.remedies


def test_the_shipped_classes_are_of_parts_that_have_a_switch() -> None:
    known = known_classes()
    assert 500 < len(known) < 1200
    assert {name: file for name, file in known.items() if not switch_of(file)} == {}
    assert not {"Scheduler", "ServerArgs", "ModelRunner", "ForwardBatch", "CacheConfig", "Tokenizer"} & set(known)


def test_a_part_that_is_not_switched_on_is_not_taken_away(tmp_path: Path) -> None:
    rung = "{id: out, kind: flag, title: 'Without {part}', cost: some, confirmed: false, "
    edits = "edits: [{op: remove-flag, name: '{part}'}]}"
    write(tmp_path, "one", rule("{message: heron}", f"remedies: [{rung}{edits}]\n"))
    place = Frame("/opt/lake/sglang/srt/multiplex/nest.py", "count", 7)
    off = crash(Link("KeyError", "heron", place, (place,)), flags={"enable_pdmux": "False"})
    assert book(tmp_path).match(off)[0].remedies[0].blocked_by == "the server does not run with --enable-pdmux"
    on = crash(Link("KeyError", "heron", place, (place,)), flags={"enable_pdmux": "True"})
    assert book(tmp_path).match(on)[0].remedies[0].applicable


@pytest.mark.parametrize(
    ("place", "message", "names"),
    [
        ("sglang/srt/arg_groups/nests.py:count", "lakes are for grey herons", ("--page-size", "SGLANG_USE_AITER")),
        ("sglang/srt/arg_groups/nests.py:Nest.count", "lakes are for grey herons", ("--page-size", "SGLANG_USE_AITER")),
        ("sglang/srt/nests.py:count", "lakes are for herons", ("--enable-lora",)),
        ("sglang/srt/nests.py:count", "lakes are for ducks", ()),
        ("sglang/srt/nests.py:fly", "lakes are for grey herons", ()),
        ("herons/nests.py:count", "lakes are for grey herons", ()),
    ],
)
def test_what_the_conditions_of_a_known_check_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, message: str, names: tuple[str, ...]
) -> None:
    known = [[["herons", "lakes"], ["enable_lora"]], [["grey", "herons"], ["page_size", "SGLANG_USE_AITER", "x_y"]]]
    (tmp_path / "checks.json").write_text(json.dumps({"checks": {"nests.py:count": known}}))
    (tmp_path / "flags.json").write_text((shipped("catalogue") / "flags.json").read_text())
    monkeypatch.setattr(checks, "shipped", lambda _: tmp_path)
    checks.known_checks.cache_clear()
    path, function = place.split(":")
    at = Frame(f"/opt/lake/{path}", function, 7)
    assert named(crash(Link("ValueError", message, at, (at,)))) == names
    checks.known_checks.cache_clear()
