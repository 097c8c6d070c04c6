"""The one file on the disk: `/etc/systemd/system/UNIT.d/zzz-triage.conf`, or the same below the folder of --root; of a
user's unit `~/.config/systemd/user/UNIT.d/zzz-triage.conf`, by that user alone.

In: a unit's name, text, mode. Out: the file as it was, written whole, or gone. Called by `carry`, and by
`deputy` as the user. It never follows a link in place of the unit's folder or the file, and removes only a folder that
it made.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from triage.actionmodel import Owner
from triage.actions import durable
from triage.model import Refused
from triage.units.readers import admit
from triage.units.unitfile import DROP_IN, drop_in_path


class Place:
    """Where drop-ins lie: below `root`, or of that user."""

    def __init__(self, root: Path = Path("/"), owner: Owner | None = None) -> None:
        self.owner = owner
        self.above = Path(owner.folder) if owner else root / "etc/systemd/system"

    def read(self, unit: str) -> bytes | None:
        """The file's bytes, None where there is none. Raises Refused on a link or a special file."""
        try:
            with durable.opened(self.above, self._name(unit)) as folder:
                return durable.read(folder, DROP_IN)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refused(f"{self.path(unit)} is not a plain file in a plain folder: {error.strerror}") from None

    def mode(self, unit: str) -> int:
        with durable.opened(self.above, self._name(unit)) as folder:
            return os.stat(DROP_IN, dir_fd=folder, follow_symlinks=False).st_mode & 0o777

    def has_folder(self, unit: str) -> bool:
        return (self.above / self._name(unit)).is_dir()

    def make_folder(self, unit: str) -> bool:
        """True where the folder was not there."""
        with self._writing(unit):
            self.above.mkdir(parents=True, exist_ok=True)
        with self._writing(unit), durable.opened(self.above) as folder:
            try:
                os.mkdir(self._name(unit), 0o755, dir_fd=folder)
                # Whatever the umask: the unprivileged side reads the drop-in to plan the next edit.
                os.chmod(self._name(unit), 0o755, dir_fd=folder)  # noqa: S103
            except FileExistsError:
                return False
            os.fsync(folder)
        return True

    def write(self, unit: str, data: bytes, mode: int, readers: tuple[str, ...] = ()) -> None:
        """`readers`: whom to let read a file whose mode is not for all (`UnitFile.readers`)."""
        named = () if mode & 0o004 else readers
        with self._writing(unit), durable.opened(self.above, self._name(unit)) as folder:
            durable.write(folder, DROP_IN, data, mode & ~0o070 if named else mode, lambda handle: admit(handle, named))

    def remove(self, unit: str, *, folder_too: bool) -> None:
        """Without the file; without the folder too where triage made it and nothing else is in it."""
        try:
            with durable.opened(self.above, self._name(unit)) as folder:
                durable.remove(folder, f".{DROP_IN}.tmp")
                durable.remove(folder, DROP_IN)
        except FileNotFoundError:
            return
        if folder_too:
            with durable.opened(self.above) as folder:
                try:
                    os.rmdir(self._name(unit), dir_fd=folder)
                except OSError:  # somebody else has put a file into it since
                    return
                os.fsync(folder)

    @contextlib.contextmanager
    def _writing(self, unit: str) -> Iterator[None]:
        """The system's errors in words."""
        try:
            yield
        except OSError as error:
            no_room = error.errno in (errno.ENOSPC, errno.EDQUOT)
            mend = f": the disk is full, make room on it (df {self.above})" if no_room else ""
            raise Refused(f"{self.path(unit)} cannot be written ({error.strerror}){mend}") from None

    def path(self, unit: str) -> str:
        return drop_in_path(unit, self.owner)

    @staticmethod
    def _name(unit: str) -> str:
        return drop_in_path(unit).rsplit("/", 2)[-2]
