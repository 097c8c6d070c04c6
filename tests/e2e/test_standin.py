"""The stand-in for SGLang behaves like the real one where triage looks."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.box import wait_for
from tests.e2e.standin.install import install

FLAGS = ["--tp", "8", "--speculative-algorithm", "DFLASH", "--speculative-dflash-block-size", "8"]


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    path: Path

    @property
    def log(self) -> str:
        return self.path.read_text()

    def get(self, path: str, body: object = None, key: str | None = None) -> tuple[int, object]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def ready(self) -> bool:
        with suppress(OSError):
            return self.get("/health")[0] == 200
        return False


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("standin") / "venv")


@contextmanager
def started(python: Path, log: Path, *flags: str, behaviour: str = "") -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [str(python), "-m", "sglang.launch_server", "--model-path", "/models/k", "--port", str(port), *FLAGS, *flags]
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, "STANDIN": behaviour})
    try:
        yield Server(process, port, log)
    finally:
        process.kill()
        process.wait()


def test_the_first_generation_ends_it_with_the_same_error_in_eight_ranks(python: Path, tmp_path: Path) -> None:
    with started(python, tmp_path / "log") as server:
        wait_for("it to serve", server.ready)
        with pytest.raises(OSError):
            server.get("/generate", {"text": "one"})
        assert server.process.wait(10) == -signal.SIGKILL
        log = server.log
    assert sorted(re.findall(r" (TP\d)\] Scheduler hit an exception: Traceback", log)) == [f"TP{n}" for n in range(8)]
    assert len(re.findall(r'dflash_worker\.py", line 715, in ', log)) == 8
    assert "cuda_graph_runner.py" in log
    assert log.count("AttributeError: 'NoneType' object has no attribute 'hidden_states'") == 8
    assert log.count("SIGQUIT received. signum=None, frame=None. It usually means one child failed.") == 1


def test_without_graphs_it_serves_and_ends_a_clean_stop_by_killing_itself(python: Path, tmp_path: Path) -> None:
    with started(python, tmp_path / "log", "--disable-cuda-graph", "--api-key", "k") as server:
        wait_for("it to serve", server.ready)
        assert server.get("/v1/models")[0] == 401
        models = server.get("/v1/models", key="k")[1]
        assert isinstance(models, dict)
        assert models["data"][0]["id"] == "/models/k"
        assert server.get("/v1/chat/completions", {"model": "/models/k"}, key="k")[0] == 200
        assert server.get("/generate", {"text": "one"}, key="k")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == -signal.SIGKILL
        assert "SIGTERM received" in server.log
        assert "Traceback" not in server.log


def test_an_unknown_flag_ends_with_usage_and_status_two(python: Path, tmp_path: Path) -> None:
    with started(python, tmp_path / "log", "--turbo") as server:
        assert server.process.wait(10) == 2
        assert "launch_server.py: error: unrecognized arguments: --turbo" in server.log


@pytest.mark.parametrize(
    ("behaviour", "bad", "good", "words"),
    [
        ("oom-capture", [], ["--mem-fraction-static", "0.8"], "torch.OutOfMemoryError: CUDA out of memory"),
        (
            "illegal-capture,healthy",
            ["--speculative-ddtree-budget", "16"],
            ["--speculative-ddtree-budget", "8"],
            "torch.AcceleratorError: CUDA error: an illegal memory access",
        ),
    ],
)
def test_a_capture_failure_is_cured_by_its_remedy(
    python: Path, tmp_path: Path, behaviour: str, bad: list[str], good: list[str], words: str
) -> None:
    with started(python, tmp_path / "bad", *bad, behaviour=behaviour) as server:
        assert server.process.wait(10) == -signal.SIGKILL
        assert server.log.count(words) == 8
        assert "Received sigquit from a child process" in server.log
    with started(python, tmp_path / "good", *good, behaviour=behaviour) as server:
        wait_for("it to serve", server.ready)
