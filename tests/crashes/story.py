"""Journals of invented servers, and how the same lines look as text, as `-o json`, as `-o export`, as `-o short`.

A scenario is a list of `Said`: who wrote what, when. The renderers turn it into the bytes of each road in.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime

START = 1_795_953_600_000_000  # 2026-11-29T12:00:00Z
UNIT = "sglang-k26-dflash.service"
HOST = "gpu-ash"
RUN = "5b1f0c6a9d3e4f7781b2c3d4e5f60718"
SITE = "/opt/engine/lib/python3.12/site-packages"
MAIN = 4100
RANKS = tuple(range(4200, 4208))
EXITED = "98e322203f7a4ed290d09fe03c09fe15"
FAILED = "d9b373ed55a64feb8242e02dbe79a49c"
STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"
STARTED = "39f53479d3a045ac8e11786248231fbf"


@dataclass(frozen=True)
class Said:
    """One line. `pid` 1 is the manager, 0 the kernel, -1 journald."""

    text: str
    pid: int = MAIN
    ms: int = 0  # after START
    fields: dict[str, str] = field(default_factory=dict)
    run: str = RUN
    unit: str = UNIT


def stamp(ms: int) -> str:
    return datetime.fromtimestamp((START + ms * 1000) / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


# ---------------------------------------------------------------- renderers


def entry_fields(said: Said) -> dict[str, str]:
    fields = {
        "__REALTIME_TIMESTAMP": str(START + said.ms * 1000),
        "_BOOT_ID": "0123456789abcdef0123456789abcdef",
        "_HOSTNAME": HOST,
        "MESSAGE": said.text,
    }
    if said.pid == 0:
        return {**fields, "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}
    if said.pid == 1:
        about = {"UNIT": said.unit, "INVOCATION_ID": said.run, "SYSLOG_IDENTIFIER": "systemd", "_COMM": "systemd"}
        return {**fields, "_TRANSPORT": "journal", "_PID": "1", "_SYSTEMD_UNIT": "init.scope", **about, **said.fields}
    if said.pid == -1:
        about = {"OBJECT_SYSTEMD_UNIT": said.unit, "_SYSTEMD_UNIT": "systemd-journald.service"}
        return {**fields, "_TRANSPORT": "driver", **about, **said.fields}
    unit = {"_SYSTEMD_UNIT": said.unit, "_SYSTEMD_INVOCATION_ID": said.run, "_STREAM_ID": "c0ffee" * 5 + "01"}
    return {**fields, "_TRANSPORT": "stdout", "_PID": str(said.pid), **unit, **said.fields}


def as_text(lines: list[Said]) -> bytes:
    """What the service itself wrote: nothing of the manager's or the kernel's."""
    return "".join(said.text + "\n" for said in lines if said.pid > 1).encode()


def as_json(lines: list[Said]) -> bytes:
    return "".join(json.dumps(entry_fields(said)) + "\n" for said in lines if said.text).encode()


def as_export(lines: list[Said], *, binary: bool = False) -> bytes:
    out = bytearray()
    for said in lines:
        if not said.text:  # journald drops blank lines
            continue
        for name, value in entry_fields(said).items():
            raw = value.encode()
            if "\n" in value or (binary and name == "MESSAGE"):
                out += name.encode() + b"\n" + len(raw).to_bytes(8, "little") + raw + b"\n"
            else:
                out += name.encode() + b"=" + raw + b"\n"
        out += b"\n"
    return bytes(out)


def as_short(lines: list[Said]) -> bytes:
    """`journalctl -o short-iso-precise`."""
    out = ""
    for said in lines:
        when = datetime.fromtimestamp((START + said.ms * 1000) / 1e6, UTC).isoformat(timespec="microseconds")
        who = {0: "kernel", 1: "systemd[1]", -1: "systemd-journald[301]"}.get(said.pid, f"python3[{said.pid}]")
        if said.text:
            out += f"{when} {HOST} {who}: {said.text}\n"
    return out.encode()


# ---------------------------------------------------------------- scenarios

FRAMES = (
    ("sglang/srt/managers/scheduler.py", 3011, "run_scheduler_process", "scheduler.event_loop_normal()"),
    ("torch/utils/_contextlib.py", 120, "decorate_context", "return func(*args, **kwargs)"),
    ("sglang/srt/managers/scheduler.py", 1144, "event_loop_normal", "result = self.run_batch(batch)"),
    ("sglang/srt/managers/scheduler.py", 2207, "run_batch", "out = self.draft_worker.forward_batch_generation(batch)"),
    ("sglang/srt/speculative/dflash_worker.py", 688, "forward_batch_generation", "out = self.graph_runner.replay(b)"),
    ("sglang/srt/speculative/dflash_worker.py", 715, "_take_draft_hidden", "hidden = out.hidden_states"),
)
NONE_TYPE = "AttributeError: 'NoneType' object has no attribute 'hidden_states'"


def traceback_lines(frames: tuple[tuple[str, int, str, str], ...], last: str) -> list[str]:
    """Frames with their source lines and marks, and the exception."""
    lines = []
    for path, line, function, source in frames:
        lines += [f'  File "{SITE}/{path}", line {line}, in {function}', f"    {source}", "    " + "^" * len(source)]
    return lines + last.split("\n")


def rank_crash(
    ms: int, rank: int, last: str = NONE_TYPE, frames: tuple[tuple[str, int, str, str], ...] = FRAMES
) -> list[Said]:
    """One rank's scheduler dies."""
    head = f"[{stamp(ms)} TP{rank}] Scheduler hit an exception: Traceback (most recent call last):"
    return [Said(text, RANKS[rank], ms) for text in [head, *traceback_lines(frames, last)]]


def chained(ms: int, rank: int) -> list[Said]:
    """One rank dies of what its capture wraps: two tracebacks, the message of each of several lines."""
    first = (
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\nFor debugging consider a flag"
    )
    last = "Exception: Capture cuda graph failed: CUDA error\nPossible ways out:\n1. a smaller batch"
    joint = "During handling of the above exception, another exception occurred:"
    below = [joint, "Traceback (most recent call last):", *traceback_lines(FRAMES[:3], last)]
    frames = (FRAMES[2], *FRAMES[4:])
    return [*rank_crash(ms, rank, first, frames), *[Said(text, RANKS[rank], ms) for text in below]]


def starting(ranks: int = 8) -> list[Said]:
    """A server that comes up."""
    lines = [Said(f"Starting {UNIT}...", 1, 0, {"MESSAGE_ID": "7d4958e842da4a758f6c1cdc7b36dcc5"})]
    arguments = (
        "model_path='/srv/models/k26', api_key='sk-not-to-be-seen-anywhere', tp_size=8, disable_cuda_graph=False"
    )
    more = "speculative_algorithm='DFLASH', speculative_dflash_block_size=8, extra={'a': (1, 2)}"
    lines.append(Said(f"[{stamp(900)}] server_args=ServerArgs({arguments}, {more})", MAIN, 900))
    for n, text in enumerate(
        (
            "Init torch distributed begin.",
            "Load weight begin. avail mem=138.20 GB",
            "Load weight end. type=KimiForCausalLM, avail mem=62.31 GB, mem usage=75.89 GB.",
            "Memory pool end. avail mem=17.20 GB",
            "Capture cuda graph begin. This can take up to several minutes.",
            "Capture cuda graph end. Time elapsed: 9.82 s.",
        )
    ):
        ms = 2000 + 1000 * n
        lines += [Said(f"[{stamp(ms)} TP{r}] {text}", RANKS[r], ms) for r in range(ranks)]
    lines += [
        Said(f"[{stamp(9000)} TP0] max_total_num_tokens=118400, max_running_requests=48", RANKS[0], 9000),
        Said("INFO:     Application startup complete.", MAIN, 9500),
        Said("INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)", MAIN, 9510),
        Said(f"[{stamp(9900)}] The server is fired up and ready to roll!", MAIN, 9900),
    ]
    return lines


def serving(ms: int, count: int) -> list[Said]:
    """Healthy traffic, with words that alarm nobody who knows."""
    lines = []
    for n in range(count):
        at = ms + 40 * n
        kind = n % 25
        if kind == 7:
            text = (
                f"[{stamp(at)} TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.43"
            )
            lines.append(Said(text, RANKS[0], at))
        elif kind == 13:
            lines.append(
                Said('INFO:     10.1.0.9:52114 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request', MAIN, at)
            )
        elif kind == 17:
            text = f"[{stamp(at)}] [http_server] Error: The input (27001 tokens) is longer than the context."
            lines.append(Said(text, MAIN, at))
        elif kind % 2:
            lines.append(Said('INFO:     10.1.0.9:52114 - "POST /v1/chat/completions HTTP/1.1" 200 OK', MAIN, at))
        else:
            text = f"[{stamp(at)} TP0] Decode batch, #running-req: {n % 40}, #token: {n}, token usage: 0.31"
            lines.append(Said(text, RANKS[0], at))
    return lines


def parent_gives_up(ms: int) -> list[Said]:
    return [
        Said(f"[{stamp(ms)}] SIGQUIT received. signum=None, frame=None. It usually means one child failed.", MAIN, ms)
    ]


def unit_failed(ms: int, code: str = "killed", status: str = "9", result: str = "signal") -> list[Said]:
    """The manager's two entries about an end."""
    word = {"9": "9/KILL", "1": "1/FAILURE", "203": "203/EXEC", "11": "11/SEGV"}.get(status, status)
    about = {"MESSAGE_ID": EXITED, "EXIT_CODE": code, "EXIT_STATUS": status}
    return [
        Said(f"{UNIT}: Main process exited, code={code}, status={word}", 1, ms, about),
        Said(f"{UNIT}: Failed with result '{result}'.", 1, ms, {"MESSAGE_ID": FAILED, "UNIT_RESULT": result}),
    ]


def stop_asked(ms: int, job: str = "stop") -> list[Said]:
    return [Said(f"Stopping {UNIT}...", 1, ms, {"MESSAGE_ID": STOPPING, "JOB_TYPE": job})]


def of_container(said: Said, name: str, run: str = "") -> Said:
    """As docker's journald driver writes it: one pid for all. `run`: the container's id."""
    about = {"CONTAINER_NAME": name, "CONTAINER_ID_FULL": run or name * 9}
    fields = {**said.fields, "_PID": "901", "_TRANSPORT": "journal", **about}
    return Said(said.text, 901, said.ms, fields, said.run, "docker.service")


def interleaved(lanes: list[list[Said]], step: int = 1) -> list[Said]:
    """Lines of several writers in turn, `step` of each."""
    out, at = [], [0] * len(lanes)
    while any(at[n] < len(lane) for n, lane in enumerate(lanes)):
        for n, lane in enumerate(lanes):
            out += lane[at[n] : at[n] + step]
            at[n] += step
    return out


def story() -> list[Said]:
    """The crash that triage was born from: loaded, ready, and the first request kills all eight ranks."""
    crash = interleaved([rank_crash(12_000, rank) for rank in range(8)])
    return [*starting(), *serving(10_000, 10), *crash, *parent_gives_up(12_200), *unit_failed(12_400)]


def shuffled(lanes, seed):
    """Each writer's lines stay in order, the writers take turns at random."""
    pick = random.Random(seed)
    rest = [list(lane) for lane in lanes]
    out = []
    while any(rest):
        lane = pick.choice([lane for lane in rest if lane])
        out.append(lane.pop(0))
    return out
