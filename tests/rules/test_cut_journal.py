"""A crash whose journal was cut before the server told its flags: the unit itself decides which remedy fits."""

from __future__ import annotations

import pytest

from tests.remedy.fixtures import NOW, unit
from triage.actionmodel import Plan
from triage.model import Remedy
from triage.remedy import plan
from triage.rulebase.rulebook import Rulebook
from triage.rulebase.rulecheck import crashes_of
from triage.rulebase.rulefile import load_rules
from triage.shipped import shipped
from triage.units.dropin import Standing
from triage.units.edits import DoesNotFit

BOOK = Rulebook(load_rules([shipped("rules")]).rules)
BEGIN = "[2026-04-22 15:33:42 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=20.80 GB\n"
ILLEGAL = """\
[2026-04-22 15:33:58 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/llm/sglang/srt/model_executor/cuda_graph_runner.py", line 402, in __init__
    self.capture()
  File "/opt/llm/sglang/srt/model_executor/cuda_graph_runner.py", line 551, in capture_one_batch_size
    torch.cuda.synchronize()
torch.AcceleratorError: CUDA error: an illegal memory access was encountered

[2026-04-22 15:33:59] Received sigquit from a child process. It usually means the child failed.
"""
WRAPPED = """\
[2026-04-22 15:33:58 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/llm/sglang/srt/managers/scheduler.py", line 2990, in run_scheduler_process
    scheduler = Scheduler(server_args)
Exception: Capture cuda graph failed: CUDA error: an illegal memory access was encountered

[2026-04-22 15:33:59] Received sigquit from a child process. It usually means the child failed.
"""


def offered(log: str) -> tuple[Remedy, ...]:
    (crash, *_) = crashes_of(log)
    assert not crash.context.flags
    return tuple(remedy for remedy in BOOK.match(crash)[0].remedies if remedy.applicable)


def first_plan(fixture: str, remedies: tuple[Remedy, ...]) -> Plan:
    """What `triage apply` would do: the first rung that changes something in this unit."""
    for remedy in remedies:
        try:
            return plan(unit(fixture), 1, "rule", remedy, Standing(), action="i1-1", now=NOW)
        except DoesNotFit:
            continue
    raise AssertionError("nothing fits")


@pytest.mark.parametrize("log", [BEGIN + ILLEGAL, ILLEGAL, WRAPPED], ids=["milestone", "frames", "wrapped"])
def test_a_tree_budget_above_8_is_capped_although_the_log_does_not_tell_it(log: str) -> None:
    result = first_plan("tree-budget", offered(log))
    assert result.remedy == "cap-draft-budget"
    assert result.argv_after[-4:] == ("--speculative-ddtree-budget", "8", "--speculative-dflash-block-size", "8")


def test_a_unit_with_a_budget_of_8_is_offered_the_next_rung() -> None:
    assert first_plan("kimi-k26-dflash", offered(ILLEGAL)).remedy == "no-piecewise-graph"


def test_another_all_reduce_is_not_the_first_try_where_nobody_knows_the_number_of_gpus() -> None:
    ladder = [remedy.id for remedy in offered(ILLEGAL)]
    assert ladder.index("plain-all-reduce") > ladder.index("cap-draft-budget")
    assert ladder.index("plain-all-reduce") > ladder.index("no-piecewise-graph")
