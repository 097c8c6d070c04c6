"""What other servers have to follow is left to people: one side of a pair, or one node, is not changed alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.crashes import book, crash, link, rule, write
from triage.model import Remedy

PAIR = {"disaggregation_mode": "'decode'"}
NODES = {"nnodes": "2"}
STORAGE = {"hicache_storage_backend": "'file'"}
PAGE = "{op: set-flag, name: --page-size, value: 16}"
BACKEND = "{op: set-flag, name: --disaggregation-transfer-backend, value: nixl}"
LAYOUT = "{op: set-flag, name: --hicache-mem-layout, value: layer_first}"
ATTENTION = "{op: set-flag, name: --attention-backend, value: triton}"
PICTURES = "{op: set-flag, name: --mm-attention-backend, value: triton_attn}"
GRAPHS = "{op: set-flag, name: --disable-cuda-graph}"
BUFFERS = "{op: set-env, name: SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK, value: '512'}"
WORDS = "{op: set-env, name: NCCL_DEBUG, value: INFO}"
LOCKED = "{op: set-unit, name: Service.LimitMEMLOCK, value: infinity}"


def offered(folder: Path, edit: str, flags: dict[str, str], kind: str = "flag") -> Remedy:
    rung = f"{{id: it, kind: {kind}, title: Do it, cost: none, confirmed: true, edits: [{edit}]}}"
    write(folder, "lake", rule("{exception: ValueError, message: heron (?P<page>\\d+)}", f"remedies:\n  - {rung}\n"))
    return book(folder).match(crash(link("ValueError", "heron 64"), flags=flags))[0].remedies[0]


@pytest.mark.parametrize(
    ("edit", "flags", "kind", "where"),
    [
        (BACKEND, {}, "flag", "on both sides of the pair at once"),
        (PAGE, PAIR, "flag", "on both sides of the pair at once"),
        (ATTENTION, PAIR, "flag", "on both sides of the pair at once"),
        ("{op: set-flag, name: --data-parallel-size, value: 2}", PAIR, "flag", "on both sides of the pair at once"),
        (GRAPHS, NODES, "flag", "on every node at once"),
        (BUFFERS, NODES, "env", "on every node at once"),
        (LAYOUT, STORAGE, "flag", "with the storage of the host cache emptied, on all servers that share it"),
    ],
)
def test_what_others_must_follow_is_by_hand(
    tmp_path: Path, edit: str, flags: dict[str, str], kind: str, where: str
) -> None:
    rung = offered(tmp_path, edit, flags, kind)
    assert (rung.title, rung.blocked_by) == (f"By hand, {where}: do it", None)
    assert (rung.kind, rung.applicable, rung.edits) == ("advice", False, ())


@pytest.mark.parametrize(
    ("edit", "flags", "kind"),
    [
        (PAGE, {"disaggregation_mode": "'null'", "nnodes": "1", "hicache_storage_backend": "None"}, "flag"),
        (PAGE, {}, "flag"),
        (ATTENTION, {}, "flag"),
        (PICTURES, PAIR, "flag"),
        (GRAPHS, PAIR | STORAGE, "flag"),
        (BUFFERS, PAIR, "env"),
        (WORDS, NODES, "env"),
        (LOCKED, NODES | PAIR, "unit"),
        ("{op: set-flag, name: --page-size, value: '{page}'}", PAIR, "flag"),  # what the other side has
    ],
)
def test_what_concerns_one_server_is_carried_out(tmp_path: Path, edit: str, flags: dict[str, str], kind: str) -> None:
    rung = offered(tmp_path, edit, flags, kind)
    assert (rung.title, rung.kind, rung.applicable) == ("Do it", kind, True)
    assert rung.edits


def test_why_it_changes_nothing_is_told_all_the_same(tmp_path: Path) -> None:
    rung = offered(tmp_path, BACKEND, {"disaggregation_transfer_backend": "nixl"})
    assert rung.blocked_by == "the server runs with --disaggregation-transfer-backend nixl already"
