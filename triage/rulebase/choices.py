"""Which other kernels the server can be told to use for the part that failed, by the files of its traceback or, where
those tell none, by the words of its message; and which package outside SGLang that message names.

A crash comes in; a flag with a value, or a package as pip takes it, goes out, nothing where the message names none.
Called by `offer` where a ladder asks for it. A line without its traceback says no more than this. A log is anybody's
text: nothing is named but what stands in the tables here. Pure, but for the catalogue.
"""

from __future__ import annotations

import re

from triage.model import Crash
from triage.rulebase.catalogue import catalogue
from triage.rulebase.evidence import own_words

_INNER = 4  # frames of SGLang, or of a package below it: those further out only called
_BELOW = re.compile(r".*(?:sglang/srt/|-packages/(?!sglang/))(?P<file>.*)")
_HEAD = 600  # of a message: behind that it quotes other things
# What messages call a part, the field of its flag, the values that most models and GPUs take, the likeliest first. What
# is a part of another stands above it. None that changes what is answered, as the grammars' would.
_CHOICES = (
    (r"\bLoRA|\b[Ll]ora(?:\b|_)", "lora_backend", ("triton",)),
    (r"\bViT\b|[Vv]ision[ _]?[Aa]tt|\bmm_attention", "mm_attention_backend", ("triton_attn", "sdpa")),
    (
        r"\bGDN\b|\bKDA\b|[Gg]ated ?[Dd]elta|[Ll]inear[ _]?[Aa]tt|causal_conv1d|chunk_gated",
        "linear_attn_backend",
        ("triton",),
    ),
    (r"\b[Dd]eep_?[Ee][Pp]\b", "moe_a2a_backend", ("none",)),
    (r"[Mm]amba|\bSSM\b|\bssm_", "mamba_backend", ("triton",)),
    (
        r"\bMo[Ee]|\bmoe|_moe|MoE|[Ee]xperts?(?:\b|_)|\btop-?k_(?:ids|weights|output)|DispatchOutput",
        "moe_runner_backend",
        ("triton",),
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
# The files below `sglang/srt/`, or of a package, that hold a part's kernels or call them, and the field of a row above
# ('': none).
_FILES = (
    (r"lora/", "lora_backend"),
    (r"layers/attention/vision", "mm_attention_backend"),
    (r"layers/attention/(?:fla|linear)/|layers/attention/(?:hybrid_linear|gdn|kda)\w*\.py", "linear_attn_backend"),
    (r"layers/attention/mamba/|layers/attention/mamba\w*\.py", "mamba_backend"),
    (r"layers/attention/(?:dsa|nsa|qsa|dsv4|minicpm|minimax)|layers/attention/\w*(?:sparse|deepseek_v4)\w*\.py", ""),
    (r"layers/attention/|layers/radix_attention\.py", "attention_backend"),
    (r"layers/moe/|layers/quantization/\w*(?:moe|mxfp4)\w*\.py", "moe_runner_backend"),
    (r"layers/quantization/(?:\w+/)*\w*(?:nvfp4|fp4|modelopt)\w*\.py", "fp4_gemm_runner_backend"),
    (r"layers/quantization/(?:\w+/)*\w*fp8\w*\.py", "fp8_gemm_runner_backend"),
    (r"layers/sampler\.py|sampling/|flashinfer/sampling\w*\.py", "sampling_backend"),
    (r"deep_ep/", "moe_a2a_backend"),
    (r"flashinfer/fused_moe/|(?:sgl_kernel|vllm)/\w*moe\w*\.py|triton_kernels/", "moe_runner_backend"),
    (r"flashinfer/gemm|deep_gemm/|sgl_kernel/gemm\w*\.py", "fp8_gemm_runner_backend"),
    (r"flashinfer/\w*(?:decode|prefill|attention|mla|cascade)\w*\.py", "attention_backend"),
    (r"(?:sgl_kernel/(?:flash_attn|flash_mla|attention)|flash_attn|flash_mla)\b", "attention_backend"),
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
    text, field = _text(crash), _field(crash)
    if not field:
        return None
    now = crash.context.flags.get(field, "").strip("'\"")
    values = next(values for _, known, values in _CHOICES if known == field)
    left = (one for one in values if one != now and not re.search(rf"(?i)\b{one}\b", text))
    value, name = next(left, None), catalogue().setting(field, values[0], crash.context.sglang_version)
    return (name, value) if name and value else None


def _field(crash: Crash) -> str:
    """How `server_args=` calls the choice of kernels for the part that failed; '' where there is none."""
    inner: list[str] = []
    for link in crash.root.chain:
        for frame in reversed(link.frames):
            if place := _BELOW.search(frame.path.replace("\\", "/")):
                inner.append(place["file"])
    for file in inner[:_INNER]:
        for files, field in _FILES:
            if re.match(files, file):
                return field
    text = _text(crash)
    return next((field for words, field, _ in _CHOICES if re.search(words, text)), "")


def named_package(crash: Crash) -> str:
    """'' where the message names none."""
    text = _text(crash)
    return next((package for words, package in _PACKAGES if re.search(words, text)), "")


def _text(crash: Crash) -> str:
    return "\n".join(own_words(link, crash.phase)[:_HEAD] for link in crash.root.chain)
