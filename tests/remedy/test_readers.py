"""The drop-in of a unit that is not for all is for the same readers, and for triage, or it is not written."""

import os
import pwd
from pathlib import Path

import pytest

from tests.remedy.machine import UNIT, Machine
from triage.actionmodel import ActionState
from triage.units.readers import admit, among, readers

NOBODY = pwd.getpwnam("nobody")

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to others")


def of(path: Path) -> tuple[str, ...]:
    return readers(str(path), path.stat())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("text")
    return path


def test_a_file_for_all_names_nobody(file: Path) -> None:
    file.chmod(0o644)
    assert of(file) == ()
    file.chmod(0o600)
    assert of(file) == ()


@root
def test_group_and_acl_are_given_on(file: Path) -> None:
    os.chown(file, 0, NOBODY.pw_gid)
    file.chmod(0o640)
    assert of(file) == (f"g:{NOBODY.pw_gid}",)
    other = file.with_name("other")
    other.write_text("text")
    other.chmod(0o600)
    with open(other, "rb") as handle:
        admit(handle.fileno(), (f"g:{NOBODY.pw_gid}", "u:4711"))
    assert of(other) == (f"g:{NOBODY.pw_gid}", "u:4711")
    assert other.stat().st_mode & 0o777 == 0o640  # the mask; the file's own group is not let in
    assert "g:0" not in of(other)


def test_a_user_reads_by_name_and_by_group() -> None:
    assert among((f"u:{NOBODY.pw_uid}",), NOBODY.pw_gid)
    assert among((f"g:{NOBODY.pw_gid}",), NOBODY.pw_gid)
    assert not among(("g:0",), NOBODY.pw_gid)


@root
def test_a_units_group_reads_the_drop_in_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    os.chown(machine.ledger.folder, 0, NOBODY.pw_gid)
    unit = machine.folder / "etc/systemd/system" / UNIT
    os.chown(unit, 0, NOBODY.pw_gid)
    unit.chmod(0o640)
    assert machine.carry(machine.apply_request()).result.state is ActionState.VERIFIED
    assert of(machine.drop_in) == (f"g:{NOBODY.pw_gid}",)


@root
def test_what_triage_could_not_read_is_not_written(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    os.chown(machine.ledger.folder, 0, NOBODY.pw_gid)
    request = machine.apply_request()
    (machine.folder / "etc/systemd/system" / UNIT).chmod(0o640)
    before = machine.files()
    record = machine.carry(request)
    assert (record.result.state, machine.files()) == (ActionState.REFUSED, before)
    assert "user triage could not take it back" in record.result.text
