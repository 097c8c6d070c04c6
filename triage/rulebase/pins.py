"""Which package outside SGLang a crash came out of, and which version of a package a release of SGLang asks for.

A crash, or a package's name, and a release come in; names and specifiers as pip takes them go out. Called by `offer`.
Pure, but for catalogue/pins.json. A path out of a log names nothing but the packages listed here: what somebody is told
to install is never a stranger's word.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from triage.model import Crash
from triage.rulebase.catalogue import catalogue
from triage.shipped import shipped

# Folder in site-packages -> what brings it. torch is none of them: its frames stand between any two others.
BROUGHT_BY = {
    **{name: name for name in ("aiter", "av", "bitsandbytes", "datasets", "diffusers", "einops", "gguf", "kernels")},
    **{
        name: name
        for name in ("llguidance", "lmcache", "modelscope", "nixl", "numpy", "outlines", "peft", "safetensors")
    },
    **{name: name for name in ("sentencepiece", "soundfile", "tiktoken", "tilelang", "timm", "tokenizers", "torchao")},
    **{name: name for name in ("torchaudio", "torchcodec", "torchvision", "transformers", "triton", "uvloop", "vllm")},
    **{name: name for name in ("xgrammar", "interegular", "librosa", "gptqmodel")},
    "PIL": "pillow",
    "auto_round": "auto-round",
    "compressed_tensors": "compressed-tensors",
    "cutlass": "nvidia-cutlass-dsl",
    "decord": "decord2",
    "deep_ep": "deep-ep",
    "deep_gemm": "sgl-deep-gemm",
    "flash_attn": "flash-attn",
    "flash_mla": "sgl-flash-mla",
    "flashinfer": "flashinfer-python",
    "huggingface_hub": "huggingface-hub",
    "mistral_common": "mistral-common",
    "mooncake": "mooncake-transfer-engine",
    "nixl_cu12": "nixl",
    "nixl_cu13": "nixl",
    "openai_harmony": "openai-harmony",
    "outlines_core": "outlines",
    "quack": "quack-kernels",
    "quark": "amd-quark",
    "sgl_kernel": "sglang-kernel",
    "sgl_kernel_npu": "sgl-kernel-npu",
    "torch_memory_saver": "torch-memory-saver",
    "torch_npu": "torch-npu",
    "tvm_ffi": "apache-tvm-ffi",
    "zmq": "pyzmq",
}
_SAME = {"sglang-kernel": "sgl-kernel"}  # what a package was called before
_FOLDERS = re.compile(r"(?:site|dist)-packages/(?P<folders>(?:[\w.-]+/){0,12})(?P<file>[\w-]+)\.(?:py|pyi|pyx|so)\b")
# A checkout that was installed as it lies: flashinfer/flashinfer/..., transformers/src/transformers/...
_CHECKOUT = re.compile(r"(?:^|/)(?P<name>[\w-]{2,40})/(?:src/|python/)?(?P=name)/(?:\w+/){0,12}\w+\.py$")
_OURS = re.compile(r"(?:^|/)sglang/(?:\w+/){0,12}\w+\.py$")
_BARE = re.compile(r"[A-Za-z][\w.-]*")


def outside(crash: Crash) -> str:
    """The package in whose code the root failed, '' where it failed in SGLang's own or in an unknown one."""
    root = crash.root.cause
    for frame in reversed(root.frames or ((root.frame,) if root.frame else ())):
        path = frame.path.replace("\\", "/")
        if (found := _package(path)) or _OURS.search(path):
            return found
    return ""


def _package(path: str) -> str:
    """Of a bundle (`nvidia_cutlass_dsl/python_packages/cutlass/`) the inner folder counts."""
    place = _FOLDERS.search(path)
    if place is None:
        checkout = _CHECKOUT.search(path)
        return BROUGHT_BY.get(checkout["name"], "") if checkout else ""
    folders = place["folders"].split("/")[:-1] or [place["file"]]
    return next((BROUGHT_BY[one] for one in folders[:3] if one in BROUGHT_BY), "")


def asked(versions: str, release: str | None) -> tuple[str, ...]:
    """What the release asks for of these packages, those of which it says something: ('torch==2.9.1', ...).

    A word that has a specifier already is left out."""
    found = []
    for word in versions.split():
        if _BARE.fullmatch(word):
            name = BROUGHT_BY.get(word, word.replace("_", "-").lower())
            for one in filter(None, (name, _SAME.get(name))):
                if specifier := _specifier(one, release):
                    found.append(one + specifier)
                    break
    return tuple(found)


def _specifier(package: str, release: str | None) -> str:
    """'' where the release is not known, or asks for no version, or the two that it lies between differ."""
    book = catalogue()
    places = [book.releases.index(one) for one in book.near(release)]
    spans = known_pins().get(package, ())
    said = {next((text for first, last, text in spans if first <= at <= last), "") for at in places}
    return said.pop() if len(said) == 1 else ""


@lru_cache(maxsize=1)
def known_pins() -> dict[str, list[tuple[int, int, str]]]:
    """Read when the first release is asked about."""
    found: dict[str, list[tuple[int, int, str]]] = json.loads(
        (shipped("catalogue") / "pins.json").read_text(encoding="utf-8")
    )["pins"]
    return found
