"""Variables that decide whether the code which failed runs: found in SGLang's source, offered by any rule."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.rules.crashes import book, crash, link, rule, write
from triage.model import Crash, Link, Outcome, Phase
from triage.rulebase.catalogue import catalogue
from triage.rulebase.switches import known, switches
from triage.shipped import checkout

ENVIRON = """\
class Envs:
    SGLANG_OPT_USE_NEST = EnvBool(True)
    SGLANG_ENABLE_SWAMP = EnvBool(False)
    SGLANG_HERON_TORCH = EnvBool(False)
    SGLANG_OPT_REED_BELT_GEMM = EnvBool(True)
    SGLANG_LOG_REEDS = EnvBool(True)
    SGLANG_LAKE_DEPTH = EnvInt(3)
"""
SOURCE = """\
_swamp = get_bool_env_var("SGLANG_USE_SWAMP_FOG")

def fly():
    if envs.SGLANG_OPT_USE_NEST.get() and is_tall():
        tall_nest_kernel()
        shared_by_both()
    else:
        shared_by_both()
        low_nest_kernel()
    if envs.SGLANG_HERON_TORCH.get():
        heron_in_torch_only()
    elif _swamp:
        heron_over_swamp()
    else:
        heron_of_metal()
    if not envs.SGLANG_ENABLE_SWAMP.get():
        dry_land_kernel()
        return
    wet_land_kernel() if envs.SGLANG_LAKE_DEPTH.get() else None

def tall_nest_kernel():
    inner_nest_kernel()

def inner_nest_kernel(): ...
def shared_by_both(): ...
def low_nest_kernel(): ...
def heron_in_torch_only(): ...
def heron_over_swamp(): ...
def heron_of_metal(): ...
def dry_land_kernel(): ...
def wet_land_kernel(): ...
def reed_of_belt(): envs.SGLANG_OPT_REED_BELT_GEMM.get()
"""


@pytest.mark.skipif(checkout() is None, reason="the building scripts are not in a wheel")
def test_what_a_release_reaches_under_a_variable_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str((checkout() or tmp_path) / "catalogue"), *sys.path])
    import switches as build

    for name, text in (("environ.py", ENVIRON), ("layers/lake.py", SOURCE)):
        path = tmp_path / "sglang" / "srt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = build.document([tmp_path])
    assert found["reached"] == {
        "tall_nest_kernel": [["SGLANG_OPT_USE_NEST", "1"]],
        "inner_nest_kernel": [["SGLANG_OPT_USE_NEST", "1"]],
        "heron_in_torch_only": [["SGLANG_HERON_TORCH", "1"]],
        "heron_over_swamp": [["SGLANG_HERON_TORCH", "0"], ["SGLANG_USE_SWAMP_FOG", "1"]],
        "heron_of_metal": [["SGLANG_HERON_TORCH", "0"]],
        "wet_land_kernel": [["SGLANG_ENABLE_SWAMP", "1"]],
    }
    belt = [["SGLANG_OPT_REED_BELT_GEMM", "1"]]
    assert found["worded"] == {"reed_belt": belt, "belt_gemm": belt}


def shown(*chain: Link, phase: Phase = Phase.SERVING, outcome: Outcome = Outcome.FATAL) -> list[tuple[str, object]]:
    texts = switches(crash(*chain, phase=phase, outcome=outcome))
    return [(text.edits[0].names[0], text.edits[0].value) for text in texts]


TOPK = [("SGLANG_TOPK_TRANSFORM_512_TORCH", "1")]


@pytest.mark.parametrize(
    ("link_", "names"),
    [
        (link("RuntimeError", "no heron", "layers/lake.py:forward", "layers/lake.py:topk_transform_512"), TOPK),
        (link("InternalError", "tf32_hc_prenorm_gemm refused"), [("SGLANG_OPT_DEEPGEMM_HC_PRENORM", "0")]),
        (link("RuntimeError", "herons at hc_prenorm.cuh:7"), [("SGLANG_OPT_DEEPGEMM_HC_PRENORM", "0")]),
        (link("ValueError", "layers.0.nest.wo_a is of bf16"), [("SGLANG_OPT_FP8_WO_A_GEMM", "0")]),
        (link("ValueError", "two_a.reeds, and fused_moe, custom_all_reduce, cuda_graph, kv_cache"), []),
        (link("OutOfMemoryError", "CUDA out of memory", "layers/lake.py:topk_transform_512"), []),
        (link("RuntimeError", "out of memory in hc_prenorm"), []),
        (link("RuntimeError", "no heron", "layers/lake.py:topk_transform_512", *["lake.py:fly"] * 6), []),
    ],
)
def test_what_failed_tells_the_switch(link_: Link, names: list[tuple[str, str]]) -> None:
    assert shown(link_) == names


def test_no_switch_for_a_request_or_before_the_start() -> None:
    made = link("RuntimeError", "no heron", "layers/lake.py:topk_transform_512")
    assert shown(made, phase=Phase.ARGUMENTS) == shown(made, outcome=Outcome.REQUEST_ERROR) == []


LADDER = """\
remedies:
  - {id: one, kind: advice, title: One, cost: none, confirmed: false}
  - {id: two, kind: advice, title: Two, cost: none, confirmed: false}
"""


def offered(folder: Path, made: Crash, ladder: str = LADDER) -> list[str]:
    write(folder, "lake", rule("{exception: RuntimeError, message: no heron}", ladder))
    return [one.id for one in book(folder).match(made)[0].remedies]


def test_any_rule_offers_it_behind_its_first_rung(tmp_path: Path) -> None:
    made = crash(link("RuntimeError", "no heron", "layers/lake.py:topk_transform_512"))
    assert offered(tmp_path, made) == ["one", "switch-sglang-topk-transform-512-torch", "two"]


def test_it_goes_before_a_release_that_nobody_tried(tmp_path: Path) -> None:
    ladder = LADDER.replace("kind: advice, title: One", "kind: upgrade, versions: sglang, title: One")
    made = crash(link("RuntimeError", "no heron", "layers/lake.py:topk_transform_512"))
    assert offered(tmp_path, made, ladder)[0] == "switch-sglang-topk-transform-512-torch"


def test_a_ladder_that_names_the_variable_is_left_alone(tmp_path: Path) -> None:
    ladder = LADDER.replace("title: Two", "title: SGLANG_TOPK_TRANSFORM_512_TORCH=1")
    made = crash(link("RuntimeError", "no heron", "layers/lake.py:topk_transform_512"))
    assert offered(tmp_path, made, ladder) == ["one", "two"]


def test_a_release_without_the_variable_is_told(tmp_path: Path) -> None:
    made = crash(link("RuntimeError", "no heron", "layers/lake.py:topk_transform_512"), release="0.5.1")
    assert offered(tmp_path, made) == ["one", "two", "switch-sglang-topk-transform-512-torch"]


def test_the_shipped_ones_are_variables_of_the_catalogue() -> None:
    for part in ("reached", "worded"):
        assert len(known()[part]) > 80
        for name, found in known()[part].items():
            assert found, name
            assert all(catalogue().knows_variable(one) and value in ("0", "1") for one, value in found), name
    assert json.dumps(known()).count("_DETERMINISTIC") == 0
