"""Which rungs other servers have to follow: an edit of one unit alone would set it at odds with them.

In: the edits of a rung and the flags that the server told. Out: where the rung has to be carried out, in words. Called
by `offer`, which leaves such a rung to people. Pure. It knows nothing of the other units, and does not look for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from triage.model import Edit
from triage.rulebase.options import dest, fields
from triage.rulebase.rule import EditText

BOTH_SIDES = "on both sides of the pair at once"
EVERY_NODE = "on every node at once"
STORAGE = "with the storage of the host cache emptied, on all servers that share it"

_SIDES = ("prefill", "decode")
_PROTOCOL = frozenset({"disaggregation_transfer_backend"})  # there is a pair, whatever the log tells
_HANDED_OVER = frozenset(  # how a KV cache lies, and over how many ranks
    {
        "page_size",
        "kv_cache_dtype",
        "dtype",
        "tp_size",
        "pp_size",
        "dp_size",
        "enable_dp_attention",
        "speculative_algorithm",
        "hicache_mem_layout",
        "attention_backend",  # each lays out and pages a cache in its own way
        "prefill_attention_backend",
        "decode_attention_backend",
        "dsa_prefill_backend",
        "dsa_decode_backend",
        "nsa_prefill_backend",
        "nsa_decode_backend",
    }
)
_STORED = frozenset({"page_size", "kv_cache_dtype", "hicache_mem_layout"})  # how a page lies below the host cache
_LOCAL = frozenset({"NCCL_DEBUG", "NCCL_P2P_DISABLE"})  # of one machine's own, or words alone
_JOINT = ("SGLANG_", "SGL_", "NCCL_", "NVSHMEM_", "GLOO_", "MC_", "UCX_")


def followed(edits: Iterable[Edit], flags: Mapping[str, str], *, told: bool) -> str | None:
    """Where the others have to change with it, None where there are none. `told`: the value is what the log says of the
    other side, which this one shall have too."""
    edits = tuple(edits)
    changed = {edit.name for edit in edits if edit.op.endswith("-flag")}
    if any(dest(name) in _PROTOCOL for name in changed):
        return BOTH_SIDES
    if flags.get("disaggregation_mode", "").strip("'\"") in _SIDES and _among(_HANDED_OVER, changed) and not told:
        return BOTH_SIDES
    if _several(flags) and (changed or any(_joint(edit) for edit in edits)):
        return EVERY_NODE
    if flags.get("hicache_storage_backend", "None").strip("'\"") not in ("", "None") and _among(_STORED, changed):
        return STORAGE
    return None


def always(edits: Iterable[EditText]) -> str | None:
    """The same for a rung as its rule has it: where it has to be carried out whatever server it is for."""
    return followed((Edit(edit.op, name) for edit in edits for name in edit.names), {}, told=False)


def _among(wanted: frozenset[str], names: set[str]) -> bool:
    return any(not wanted.isdisjoint(fields(name)) for name in names)


def _several(flags: Mapping[str, str]) -> bool:
    nodes = flags.get("nnodes", "1").strip("'\"")
    return nodes.isdecimal() and int(nodes) > 1


def _joint(edit: Edit) -> bool:
    return edit.op.endswith("-env") and edit.name.startswith(_JOINT) and edit.name not in _LOCAL
