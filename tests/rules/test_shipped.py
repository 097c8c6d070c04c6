"""The rules that come with triage hold, each by its own proof, and are silent about a healthy server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from triage.actions.policy import Policy
from triage.model import Crash, Refused
from triage.rulebase.catalogue import catalogue
from triage.rulebase.evidence import Evidence
from triage.rulebase.releases import Specifier
from triage.rulebase.rule import PLACEHOLDER, Rule
from triage.rulebase.rulebook import Rulebook
from triage.rulebase.rulecheck import check, crashes_of
from triage.rulebase.rulefile import load_proof, load_rules
from triage.rulebase.said import views
from triage.shipped import shipped
from triage.units.edits import Change
from triage.units.flags import long_name

RULES = load_rules([shipped("rules")]).rules
BOOK = Rulebook(RULES)


@pytest.fixture(scope="module")
def sample_crashes() -> list[tuple[Rule, Crash]]:
    proofs = [(rule, load_proof(rule.path)[0]) for rule in RULES]
    return [
        (rule, crash)
        for rule, proof in proofs
        for sample in (*proof.samples, *proof.near_misses)
        for crash in crashes_of(sample.log)
    ]


@pytest.mark.timeout(300)  # half a minute of work, on machines that have other work
def test_every_shipped_rule_is_proved() -> None:
    report = check([shipped("rules")])
    assert [str(problem) for problem in report.problems] == []
    assert report.rules == len(RULES)
    assert report.samples >= report.rules


EXACT = {  # set to this value whatever is there: not more and not less would do
    ("chunk-not-page-multiple", "--chunked-prefill-size"),
    ("no-gpu-memory-known", "--mem-fraction-static"),
    ("not-so-many-gpus", "--base-gpu-id"),
    ("tp-does-not-divide", "--ep"),
    ("speculation-half-given", "--speculative-num-steps"),
    ("speculation-half-given", "--speculative-num-draft-tokens"),
    ("draft-tokens-power-of-two", "--speculative-num-draft-tokens"),
    ("infiniband", "NCCL_IB_GID_INDEX"),
}


def test_a_number_that_is_set_lowers_or_raises_never_either() -> None:
    """A unit may be beyond it already: the rung would do the opposite of what its title says."""
    found = set()
    for rule in RULES:
        for edit in (edit for remedy in rule.remedies for edit in remedy.edits if edit.op.startswith("set-")):
            number = isinstance(edit.value, int | float) or str(edit.value).isdecimal()
            one_way = edit.floor is not None or edit.ceiling is not None
            if number and float(edit.value) > 1 and not one_way:  # 0 and 1 are switches, or the least there is
                found |= {(rule.id, name) for name in edit.names}
    assert found - EXACT == set()


def test_the_automaton_finds_the_same_rules_as_a_plain_loop(sample_crashes: list[tuple[Rule, Crash]]) -> None:
    for _, crash in sample_crashes:
        evidence = Evidence.of(crash)
        plain = [
            number
            for number, rule in enumerate(RULES)
            if any(anchor in evidence.gate for clause in rule.clauses for anchor in clause.anchors)
        ]
        assert BOOK.candidates(evidence) == plain


def test_no_rule_matches_that_has_no_anchor_in_the_crash(sample_crashes: list[tuple[Rule, Crash]]) -> None:
    """The anchors are only a short cut: without them the same rules match."""
    for _, crash in sample_crashes:
        seen = [Evidence.of(view) for view in views(crash)]
        without = [rule.id for rule in RULES if any(BOOK._hit(rule, evidence) is not None for evidence in seen)]
        assert sorted(match.rule for match in BOOK.match(crash)) == sorted(without)


def test_a_healthy_log_with_alarming_words_matches_nothing() -> None:
    for path in (shipped("rules") / "healthy").glob("*.log"):
        assert [c for c in crashes_of(path.read_text()) if c.outcome.actionable or BOOK.match(c)] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_worded_for_a_tired_operator(rule: Rule) -> None:
    assert rule.area == Path(rule.path).parent.name
    assert not rule.title.endswith(".")
    assert rule.cause.endswith((".", "{reason}.", ":"))
    assert rule.remedies, "a rule without a way out helps nobody: give at least an advice"
    assert all(remedy.cost.endswith(".") for remedy in rule.remedies)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_an_upgrade_names_its_release_or_says_that_none_is_known(rule: Rule) -> None:
    for remedy in rule.remedies:
        if remedy.kind == "upgrade" and not re.search(r"[<>=!~]", remedy.versions or ""):
            assert re.search(r"none is known|not recorded|that (knows|has) |together|ROCm", remedy.title), remedy.id


def test_the_story_is_told_right() -> None:
    """The two crashes triage was born from: the first costs the graphs, the second must not."""
    by_id = {rule.id: rule for rule in RULES}
    first = by_id["dflash-graph-replay-none"].remedies[0].edits
    assert [(e.op, e.names, e.value) for e in first] == [("set-flag", ("--disable-cuda-graph",), None)]
    (cap,) = by_id["tree-budget-illegal-access"].remedies[0].edits
    assert (cap.op, cap.value) == ("cap-flag", 8)
    assert set(cap.names) == {
        "--speculative-ddtree-budget",
        "--speculative-num-draft-tokens",
        "--speculative-dflash-block-size",
    }


# What would change the answers, the model or who can use the service: advice may name it, an edit may not.
NEVER_SET = frozenset(
    [
        "--load-format",
        "--skip-tokenizer-init",
        "--trust-remote-code",
        "--model-path",
        "--model",
        "--revision",
        "--tokenizer-path",
        "--tokenizer-mode",
        "--served-model-name",
        "--quantization",
        "--quantization-param-path",
        "--json-model-override-args",
        "--chat-template",
        "--completion-template",
        "--hf-chat-template-name",
        "--tool-call-parser",
        "--reasoning-parser",
        "--is-embedding",
        "--allow-auto-truncate",
        "--enable-custom-logit-processor",
        "--lora-paths",
        "--enable-lora",
        "--speculative-draft-model-path",
        "--speculative-token-map",
        "--speculative-accept-threshold-single",
        "--speculative-accept-threshold-acc",
        "--random-seed",
        "--preferred-sampling-params",
        "--sampling-defaults",
        "--model-impl",
        "--torchao-config",
        "--enable-fp32-lm-head",
        "--api-key",
        "--host",
        "--admin-api-key",
        "--config",
        "--download-dir",
        "--stream-output",
        "--disable-tokenizer-batch-decode",
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
        "SGLANG_SANITIZE_NAN_LOGITS",
        "SGLANG_DISABLE_CUDNN_CHECK",
        "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK",
        "SGLANG_USE_MODELSCOPE",
        "HF_ENDPOINT",
        "CUDA_LAUNCH_BLOCKING",  # for one test; as a remedy it would "cure" a race by being slow
        "GLOO_SOCKET_IFNAME",  # no log tells the right card: an example is no remedy
        "NCCL_SOCKET_IFNAME",
    ]
)
NEVER_TAKEN = frozenset(
    [
        "--is-embedding",
        "--api-key",
        "--admin-api-key",
        "--chat-template",
        "--tool-call-parser",
        "--reasoning-parser",
        "--lora-paths",
        "--model-path",
        "--tokenizer-path",
        "--served-model-name",
        "--kv-cache-dtype",
        "--dtype",
    ]
)
# Harmless in some values only: those that give up a reduced precision, or ask for what every model can.
ONLY_AS = {
    "--kv-cache-dtype": {"auto"},
    "--grammar-backend": set(),
    "--dtype": {"bfloat16"},
    "--moe-runner-backend": {"triton", "triton_kernel"},
}


def test_no_shipped_edit_changes_what_the_service_does() -> None:
    """Random weights, no text, another model: such a way out is for a person to take, never for `triage apply`."""
    bad = []
    for rule in RULES:
        for remedy in rule.remedies:
            for edit in remedy.edits:
                forbidden = NEVER_TAKEN if edit.op in ("remove-flag", "unset-env") else NEVER_SET
                bad += [f"{rule.id}/{remedy.id}: {edit.op} {name}" for name in edit.names if name in forbidden]
                if edit.op == "set-flag":
                    for name in edit.names:
                        told = "differ" in remedy.cost.split(",")[0]  # said first, in plain words
                        if edit.value not in ONLY_AS.get(name, {edit.value}) and not told:
                            bad.append(f"{rule.id}/{remedy.id}: {name} {edit.value}")
    assert bad == []


def test_the_shipped_policy_gives_no_flag_that_changes_what_the_service_does() -> None:
    """A rule of the site, or a request that was made by hand, comes no further than the shipped rules."""
    policy = Policy.load(shipped("packaging") / "policy.toml")
    for name in sorted(name for name in NEVER_SET if name.startswith("--")):
        for value in ("", "dummy", "auto", "x"):
            with pytest.raises(Refused):
                policy.check("sglang.service", [Change("flag", name, None, value)])


def test_the_shipped_policy_lets_every_shipped_edit_through() -> None:
    """What a rule offers to carry out, root must not refuse; captured names and values are for planning to judge."""
    policy = Policy.load(shipped("packaging") / "policy.toml")
    refused = []
    for rule in RULES:
        for remedy in rule.remedies:
            for edit in remedy.edits:
                if PLACEHOLDER.search(f"{edit.value} {edit.names}"):
                    continue
                value = {"scale-flag": 2, "step-flag": 0.8, "search-flag": f"{edit.floor or 0:g}"}.get(
                    edit.op, edit.value
                )
                after = None if edit.op in ("remove-flag", "unset-env") else "" if value is None else str(value)
                kind = edit.op.rsplit("-", 1)[-1]
                for name in edit.names:
                    try:
                        policy.check("sglang.service", [Change(kind, long_name(name) or name, "1", after)])
                    except Refused as reason:
                        refused.append(f"{rule.id}: {reason}")
    assert refused == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_release_an_upgrade_needs_exists_and_stands_in_its_title(rule: Rule) -> None:
    oldest, newest = catalogue().releases[0], catalogue().releases[-1]
    for remedy in rule.remedies:
        needs = Specifier.parse((remedy.versions or "").removeprefix("sglang"))
        if remedy.kind == "upgrade" and needs is not None:
            assert (needs.holds(newest), needs.holds(oldest)) == (True, False), remedy.id
            if "0." in remedy.title:
                assert all(bound in remedy.title.split() for _, bound in needs.bounds), remedy.id
