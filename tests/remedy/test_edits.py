"""One edit changes one thing: flags in their forms, arithmetic with bounds, environment, directives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remedy.fixtures import DISABLE_GRAPH, unit
from triage.actionmodel import Unit, UnitFile
from triage.actions.policy import Policy
from triage.model import Edit, Refused
from triage.units.edits import Change, DoesNotFit, apply_edit, apply_edits, draft, with_present
from triage.units.launch import find
from triage.units.unitfile import effective


def edited(command: str, edit: Edit) -> list[str]:
    target = Unit(
        "sglang.service", (UnitFile("/x", f"[Service]\nExecStart=/v/python -m sglang.launch_server {command}\n"),)
    )
    state = apply_edit(draft(effective(target)), edit)
    return [item.raw for item in state.commands[0].words[3:]]


@pytest.mark.parametrize(
    ("command", "edit", "expected"),
    [
        ("--tp 8", DISABLE_GRAPH, "--tp 8 --disable-cuda-graph"),
        ("--tp 8 $ARGS", DISABLE_GRAPH, "--tp 8 $ARGS --disable-cuda-graph"),
        ("--a 'x y' --b %i", Edit("set-flag", "--c", "p q%"), "--a 'x y' --b %i --c \"p q%%\""),
        ("--a 1 --b 2", Edit("set-flag", "--a", 3), "--a 3 --b 2"),
        ("--a=1 --b 2", Edit("set-flag", "--a", 3), "--a=3 --b 2"),
        ("--a 1 --a 2", Edit("set-flag", "--a", 3), "--a 1 --a 3"),
        ("--tp-size 8", Edit("set-flag", "--tp", 4), "--tp-size 4"),
        ("--cuda_graph_max_bs 128", Edit("cap-flag", "--cuda-graph-max-bs", 64), "--cuda_graph_max_bs 64"),
        ("--a 1 --x --b 2", Edit("remove-flag", "--x"), "--a 1 --b 2"),
        ("--x 1 2 3 --b --x=4", Edit("remove-flag", "--x"), "--b"),
        ("--host $HOST --x 1", Edit("set-flag", "--host", "::1"), "--host $HOST --x 1 --host ::1"),
        (
            "--chunked-prefill-size -1 --x",
            Edit("set-flag", "--chunked-prefill-size", 4096),
            "--chunked-prefill-size 4096 --x",
        ),
        ("--c -1", Edit("set-flag", "--c", 2048, None, 2048), "--c 2048"),
        ("--c 4096", Edit("set-flag", "--c", 2048, None, 2048), "--c 2048"),
        ("--x", Edit("set-flag", "--c", 2048, None, 2048), "--x --c 2048"),
        ("--t 300", Edit("set-flag", "--t", 1800, 1800), "--t 1800"),
        ("--b 16", Edit("cap-flag", "--b", 8), "--b 8"),
        ("--m 0.9", Edit("scale-flag", "--m", 0.9, 0.5), "--m 0.81"),
        ("--m 0.52", Edit("scale-flag", "--m", 0.9, 0.5), "--m 0.5"),
        ("--r 100", Edit("scale-flag", "--r", 0.5, 1), "--r 50"),
        ("--r 3", Edit("scale-flag", "--r", 0.5, 1.6, 9), "--r 2"),  # whole as before, and not below its floor
        ("--r 5", Edit("scale-flag", "--r", 0.5, 1.1, 9), "--r 2"),
        ("--m 0.88", Edit("step-flag", "--m", -0.05, 0.6), "--m 0.83"),
        ("--m 0.93", Edit("step-flag", "--m", 0.04, None, 0.95), "--m 0.95"),
        ("--m 1.2", Edit("step-flag", "--m", -0.05, 0.5, 0.95), "--m 0.95"),
        ("--m 0.001", Edit("step-flag", "--m", 0.05, 0.1, 0.95), "--m 0.1"),
    ],
)
def test_one_edit_changes_one_thing(command: str, edit: Edit, expected: str) -> None:
    assert " ".join(edited(command, edit)) == expected


@pytest.mark.parametrize(
    ("command", "edit", "reason"),
    [
        ("--disable-cuda-graph --tp 8", DISABLE_GRAPH, "already there"),
        ("--a 3", Edit("set-flag", "--a", 3), "already there"),
        ("--c 1024", Edit("set-flag", "--c", 2048, None, 2048), "--c 1024 is low enough already"),
        ("--t 7200", Edit("set-flag", "--t", 1800, 1800), "--t 7200 is enough already"),
        ("--c $SIZE", Edit("set-flag", "--c", 2048, None, 2048), "comes from a variable"),
        ("--a 3", Edit("remove-flag", "--x"), "not in the command"),
        ("--a 3", Edit("cap-flag", "--x", 8), "not in the command"),
        ("--x 8", Edit("cap-flag", "--x", 8), "already at its bound"),
        ("--m 0.4", Edit("scale-flag", "--m", 0.9, 0.5), "already at its bound"),
        ("--m 0.4", Edit("step-flag", "--m", -0.05, 0.5, 0.95), "already at its bound"),
        ("--m 0.97", Edit("step-flag", "--m", 0.05, 0.1, 0.95), "already at its bound"),
        ("--m ${M}", Edit("scale-flag", "--m", 0.9), "comes from a variable"),
        ("--m $M", Edit("scale-flag", "--m", 0.9), "comes from a variable"),
        ("--m auto", Edit("scale-flag", "--m", 0.9), "no number"),
    ],
)
def test_an_edit_with_nothing_to_do_says_why(command: str, edit: Edit, reason: str) -> None:
    with pytest.raises(DoesNotFit, match=reason):
        edited(command, edit)


def test_removing_before_a_variable_is_left_to_a_person() -> None:
    with pytest.raises(Refused, match="by hand"):
        edited("--x $ARGS", Edit("remove-flag", "--x"))


@pytest.mark.parametrize(
    "edit",
    [
        Edit("set-flag", "disable-cuda-graph"),
        Edit("set-flag", "--x --y", 1),
        Edit("set-flag", "--x", "a\nb"),
        Edit("set-flag", "--x", "a\u2028b"),
        Edit("set-flag", "--x", "a" * 5000),
        Edit("set-env", "A B", "1"),
        Edit("set-unit", "LimitNOFILE", "1"),
        Edit("set-unit", "Service.LimitNOFILE", "1\\"),
        Edit("cap-flag", "--x", "8"),
        Edit("run", "--x"),
    ],
)
def test_what_no_rule_could_mean_is_refused(edit: Edit) -> None:
    with pytest.raises(Refused):
        edited("--x 1", edit)


def test_nothing_is_put_behind_the_end_of_the_flags() -> None:
    with pytest.raises(Refused, match="behind the -- in the command"):
        edited("--tp 8 --", DISABLE_GRAPH)


@pytest.mark.parametrize(
    ("fixture", "reason"),
    [("router", "router")],
)
def test_a_command_that_cannot_be_edited_gets_an_instruction(fixture: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        find(effective(unit(fixture)).commands)


def test_of_several_spellings_those_present_are_edited() -> None:
    state = draft(effective(unit("tree-b300")))
    names = ("--speculative-ddtree-budget", "--speculative-num-draft-tokens", "--speculative-dflash-block-size")
    state, fitted, reasons = apply_edits(state, tuple(Edit("cap-flag", name, 8) for name in names))
    assert [edit.name for edit in fitted] == ["--speculative-ddtree-budget"]
    assert len(reasons) == 2
    assert "--speculative-ddtree-budget=8" in state.commands[0].argv


def test_a_value_left_to_sglang_is_taken_from_its_log() -> None:
    state = draft(effective(unit("tree-b300")))
    scale = Edit("scale-flag", "--mem-fraction-static", 0.9, 0.5)
    assert with_present(scale, {"mem_fraction_static": "0.874"}, state) == Edit("set-flag", scale.name, "0.7866")
    assert with_present(scale, {"mem_fraction_static": "None"}, state) == scale
    cap = Edit("cap-flag", "--speculative-ddtree-budget", 8)
    assert with_present(cap, {"speculative_ddtree_budget": "64"}, state) == cap


def test_environment_is_set_unset_and_never_set_twice() -> None:
    state = draft(effective(unit("kimi-k26-dflash")))
    state = apply_edit(state, Edit("set-env", "NCCL_DEBUG", "INFO"))
    state = apply_edit(state, Edit("unset-env", "SGLANG_LOG_MS"))
    assert state.environment == {"NCCL_DEBUG": "INFO", "SGLANG_LOG_MS": None}
    for edit in (Edit("set-env", "NCCL_DEBUG", "INFO"), Edit("unset-env", "SGLANG_LOG_MS"), Edit("unset-env", "NEVER")):
        with pytest.raises(DoesNotFit):
            apply_edit(state, edit)


def test_a_variable_given_by_env_in_the_command_is_changed_there() -> None:
    state = apply_edit(draft(effective(unit("oneshot-two"))), Edit("set-env", "HF_TOKEN", "x"))
    assert "HF_TOKEN=x" in state.commands[1].argv
    assert not state.environment


def test_an_abbreviation_is_no_way_round_what_is_never_changed() -> None:
    with pytest.raises(Refused, match="hints"):
        edited("--model-path /m", Edit("set-flag", "--max-running-requests", 8, also=("--model-path",)))
    change = Change("flag", "--mem-fraction-static", "1", "0.5", also=("--m",))
    policy = Policy.parse('units = ["*"]\n[flags]\n"--mem-fraction-static" = ".*"\n')
    with pytest.raises(Refused, match="never changed"):
        policy.check("sglang.service", [change])


@given(
    st.lists(st.sampled_from(["--a 1", "--b", "--c=x", "--d 'p q'", "--e %i", "$ARGS", "--f 1 2"]), max_size=8),
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=30),
)
def test_a_new_flag_leaves_every_other_word_as_it_was(parts: list[str], value: str) -> None:
    command = " ".join(parts)
    words = edited(command, Edit("set-flag", "--new", value))
    assert words[:-2] == edited(command, Edit("set-flag", "--other"))[:-1]
    assert words[-2] == "--new"


@pytest.mark.parametrize(
    ("written", "edit"),
    [
        ("TimeoutStartSec=2h", Edit("set-unit", "Service.TimeoutStartSec", "1800", 1800)),
        ("TimeoutStartSec=0", Edit("set-unit", "Service.TimeoutStartSec", "1800", 1800)),
        ("LimitNOFILE=infinity", Edit("set-unit", "Service.LimitNOFILE", "1048576", 1048576)),
        ("LimitNOFILE=4M", Edit("set-unit", "Service.LimitNOFILE", "1048576", 1048576)),
        ("Environment=A_TIMEOUT=900", Edit("set-env", "A_TIMEOUT", "600", 600)),
    ],
)
def test_what_is_enough_already_is_not_made_less(written: str, edit: Edit) -> None:
    text = f"[Service]\nExecStart=/v/python -m sglang.launch_server --tp 8\n{written}\n"
    with pytest.raises(DoesNotFit, match="is enough already"):
        apply_edit(draft(effective(Unit("sglang.service", (UnitFile("/x", text),)))), edit)


@pytest.mark.parametrize("written", ["TimeoutStartSec=2min", ""])
def test_what_is_not_enough_is_made_more(written: str) -> None:
    text = f"[Service]\nExecStart=/v/python -m sglang.launch_server --tp 8\n{written}\n"
    edit = Edit("set-unit", "Service.TimeoutStartSec", "1800", 1800)
    state = apply_edit(draft(effective(Unit("sglang.service", (UnitFile("/x", text),)))), edit)
    assert state.settings == {"Service.TimeoutStartSec": "1800"}
