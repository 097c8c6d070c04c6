"""A unit of `systemctl --user` that runs the stand-in for SGLang: a `Server` whose manager is a user's own.

In: a `Box` and the name of a user, who is made where there is none, with a home that nobody else may enter and a
manager that runs without a login."""

from __future__ import annotations

from tests.e2e.box import Box, wait_for
from tests.e2e.server import DFLASH, MODEL, PYTHON, Server

UNIT = """\
# A server of one's own.
[Service]
Environment="STANDIN={behaviour}" STANDIN_FILE=/etc/standin/{user}-{name}
ExecStart={python} -m sglang.launch_server \\
  --model-path {model} \\
  --host 127.0.0.1 --port {port} --tp 8 \\
  {flags}
"""


def make_user(box: Box, user: str) -> None:
    """With a manager of their own, as after `loginctl enable-linger`."""
    box.run(f"id {user} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {user}; chmod 700 /home/{user}")
    box.run(["loginctl", "enable-linger", user])
    uid = box.run(["id", "-u", user]).out.strip()
    wait_for(
        f"the manager of {user}",
        lambda: box.systemctl("is-active", f"user@{uid}.service", check=False).strip() == "active",
    )


class UserServer(Server):
    """`sglang-NAME.service` of that user."""

    def __init__(self, box: Box, user: str, name: str, port: int, *, flags: str = DFLASH, behaviour: str = "") -> None:
        make_user(box, user)
        self.box = box
        self.user = user
        self.uid = int(box.run(["id", "-u", user]).out)
        self.name = f"sglang-{name}.service"
        self.port = port
        self.folder = f"/home/{user}/.config/systemd/user"
        self.path = f"{self.folder}/{self.name}"
        self.text = UNIT.format(
            behaviour=behaviour, user=user, name=name, python=PYTHON, model=MODEL, port=port, flags=flags
        )
        self._behaviour = f"/etc/standin/{user}-{name}"
        box.run(["mkdir", "-p", self.folder], user=user)
        box.push(self.text, self.path, owner=user)
        self.ctl("daemon-reload")

    def ctl(self, *args: str, check: bool = True) -> str:
        """`systemctl --user`, as the user."""
        runtime = f"XDG_RUNTIME_DIR=/run/user/{self.uid}"
        return self.box.run(["env", runtime, "systemctl", "--user", *args], user=self.user, check=check).out

    def files(self) -> dict[str, tuple[str, str]]:
        """All below the user's folder of units."""
        return self.box.tree(self.folder)
