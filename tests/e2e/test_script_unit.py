"""A unit whose server is started by a shell's script, with its port in SGLang's own file, is cured, proved and put back
like any other."""

from __future__ import annotations

from tests.e2e.installed import Installed
from tests.e2e.server import MODEL, PYTHON, Server

FLAG = "--disable-cuda-graph"
PORT = 31977
CONFIG = "/etc/sglang-script.yaml"
SERVICE = f"""\
Environment=HOST=127.0.0.1 "FLAGS=--speculative-algorithm DFLASH --speculative-dflash-block-size 8"
ExecStart=
ExecStart=/bin/bash -c 'export A=1; cd /tmp && exec {PYTHON} -m sglang.launch_server --model-path {MODEL} \\
  --host "$HOST" --config {CONFIG} --tp 8 $FLAGS 2>&1'
"""


def test_a_server_in_a_script_is_cured_and_put_back(triage: Installed) -> None:
    triage.box.push(f"port: {PORT}\nlog-level: info\n", CONFIG)
    server = Server(triage.box, "script", PORT, service=SERVICE)
    server.crash()
    number = triage.incident(server)
    before = server.files()
    triage.cli("apply", str(number), "--yes", timeout=60)
    try:
        assert server.argv()[-1] == FLAG
        assert server.generate().code == 0
        triage.cli("rollback", f"i{number}-1", "--yes", timeout=60)
        assert FLAG not in server.argv()
        assert server.files() == before
    finally:
        server.stop()
