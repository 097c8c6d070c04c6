"""Units of `systemctl --user`: found where users keep them, and edited by nobody but the user."""

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from tests.remedy.fixtures import DISABLE_GRAPH, UNITS, planned
from triage.units import userunits
from triage.units.userunits import find_user_unit, instruct

NAME = "sglang-mine.service"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ada = pwd.struct_passwd(("ada", "x", 1000, 1000, "", str(tmp_path / "ada"), "/bin/sh"))
    nobody = pwd.struct_passwd(("nobody", "x", 65534, 65534, "", "/nonexistent", "/bin/false"))
    monkeypatch.setattr(userunits.pwd, "getpwall", lambda: [nobody, ada])
    monkeypatch.setattr(userunits, "_SHARED", (str(tmp_path / "shared"),))
    (tmp_path / "shared").mkdir()
    kept = tmp_path / "ada/.config/systemd/user"
    kept.mkdir(parents=True)
    return kept


def test_a_users_own_unit_is_planned_and_told_to_the_user(home: Path) -> None:
    (home / NAME).write_text((UNITS / "bash-lc-double.service").read_text())
    (home / f"{NAME}.d").mkdir()
    (home / f"{NAME}.d/10-env.conf").write_text("[Service]\nEnvironment=A=1\n")
    found = find_user_unit(NAME)
    assert found is not None
    unit, owner = found
    assert owner == "ada"
    assert [file.path for file in unit.files] == [str(home / NAME), str(home / f"{NAME}.d/10-env.conf")]
    told = instruct(planned(unit, DISABLE_GRAPH), owner)
    into_force = f"systemctl --user daemon-reload && systemctl --user restart {NAME}"
    assert told.splitlines() == [
        f"{NAME} is a unit of user ada (systemctl --user), which triage does not edit. That user types:",
        "",
        f"mkdir -p ~/.config/systemd/user/{NAME}.d",
        f"cat > ~/.config/systemd/user/{NAME}.d/zzz-triage.conf <<'END'",
        "[Service]",
        "ExecStart=",
        'ExecStart=/bin/bash -lc "exec python -m sglang.launch_server'
        ' --model-path /models/m --tp 2 --disable-cuda-graph"',
        "END",
        into_force,
        "",
        f"and to take it back: rm ~/.config/systemd/user/{NAME}.d/zzz-triage.conf && {into_force}",
    ]
    typed(told, home.parent.parent.parent)
    done = (home / f"{NAME}.d/zzz-triage.conf").read_text()
    assert done == "".join(f"{line}\n" for line in told.splitlines()[4:7])


def typed(told: str, folder: Path) -> None:
    """By the user, in a shell, where `systemctl` is a stand-in."""
    script = "systemctl() { :; }\n" + told.split("\n", 2)[2].split("\n\nand to take it back")[0]
    subprocess.run(["bash", "-euc", script], env={"HOME": str(folder), "PATH": os.environ["PATH"]}, check=True)


def test_an_instance_of_a_users_template(home: Path) -> None:
    (home / "sglang@.service").write_text((UNITS / "instance@.service").read_text())
    found = find_user_unit("sglang@a.service")
    assert found is not None
    assert (found[0].name, found[1]) == ("sglang@a.service", "ada")


def test_a_unit_for_all_users_has_no_owner(home: Path, tmp_path: Path) -> None:
    (tmp_path / "shared" / NAME).write_text((UNITS / "direct-plain.service").read_text())
    found = find_user_unit(NAME)
    assert found is not None
    assert found[1] == ""
    assert "whoever enables it" in instruct(planned(found[0], DISABLE_GRAPH), "")


def test_a_pipe_in_a_home_holds_nobody_up(home: Path) -> None:
    (home / NAME).write_text((UNITS / "direct-plain.service").read_text())
    (home / f"{NAME}.d").mkdir()
    os.mkfifo(home / f"{NAME}.d/10-pipe.conf")
    assert find_user_unit(NAME) is None


def test_what_no_user_has_is_none(home: Path) -> None:
    assert find_user_unit(NAME) is None
    assert find_user_unit("../x.service") is None
