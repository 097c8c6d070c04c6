"""Make demo/crash.export anew: boot the tests' systemd box, run the demo's unit on the stand-in, ask one question.

`python -m demo.record`, as root, on a machine where the systemd tests run. What journald kept of the unit is exported;
host, boot and machine names are replaced by invented ones.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.e2e.box import Box, wait_for
from tests.e2e.standin.install import files

HERE = Path(__file__).resolve().parent
UNIT = "sglang-k26-dflash.service"
KEPT = re.compile(
    rb"^(__CURSOR|__REALTIME_TIMESTAMP|__MONOTONIC_TIMESTAMP|_BOOT_ID|_HOSTNAME|_PID|_UID|_COMM|_TRANSPORT|_STREAM_ID|"
    rb"_SYSTEMD_UNIT|_SYSTEMD_INVOCATION_ID|_LINE_BREAK|UNIT|INVOCATION_ID|MESSAGE|MESSAGE_ID|PRIORITY|EXIT_CODE|"
    rb"EXIT_STATUS|UNIT_RESULT|COMMAND|JOB_TYPE|JOB_RESULT|JOB_ID|N_RESTARTS|SYSLOG_IDENTIFIER)(=|$)"
)


def record(box: Box) -> bytes:
    """The unit's journal, from its start to its end, as export text."""
    box.run(["mkdir", "-p", "/opt/sglang", "/models/Kimi-K2.6", "/models/Kimi-K2.6-DFlash"])
    box.run(["python3", "-m", "venv", "--without-pip", "/opt/sglang/venv"])
    site = box.run(["sh", "-c", "ls -d /opt/sglang/venv/lib/python3*/site-packages"]).out.strip()
    for path, text in files().items():
        box.push(text, f"{site}/{path}")
    text = (HERE / UNIT).read_text().replace("User=sglang\n", "").replace("Restart=on-failure\n", "")
    box.push(text, f"/etc/systemd/system/{UNIT}")
    box.systemctl("daemon-reload")
    box.systemctl("start", UNIT)
    probe = ["curl", "-sf", "-m", "5", "http://127.0.0.1:30000/health"]
    wait_for("the stand-in to serve", lambda: box.run(probe, check=False).code == 0 or None, 60)
    question = '{"text": "The capital of France is", "sampling_params": {"max_new_tokens": 4}}'
    box.run(["curl", "-s", "-m", "20", "-d", question, "http://127.0.0.1:30000/generate"], check=False)
    wait_for("the unit to end", lambda: box.show(UNIT, "ActiveState")["ActiveState"] == "failed" or None, 60)
    box.run(["journalctl", "--sync"])
    return box.journal("-u", UNIT, "-o", "export").encode()


def tidy(export: bytes, box_name: str) -> bytes:
    """Only what says something, under an invented name. (The stand-in writes no binary field: lines are enough.)"""
    lines = [line for line in export.split(b"\n") if not line or KEPT.match(line)]
    return b"\n".join(lines).replace(box_name.encode(), b"gpu-07")


if __name__ == "__main__":
    with Box("demo") as machine:
        kept = tidy(record(machine), machine.run(["hostname"]).out.strip())
    (HERE / "crash.export").write_bytes(kept)
    print(f"demo/crash.export: {len(kept)} bytes")
