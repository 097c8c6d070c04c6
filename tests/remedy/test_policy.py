"""The policy allows what it names and nothing else, and some things not even then."""

from dataclasses import replace

import pytest

from tests.remedy.machine import NOW
from tests.remedy.test_spool import REQUEST
from triage.actionmodel import ActionResult, ActionState
from triage.actions.policy import Policy
from triage.model import Refused
from triage.shipped import shipped
from triage.units.edits import Change

SHIPPED = Policy.parse((shipped("packaging") / "policy.toml").read_text())
EVERYTHING = Policy.parse(
    'units=["*"]\n[flags]\n"*"=".*"\n[environment]\n"*"=".*"\n[directives]\n"*"=".*"\n',
)


def flag(name: str, after: str | None = "") -> Change:
    return Change("flag", name, None, after)


def test_the_shipped_policy_allows_the_founding_remedies() -> None:
    SHIPPED.check("sglang-k26-dflash.service", [flag("--disable-cuda-graph"), flag("--speculative-ddtree-budget", "8")])
    SHIPPED.check("sglang@bge.service", [Change("unit", "Service.LimitNOFILE", None, "65536")])


@pytest.mark.parametrize(
    ("unit", "change", "reason"),
    [
        ("sshd.service", flag("--disable-cuda-graph"), "units"),
        ("sglang.service", flag("--log-level", "debug"), r"\[flags\]"),
        ("sglang.service", flag("--mem-fraction-static", "0.9; rm"), "pattern"),
        ("sglang.service", flag("--disable-cuda-graph", "x"), "pattern"),
        ("sglang.service", Change("env", "HOME", None, "/"), "never"),
        ("sglang.service", Change("unit", "Service.CPUWeight", None, "1"), r"\[directives\]"),
    ],
)
def test_outside_is_refused_and_says_where_to_add_it(unit: str, change: Change, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        SHIPPED.check(unit, [change])


@pytest.mark.parametrize(
    "change",
    [
        flag("--model-path", "/x"),
        flag("--model", "/x"),
        flag("--trust-remote-code"),
        flag("--trust-remote"),
        flag("--trust_remote_code"),
        flag("--api-key", None),
        Change("env", "LD_PRELOAD", None, "/x"),
        Change("env", "PYTHONPATH", None, "/x"),
        Change("env", "PATH", None, "/x"),
        Change("env", "PATH", "/x", None),
        Change("env", "SGLANG_EXTERNAL_MODEL_PACKAGE", None, "x"),
        Change("unit", "Service.User", None, "root"),
        Change("unit", "Service.ExecStartPre", None, "/x"),
        Change("unit", "Service.ExecStopPost", None, "/x"),
        Change("unit", "Service.EnvironmentFile", None, "/x"),
        Change("unit", "Install.WantedBy", None, "x"),
    ],
)
def test_some_things_are_never_changed_whatever_the_policy_says(change: Change) -> None:
    with pytest.raises(Refused, match="never changed"):
        EVERYTHING.check("sglang.service", [change])


@pytest.mark.parametrize("text", ["units = 3", "[flags]\n'--x' = 3", "[flags]\n'--x' = '('", "[other]\n", "units = ["])
def test_a_policy_that_is_not_understood_refuses_everything(text: str) -> None:
    with pytest.raises(Refused):
        Policy.parse(text)


def test_a_missing_policy_refuses_everything(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Refused, match="without a policy"):
        Policy.load(tmp_path / "policy.toml")


def test_root_itself_counts_what_it_applied() -> None:
    """The guards of the unprivileged side may be out of force: whoever took that user over meets these."""
    policy = Policy.parse('units=["sglang*"]\n[limits]\nunit_per_day = 3\nhost_per_hour = 4\n')
    hour = 3600 * 1_000_000

    def done(name: str, age: int, state: ActionState = ActionState.VERIFIED, **more: str) -> ActionResult:
        return ActionResult(replace(REQUEST, action=name, **more), state, (), NOW - age)  # type: ignore[arg-type]

    two = [done("a1", hour), done("a2", 23 * hour)]
    policy.check_pace(REQUEST, two, NOW)
    policy.check_pace(REQUEST, [*two, done("a3", 0, ActionState.REFUSED)], NOW)
    policy.check_pace(REQUEST, [*two, done("a3", 25 * hour)], NOW)
    policy.check_pace(REQUEST, [*two, done(REQUEST.action, 0, ActionState.RUNNING)], NOW)  # taken up after a kill
    policy.check_pace(REQUEST, [*two, done("a3", 0, kind="rollback", target="a1")], NOW)
    with pytest.raises(Refused, match="too much"):
        policy.check_pace(REQUEST, [*two, done("a3", 0, kind="retire", target="a1")], NOW)
    with pytest.raises(Refused, match=r"too much was applied"):
        policy.check_pace(REQUEST, [*two, done("a3", 0)], NOW)
    others = [done(f"b{n}", 0, unit=f"sglang-{n}.service") for n in range(4)]
    with pytest.raises(Refused, match=r"see \[limits\]"):
        policy.check_pace(REQUEST, others, NOW)
