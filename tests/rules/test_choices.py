"""What else a server can be told to use, by the words of a line without its traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.crashes import book, crash, link, rule, write
from tests.rules.test_shipped import NEVER_SET, ONLY_AS
from triage.rulebase.catalogue import catalogue
from triage.rulebase.choices import _CHOICES, named_package, other_kernels


@pytest.mark.parametrize(
    ("message", "choice"),
    [
        ("the attention of the heron is full", ("--attention-backend", "triton")),
        ("no triton attention for herons", ("--attention-backend", "flashinfer")),  # not what the line refuses
        ("heron_moe: the reed is gone", ("--moe-runner-backend", "triton")),
        ("an expert's fp8 gemm", ("--moe-runner-backend", "triton")),  # the narrower part
        ("fp8 gemm of herons", ("--fp8-gemm-backend", "triton")),
        ("nvfp4 reeds in gemm", ("--fp4-gemm-backend", "flashinfer_cutlass")),
        ("the vision attention of herons", ("--mm-attention-backend", "triton_attn")),
        ("the grammar of herons", None),  # another would take other grammars
        ("LoRA herons", ("--lora-backend", "triton")),
        ("causal_conv1d of herons", ("--linear-attn-backend", "triton")),
        ("a mamba heron", ("--mamba-backend", "triton")),
        ("the probability tensor of herons", ("--sampling-backend", "pytorch")),
        ("the heron is gone", None),
    ],
)
def test_the_part_that_the_message_names_has_other_kernels(message: str, choice: tuple[str, str] | None) -> None:
    assert other_kernels(crash(link("RuntimeError", message))) == choice


@pytest.mark.parametrize(
    ("place", "choice"),
    [
        ("srt/layers/moe/reed.py:run", ("--moe-runner-backend", "triton")),
        ("srt/layers/quantization/mxfp4_reed_moe.py:apply", ("--moe-runner-backend", "triton")),
        ("srt/layers/quantization/fp8_reed.py:apply", ("--fp8-gemm-backend", "triton")),
        ("srt/layers/quantization/quark/nvfp4_reed.py:apply", ("--fp4-gemm-backend", "flashinfer_cutlass")),
        ("srt/layers/attention/reed_backend.py:forward", ("--attention-backend", "triton")),
        ("srt/layers/attention/linear/reed.py:forward", ("--linear-attn-backend", "triton")),
        ("srt/layers/attention/mamba/reed.py:forward", ("--mamba-backend", "triton")),
        ("srt/layers/attention/vision.py:forward", ("--mm-attention-backend", "triton_attn")),
        ("srt/layers/attention/dsa/reed.py:forward", None),  # sparse kernels are chosen in other words
        ("srt/constrained/reed.py:accept", None),
        ("srt/lora/reed.py:run", ("--lora-backend", "triton")),
        ("srt/layers/sampler.py:forward", ("--sampling-backend", "pytorch")),
        ("srt/models/reed.py:forward", None),
        ("lib/site-packages/deep_ep/reed.py:dispatch", ("--moe-a2a-backend", "none")),
        ("lib/site-packages/flashinfer/fused_moe/reed.py:run", ("--moe-runner-backend", "triton")),
        ("lib/site-packages/flashinfer/decode.py:plan", ("--attention-backend", "triton")),
        ("lib/site-packages/flashinfer/sampling.py:top_k", ("--sampling-backend", "pytorch")),
        ("lib/site-packages/deep_gemm/reed.py:fp8", ("--fp8-gemm-backend", "triton")),
        ("lib/site-packages/sgl_kernel/flash_attn.py:run", ("--attention-backend", "triton")),
        ("lib/site-packages/torch/nn/reed.py:run", None),
    ],
)
def test_the_part_whose_files_failed_has_other_kernels(place: str, choice: tuple[str, str] | None) -> None:
    assert other_kernels(crash(link("RuntimeError", "the reed is bent", "srt/models/reed.py:run", place))) == choice


def test_the_place_says_more_than_the_words_which_say_more_than_nothing() -> None:
    made = link("RuntimeError", "no experts", "srt/layers/attention/reed.py:forward")
    assert other_kernels(crash(made)) == ("--attention-backend", "triton")
    assert other_kernels(crash(link("RuntimeError", "no experts", "srt/models/reed.py:forward"))) == (
        "--moe-runner-backend",
        "triton",
    )


def test_what_is_in_force_is_not_offered_again() -> None:
    made = crash(link("RuntimeError", "attention"), flags={"attention_backend": "'triton'"})
    assert other_kernels(made) == ("--attention-backend", "flashinfer")
    assert other_kernels(crash(link("RuntimeError", "LoRA"), flags={"lora_backend": "'triton'"})) is None


def test_a_release_without_that_flag_has_no_choice() -> None:
    assert other_kernels(crash(link("RuntimeError", "attention"), release="0.5.12")) is not None
    assert other_kernels(crash(link("RuntimeError", "heron_moe"), release="0.4.0")) is None


def test_each_value_is_one_that_a_release_takes() -> None:
    for _, field, values in _CHOICES:
        name = catalogue().setting(field, values[0], None)
        assert name is not None, field
        assert all(catalogue().takes(name, value) for value in values), field
        assert set(values) <= ONLY_AS.get(name, set(values)), field
        assert name not in NEVER_SET


@pytest.mark.parametrize(
    ("message", "package"),
    [
        ("FlashInfer met a heron", "flashinfer-python"),
        ("Assertion error (/deepgemm/heron.hpp:7)", "sgl-deep-gemm"),
        ("sgl_kernel has no heron", "sglang-kernel"),
        ("DeepEP lost a heron", "deep-ep"),
        ("a heron is gone", ""),
    ],
)
def test_the_package_that_the_message_names(message: str, package: str) -> None:
    assert named_package(crash(link("RuntimeError", message))) == package


def test_what_a_request_wrote_names_nothing() -> None:
    from triage.model import Phase

    made = crash(link("ValueError", "no such word: 'CUDA out of memory in attention'"), phase=Phase.SERVING)
    assert other_kernels(made) is None


def test_what_two_rungs_would_do_alike_is_offered_once(tmp_path: Path) -> None:
    edit = "edits: [{op: set-flag, name: --disable-cuda-graph}]"
    rungs = "".join(f"  - {{id: {name}, kind: flag, title: Do, cost: a, confirmed: false, {edit}}}\n" for name in "ab")
    look = "".join(f"  - {{id: {name}, kind: advice, title: Look, cost: a, confirmed: false}}\n" for name in "cd")
    write(tmp_path, "lake", rule("{exception: ValueError, message: heron}", f"remedies:\n{rungs}{look}"))
    (match,) = book(tmp_path).match(crash(link("ValueError", "heron")))
    assert [one.id for one in match.remedies] == ["a", "c", "d"]


def test_a_rung_whose_kernels_nobody_names_is_left_out(tmp_path: Path) -> None:
    edits = '[{op: set-flag, name: "{other_flag}", value: "{other_value}"}]'
    rungs = "".join(
        f"  - {{id: {name}, kind: {kind}, title: '{title}', cost: a, confirmed: false{more}}}\n"
        for name, kind, title, more in (
            ("other", "flag", "Other ({other_kernels})", f", edits: {edits}"),
            ("look", "advice", "Look at {named_package}", ""),
            ("last", "advice", "Look", ""),
        )
    )
    write(tmp_path, "lake", rule("{exception: ValueError, message: heron}", f"remedies:\n{rungs}"))
    (told,) = book(tmp_path).match(crash(link("ValueError", "heron attention of flashinfer")))
    assert [one.id for one in told.remedies] == ["other", "look", "last"]
    (edit,) = told.remedies[0].edits
    assert (told.remedies[0].title, edit.name, edit.value) == (
        "Other (--attention-backend triton)",
        "--attention-backend",
        "triton",
    )
    (untold,) = book(tmp_path).match(crash(link("ValueError", "heron")))
    assert [one.id for one in untold.remedies] == ["last"]
