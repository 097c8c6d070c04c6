"""Whatever the unit: read and written without an edit it is the same; one edit changes one thing for the process."""

import shlex
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.remedy.fixtures import with_file
from triage.actionmodel import Unit, UnitFile
from triage.model import Edit
from triage.units.dropin import InForce, command_text, render
from triage.units.edits import DoesNotFit
from triage.units.flags import served
from triage.units.unitfile import effective, expand, quote

VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20).filter(
    lambda text: not text.startswith("-")
)
NAMES = ("--alpha", "--beta", "--gamma-delta", "--tp-size", "--mem-fraction-static")
WRAPPERS = (
    [],
    ["/usr/bin/env", "A=b c", "NCCL_DEBUG=INFO"],
    ["/usr/bin/numactl", "--membind", "0", "--"],
    ["/usr/bin/taskset", "-c", "0-7", "/usr/bin/nice", "-n", "5"],
    ["/usr/bin/docker", "run", "--rm", "-e", "A=1", "image:1"],
    ["/usr/local/bin/uv", "run", "--python", "3.12"],
)
STARTS = (["/v/bin/python3", "-m", "sglang.launch_server"], ["/v/bin/sglang", "serve", "/models/m"])


@dataclass(frozen=True)
class Written:
    """A unit, and the words that its server gets."""

    unit: Unit
    argv: tuple[str, ...]
    script: bool


@st.composite
def flag_words(draw: st.DrawFn) -> list[str]:
    """Flags in all forms, each as the words it comes to."""
    words: list[str] = ["--model-path", draw(VALUES)] if draw(st.booleans()) else []
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=6)):
        form = draw(st.sampled_from(("bare", "apart", "joined", "list")))
        value = draw(VALUES)
        words += {
            "bare": [name],
            "apart": [name, value],
            "joined": [f"{name}={value}"],
            "list": [name, value, "2", "3"],
        }[form]
    return words


@st.composite
def units(draw: st.DrawFn) -> Written:
    words = [*draw(st.sampled_from(WRAPPERS)), *draw(st.sampled_from(STARTS)), *draw(flag_words())]
    script = draw(st.booleans())
    lead = draw(st.sampled_from(("", "-", "+", "!")))
    between = draw(st.sampled_from((" ", "  ", "\t", " \\\n    ", " \\\n  # why\n  ")))
    if script:
        text = " ".join(("exec", *(shlex.quote(word) for word in words)))
        text += draw(st.sampled_from(("", " 2>&1", " >> /var/log/x.log", " | tee -a x", "; exit $?", " # end")))
        command = between.join((f"{lead}/bin/bash", draw(st.sampled_from(("-c", "-lc", "-ec"))), quote(text)))
    else:
        command = lead + between.join(draw(st.sampled_from((quote, twice_quoted)))(word) for word in words)
    lines = ["[Unit]", "Description=any", "[Service]", "Environment=A=b", f"ExecStart={command}", "Restart=always"]
    files = [UnitFile("/etc/systemd/system/sglang-any.service", "\n".join(lines) + "\n")]
    if draw(st.booleans()):  # a drop-in with a reset: what counts comes last
        files.insert(0, UnitFile(files[0].path, "[Service]\nExecStart=/bin/false\n"))
        files[1] = UnitFile(f"{files[0].path}.d/override.conf", f"[Service]\nExecStart=\nExecStart={command}\n")
    return Written(Unit("sglang-any.service", tuple(files)), tuple(words), script)


def twice_quoted(word: str) -> str:
    """The same word in single quotes, where it can be: systemd takes C escapes in both."""
    text = word.replace("\\", "\\\\").replace("'", "\\'").replace("%", "%%").replace("$", "$$")
    return f"'{text}'"


def argv(unit: Unit, script: bool) -> tuple[str, ...]:
    """What the process gets, the shell's part taken apart by another reader than ours."""
    [command] = effective(unit, with_drop_in=True).commands
    words = expand(tuple(word.replace("%%", "%") for word in command.argv), {})
    if not script:
        return words
    text = words[2]
    for end in (" 2>&1", " >> /var/log/x.log", " | tee -a x", "; exit $?", " # end"):
        text = text.removesuffix(end)
    return tuple(shlex.split(text))[1:]


def without(words: tuple[str, ...], name: str) -> list[str]:
    """The words but those of one flag, values included."""
    out, skip = [], False
    for word in words:
        if word.startswith("--"):
            skip = word.partition("=")[0] == name
        if not skip:
            out.append(word)
    return out


def edited(written: Written, edit: Edit) -> tuple[str, ...]:
    text = render(written.unit, (), InForce("i1-1", 1, "r", "m", 0, (edit,))).text
    return argv(with_file(written.unit, text), written.script)


@given(units())
def test_a_command_written_again_without_an_edit_is_the_same(written: Written) -> None:
    assert argv(written.unit, written.script) == written.argv
    [command] = effective(written.unit).commands
    again = with_file(written.unit, f"[Service]\nExecStart=\nExecStart={command_text(command)}\n")
    assert effective(again, with_drop_in=True).commands == (command,)
    assert render(written.unit, ()).text == ""


@given(units())
def test_the_server_is_found_in_what_the_process_gets(written: Written) -> None:
    [command] = effective(written.unit).commands
    words = expand(tuple(word.replace("%%", "%") for word in command.argv), {})
    assert tuple(word for word in served(words, {}) if word != "exec") == written.argv


@given(units(), st.sampled_from((*NAMES, "--new")), VALUES.filter(bool))
def test_setting_a_flag_changes_that_flag_alone(written: Written, name: str, value: str) -> None:
    try:
        after = edited(written, Edit("set-flag", name, value))
    except DoesNotFit:
        assert name in " ".join(written.argv)
        return
    assert without(after, name) == without(written.argv, name)
    last = max(at for at, word in enumerate(after) if word.partition("=")[0] == name)
    assert after[last] == f"{name}={value}" or after[last : last + 2] == (name, value)
    assert len(after) <= len(written.argv) + 2


@given(units(), st.sampled_from(NAMES))
def test_removing_a_flag_takes_that_flag_alone(written: Written, name: str) -> None:
    try:
        after = edited(written, Edit("remove-flag", name))
    except DoesNotFit:
        assert not any(word.partition("=")[0] == name for word in written.argv)
        return
    assert list(after) == without(written.argv, name)
    assert len(after) < len(written.argv)


@given(units(), VALUES)
def test_a_variable_changes_no_word_but_its_own(written: Written, value: str) -> None:
    if value == "INFO":
        return
    after = edited(written, Edit("set-env", "NCCL_DEBUG", value))
    gone = [word for word in written.argv if word not in after]
    come = [word for word in after if word not in written.argv]
    assert gone in ([], ["NCCL_DEBUG=INFO"])
    assert come in ([], [f"NCCL_DEBUG={value}"], ["--env", f"NCCL_DEBUG={value}"])
