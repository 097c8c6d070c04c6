"""Somebody has a shell as user `triage`. Root's one-shot must do nothing for them that the policy does not allow.

Every attack ends the same way: refused, nothing written outside root's own records, the path unit alive."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.box import wait_for
from tests.e2e.installed import ROOTS_OWN, SPOOL, Installed
from tests.e2e.server import Server

REQUESTS = f"{SPOOL}/requests"
GUARDED = ("/etc", "/usr/local/bin", "/usr/local/lib/systemd", "/opt/triage/bin", "/opt/sglang/bin")

FILE = """
import os, sys
name, data = sys.argv[1], sys.stdin.buffer.read()
os.chdir("/var/lib/triage/spool/requests")
with open("." + name, "wb") as file:
    file.write(data)
os.rename("." + name, name)
"""

# What an honest client would put into the request: the digests of the unit and of the file that would come of it.
# Who has a shell has this too, so that it is the policy that has to refuse and not a digest.
DIGESTS = """
import json, sys
from triage.units import dropin, systemctl, unitfile
from triage.actions import ledger
from triage import actionmodel, model
fields = json.load(sys.stdin)
edits = tuple(model.Edit(**edit) for edit in fields["edits"])
unit = systemctl.Systemd().read_unit(fields["unit"])
seen, result = unitfile.unit_digest(unit), "0" * 64
try:
    request = actionmodel.Request(**{**fields, "edits": edits, "seen_digest": seen, "result_digest": result})
    known = dropin.standing(ledger.Ledger(ledger.Path("/var/lib/triage-apply")).results(), unit.name)
    result = unitfile.digest(dropin.render(unit, known.actions, dropin.in_force(request)).text)
except Exception as error:
    print(error, file=sys.stderr)
print(seen, result)
"""

FLAG = {"op": "set-flag", "name": "--disable-cuda-graph", "value": None, "floor": None, "ceiling": None}


class Attacker:
    """A shell as user `triage`, and the unit it is after."""

    def __init__(self, triage: Installed, server: Server, name: str) -> None:
        self.triage = triage
        self.name = name
        self.box = triage.box
        self.server = server
        self.count = 0

    def shell(self, script: str) -> None:
        self.box.run(script, user="triage")

    def request(self, **fields: Any) -> dict[str, Any]:
        """A request that would be carried out but for what `fields` changes."""
        self.count += 1
        request = {
            "action": f"{self.name}-{self.count}",
            "kind": "apply",
            "unit": self.server.name,
            "incident": 1,
            "rule": "dflash-graph-replay-none",
            "remedy": "disable-cuda-graph",
            "edits": [FLAG],
            "seen_digest": "",
            "result_digest": "",
            "uid": 0,
            "sudo_uid": None,
            "time": time.time_ns() // 1000,
            "target": None,
            "verify": False,
            "reason": "operator",
            "root": "",
        }
        argv = ["/opt/triage/bin/python", "-I", "-c", DIGESTS]
        asked = json.dumps({**request, "edits": fields.get("edits", [FLAG])}).encode()
        seen, result = self.box.run(argv, data=asked).out.split()
        return {**request, "seen_digest": seen, "result_digest": result, **fields}

    def file(self, request: dict[str, Any] | bytes, name: str = "") -> None:
        data = request if isinstance(request, bytes) else json.dumps(request).encode()
        name = name or (request["action"] if isinstance(request, dict) else "attack-raw")
        self.box.run(["/usr/bin/python3", "-I", "-c", FILE, name], user="triage", data=data)

    def refusals(self) -> dict[str, str]:
        """What root's own records say of this attacker's requests: number -> why. Raises if one was carried out."""
        found = {}
        for name in self.box.run(f"ls {ROOTS_OWN}/results").out.split():
            if name.startswith(f"{self.name}-"):
                result = json.loads(self.box.pull(f"{ROOTS_OWN}/results/{name}"))
                assert result["state"] == "refused", result
                found[name.removeprefix(f"{self.name}-")] = result["text"]
        return found

    def settled(self) -> None:
        """Root has taken everything."""
        look = f'[ -z "$(ls {REQUESTS}/ 2>/dev/null)" ] && [ -z "$(ls {ROOTS_OWN}/claims)" ]'
        idle = "systemctl show -p ActiveState --value triage-apply.service"
        wait_for("the spool to be empty", lambda: self.box.run(look, check=False).code == 0)
        wait_for("root to rest", lambda: self.box.run(idle).out.strip() in ("inactive", "failed"))


@pytest.fixture(scope="module")
def server(triage: Installed) -> Server:
    return Server(triage.box, "target", 31300)


@pytest.fixture
def attacker(triage: Installed, server: Server) -> Iterator[Attacker]:
    before = triage.box.tree(*GUARDED)
    attacker = Attacker(triage, server, "a" + secrets.token_hex(6))
    yield attacker
    attacker.settled()
    attacker.refusals()
    after = triage.box.tree(*GUARDED)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == set()
    assert triage.box.systemctl("is-active", "triage-apply.path").strip() == "active"
    assert triage.box.run("[ ! -e /tmp/owned ] && [ ! -e /owned ]").code == 0


def edit(op: str, name: str, value: Any = None) -> dict[str, Any]:
    return {"op": op, "name": name, "value": value, "floor": None, "ceiling": None}


@pytest.mark.parametrize(
    "edits",
    [
        [edit("set-flag", "--model-path", "/home/evil/model")],
        [edit("set-flag", "--trust-remote-code")],
        [edit("set-flag", "--host", "0.0.0.0")],
        [edit("set-env", "LD_PRELOAD", "/var/lib/triage/evil.so")],
        [edit("set-env", "PYTHONPATH", "/var/lib/triage")],
        [edit("set-env", "PATH", "/var/lib/triage")],
        [edit("set-unit", "Service.User", "root")],
        [edit("set-unit", "Service.ExecStartPre", "/bin/touch /owned")],
        [edit("set-unit", "Service.ExecStart", "/bin/touch /owned")],
        [edit("set-flag", "--attention-backend", "triton\nExecStartPre=/bin/touch /owned")],
        [edit("set-flag", "--attention-backend", "triton\u2028ExecStartPre=/bin/touch /owned")],
        [edit("set-flag", "--attention-backend", "$(touch /owned)")],
        [edit("set-flag", "--disable-cuda-graph]\n[Service]\nUser=root", None)],
        [FLAG, edit("set-env", "LD_AUDIT", "/var/lib/triage/evil.so")],
    ],
)
def test_an_edit_outside_the_policy_is_refused(attacker: Attacker, edits: list[dict[str, Any]]) -> None:
    attacker.file(attacker.request(edits=edits))
    attacker.settled()
    assert all("shown" not in why for why in attacker.refusals().values())  # refused for what it is


@pytest.mark.parametrize("unit", ["triage-apply.service", "dbus.service", "../sglang-x.service", "sglang-none.service"])
def test_another_unit_is_refused(attacker: Attacker, unit: str) -> None:
    attacker.file({**attacker.request(), "unit": unit})
    attacker.settled()


def test_a_request_cannot_bring_its_own_text_or_place(attacker: Attacker) -> None:
    text = "[Service]\nExecStartPre=/bin/touch /owned\n"
    attacker.file({**attacker.request(), "drop_in_text": text})
    attacker.file({**attacker.request(), "drop_in_path": "/etc/systemd/system/dbus.service.d/x.conf"})
    attacker.file(attacker.request(root="/etc"))
    attacker.file(attacker.request(action="../../../etc/systemd/system/evil.service"), name="attack-path")
    attacker.settled()


def test_a_result_that_nobody_saw_is_refused(attacker: Attacker) -> None:
    attacker.file(attacker.request(result_digest="0" * 64))
    attacker.file(attacker.request(result_digest=""))
    attacker.file(attacker.request(seen_digest="f" * 64))
    attacker.settled()
    assert "shown" in attacker.refusals()["1"]
    assert "changed" in attacker.refusals()["3"]


def test_links_pipes_folders_and_giants_in_the_spool_are_thrown_out(attacker: Attacker) -> None:
    attacker.shell(f"""
      cd {REQUESTS}
      ln -s /etc/shadow link
      ln -s {REQUESTS} loop
      ln -s /nowhere dangling
      mkfifo pipe
      mkdir -p folder/deep && touch folder/deep/file
      truncate -s 1G giant
      touch own && ln own twice
      : > empty
      touch 'name with blanks' $'name\\nwith newline' -- '-rf'
      python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
    """)
    attacker.settled()
    assert attacker.box.run("stat -c %a /etc/shadow").out.strip() in ("640", "0", "600")


def test_a_spool_that_becomes_a_link_is_not_followed(attacker: Attacker) -> None:
    try:
        attacker.shell(f"mv {REQUESTS} {SPOOL}/away; ln -s /etc/systemd/system {REQUESTS}")
        attacker.box.systemctl("start", "triage-apply.service", check=False)
        attacker.shell(f"rm {REQUESTS}; mv {SPOOL}/away {REQUESTS}")
        attacker.shell("mv /var/lib/triage/spool /var/lib/triage/away; ln -s /etc /var/lib/triage/spool")
        attacker.box.systemctl("start", "triage-apply.service", check=False)
        attacker.shell("rm /var/lib/triage/spool; mv /var/lib/triage/away /var/lib/triage/spool")
    finally:
        attacker.box.systemctl("reset-failed", "triage-apply.service", "triage-apply.path", check=False)
        attacker.box.systemctl("start", "triage-apply.path")


def test_a_request_that_is_swapped_after_it_was_filed_is_refused(attacker: Attacker) -> None:
    attacker.box.systemctl("stop", "triage-apply.path")
    first = attacker.request()
    attacker.file(first)
    swapped = {**first, "edits": [edit("set-flag", "--mem-fraction-static", "0.1")]}
    attacker.file(swapped, name=first["action"])
    attacker.box.systemctl("start", "triage-apply.path")
    attacker.settled()
    assert "shown" in attacker.refusals()["1"]


def test_the_records_of_root_cannot_be_written(attacker: Attacker) -> None:
    for place in ("claims", "results", "old"):
        done = attacker.box.run(f"touch {ROOTS_OWN}/{place}/mine", user="triage", check=False)
        assert done.code != 0
    assert attacker.box.run(f"rm -rf {ROOTS_OWN}/results", user="triage", check=False).code != 0


def test_a_flood_of_bad_requests_is_eaten_and_the_next_one_is_judged_as_ever(attacker: Attacker) -> None:
    attacker.shell(f"cd {REQUESTS}; for i in $(seq 400); do echo '{{' > .x$i; mv .x$i flood-$i; done")
    attacker.settled()
    attacker.shell(f"cd {REQUESTS}; for i in $(seq 60); do echo junk > .y; mv .y slow-$i; sleep 0.02; done")
    attacker.settled()
    attacker.file(attacker.request(result_digest="0" * 64))
    attacker.settled()
    assert "shown" in attacker.refusals()["1"]


def test_a_unit_that_is_not_for_all_is_cured_and_taken_back(triage: Installed) -> None:
    server = Server(triage.box, "closed", 31985)
    triage.box.run(f"chgrp triage {server.path}; chmod 640 {server.path}")
    server.crash()
    number = triage.incident(server)
    drop_in = f"{server.path}.d/zzz-triage.conf"
    try:
        triage.cli("apply", str(number), "--yes", "--no-verify", timeout=60)
        assert triage.box.run(["cat", drop_in], user="triage").code == 0
        assert triage.box.run(["cat", drop_in], user="sglang", check=False).code != 0
        triage.cli("rollback", f"i{number}-1", "--yes", timeout=60)
        assert triage.box.run(["test", "-e", drop_in], check=False).code == 1
    finally:
        server.stop()
