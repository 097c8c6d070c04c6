"""A box with triage in it, installed from its wheel by packaging/install, as an operator would; with the stand-in for
SGLang and a webhook receiver.

In: a booted `Box`. Out: `Installed`: triage's command line, its store, the webhooks that arrived."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.box import Box, BoxError, Result, wait_for
from tests.e2e.server import Server, install_standin
from tests.e2e.wheelhouse import ROOT, wheelhouse

SECRET = "whsec_" + base64.b64encode(b"a secret of twenty-four b").decode()
RECEIVER_PORT = 9099
RECEIVED = "/var/lib/receiver"
STATE, ROOTS_OWN, SPOOL = "/var/lib/triage", "/var/lib/triage-apply", "/var/lib/triage/spool"
SERVICES = ("triage-watch.service", "triage-worker.service", "triage-web.service", "triage-apply.path")

SETTINGS = f"""\
# All stories of the suite are told on one host within minutes: more than a bad night would bring.
[guards]
signature_per_day = 1000
unit_per_day = 1000
host_per_day = 1000
breaker_actions = 1000

[[webhooks]]
name = "pager"
url = "http://127.0.0.1:{RECEIVER_PORT}/hook"
secret_file = "/etc/triage/webhook-pager"

[proof]
rate = 25
timeout_seconds = 5
"""

QUERY = """
import json, sqlite3, sys
base = sqlite3.connect("file:/var/lib/triage/triage.db?mode=ro", uri=True, timeout=5)
base.row_factory = sqlite3.Row
print(json.dumps([{k: r[k] for k in r.keys() if not isinstance(r[k], bytes)} for r in base.execute(sys.argv[1])]))
"""


@dataclass(frozen=True, slots=True)
class Hook:
    """One request that the receiver got."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.body)
        return event

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def signed(self) -> bool:
        """By Standard Webhooks 1.0, with the secret we set."""
        text = f"{self.id}.{self.headers['webhook-timestamp']}.{self.body}".encode()
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        right = "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
        return right in self.headers["webhook-signature"].split()


class Installed:
    def __init__(self, box: Box) -> None:
        self.box = box

    def install(self) -> Result:
        """packaging/install from the wheelhouse; then settings, the receiver, the services anew."""
        wheel, wheels = wheelhouse()
        self.box.push(wheels, "/root/wheels")
        self.box.push(wheel, f"/root/{wheel.name}")
        self.box.push((ROOT / "packaging" / "install").read_text(), "/root/install", mode=0o755)
        install_standin(self.box)
        said = self.run_install()
        self.box.push(SETTINGS, "/etc/triage/triage.toml")
        loose = "s/^(unit_per_day|host_per_hour) = .*/\\1 = 1000/"  # the same for root's own ceiling
        self.box.run(["sed", "-Ei", loose, "/etc/triage/policy.toml"])
        self.box.push(SECRET + "\n", "/etc/triage/webhook-pager", mode=0o640, owner="root:triage")
        self.box.push((Path(__file__).parent / "receiver.py").read_text(), "/opt/receiver.py")
        self.box.run(["mkdir", "-p", RECEIVED])
        run = ["systemd-run", "-q", "--unit=receiver.service", "/usr/bin/python3", "/opt/receiver.py"]
        self.box.run([*run, RECEIVED, str(RECEIVER_PORT)])
        self.box.systemctl("restart", *SERVICES)
        return said

    def run_install(self, *more: str) -> Result:
        wheel = wheelhouse()[0]
        argv = ["/root/install", "--wheel", f"/root/{wheel.name}", "--wheelhouse", "/root/wheels", *more]
        return self.box.run(argv, timeout=300)

    @contextmanager
    def settings(self, name: str, text: str) -> Iterator[Installed]:
        """With more settings for a while."""
        path, services = f"/etc/triage/triage.toml.d/{name}.toml", ("triage-watch.service", "triage-worker.service")
        self.box.run(["mkdir", "-p", path.rsplit("/", 1)[0]])
        self.box.push(text, path)
        self.box.systemctl("restart", *services)
        try:
            yield self
        finally:
            self.box.run(["rm", path])
            self.box.systemctl("restart", *services)

    # ---------------------------------------------------------------- using it

    def cli(self, *args: str, user: str | None = None, check: bool = True, timeout: float = 90) -> Result:
        """`triage ...` as the operator types it: as root, or as `user`."""
        return self.box.run(["/usr/local/bin/triage", *args], user=user, check=check, timeout=timeout)

    def json(self, *args: str) -> Any:
        return json.loads(self.cli(*args, "--json").out)

    def apply(self, incident: int, *more: str) -> Result:
        return self.cli("apply", str(incident), "--yes", *more, check=False, timeout=120)

    def rollback(self, action: str, *more: str) -> Result:
        return self.cli("rollback", action, "--yes", *more, check=False, timeout=120)

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Rows of the store, read-only."""
        argv = ["/usr/bin/python3", "-I", "-c", QUERY, sql]
        rows: list[dict[str, Any]] = json.loads(self.box.run(argv, user="triage").out)
        return rows

    # ---------------------------------------------------------------- what came of it

    def incidents(self, server: Server) -> list[dict[str, Any]]:
        return self.query(f"select * from incident where unit = '{server.name}' order by id")

    def crashes(self, server: Server) -> list[dict[str, Any]]:
        return self.query(f"select * from crash where unit = '{server.name}' order by id")

    def actions(self, server: Server) -> list[dict[str, Any]]:
        return self.query(f"select * from action where unit = '{server.name}' order by requested_at")

    def incident(self, server: Server, seconds: float = 15, closed: bool = True) -> int:
        """The number of its one incident, once the crash is closed."""

        def look() -> int | None:
            crashes = self.crashes(server)
            ready = crashes and (crashes[-1]["closed_at"] or not closed)
            return int(crashes[-1]["incident"]) if ready else None

        try:
            return wait_for(f"an incident of {server.name}", look, seconds)
        except BoxError as error:
            raise BoxError(f"{error}\n{self.health()}") from None

    def health(self) -> str:
        """What our services and the journal's end say, for a failure that is about none of the test's own lines."""
        commands = (
            ["systemctl", "--no-pager", "-l", "status", *SERVICES],
            ["journalctl", "--no-pager", "-n", "60", "-u", "triage-watch.service"],
            ["journalctl", "--no-pager", "-n", "60"],
            ["/usr/local/bin/triage", "doctor"],
        )
        said = (self.box.run(argv, check=False) for argv in commands)
        return "\n".join(one.out + one.err for one in said)

    def state(self, incident: int) -> str:
        return str(self.query(f"select state from incident where id = {incident}")[0]["state"])

    def hooks(self, incident: int | None = None) -> list[Hook]:
        """What the receiver got, oldest first; of one incident."""
        raw = self.box.run(f"cat {RECEIVED}/requests 2>/dev/null || true").out
        rows = [json.loads(line) for line in raw.splitlines()]
        hooks = [Hook(r["status"], {k.lower(): v for k, v in r["headers"].items()}, r["body"]) for r in rows]
        return [hook for hook in hooks if incident is None or _incident_of(hook.event) == incident]

    def types(self, incident: int, status: int = 204) -> list[str]:
        return [hook.event["type"] for hook in self.hooks(incident) if hook.status == status]


def _incident_of(event: dict[str, Any]) -> int | None:
    data = event["data"]
    inner = data.get("incident")
    found = inner.get("id") if isinstance(inner, dict) else inner
    return int(found) if found is not None else None
