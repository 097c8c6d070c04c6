"""A unit of the box that runs the stand-in for SGLang, and what a test does with it.

In: a `Box`. Out: `Server` (one unit, one port). `install_standin` comes first. No triage in here."""

from __future__ import annotations

import json

from tests.e2e.box import Box, Result, wait_for
from tests.e2e.standin import install as standin

PYTHON = "/opt/sglang/bin/python"
MODEL = "/models/kimi-k2.6"
DFLASH = "--speculative-algorithm DFLASH \\\n  --speculative-dflash-block-size 8"

UNIT = """\
# Kimi K2.6 with block-wise drafting on eight GPUs. Loading takes a while.
[Unit]
Description=Kimi K2.6, DFlash
After=network.target

[Service]
User=sglang
Environment="STANDIN={behaviour}" STANDIN_FILE=/etc/standin/{name}
ExecStart={python} -m sglang.launch_server \\
  --model-path {model} \\
  --host 127.0.0.1 --port {port} --tp 8 \\
  {flags}
{service}
[Install]
WantedBy=multi-user.target
"""


def install_standin(box: Box) -> None:
    """The virtual environment in /opt/sglang, and the user who runs it."""
    box.run(["/usr/bin/python3", "-m", "venv", "--without-pip", "/opt/sglang"])
    site = box.run("echo /opt/sglang/lib/python3*/site-packages").out.strip()
    for name, text in standin.files().items():
        box.push(text, f"{site}/{name}")
    box.run(f"{PYTHON} -m compileall -q {site}/sglang; useradd --system --no-create-home sglang; mkdir -p /etc/standin")


class Server:
    """`sglang-NAME.service`. `flags` is the end of its command line as a person wrote it, `service` more directives."""

    def __init__(
        self, box: Box, name: str, port: int, *, flags: str = DFLASH, behaviour: str = "", service: str = ""
    ) -> None:
        self.box = box
        self.name = f"sglang-{name}.service"
        self.port = port
        self.path = f"/etc/systemd/system/{self.name}"
        self.text = UNIT.format(
            behaviour=behaviour,
            name=name,
            python=PYTHON,
            model=MODEL,
            port=port,
            flags=flags,
            service=f"{service}\n" if service else "",
        )
        self._behaviour = f"/etc/standin/{name}"
        box.push(self.text, self.path)
        box.systemctl("daemon-reload")

    # ---------------------------------------------------------------- the unit

    def behave(self, words: str) -> None:
        """From its next start on, without touching the unit."""
        self.box.push(f"{words}\n", self._behaviour)

    def ctl(self, *args: str, check: bool = True) -> str:
        """`systemctl` of the manager whose unit it is."""
        return self.box.systemctl(*args, check=check)

    def start(self) -> str:
        """Start and wait until it answers. Gives the invocation that was started: a soak may have ended it since."""
        self.ctl("reset-failed", self.name, check=False)
        self.ctl("start", self.name)
        invocation = self.state()["InvocationID"]
        wait_for(f"{self.name} to serve", self.serves)
        return invocation

    def stop(self) -> None:
        self.ctl("stop", self.name, check=False)

    def serves(self) -> bool:
        return self._curl("/health", "-m", "2").code == 0

    def state(self) -> dict[str, str]:
        names = ("ActiveState", "SubState", "Result", "InvocationID", "NRestarts", "MainPID", "DropInPaths")
        out = self.ctl("show", self.name, *(f"--property={name}" for name in names))
        return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)

    def argv(self) -> list[str]:
        """The command line of the process that runs now."""
        return self.box.pull(f"/proc/{self.state()['MainPID']}/cmdline").decode().split("\0")[:-1]

    def files(self) -> dict[str, tuple[str, str]]:
        """All that makes the unit, to compare byte for byte."""
        everything = self.box.tree("/etc/systemd/system")
        return {path: what for path, what in everything.items() if self.name in path}

    # ---------------------------------------------------------------- the server

    def generate(self, seconds: int = 10, text: str = "one two three") -> Result:
        """One short generation; `.code` is curl's: 0 if it was answered."""
        return self._curl("/generate", "-m", str(seconds), "-d", json.dumps({"text": text}))

    def crash(self) -> str:
        """Start it, send the request that ends it, wait until the manager has seen the end. Gives the invocation."""
        invocation = self.start()

        def failed() -> bool:
            """Or triage was so quick to mend it that nobody saw it fail."""
            state = self.state()
            return state["ActiveState"] == "failed" or state["InvocationID"] not in ("", invocation)

        self.generate()
        wait_for(f"{self.name} to fail", failed)
        return invocation

    def _curl(self, path: str, *more: str) -> Result:
        url = f"http://127.0.0.1:{self.port}{path}"
        return self.box.run(["curl", "-sf", "-o", "/dev/null", *more, url], check=False)
