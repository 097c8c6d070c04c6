"""`make noise`: a day of a healthy server beside other programs, with every alarming word that means nothing.

python -m tests.crashes.noise LINES: prints what was found in them, by each road; nothing fatal or degraded may be.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator

from tests.crashes import story
from tests.crashes.scanning import crashes_of
from tests.crashes.story import MAIN, RANKS, Said, stamp

CRASH = "\\n".join(["Traceback (most recent call last):", *story.traceback_lines(story.FRAMES[-1:], story.NONE_TYPE)])
SERVER = (  # {t}: SGLang's time
    "[{t} TP0] Decode batch, #running-req: 12, #token: 4410, token usage: 0.31, gen throughput (token/s): 812.4",
    "[{t} TP0] Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.11, #queue-req: 0",
    'INFO:     10.1.0.9:52114 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
)
ALARMING = (
    'INFO:     10.1.0.9:52114 - "POST /generate HTTP/1.1" 400 Bad Request',
    'INFO:     10.1.0.9:52114 - "GET /Traceback%20(most%20recent%20call%20last): HTTP/1.1" 404 Not Found',
    "[{t}] [http_server] Error: The input (27001 tokens) is longer than the model's context length (8192 tokens).",
    "[{t} TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.43 -> 0.71",
    "[{t}] Client disconnected, abort request rid=7f3a",
    "[{t}] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time",
    "[{t} TP0] JIT compiling kernel batch_prefill, this may take minutes; ninja: no work to do.",
    f"[{{t}}] Receive: obj=GenerateReqInput(rid='7', text='why? {CRASH}', stream=True)",
    f"[{{t}}] Finish: obj=GenerateReqInput(rid='7'), out={{{{'text': '{CRASH}', 'meta_info': {{{{'id': '7'}}}}}}}}",
    "[{t} TP2] Ignore import error when loading sglang.srt.models.made_up: No module named 'made_up'",
    "/opt/engine/lib/python3.12/site-packages/torch/cuda/__init__.py:61: FutureWarning: the error module is deprecated",
    "[{t} TP0] Fallback: failed to load the tuned kernel config, performance may be sub-optimal",
    "[{t} TP1] max_total_num_tokens is capped; out of memory would follow from a larger value",
)
OVER_LINES = (
    "[{t}] Receive: obj=GenerateReqInput(rid='9', text=\"What is wrong here?",
    "[{t} TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/opt/engine/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 1, in run',
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "NVRM: Xid (PCI:0000:9b:00): 79, pid=4203, name=python3, GPU has fallen off the bus.",
    "\", sampling_params={{'n': 1}}, stream=True)",
)
KERNEL = (
    "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)",
    "perf: interrupt took too long (3152 > 3127), lowering kernel.perf_event_max_sample_rate to 63000",
    "Memory cgroup out of memory: Killed process 811 (chrome) total-vm:9kB, anon-rss:8kB",
    "TCP: request_sock_TCP: Possible SYN flooding on port 30000. Sending cookies.",
)
OTHERS = (  # unit, text
    ("ssh.service", "error: kex_exchange_identification: Connection closed by remote host"),
    ("ssh.service", "fatal: Timeout before authentication for 10.0.0.8 port 4122"),
    ("cron.service", "(root) CMD (command -v debian-sa1 > /dev/null && debian-sa1 1 1)"),
    ("docker.service", 'level=error msg="Handler for POST /v1.43/containers/x/stop returned error: No such container"'),
    ("postgresql.service", "2026-11-29 12:00:12 UTC [811] FATAL:  the database system is starting up"),
    ("postgresql.service", "2026-11-29 12:00:12 UTC [811] ERROR:  deadlock detected"),
    (
        "nginx.service",
        "2026/11/29 12:00:12 [error] 811#811: *7 connect() failed (111: Connection refused), upstream: x",
    ),
    ("backup.service", "rsync error: some files could not be transferred (code 23) at main.c(1338) [sender=3.2.7]"),
    ("billing.service", "Traceback (most recent call last):"),
    ("billing.service", '  File "/srv/billing/app.py", line 12, in <module>'),
    ("billing.service", "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='pay.example', port=443)"),
    ("chat.service", "ERROR 11-29 12:00:12 [core.py:620] EngineCore failed a request: ValueError: bad token"),
)


def day(lines: int, seed: int = 1) -> Iterator[Said]:
    """A start, then so many lines of a server at work and of what runs beside it."""
    pick = random.Random(seed)
    yield from story.starting()
    for n in range(lines):
        ms = 10_000 + n * 86
        kind = pick.random()
        t = stamp(ms)
        if kind < 0.9:
            yield Said(pick.choice(SERVER).format(t=t), pick.choice((MAIN, RANKS[0])), ms)
        elif kind < 0.985:
            yield Said(pick.choice(ALARMING).format(t=t), MAIN, ms)
        elif kind < 0.99:
            yield from (Said(text.format(t=t), MAIN, ms) for text in OVER_LINES)
        elif kind < 0.992:
            yield Said(pick.choice(KERNEL), 0, ms)
        else:
            unit, text = pick.choice(OTHERS)
            yield Said(text, 811, ms, unit=unit, run="e" * 32)


def roads(lines: int) -> dict[str, Counter[tuple[str, str]]]:
    """What is found in such a day, by outcome and exception: the server's own text, and the whole machine's journal."""
    said = list(day(lines))
    own = [each for each in said if each.unit == story.UNIT and each.pid > 1]
    found = {
        "text": crashes_of(story.as_text(own)),
        "journal": crashes_of(story.as_json(said)),
        "every unit": crashes_of(story.as_json(said), units=("*",)),
    }
    return {
        road: Counter((crash.outcome.value, crash.root.cause.exception) for crash in crashes)
        for road, crashes in found.items()
    }


if __name__ == "__main__":
    for road, found in roads(int(sys.argv[1])).items():
        print(f"{road}: {dict(found) or 'nothing'}")
        if any(outcome in ("fatal", "degraded") for outcome, _ in found):
            sys.exit(1)
