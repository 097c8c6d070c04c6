"""Units found on the disk as systemd finds them, and what its own verification adds."""

import os
import shutil
from pathlib import Path

import pytest

from tests.remedy.fixtures import UNITS, unit, with_file
from triage.actions.compare import mismatch
from triage.model import Edit, InputError, NotPermitted, Refused
from triage.units.edits import apply_edit, draft
from triage.units.systemctl import Folder, Loaded, Systemd, object_path
from triage.units.unitfile import effective
from triage.units.unitsearch import with_environment_files

NAME = "sglang-k26-dflash.service"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("etc/systemd/system", "usr/lib/systemd/system", "run/systemd/system"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(UNITS / "kimi-k26-dflash.service", tmp_path / "usr/lib/systemd/system" / NAME)
    return tmp_path


def put(root: Path, path: str, text: str = "[Service]\n") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def paths(root: Path, name: str = NAME) -> list[str]:
    return [file.path for file in Folder(root).read_unit(name).files]


def test_the_first_folder_wins_and_drop_ins_sort_over_all(root: Path) -> None:
    put(root, f"etc/systemd/system/{NAME}.d/override.conf")
    put(root, f"run/systemd/system/{NAME}.d/10-first.conf")
    put(root, f"usr/lib/systemd/system/{NAME}.d/override.conf")
    put(root, "etc/systemd/system/sglang-.service.d/20-all.conf")
    put(root, "etc/systemd/system/service.d/05-every.conf")
    put(root, f"etc/systemd/system/{NAME}.d/README")
    assert paths(root) == [
        f"/usr/lib/systemd/system/{NAME}",
        "/etc/systemd/system/service.d/05-every.conf",
        f"/run/systemd/system/{NAME}.d/10-first.conf",
        "/etc/systemd/system/sglang-.service.d/20-all.conf",
        f"/etc/systemd/system/{NAME}.d/override.conf",
    ]
    put(root, f"etc/systemd/system/{NAME}", "[Service]\nExecStart=/bin/a\n")
    assert paths(root)[0] == f"/etc/systemd/system/{NAME}"


def test_an_instance_has_its_templates_files_and_its_own(root: Path) -> None:
    put(root, "etc/systemd/system/sglang@.service", "[Service]\nExecStart=/bin/a %i\n")
    put(root, "etc/systemd/system/sglang@.service.d/10-all.conf")
    put(root, "etc/systemd/system/sglang@bge.service.d/20-one.conf")
    put(root, "etc/systemd/system/sglang@other.service.d/30-other.conf")
    assert [path.rsplit("/", 1)[-1] for path in paths(root, "sglang@bge.service")] == [
        "sglang@.service",
        "10-all.conf",
        "20-one.conf",
    ]


def test_a_drop_in_that_is_masked_does_not_count(root: Path) -> None:
    put(root, f"usr/lib/systemd/system/{NAME}.d/10-a.conf")
    (root / f"etc/systemd/system/{NAME}.d").mkdir()
    (root / f"etc/systemd/system/{NAME}.d/10-a.conf").symlink_to("/dev/null")
    assert len(paths(root)) == 1


@pytest.mark.parametrize("name", ["none.service", "../etc/passwd", "x.socket"])
def test_what_is_not_there_is_refused(root: Path, name: str) -> None:
    with pytest.raises(Refused):
        Folder(root).read_unit(name)


def test_masked_linked_out_and_missing_folders_are_told(root: Path, tmp_path: Path) -> None:
    (root / f"etc/systemd/system/{NAME}").symlink_to("/dev/null")
    with pytest.raises(Refused, match="masked"):
        Folder(root).read_unit(NAME)
    (root / "etc/systemd/system/out.service").symlink_to(UNITS / "shell.service")
    with pytest.raises(Refused, match="link out"):
        Folder(root).read_unit("out.service")
    with pytest.raises(InputError):
        Folder(tmp_path / "none")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_told_with_the_command(root: Path) -> None:
    (root / "usr/lib/systemd/system" / NAME).chmod(0)
    with pytest.raises(NotPermitted, match="setfacl"):
        Folder(root).read_unit(NAME)


def test_bytes_that_are_no_text_are_kept(root: Path) -> None:
    path = root / f"etc/systemd/system/{NAME}"
    path.write_bytes(b"[Service]\n# caf\xe9\nExecStart=/bin/a\n")
    assert Folder(root).read_unit(NAME).files[0].text.encode("utf-8", "surrogateescape") == path.read_bytes()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemds_objections_to_the_new_file_count_and_older_ones_do_not() -> None:
    before = unit("kimi-k26-dflash", None, ("10-old.conf", "[Service]\nOldNonsense=1\n"))
    command = "ExecStart=\nExecStart=/srv/sglang/venv/bin/python -m sglang.launch_server --tp 8\n"
    assert Systemd().verify(before, with_file(before, f"[Service]\n{command}")) == ()
    said = Systemd().verify(before, with_file(before, f"[Service]\n{command}NewNonsense=1\n"))
    assert len(said) == 1
    assert "NewNonsense" in said[0]
    missing_reset = "[Service]\nExecStart=/srv/sglang/venv/bin/python -m sglang.launch_server --tp 8\n"
    assert Systemd().verify(before, with_file(before, missing_reset))


def test_the_bus_has_its_own_spelling_of_names() -> None:
    assert object_path("sglang-k26.service") == "/org/freedesktop/systemd1/unit/sglang_2dk26_2eservice"
    assert object_path("1@x.service").endswith("/_31_40x_2eservice")


def test_a_variable_of_an_environment_file_cannot_be_set_by_a_drop_in(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("A=1\n")
    target = unit("embed@", "sglang-embed@x.service", ("a.conf", f"[Service]\nEnvironmentFile={file}\n"))
    state = draft(effective(with_environment_files(target)))
    assert apply_edit(state, Edit("set-env", "B", "2")).environment == {"B": "2"}
    with pytest.raises(Refused, match="beats Environment="):
        apply_edit(state, Edit("set-env", "A", "2"))


def test_what_is_loaded_is_compared_word_by_word() -> None:
    state = draft(effective(unit("embed@", "sglang-embed@bge.service")))
    words = "/opt/sglang/bin/python3 -m sglang.launch_server --model-path /models/bge --is-embedding --port ${PORT}"
    argv = (*words.split(), "--api-key", "k3y with $$ and 100%", "$EXTRA")
    held = Loaded((argv,), ("EXTRA=--log-level warning",), ())
    assert mismatch(state, held) == ""
    assert "instead of" in mismatch(state, Loaded((argv[:-1],), held.environment, ()))
    assert "another one" in mismatch(state, Loaded(((*argv[:-1], "$OTHER"),), held.environment, ()))
    assert "other names" in mismatch(state, Loaded((argv,), (), ()))
    assert "another value" in mismatch(state, Loaded((argv,), ("EXTRA=x",), ()))
