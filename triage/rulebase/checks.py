"""Which of the server's settings a failing check names, in its message or in the source line that raised, or reads, by
catalogue/checks.json; and which part that the server may do without failed, by the files of its traceback, or, where
none is SGLang's, by a class that its message names (catalogue/messages.json).

A crash comes in; flags and variables as one writes them go out, of those named at most four, those in plain sight
first. Called by `offer` where a ladder asks for it. A log is anybody's text: nothing is named but what the catalogue
knows, and nothing that triage never changes. Pure, but for the catalogue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache

from triage.model import Crash, Link
from triage.never import NEVER_FLAGS, NEVER_VARIABLES
from triage.rulebase.catalogue import catalogue
from triage.rulebase.evidence import frames, own_words
from triage.shipped import shipped

_MOST = 4
_HEAD = 600  # of a message: behind that it quotes other things
_SOURCE = 4  # lines of a statement, as Pythons from 3.13 on print it whole
# What these say names attributes of the code, not what is asked of the server.
_NO_CHECK = frozenset({"AttributeError", "NameError", "UnboundLocalError", "OutOfMemoryError", "CutTraceback"})
# Their messages name classes that are asked for or filled, not whose code failed.
_NO_CLASS = frozenset({"ImportError", "ModuleNotFoundError", "OutOfMemoryError", "AcceleratorError", "CutTraceback"})
_CLASS = re.compile(r"(?<!\w)_?[A-Z]\w{4,80}")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9]{1,30}(?:-[a-z0-9]{1,30}){0,8}")
_FIELD = re.compile(r"(?<![A-Za-z0-9_-])[a-z][a-z0-9]{0,30}(?:_[a-z0-9]{1,30}){1,8}(?!\w|\()")
_VARIABLE = re.compile(r"\bSGL(?:ANG)?_[A-Z0-9_]{3,60}")
_WORD = re.compile(r"(?<![\w.])[A-Za-z][A-Za-z0-9]*(?!\w|\()")
_COMPILED = re.compile(r"\b(\w{3,60})\.(?:cuh?|cpp|hpp|cc)\b")  # `custom_all_reduce.cuh`, named as its module is
_CHECK = re.compile(r"(?:assert|raise|if|elif)\b|server_args\.")
_FRAME = re.compile(r'\s*File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_SWITCHES = ("", "enable_", "disable_")
_SAID = {  # what is never said in the words of its flag
    "pipeline_parallel": "pp_size",
    "pipeline_parallelism": "pp_size",
    "tensor_parallel": "tp_size",
    "tensor_parallelism": "tp_size",
    "expert_parallel": "ep_size",
    "expert_parallelism": "ep_size",
    "data_parallel": "dp_size",
    "data_parallelism": "dp_size",
    "speculative_decoding": "speculative_algorithm",
    "overlap_scheduler": "disable_overlap_schedule",
    "overlap_scheduling": "disable_overlap_schedule",
    "prefix_cache": "disable_radix_cache",
    "prefix_caching": "disable_radix_cache",
    "cuda_graphs": "disable_cuda_graph",
    "hierarchical_caching": "enable_hierarchical_cache",
}
# Parts of the server that it runs as well without: how their files are named, and what switches them on.
_PARTS = (
    (r"multiplex/", "enable_pdmux"),
    (r"kv_canary/", "kv_canary"),
    (r"dllm/", "dllm_algorithm"),
    (r"weight_cache/", "weight_cache_mode"),
    (r"elastic_ep/", "elastic_ep_backend"),
    (r"eplb/", "enable_eplb"),
    (r"sampling/watermarking/", "enable_watermark"),
    (r"(?:\w+/)*pymscclpp\.py", "enable_mscclpp"),
    (r"(?:\w+/)*torch_symm_mem\.py", "enable_torch_symm_mem"),
    (r"(?:\w+/)*pynccl_allocator\.py", "enable_symm_mem"),
    (r"(?:\w+/)*(?:two_batch_overlap|operations\w*)\.py", "enable_two_batch_overlap"),
    (r"(?:\w+/)*single_batch_overlap\.py", "enable_single_batch_overlap"),
    (r"(?:\w+/)*flashinfer_comm_fusion\.py", "enable_flashinfer_allreduce_fusion"),
    (r"(?:\w+/)*hisparse\w*\.py", "enable_hisparse"),
    (r"(?:\w+/)*prefill_delayer\.py", "enable_prefill_delayer"),
    (r"(?:\w+/)*async_dynamic_batch_tokenizer\.py", "enable_dynamic_batch_tokenizer"),
    (r"mem_cache/storage/lmcache/", "enable_lmcache"),
    (r"mem_cache/storage/flexkv/", "enable_flexkv"),
    (r"mem_cache/storage/", "hicache_storage_backend"),
    (r"mem_cache/hicache_storage\.py", "hicache_storage_backend"),
    (r"mem_cache/unified_memory_pool\.py", "enable_unified_memory"),
    (r"(?:\w+/)*(?:hi\w*radix_cache|memory_pool_host|cache_controller)\.py", "enable_hierarchical_cache"),
    (r"mem_cache/pool_host/", "enable_hierarchical_cache"),
    (r"(?:\w+/)*offloader\w*\.py", "cpu_offload_gb"),
    (r"disaggregation/kv_events\.py", "kv_events_config"),
    (r"disaggregation/decode_kvcache_offload_manager\.py", "disaggregation_decode_enable_offload_kvcache"),
    (r"layers/moe/token_dispatcher/(?!base|standard|__init__)", "moe_a2a_backend"),
    (r"layers/moe/kt_ep_wrapper\.py", "kt_weight_path"),
    (r"layers/torchao_utils\.py", "torchao_config"),
    (r"layers/attention/double_sparsity_backend\.py", "enable_double_sparsity"),
    (r"layers/dp_attention\.py", "enable_dp_attention"),
    (r"lora/", "enable_lora"),
    (r"speculative/", "speculative_algorithm"),
    (r"models/\w+_(?:nextn|mtp|eagle3?|dflash|dspark|medusa)\.py", "speculative_algorithm"),  # drafts
    (r"function_call/", "tool_call_parser"),
    (r"(?:\w+/)*reasoning_parser\.py", "reasoning_parser"),
    (r"sampling/custom_logit_processor\.py", "enable_custom_logit_processor"),
    (r"(?:\w+/)*multi_tokenizer_mixin\.py", "tokenizer_worker_num"),
    (r"entrypoints/openai/tool_server\.py", "tool_server"),
    (r"(?:metrics/|(?:\w+/)*metrics_collector\.py)", "enable_metrics"),
    (r"(?:tracing/|(?:\w+/)*trace\.py)", "enable_trace"),
)
# Parts that run unless a flag switches them off.
_UNASKED = (
    (r"sglang/srt/(?:compilation/|(?:\w+/)*piecewise_cuda_graph\w*\.py)", "disable_piecewise_cuda_graph"),
    (r"sglang/srt/(?:\w+/)*(?:custom|quick)_all_reduce\w*\.py", "disable_custom_all_reduce"),
    (r"sglang/srt/mem_cache/(?:(?:swa|mamba|unified)_)?radix_cache\w*\.py", "disable_radix_cache"),
    (r"sglang/srt/managers/(?:overlap_utils|tp_worker_overlap_thread)\.py", "disable_overlap_schedule"),
    (r"sglang/srt/multimodal/processors/", "disable_fast_image_processor"),
)
_NO_SETTING = frozenset({"host", "device", "dist_init_addr", "nccl_port", "node_rank", "base_gpu_id", "random_seed"})


def named(crash: Crash) -> tuple[str, ...]:
    """Flags as the release spells them, and variables, that the root's own check names."""
    release = crash.context.sglang_version
    found: dict[str, str] = {}  # by field: one may be written in several ways
    for link in crash.root.chain:
        if link.exception.rsplit(".", 1)[-1] in _NO_CHECK:
            continue
        message, line = own_words(link, crash.phase)[:_HEAD], _source(crash, link)
        plain = (*_plain(message, release), *_plain(line, release))
        for field, name in (*plain, *_known(link, message, release), *_spoken(message, release)):
            found.setdefault(field, name)
    return tuple(found.values())[:_MOST]


def failed_part(crash: Crash) -> str:
    """The flag of the optional part that failed, the innermost one in the root's traceback, or else the `named_part`;
    '' where there is none."""
    for link in crash.root.chain:
        for frame in reversed(link.frames):
            _, ours, file = frame.path.replace("\\", "/").rpartition("sglang/srt/")
            if ours and (field := _optional(file)):
                return _written(field, crash.context.sglang_version) or ""
    return named_part(crash)


def named_part(crash: Crash) -> str:
    """The flag of the optional part to which the classes belong that the root's own message names, where no frame of
    SGLang says more; '' where there is none."""
    fields = {field for file in _class_files(crash) if (field := _optional(file))}
    return (_written(fields.pop(), crash.context.sglang_version) or "") if len(fields) == 1 else ""


def switch_off(crash: Crash) -> str:
    """The flag that switches off the part which failed, where that runs unless it is given; '' where there is none."""
    paths = [frame.path.replace("\\", "/") for link in crash.root.chain for frame in reversed(link.frames)]
    told = [name for link in crash.root.chain for name in _COMPILED.findall(own_words(link, crash.phase)[:_HEAD])]
    paths += [f"sglang/srt/{file}" for file in (*_class_files(crash), *(f"{name}.py" for name in told))]
    for path in paths:
        for files, field in _UNASKED:
            if crash.context.flags.get(field) != "True" and re.search(rf"(?:^|/){files}", path):
                release, flag = crash.context.sglang_version, f"--{field.replace('_', '-')}"
                known = release is None and catalogue().newest(flag)  # some went with the last releases
                return _written(field, release) or (flag if known else "")
    return ""


def switch_of(file: str) -> str:
    """The field of the flag that switches on, or off, the part to which a file below `sglang/srt/` belongs; '' where it
    is of none. What the catalogue keeps of classes is chosen by it."""
    unasked = (field for files, field in _UNASKED if re.match(files, f"sglang/srt/{file}"))
    return _optional(file) or next(unasked, "")


def _optional(file: str) -> str:
    return next((field for files, field in _PARTS if re.match(files, file)), "")


def _class_files(crash: Crash) -> list[str]:
    """Where the classes are defined that the root's own message names, if no frame of SGLang says more."""
    cause = crash.root.cause if crash.root.chain else None
    if cause is None or cause.exception.rsplit(".", 1)[-1] in _NO_CLASS:
        return []
    paths = (frame.path.replace("\\", "/") for link in crash.root.chain for frame in frames(link))
    if any(re.search(r"(?:^|/)sglang/", path) for path in paths):
        return []
    names = dict.fromkeys(_CLASS.findall(own_words(cause, crash.phase)[:_HEAD]))
    return [known_classes()[name] for name in names if name in known_classes()]


@lru_cache(maxsize=1)
def known_classes() -> dict[str, str]:
    """Class -> its file below `sglang/srt/`. Read when the first message without a place asks for a part."""
    files = json.loads((shipped("catalogue") / "messages.json").read_text(encoding="utf-8"))["classes"]
    return {name: file for file, names in files.items() for name in names}


def _plain(text: str, release: str | None) -> Iterator[tuple[str, str]]:
    """What is written as the command line, the code or the environment writes it."""
    book = catalogue()
    for flag in _FLAG.findall(text):
        declared = book.newest(flag)
        if declared and _may(f"--{declared.dest.replace('_', '-')}", declared.dest) and flag not in NEVER_FLAGS:
            yield declared.dest, flag
    for field in _FIELD.findall(text):
        if field in book.fields() and (name := _written(field, release)):
            yield field, name
    for variable in _VARIABLE.findall(text):
        if book.knows_variable(variable) and not any(fnmatchcase(variable, glob) for glob in NEVER_VARIABLES):
            yield variable, variable


def _spoken(text: str, release: str | None) -> Iterator[tuple[str, str]]:
    """What is said in words: 'page size', 'DP attention', 'chunked prefill'."""
    known, words = catalogue().fields(), [word.lower() for word in _WORD.findall(text)]
    at = 0
    while at < len(words):
        for many in (4, 3, 2):
            said = "_".join(words[at : at + many])
            field = _SAID.get(said) or next((one + said for one in _SWITCHES if one + said in known), None)
            if many <= len(words) - at and field and (name := _written(field, release)):
                yield field, name
                at += many - 1
                break
        at += 1


def _known(link: Link, message: str, release: str | None) -> Iterator[tuple[str, str]]:
    """What the conditions of that check read in SGLang's source: of the checks at this place the one of whose words the
    most stand in the message."""
    at = link.frame
    if at is None or "sglang/srt/" not in at.path.replace("\\", "/"):
        return
    said = set(re.findall(r"[a-z]{4,}", message.lower()))
    here = known_checks().get(f"{at.file}:{at.function.rsplit('.', 1)[-1]}", [])
    fitting = [(len(words), settings) for words, settings in here if said.issuperset(words)]
    for setting in max(fitting, default=(0, []))[1]:
        if setting.isupper():
            yield from _plain(setting, release)
        elif name := _written(setting, release):
            yield setting, name


@lru_cache(maxsize=1)
def known_checks() -> dict[str, list[tuple[list[str], list[str]]]]:
    """Read when the first check is looked up: a one-shot command over a healthy log never pays for it."""
    found: dict[str, list[tuple[list[str], list[str]]]] = json.loads(
        (shipped("catalogue") / "checks.json").read_text(encoding="utf-8")
    )["checks"]
    return found


@lru_cache(1024)  # each crash asks for the same few, and the answer takes a look at every flag
def _written(field: str, release: str | None) -> str | None:
    name = catalogue().setting(field, "True", release)
    return name if name and _may(name, field) else None


def _may(name: str, field: str) -> bool:
    return name not in NEVER_FLAGS and field not in _NO_SETTING


def _source(crash: Crash, link: Link) -> str:
    """The source line that raised, where it is a check; '' else."""
    if link.frame is None:
        return ""
    texts = [line.text for line in crash.root.lines]
    for at in range(len(texts) - 1, -1, -1):
        place = _FRAME.match(texts[at])
        if place and place["path"] == link.frame.path and place["line"] == str(link.frame.line):
            body = []
            for text in texts[at + 1 : at + 1 + _SOURCE]:
                if not text.startswith("    ") or not text.strip(" ~^"):
                    break
                body.append(text.strip())
            whole = " ".join(body)
            return whole[:_HEAD] if link.exception == "AssertionError" or _CHECK.match(whole) else ""
    return ""
