"""The options a server runs with, as its log told them, held against what a rule says of options.

In: the flags of `server_args=` by field name and a rule's conditions and edits. Out: whether a condition holds, what
stands there already, which options are on. Called by `offer` and by all that match rules. It must not look at the unit,
nor say which flags there are (rulebase.catalogue does).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from triage.rulebase.catalogue import catalogue
from triage.rulebase.rule import EditText, FlagCondition

NOT_SET = frozenset({"", "None", "False", "[]"})
_NAMED = 4
_NOT_ON = frozenset({"", "None", "False", "[]", "none", "auto", "0", "1"})
_OPTIONS = (  # what a server runs as well without, the rarest first
    "enable_beta_spec",
    "enable_linear_replayssm_spec",
    "enable_two_batch_overlap",
    "enable_single_batch_overlap",
    "enable_pdmux",
    "enable_symm_mem",
    "enable_torch_symm_mem",
    "enable_mscclpp",
    "enable_piecewise_cuda_graph",
    "enable_torch_compile",
    "enable_mixed_chunk",
    "enable_flashinfer_allreduce_fusion",
    "enable_eplb",
    "enable_lmcache",
    "enable_prefill_context_parallel",
    "enable_nsa_prefill_context_parallel",
    "enable_dp_lm_head",
    "enable_hierarchical_cache",
    "speculative_algorithm",
    "moe_a2a_backend",
    "enable_deepep_moe",
    "enable_dp_attention",
    "pp_size",
    "kv_cache_dtype",
    "cpu_offload_gb",
)
_NUMBER = re.compile(r"\d+(\.\d+)?")


def switched_on(flags: Mapping[str, str]) -> str:
    """The options in force that are tested least together, as one writes them; at most four, '' where none is told."""
    named = []
    for name in _OPTIONS:
        value = flags.get(name, "")
        if value.strip("'\"") not in _NOT_ON:
            named.append(f"--{name.replace('_', '-')}")
    return ", ".join(named[:_NAMED])


def so_already(edit: EditText, flags: Mapping[str, str]) -> str | None:
    """Why an edit would change nothing, by what the server said of its flags."""
    told = [(name, value) for name in edit.names if (value := value_of(name, flags)) is not None]
    if not edit.op.endswith("-flag") or not told:
        return None
    name, value = told[0]
    if edit.op == "remove-flag":
        return f"the server runs without {name} already" if all(v in NOT_SET for _, v in told) else None
    if edit.op == "set-flag" and edit.floor is None and edit.ceiling is None:
        wanted = "True" if edit.value is None else str(edit.value)
        same = value.strip("'\"").lower() == wanted.lower()
        return f"the server runs with {name}{'' if edit.value is None else f' {value}'} already" if same else None
    if edit.op in ("step-flag", "scale-flag") and isinstance(edit.value, int | float) and _NUMBER.fullmatch(value):
        down = edit.value < (0 if edit.op == "step-flag" else 1)
        bound = edit.floor if down else edit.ceiling
        if bound is not None and (float(value) <= bound if down else float(value) >= bound):
            return f"{name} is {value} already, and {bound:g} is as far as this goes"
    return None


def dest(name: str) -> str:
    """The name of a flag among the server's own arguments, as far as its spelling tells."""
    return name.removeprefix("--").replace("-", "_")


@lru_cache(1024)  # rules ask for the same few with each crash
def fields(name: str) -> tuple[str, ...]:
    """A flag's names there: its own, then what releases call it (`--ep`: ep, ep_size, expert_parallel_size)."""
    return (dest(name), *catalogue().dests("--" + dest(name).replace("_", "-")))


def value_of(name: str, flags: Mapping[str, str]) -> str | None:
    """What the server said of a flag, under whichever name."""
    own = flags.get(dest(name))
    if own is not None or not flags:
        return own
    return next((flags[field] for field in fields(name) if field in flags), None)


def within(edit: EditText, flags: Mapping[str, str]) -> str | None:
    """Why a value that goes one way only is left alone, by what the server said of its flags; -1 is 'without one'."""
    value = value_of(edit.names[0], flags) or ""
    if not _NUMBER.fullmatch(value):
        return None
    low = edit.floor is not None and float(value) >= edit.floor
    high = edit.ceiling is not None and float(value) <= edit.ceiling
    return f"the server runs with {edit.names[0]} {value} already" if low or high else None


def flag_holds(condition: FlagCondition, flags: Mapping[str, str]) -> bool:
    """Does one of the condition's flags fulfil it?"""
    known = [value for name in condition.names if (value := value_of(name, flags)) is not None]
    return any(_fulfils(condition, value) for value in known) if known else condition.or_unknown


def _fulfils(condition: FlagCondition, value: str) -> bool:
    if condition.present is not None and condition.present == (value in NOT_SET):
        return False
    if condition.equals and value.strip("'\"").lower() not in {wanted.lower() for wanted in condition.equals}:
        return False
    if condition.above is None and condition.below is None:
        return True
    try:
        number = float(value)
    except ValueError:
        return False
    above = condition.above is None or number > condition.above
    return above and (condition.below is None or number < condition.below)


def given(flag: str, flags: Mapping[str, str]) -> bool:
    return (value_of(flag, flags) or "") not in NOT_SET


def words(condition: FlagCondition) -> str:
    return " or ".join("--" + name.replace("_", "-") for name in condition.names)
