"""Which other kernels the server can be told to use, where the root's own message names the part that failed; and which
package outside SGLang that message names.

A crash comes in; a flag with a value, or a package as pip takes it, goes out, nothing where the message names none.
Called by `offer` where a ladder asks for it. A line without its traceback says no more than this. A log is anybody's
text: nothing is named but what stands in the tables here. Pure, but for the catalogue.
"""

from __future__ import annotations

import re

from triage.model import Crash
from triage.rulebase.catalogue import catalogue
from triage.rulebase.evidence import own_words

_HEAD = 600  # of a message: behind that it quotes other things
# What messages call a part, the field of its flag, the values that most models and GPUs take, the likeliest first. What
# is a part of another stands above it.
_CHOICES = (
    (r"\b[Gg]rammar|[Xx][Gg]rammar|[Oo]utlines|[Ll]lguidance", "grammar_backend", ("xgrammar", "llguidance")),
    (r"\bLoRA|\b[Ll]ora(?:\b|_)", "lora_backend", ("triton",)),
    (r"\bViT\b|[Vv]ision[ _]?[Aa]tt|\bmm_attention", "mm_attention_backend", ("triton_attn", "sdpa")),
    (
        r"\bGDN\b|\bKDA\b|[Gg]ated ?[Dd]elta|[Ll]inear[ _]?[Aa]tt|causal_conv1d|chunk_gated",
        "linear_attn_backend",
        ("triton",),
    ),
    (r"[Mm]amba|\bSSM\b|\bssm_", "mamba_backend", ("triton",)),
    (
        r"\bMo[Ee]|\bmoe|_moe|MoE|[Ee]xperts?(?:\b|_)|\btop-?k_(?:ids|weights|output)|DispatchOutput",
        "moe_runner_backend",
        ("triton", "cutlass"),
    ),
    (
        r"(?i)fp4[^\n]{0,40}(?:gemm|mm\b)|(?:gemm|mm_)[^\n]{0,40}fp4",
        "fp4_gemm_runner_backend",
        ("flashinfer_cutlass", "flashinfer_cudnn"),
    ),
    (
        r"(?i)fp8[^\n]{0,40}(?:gemm|mm\b)|(?:gemm|mm_)[^\n]{0,40}fp8|deep_?gemm",
        "fp8_gemm_runner_backend",
        ("triton", "cutlass"),
    ),
    (
        r"[Aa]ttention|[Aa]ttn|\b[Ff]mha|FMHA|\bMLA\b|\bmla_|_mla(?:\b|_)|[Ff]lash_?[Ii]nfer|[Ff]lash_?[Mm][Ll][Aa]|"
        r"\bFA[234]\b|head[_ ]dim|\bqkv\b|NUM_MMA|ForwardMetadata|dot\(q, k",
        "attention_backend",
        ("triton", "flashinfer"),
    ),
    (r"gemm|Gemm|GEMM|[Mm]arlin|thread config", "moe_runner_backend", ("triton",)),
    (r"[Pp]robability tensor|renorm|[Ss]ampling_from|multinomial", "sampling_backend", ("pytorch",)),
)
_PACKAGES = (
    (r"\b[Ff]lash[Ii]nfer", "flashinfer-python"),
    (r"\b[Dd]eep_?[Gg][Ee][Mm][Mm]", "sgl-deep-gemm"),
    (r"\b[Dd]eep_?[Ee][Pp](?![a-z])", "deep-ep"),
    (r"\b[Xx][Gg]rammar", "xgrammar"),
    (r"\bsgl[_-]kernel", "sglang-kernel"),
    (r"\btorch_memory_saver", "torch-memory-saver"),
    (r"\b[Mm]ooncake", "mooncake-transfer-engine"),
    (r"\b(?:nixl|NIXL)", "nixl"),
    (r"\b[Ff]lash_?[Mm][Ll][Aa]", "sgl-flash-mla"),
    (r"\b(?:ptxas|PTXAS)|\b[Tt]riton (?:[Ee]rror|compil)|\btl\.\w", "triton"),
    (r"\b(?:torch_npu|aclnn)", "torch-npu"),
)


def other_kernels(crash: Crash) -> tuple[str, str] | None:
    """A flag, as the release spells it, and the value to try: none that the server runs with, or that is refused."""
    text, flags = _text(crash), crash.context.flags
    for words, field, values in _CHOICES:
        if re.search(words, text):
            now = flags.get(field, "").strip("'\"")
            left = (one for one in values if one != now and not re.search(rf"(?i)\b{one}\b", text))
            value, name = next(left, None), catalogue().setting(field, values[0], crash.context.sglang_version)
            return (name, value) if name and value else None
    return None


def named_package(crash: Crash) -> str:
    """'' where the message names none."""
    text = _text(crash)
    return next((package for words, package in _PACKAGES if re.search(words, text)), "")


def _text(crash: Crash) -> str:
    return "\n".join(own_words(link, crash.phase)[:_HEAD] for link in crash.root.chain)
