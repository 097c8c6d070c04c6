"""`triage rules check` finds what does not hold; `list` and `show` tell what is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.rules.crashes import rule, write
from triage.cli import triage
from triage.rulebase import slowness
from triage.rulebase.rulecheck import check
from triage.shipped import shipped

GATES = Path(__file__).parents[1] / "rules_bad" / "gates"
LOG = """\
      [2026-06-01 12:00:55] The server is fired up and ready to roll!
      [2026-06-01 12:00:58] Scheduler hit an exception: Traceback (most recent call last):
        File "/opt/llm/sglang/srt/managers/scheduler.py", line 11, in run_scheduler_process
          scheduler.event_loop()
        File "/opt/llm/sglang/srt/managers/scheduler.py", line 22, in event_loop
          raise ValueError
      ValueError: the moon is full

      [2026-06-01 12:00:59] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
"""
SAMPLE = f"---\nsamples:\n  - name: a full moon\n    log: |\n{LOG}"
MISS = f"near_misses:\n  - why: no moon\n    log: |\n{LOG}"


def problems(folder: Path) -> list[str]:
    return [problem.text for problem in check([folder]).problems]


def test_a_rule_with_a_sample_that_it_wins_holds(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{exception: ValueError, message: the moon is full}") + SAMPLE)
    report = check([tmp_path])
    assert (report.problems, report.rules, report.samples) == ((), 1, 1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no-sample", "the rule has no sample"),
        ("clause-without-sample", "no sample hits this clause: add one"),
        ("exception-without-sample", "no sample hits exception KeyError: add one"),
        ("place-without-sample", "no sample hits at sun.py: add one"),
        ("frame-without-sample", "no sample hits frame sun.py: add one"),
        ("pattern-without-sample", "no sample hits 'the moon is new'"),
        ("branch-without-sample", "no sample hits the alternative 'the sun is gone'"),
        ("alternative-without-sample", "no sample hits the alternative 'sun' of 'the (?:moon|sun) is"),
        ("unless-without-near-miss", "no near-miss is kept out by this clause: add one"),
        ("near-miss-matches", "the near-miss 'another moon' is matched"),
        ("won-by-another", "the sample 'killed' is won by killed-from-outside"),
        ("slow-pattern", "takes more than 0.1 s on 100 kB of hostile text"),
        ("unknown-flag", "no release of sglang has --disable-moon"),
        ("impossible-edit", "the edit cannot be carried out"),
        ("never-allowed", "the edit cannot be carried out: Service.ExecStartPre is never changed by triage"),
        ("wrong-value", "no release of sglang takes 1.7 for --mem-fraction-static"),
        ("confirmed-by-nobody", "the rung one is confirmed, and the rule has no reference"),
        ("unrenderable", "the rung one does not render on sglang-"),
        ("healthy-matches", "the lines of a healthy server are enough for it (serving.log)"),
    ],
)
def test_each_gate_refuses_its_bad_rule(name: str, said: str) -> None:
    problems = check([shipped("rules")], [GATES / f"{name}.yaml"]).problems
    assert any(problem.text.startswith(said) for problem in problems), problems


def test_every_bad_rule_stands_at_its_gate() -> None:
    names = {path.stem for path in GATES.glob("*.yaml")}
    parametrized = test_each_gate_refuses_its_bad_rule.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert names == {name for name, _ in parametrized}


def test_other_words_are_won_too(tmp_path: Path) -> None:
    also = "    also:\n      - {instead_of: the moon is full, say: [the moon is new, the sun is gone]}\n    log: |"
    match = "{exception: ValueError, message: [the moon is full, the moon is new]}"
    write(tmp_path, "moon", rule(match) + SAMPLE.replace("    log: |", also, 1))
    (text,) = problems(tmp_path)
    assert text.startswith("the sample 'a full moon: the sun is gone' is not matched")


def test_other_words_for_what_is_not_there_are_an_error(tmp_path: Path) -> None:
    also = "    also:\n      - {instead_of: the sun, say: [the moon]}\n    log: |"
    write(tmp_path, "moon", rule("{message: the moon is full}") + SAMPLE.replace("    log: |", also, 1))
    assert problems(tmp_path)[0].startswith("this does not stand in the log")


def test_a_rule_without_a_sample_fails(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{message: the moon is full}"))
    assert problems(tmp_path) == ["the rule has no sample: add a second document with `samples:`"]


def test_a_sample_that_is_not_matched_says_what_was_seen(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{message: the moon is new}") + SAMPLE)
    (text,) = problems(tmp_path)
    assert text.startswith("the sample 'a full moon' is not matched: seen: ValueError: 'the moon is full'")
    assert "scheduler.py:event_loop" in text
    assert text.splitlines()[0].endswith("serving, fatal")
    assert "message wants the moon is new: found 'the moon is', then the text goes on 'full'" in text


def test_a_sample_without_a_crash_fails(tmp_path: Path) -> None:
    proof = "---\nsamples:\n  - name: nothing\n    log: all is well\n"
    write(tmp_path, "moon", rule("{message: the moon is full}") + proof)
    assert problems(tmp_path)[0].startswith("in the sample 'nothing' no crash is seen")


def test_a_sample_that_another_rule_wins_fails(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{message: the moon is full}") + SAMPLE)
    write(tmp_path, "night", rule("{message: moon is full, exception: ValueError}") + SAMPLE)
    (text,) = problems(tmp_path)
    assert text.startswith("the sample 'a full moon' is won by night, this rule matches too")


def test_a_near_miss_that_has_nothing_of_a_sample_proves_nothing(tmp_path: Path) -> None:
    miss = "near_misses:\n  - why: no moon\n    log: |\n      ...\n"
    write(tmp_path, "moon", rule("{exception: ValueError, message: the moon is full}") + SAMPLE + miss)
    assert problems(tmp_path) == ["the near-miss 'no moon' is near to nothing: no word of its log is in a sample"]


def test_a_near_miss_that_matches_fails(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{message: the moon is full}") + SAMPLE + MISS)
    assert problems(tmp_path) == ["the near-miss 'no moon' is matched: make the rule stricter"]


def test_a_rung_that_is_first_somewhere_needs_a_sample_from_there(tmp_path: Path) -> None:
    ladder = """remedies:
  - {id: sleep, kind: advice, title: Sleep, cost: none, confirmed: false}
  - {id: shutters, kind: advice, title: Shut them, cost: none, confirmed: false, first_where: {frame: 'scheduler.py'}}
"""
    write(tmp_path, "moon", rule("{message: the moon is full}", ladder) + SAMPLE)
    assert problems(tmp_path) == ["no sample shows where shutters is first: add one with `first: shutters`"]
    proof = SAMPLE.replace("    log: |", "    first: shutters\n    log: |", 1)
    write(tmp_path, "moon", rule("{message: the moon is full}", ladder) + proof)
    assert problems(tmp_path) == []


def test_expectations_of_a_sample_are_compared(tmp_path: Path) -> None:
    proof = SAMPLE.replace("    log: |", "    first: sleep\n    captures: {phase: new}\n    log: |", 1)
    write(tmp_path, "moon", rule("{message: 'the moon is (?P<phase>full)'}") + proof)
    assert problems(tmp_path) == [
        "the sample 'a full moon' is offered None first, not sleep",
        "the sample 'a full moon' captures phase='full', not 'new'",
    ]


@pytest.mark.parametrize(
    "pattern",
    [
        "the moon (a|aa)+$",
        "the moon .*is.*full.*now",
        "(?:the moon ?)+$",
        "the moo(?:n+)+ now$",
        r"(?:\w+\s*)*: the moon",
        r"the moon [^\n]{0,2000} and [^\n]{0,2000} the sun",
    ],
)
def test_a_pattern_that_is_slow_on_hostile_text_fails(tmp_path: Path, pattern: str) -> None:
    write(
        tmp_path, "moon", rule(f"[{{message: the moon is full}}, {{message: '{pattern}', anchors: [moon]}}]") + SAMPLE
    )
    text, no_sample, *_ = problems(tmp_path)
    assert text.startswith("takes more than 0.1 s on 100 kB of hostile text")
    assert no_sample.startswith("no sample hits this clause")


def test_a_busy_machine_makes_no_pattern_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowness, "SEARCH_SECONDS", 0.0005)  # as if the machine were two hundred times as slow
    pattern = r"the moon[^\n]{0,60}\bis full"
    write(tmp_path, "moon", rule(f"[{{message: '{pattern}', anchors: [moon]}}]") + SAMPLE)
    assert problems(tmp_path) == []
    monkeypatch.setattr(slowness, "_yard", lambda: 0.0)
    assert problems(tmp_path)[0].startswith("takes more than")


def test_a_pattern_that_is_no_regex_fails_with_its_place(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("[{message: the moon is full}, {message: 'the moon (is'}]") + SAMPLE)
    (problem,) = check([tmp_path]).problems
    assert problem.text.startswith("not a regular expression")
    assert (problem.mark.line, problem.mark.column) == (4, 48)


def test_the_only_pattern_being_no_regex_is_one_error(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{exception: ValueError, message: 'the moon (is'}") + SAMPLE)
    (text,) = problems(tmp_path)
    assert text.startswith("not a regular expression")


def test_a_condition_on_a_flag_that_no_release_has_fails(tmp_path: Path) -> None:
    condition = "{flag: tp_siez, above: 8, or_unknown: true}"
    write(tmp_path, "moon", rule(f"{{exception: ValueError, message: the moon is full, flags: {condition}}}") + SAMPLE)
    (text,) = problems(tmp_path)
    assert text.startswith("no release of sglang has --tp-siez (tp_siez in `flags`)")


def test_a_release_that_mends_is_a_release(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{message: the moon is full}", "fixed_in: soon\n") + SAMPLE)
    assert problems(tmp_path) == ["'soon' is no release number: write it like '0.5.15'"]


def test_a_file_of_another_ending_would_never_be_read_from_a_folder_and_is_not_proved(tmp_path: Path) -> None:
    path = write(tmp_path, "moon", rule("{message: the moon is full}") + SAMPLE)
    other = path.rename(path.with_suffix(".yml"))
    (problem,) = check([], [other]).problems
    assert problem.text == "rule files end in .yaml: rename it"


def test_an_edit_that_cannot_be_carried_out_fails(tmp_path: Path) -> None:
    remedies = """remedies:
  - id: a
    kind: unit
    title: A
    cost: none
    confirmed: false
    edits: [{op: set-unit, name: Service.ExecStartPre, value: 'C:\\x'}]
"""
    write(tmp_path, "moon", rule("{message: the moon is full}", remedies) + SAMPLE)
    (text,) = problems(tmp_path)
    assert text.startswith("the edit cannot be carried out")


def rung(kind: str, edit: str, more: str = "") -> str:
    return f"remedies: [{{id: a, kind: {kind}, title: A, cost: None., confirmed: false, edits: [{edit}]{more}}}]\n"


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        ("unit", "{op: set-unit, name: Service.ExecStartPre, value: /bin/true}"),
        ("unit", "{op: set-unit, name: Service.User, value: root}"),
        ("unit", "{op: set-unit, name: Service.EnvironmentFile, value: /tmp/x}"),
        ("env", "{op: set-env, name: LD_PRELOAD, value: /tmp/x.so}"),
        ("env", "{op: unset-env, name: LD_LIBRARY_PATH}"),
        ("env", "{op: set-env, name: PYTHONPATH, value: /tmp}"),
        ("flag", "{op: set-flag, name: --model-path, value: x}"),
        ("flag", "{op: set-flag, name: --model, value: x}"),  # another spelling
        ("flag", "{op: set-flag, name: --trust-remote-code}"),
        ("flag", "{op: remove-flag, name: --trust-remote}"),  # argparse takes it for the whole one
    ],
)
def test_what_planning_never_takes_fails_the_check(tmp_path: Path, kind: str, edit: str) -> None:
    write(tmp_path, "moon", rule("{message: the moon is full}", rung(kind, edit)) + SAMPLE)
    (text,) = problems(tmp_path)
    assert text.startswith("the edit cannot be carried out: ")
    assert text.endswith("is never changed by triage, whatever the policy says")


@pytest.mark.parametrize(
    ("edit", "more", "said"),
    [
        ("set-flag, name: --disable-overlap-schedule, value: 5", "", "takes no value"),
        ("set-flag, name: --mem-fraction-static", "", "needs a value"),
        ("set-flag, name: --mem-fraction-static, value: moon", "", "takes a number from 0 to 1, not moon"),
        ("set-flag, name: --mem-fraction-static, value: 1.7", "", "takes a number from 0 to 1, not 1.7"),
        ("cap-flag, name: --mem-fraction-static, value: 85", "", "takes a number from 0 to 1, not 85"),
        (
            "step-flag, name: --mem-fraction-static, value: 0.1, floor: 0.5, ceiling: 1.2",
            "",
            "takes a number from 0 to 1, not 1.2",
        ),
        ("search-flag, name: --max-running-requests, floor: 2.5", "", "takes a whole number from 1 up, not 2.5"),
        ("set-flag, name: --tp-size, value: -3", "", "takes a whole number from 1 up, not -3"),
        ("set-flag, name: --tp-size, value: 2.5", "", "takes a whole number from 1 up, not 2.5"),
        ("set-flag, name: --max-running-requests, value: 0", "", "takes a whole number from 1 up, not 0"),
        ("set-flag, name: --hicache-size, value: 0", "", None),
        ("set-flag, name: --chunked-prefill-size, value: -1", "", None),  # without chunks
        ("set-flag, name: --mem-fraction-static, value: '0.8'", "", None),
        ("set-flag, name: --attention-backend, value: fa4", "", None),
        ("set-flag, name: --attention-backend, value: fa4", ", when: {release: '<0.5.3'}", "takes no fa4"),
        ("set-flag, name: --moe-runner-backend, value: triton", ", when: {release: '<0.5.0'}", "has no --moe"),
        ("set-flag, name: --moe-runner-backend, value: triton", ", when: {release: '>=9'}", None),  # nobody knows yet
        ("cap-flag, name: --cuda-graph-max-bs, value: 8", ", when: {release: '>=0.5.20'}", None),  # has a new name
        ("set-flag, name: --moon, value: -3", ", forks: --moon", None),
    ],
)
def test_a_value_that_no_release_of_the_rung_takes_fails(
    tmp_path: Path, edit: str, more: str, said: str | None
) -> None:
    write(tmp_path, "moon", rule("{message: the moon is full}", rung("flag", f"{{op: {edit}}}", more)) + SAMPLE)
    texts = problems(tmp_path)
    assert len(texts) == (said is not None)
    assert all(text.startswith("no release ") and said in text for text in texts)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("Service.LimitNOFLE, value: 65536", "did you mean Service.LimitNOFILE?"),
        ("Service.Moonlight, value: full", "correct it"),
        ("Service.CPUAffinity, value: '0'", None),
    ],
)
def test_a_directive_that_systemd_does_not_know_fails(tmp_path: Path, edit: str, said: str | None) -> None:
    text = rule("{message: the moon is full}", rung("unit", f"{{op: set-unit, name: {edit}}}"))
    write(tmp_path, "moon", text + SAMPLE)
    texts = problems(tmp_path)
    assert len(texts) == (said is not None)
    assert all("systemd knows no Service." in text and text.endswith(said or "") for text in texts)


def test_a_confirmed_rung_with_a_reference_holds(tmp_path: Path) -> None:
    confirmed = rung("flag", "{op: set-flag, name: --disable-overlap-schedule}").replace("false", "true")
    write(tmp_path, "moon", rule("{message: the moon is full}", f"references: [an almanac]\n{confirmed}") + SAMPLE)
    assert problems(tmp_path) == []
    write(tmp_path, "moon", rule("{message: the moon is full}", confirmed) + SAMPLE)
    (text,) = problems(tmp_path)
    assert text.startswith("the rung a is confirmed, and the rule has no reference")


def test_the_releases_of_the_rule_are_those_of_its_rungs(tmp_path: Path) -> None:
    more = "applies: '<0.5.3'\n" + rung("flag", "{op: set-flag, name: --attention-backend, value: fa4}")
    write(tmp_path, "moon", rule("{message: the moon is full}", more) + SAMPLE)
    (text,) = problems(tmp_path)
    assert text.startswith("no release that the rung is for takes fa4 for --attention-backend")


@pytest.mark.parametrize("bounds", ["", ", floor: 0.5", ", ceiling: 0.9", ", floor: 0.9, ceiling: 0.5"])
def test_arithmetic_without_both_bounds_fails(tmp_path: Path, bounds: str) -> None:
    remedies = f"""remedies:
  - id: a
    kind: flag
    title: A
    cost: none
    confirmed: false
    edits: [{{op: step-flag, name: --mem-fraction-static, value: -0.05{bounds}}}]
"""
    write(tmp_path, "moon", rule("{message: the moon is full}", remedies) + SAMPLE)
    (text,) = problems(tmp_path)
    assert text.startswith("step-flag --mem-fraction-static needs a floor and a ceiling")


def test_a_broken_proof_is_told_with_its_place(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{message: the moon is full}") + "---\nsamples:\n  - nam: x\n")
    assert problems(tmp_path) == [
        "unknown key 'nam': did you mean 'name'?",
        "a sample lacks 'name': add it",
        "a sample lacks 'log': add it",
    ]


def test_a_proof_that_is_empty_is_told_as_such(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{message: the moon is full}") + "---\n")
    (text,) = problems(tmp_path)
    assert text.startswith("nothing stands behind the '---': write `samples:` there")


def test_check_on_the_command_line_tells_all_and_exits_1(tmp_path: Path) -> None:
    path = write(tmp_path, "moon", rule("{message: the moon is new}") + SAMPLE)
    result = CliRunner().invoke(triage, ["rules", "check", str(path)])
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{path}:7:5: the sample 'a full moon' is not matched")
    assert "1 rule, 1 sample, 0 near-misses: 1 problem" in result.stderr
    document = json.loads(CliRunner().invoke(triage, ["rules", "check", "--json", str(path)]).stdout)
    assert (document["problems"][0]["line"], document["rules"]) == (7, 1)


def test_check_of_one_file_proves_only_that_one(tmp_path: Path) -> None:
    good = write(tmp_path, "moon", rule("{exception: ValueError, message: the moon is full}") + SAMPLE)
    write(tmp_path, "bad", rule("{message: nothing of the kind}"))
    assert CliRunner().invoke(triage, ["rules", "check", str(good), "--rules", str(tmp_path)]).exit_code == 0


def test_a_release_is_asked_about_the_given_rules_only(tmp_path: Path) -> None:
    path = write(tmp_path, "moon", rule("{message: the moon is full}") + SAMPLE)
    result = CliRunner().invoke(triage, ["rules", "check", "--sglang", "0.5.12", str(path)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("1 rule, 0 rungs")


def test_list_and_show_tell_the_rules_in_force(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{message: the moon is full}", "references: [a-book]\n"))
    write(tmp_path, "start-limit", "")
    listed = CliRunner().invoke(triage, ["rules", "list", "--rules", str(tmp_path)]).stdout
    assert "moon" in listed
    assert "start-limit" in listed.split("masked")[0].splitlines()[-1]
    document = json.loads(CliRunner().invoke(triage, ["rules", "list", "--json", "--rules", str(tmp_path)]).stdout)
    assert document["masked"] == ["start-limit"]
    shown = CliRunner().invoke(triage, ["rules", "show", "moon", "--rules", str(tmp_path)])
    assert shown.exit_code == 0
    assert "a-book" in shown.stdout
    assert json.loads(CliRunner().invoke(triage, ["rules", "show", "--json", "xid-79"]).stdout)["area"] == "hardware"


def test_show_tells_where_a_rung_comes_first(tmp_path: Path) -> None:
    where = "first_where: {frame: 'eagle_worker.py', flags: {flag: speculative_algorithm, present: true}}"
    rung = f"remedies:\n  - {{id: sleep, kind: advice, title: Sleep, cost: none, confirmed: false, {where}}}\n"
    write(tmp_path, "moon", rule("{message: the moon is full}", rung))
    shown = CliRunner().invoke(triage, ["rules", "show", "--json", "moon", "--rules", str(tmp_path)])
    (remedy,) = json.loads(shown.stdout)["remedies"]
    assert remedy["first_where"] == {"frame": ["eagle_worker.py:*"], "flags": ["--speculative-algorithm"]}


def test_show_of_an_unknown_rule_says_where_to_look() -> None:
    result = CliRunner().invoke(triage, ["rules", "show", "nothing"])
    assert "there is no rule 'nothing': give the id of one in `triage rules list`" in str(result.exception)


def test_scan_tells_of_a_rule_that_was_put_out_of_force(tmp_path: Path) -> None:
    write(tmp_path, "moon", rule("{message: 'the moon (is', anchors: [the moon]}"))
    log = tmp_path / "crash.log"
    log.write_text("\n".join(line[6:] for line in LOG.splitlines()) + "\n")
    result = CliRunner().invoke(triage, ["scan", "--json", "--rules", str(tmp_path / "site"), str(log)])
    (notice,) = json.loads(result.stdout)["notices"]
    assert notice.startswith("rule moon is out of force until the next start")


def test_a_path_without_a_rule_is_a_problem_and_proves_nothing_else(tmp_path: Path) -> None:
    report = check([tmp_path], [tmp_path])
    assert (report.rules, len(report.problems)) == (0, 1)
    assert "no rule file is here" in str(report.problems[0])


@pytest.mark.parametrize(
    ("match", "rank", "said"),
    [
        ("{exception: ValueError}", 0, True),
        ("{exception: [torch.OutOfMemoryError, KeyError], phase: [serving]}", 0, True),
        ("{exception: ValueError}", -1, False),
        ("{exception: ValueError, at: scheduler.py}", 0, False),
        ("{exception: ValueError, lines: the moon is}", 0, False),
        ("{exception: [MemoryError]}", 0, False),
        ("[{message: the moon is}, {exception: Exception}]", 0, True),
    ],
)
def test_a_class_that_anything_raises_is_no_clause(tmp_path: Path, match: str, rank: int, said: bool) -> None:
    write(tmp_path, "moon", rule(match, f"rank: {rank}\n") + SAMPLE)
    assert any("alone means anything" in text for text in problems(tmp_path)) == said


def test_a_mask_of_a_rule_that_is_not_there_is_told(tmp_path: Path) -> None:
    write(tmp_path / "shipped", "full-moon", rule("{message: the moon is full}") + SAMPLE)
    other = write(tmp_path / "shipped", "moon", rule("{message: the moon is full, at: scheduler.py}") + SAMPLE)
    write(tmp_path / "own", "full-moon", "")
    folders = [tmp_path / "shipped", tmp_path / "own"]
    assert check(folders).problems == ()
    path = write(tmp_path / "own", "ful-moon", "# off\n")
    for paths in ([], [path]):
        (problem,) = check(folders, paths).problems
        assert problem.text.startswith(
            "the file is empty and there is no rule 'ful-moon' to switch off: did you mean moon?"
        )
        assert problem.mark.path == str(path)
    assert check(folders, [other]).problems == ()  # not among what was asked for


def test_a_fault_of_a_file_that_is_named_twice_is_told_once(tmp_path: Path) -> None:
    path = write(tmp_path, "moon", "title: x\n")
    once = [str(problem) for problem in check([tmp_path]).problems]
    assert [str(problem) for problem in check([tmp_path], [path, path.parent]).problems] == once
    assert len(set(once)) == len(once) > 0


def test_a_newline_in_a_name_does_not_split_a_line(tmp_path: Path) -> None:
    """Who reads the output takes what is behind it for a file of its own."""
    path = write(tmp_path, "moon\nshipped.yaml:1:1: all is well", "title: x\n")
    result = CliRunner().invoke(triage, ["rules", "check", str(path)])
    assert result.exit_code == 1
    assert all(line.startswith(f"{path.parent}/moon\\nshipped") for line in result.stdout.splitlines())
    (name,) = [p for p in check([path.parent]).problems if "the file's name" in p.text]
    assert "\n" not in name.text
