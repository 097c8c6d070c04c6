"""A remedy worked out for a unit: the drop-in's text, its place, its digest, its diff, and the refusals."""

import pytest

from tests.remedy.fixtures import DISABLE_GRAPH, NOW, planned, remedy, unit, with_file
from triage.actions.policy import Policy
from triage.model import Edit, Refused, Remedy
from triage.remedy import plan, plan_rollback
from triage.shipped import shipped
from triage.units.dropin import InForce, Standing, mask, mask_argv, mask_value, mode, render
from triage.units.edits import DoesNotFit
from triage.units.unitfile import digest, effective

CAP = Edit("cap-flag", "--speculative-dflash-block-size", 4)


def standing(target_text: str, *actions: InForce) -> Standing:
    return Standing(actions, digest(target_text) if target_text else "")


def action(name: str, *edits: Edit) -> InForce:
    return InForce(name, 3, "dflash-graph-replay-none", "cure", NOW, edits)


def test_the_story_of_the_founding_day() -> None:
    target = unit("kimi-k26-dflash")
    result = planned(target, DISABLE_GRAPH)
    assert result.drop_in_path == "/etc/systemd/system/sglang-kimi-k26-dflash.service.d/zzz-triage.conf"
    lines = result.drop_in_text.splitlines()
    assert lines[-3:] == [
        '    --speculative-draft-model-path "/models/Kimi-K2.6-DFlash" \\',
        "    --speculative-dflash-block-size 8 \\",
        "    --disable-cuda-graph",
    ]
    assert lines[lines.index("[Service]") + 1] == "ExecStart="
    assert any("incident 3" in line and "dflash-graph-replay-none" in line and "2025-11-29" in line for line in lines)
    assert any("triage rollback i3-1" in line for line in lines)
    after = effective(with_file(target, result.drop_in_text), with_drop_in=True)
    assert after.commands[0].argv == (*effective(target).commands[0].argv, "--disable-cuda-graph")
    assert "+    --disable-cuda-graph" in result.diff
    assert result.diff.endswith("--disable-cuda-graph\n")


def test_an_override_keeps_its_own_changes() -> None:
    target = unit("kimi-k26-dflash", None, ("override.conf", "kimi-override.conf"))
    result = planned(target, DISABLE_GRAPH)
    after = effective(with_file(target, result.drop_in_text), with_drop_in=True)
    assert after.commands[0].argv[-3:] == ("--speculative-dflash-block-size", "16", "--disable-cuda-graph")


def test_specifiers_variables_and_quotes_stay_as_written() -> None:
    target = unit("embed@", "sglang-embed@bge.service")
    text = planned(target, Edit("set-flag", "--max-running-requests", 64)).drop_in_text
    assert "ExecStart=-/opt/sglang/bin/python3 -m sglang.launch_server" in text
    assert "--model-path /models/%i \\" in text
    assert "--port ${PORT} \\" in text
    assert "--api-key 'k3y with $$ and 100%%' \\\n    $EXTRA \\\n    --max-running-requests 64\n" in text


def test_keys_are_masked_for_the_eye_and_kept_in_the_file() -> None:
    result = planned(unit("embed@", "sglang-embed@bge.service"), Edit("set-flag", "--max-running-requests", 64))
    assert "k3y" in result.drop_in_text
    assert "k3y" not in result.diff + " ".join(result.argv_before + result.argv_after)
    assert "--api-key ****" in result.diff
    result = planned(unit("oneshot-two"), Edit("set-flag", "--tp", 2))
    assert "hf_abc123" in result.drop_in_text
    assert "hf_abc123" not in result.diff


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('Environment="HF_TOKEN=a b"', 'Environment="HF_TOKEN=****"'),
        ("--api-key=x --tokenizer-path /t", "--api-key=**** --tokenizer-path /t"),
        ("--max-total-tokens 5", "--max-total-tokens 5"),
        ("    --api-key 'a b' \\", "    --api-key **** \\"),
        ("api_key='sk-1'", "api_key=****"),
        ("--api-k sk-1 --tp 8", "--api-k **** --tp 8"),
        ("--api-ke=sk-1 --api x", "--api-ke=**** --api ****"),
        (
            "--admin-api s --ssl-keyfile-pass p --ssl-keyfile /k",
            "--admin-api **** --ssl-keyfile-pass **** --ssl-keyfile /k",
        ),
        ("DB_PASSWD=x PASS=y DB_PASS=z BYPASS=1", "DB_PASSWD=**** PASS=**** DB_PASS=**** BYPASS=1"),
        ("HTTPS_PROXY=http://u:p@proxy:3128 A=1", "HTTPS_PROXY=http://****@proxy:3128 A=1"),
        ("API_KEY=$$(cat /run/key x) exec python", "API_KEY=**** exec python"),
        ("X=sk-abcdefghijklmnop1234", "X=****"),
    ],
)
def test_masking(text: str, masked: str) -> None:
    assert mask(text) == masked


def test_no_secret_in_a_variable_or_an_abbreviated_flag_is_shown() -> None:
    argv = ("/usr/bin/env", "HTTPS_PROXY=http://u:p@x:1", "DB_PASSWD=d", "python", "--api-k", "sk-1", "--tp", "8")
    shown = ("/usr/bin/env", "HTTPS_PROXY=http://****@x:1", "DB_PASSWD=****", "python", "--api-k", "****", "--tp", "8")
    assert mask_argv(argv) == shown
    assert mask_value("PROXY", "http://u:p@x:1") == "http://****@x:1"
    assert mask_value("PASS", "x") == "****"


def test_all_commands_of_a_oneshot_are_written_again() -> None:
    target = unit("oneshot-two")
    result = planned(target, Edit("scale-flag", "--mem-fraction-static", 0.9))
    after = effective(with_file(target, result.drop_in_text), with_drop_in=True)
    assert [command.argv[0] for command in after.commands] == ["/usr/bin/nvidia-smi", "/usr/bin/env"]
    assert after.commands[1].argv[-4:] == ("--mem-fraction-static", "0.9", "--mem-fraction-static", "0.765")


def test_environment_alone_leaves_the_command_out() -> None:
    target = unit("shell")
    text = planned(target, Edit("set-env", "SGLANG_X", 'a "b" 5% $x')).drop_in_text
    assert "ExecStart" not in text
    assert effective(with_file(target, text), with_drop_in=True).environment == {"SGLANG_X": 'a "b" 5%% $x'}
    text = planned(unit("kimi-k26-dflash"), Edit("unset-env", "NCCL_DEBUG")).drop_in_text
    assert text.endswith("[Service]\nUnsetEnvironment=NCCL_DEBUG\n")


def test_directives_go_to_their_sections() -> None:
    edits = (Edit("set-unit", "Service.LimitNOFILE", 65536), Edit("set-unit", "Unit.StartLimitBurst", 3))
    text = planned(unit("kimi-k26-dflash"), *edits).drop_in_text
    assert text.endswith("[Service]\nLimitNOFILE=65536\n[Unit]\nStartLimitBurst=3\n")


def test_two_actions_stand_in_one_file_and_the_first_can_go_alone() -> None:
    target = unit("kimi-k26-dflash")
    first = planned(target, DISABLE_GRAPH)
    one = action("i3-1", DISABLE_GRAPH)
    with_one = with_file(target, first.drop_in_text)
    second = planned(with_one, CAP, known=standing(first.drop_in_text, one), action="i3-2")
    assert "i3-1" in second.drop_in_text
    assert "i3-2" in second.drop_in_text
    assert "+    --speculative-dflash-block-size 4 \\" in second.diff
    two = action("i3-2", CAP)
    both = with_file(target, second.drop_in_text)
    undo = plan_rollback(both, standing(second.drop_in_text, one, two), "i3-1", action="i3-3", now=NOW)
    assert "--disable-cuda-graph" not in undo.drop_in_text
    assert "--speculative-dflash-block-size 4" in undo.drop_in_text
    undo = plan_rollback(both, standing(second.drop_in_text, one, two), "i3-2", action="i3-3", now=NOW)
    assert undo.drop_in_text == first.drop_in_text
    last = plan_rollback(with_one, standing(first.drop_in_text, one), "i3-1", action="i3-3", now=NOW)
    assert (last.drop_in_text, last.result_digest) == ("", "")


def test_the_same_remedy_twice_is_refused() -> None:
    target = unit("kimi-k26-dflash")
    text = planned(target, DISABLE_GRAPH).drop_in_text
    with pytest.raises(DoesNotFit, match="already there"):
        planned(with_file(target, text), DISABLE_GRAPH, known=standing(text, action("i3-1", DISABLE_GRAPH)))


def test_a_drop_in_that_sorts_later_is_refused() -> None:
    with pytest.raises(Refused, match=r"zzzz.conf sorts after"):
        planned(unit("kimi-k26-dflash", None, ("zzzz.conf", "[Service]\n")), DISABLE_GRAPH)


def test_a_file_changed_removed_or_placed_by_hand_is_refused() -> None:
    target = unit("kimi-k26-dflash")
    text = planned(target, DISABLE_GRAPH).drop_in_text
    known = standing(text, action("i3-1", DISABLE_GRAPH))
    with pytest.raises(Refused, match="changed by hand") as refused:
        planned(with_file(target, text + "#"), CAP, known=known)
    path = f"/etc/systemd/system/{target.name}.d/zzz-triage.conf"
    assert f"rm {path} && systemctl daemon-reload && triage rollback i3-1" in str(refused.value)
    assert "runs on the loaded command until it is restarted" in str(refused.value)
    assert "revert" not in str(refused.value)
    with pytest.raises(Refused, match=f"then rm /copies{path} && triage rollback i3-1 --root /copies$"):
        planned(with_file(target, text + "#"), CAP, known=known, root="/copies")
    with pytest.raises(Refused, match="removed by hand"):
        planned(target, CAP, known=known)
    with pytest.raises(Refused, match="no action of triage"):
        planned(with_file(target, text), CAP)
    note = plan_rollback(target, known, "i3-1", action="i3-2", now=NOW).notes[-1]
    assert "removed by hand" in note
    assert f"still runs with it: systemctl daemon-reload && systemctl restart {target.name}" in note


def test_what_triage_cannot_carry_out_is_refused_with_the_reason() -> None:
    target = unit("kimi-k26-dflash")
    with pytest.raises(Refused, match="cannot be carried out"):
        plan(target, 1, "r", Remedy("up", "upgrade", "Upgrade", "", True), Standing(), action="i1-1", now=NOW)
    with pytest.raises(Refused, match="not in force"):
        plan_rollback(target, Standing(), "i1-1", action="i1-2", now=NOW)


def test_the_log_stands_in_for_a_value_the_command_leaves_out() -> None:
    scale = Edit("scale-flag", "--mem-fraction-static", 0.9)
    result = planned(unit("tree-b300"), scale, present={"mem_fraction_static": "0.8"})
    assert result.edits == (Edit("set-flag", "--mem-fraction-static", "0.72"),)


def test_a_directive_is_held_against_what_the_manager_has() -> None:
    raised = Edit("set-unit", "Service.LimitNOFILE", 1048576)
    with pytest.raises(DoesNotFit, match="LimitNOFILE is 1048576 already"):
        planned(unit("tree-b300"), raised, held={"Service.LimitNOFILE": 1048576})
    notes = planned(unit("tree-b300"), raised, held={"Service.LimitNOFILE": 524288, "Service.TasksMax": 9}).notes
    assert notes == ("Service.LimitNOFILE is 524288 now",)
    waits = planned(
        unit("tree-b300"),
        Edit("set-unit", "Service.TimeoutStartSec", "infinity"),
        held={"Service.TimeoutStartSec": 90_000_000},
    )
    assert waits.notes == ("Service.TimeoutStartSec is 90s now",)


def test_the_file_is_no_more_open_than_the_unit() -> None:
    assert mode(unit("kimi-k26-dflash")) == 0o644
    assert mode(unit("kimi-k26-dflash", mode=0o600)) == 0o600
    assert mode(unit("kimi-k26-dflash", mode=0o640)) == 0o640


def test_planning_twice_gives_the_same_bytes() -> None:
    target = unit("kimi-k26-dflash")
    assert planned(target, DISABLE_GRAPH) == planned(target, DISABLE_GRAPH)
    assert render(target, ()).text == ""


def test_the_policy_is_asked_with_the_value_that_comes_out() -> None:
    shipped_policy = Policy.load(shipped("packaging") / "policy.toml")
    target = unit("kimi-k26-dflash")
    assert planned(target, DISABLE_GRAPH, policy=shipped_policy)
    with pytest.raises(Refused, match="outside the pattern"):
        planned(target, Edit("step-flag", "--mem-fraction-static", 0.5), policy=shipped_policy)
    assert remedy(DISABLE_GRAPH).applicable


def test_a_default_of_the_managers_that_is_enough_is_not_made_less() -> None:
    longer = Edit("set-unit", "Service.TimeoutStartSec", "1800", 1800)
    with pytest.raises(DoesNotFit, match="TimeoutStartSec 7200s is enough already"):
        planned(unit("tree-b300"), longer, held={"Service.TimeoutStartSec": 7_200_000_000})
    assert planned(unit("tree-b300"), longer, held={"Service.TimeoutStartSec": 90_000_000}).changes
