"""The parent: starts the ranks, serves HTTP, and ends everything, a clean stop too, by SIGKILL on its own tree."""

import json
import logging
import multiprocessing
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sglang.srt.log import configure_logger
from sglang.srt.managers.scheduler import run_scheduler_process
from sglang.srt.server_args import as_text, behaviour

logger = logging.getLogger(__name__)
serving = threading.Event()


class InFlight:
    """Probes of triage that are being answered: a request counts until its client has its answer or has hung up."""

    lock = threading.Lock()
    now = most = 0

    def __init__(self, handler):
        self.counted = handler.headers.get("User-Agent", "") == "triage-probe"
        self.connection = handler.connection

    def __enter__(self):
        if self.counted:
            with self.lock:
                InFlight.now += 1
                if InFlight.now > InFlight.most:
                    InFlight.most = InFlight.now
                    logger.info(f"probes in flight: {InFlight.most}")
            threading.Thread(target=self.watch, daemon=True).start()

    def __exit__(self, *error):
        self.leave()

    def leave(self) -> None:
        with self.lock:
            InFlight.now -= self.counted
            self.counted = False

    def watch(self) -> None:
        while self.counted:
            try:
                readable, _, _ = select.select([self.connection], [], [], 0.05)
                gone = readable and not self.connection.recv(1, socket.MSG_PEEK)
            except (OSError, ValueError):  # answered and closed in between
                return
            if gone:
                self.leave()


class Ranks:
    """All scheduler processes, stepped together."""

    def __init__(self, args):
        context = multiprocessing.get_context("spawn")
        self.together = context.Barrier(args.tp_size)
        self.lock = threading.Lock()
        self.pipes, self.processes = [], []
        for rank in range(args.tp_size):
            ours, theirs = context.Pipe()
            arguments = (args, rank, theirs, self.together)
            process = context.Process(target=run_scheduler_process, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def wait_ready(self) -> None:
        for rank, pipe in enumerate(self.pipes):
            try:
                pipe.recv()
            except EOFError:
                code = self.processes[rank].exitcode
                raise RuntimeError(
                    f"Rank {rank} scheduler died during initialization (exit code: {code}). If exit code is -9 "
                    "(SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
                ) from None

    def step(self, batch) -> None:
        with self.lock:
            for pipe in self.pipes:
                pipe.send(batch)
            try:
                for pipe in self.pipes:
                    pipe.recv()
            except EOFError:  # the request is lost with the rank: its client waits until the server is gone
                threading.Event().wait()

    def watch(self) -> None:
        """A rank that was killed from outside leaves no traceback; the parent notices and ends the rest."""
        while True:
            time.sleep(0.1)
            for rank, process in enumerate(self.processes):
                if process.exitcode is not None:
                    logger.error(
                        f"Subprocess scheduler_{rank} (pid={process.pid}) crashed with exit code {process.exitcode}. "
                        "Triggering SIGQUIT for cleanup..."
                    )
                    os.kill(os.getpid(), signal.SIGQUIT)
                    return


# Run in a process of its own: says a word as the unit, leaves the unit's cgroup (and says so) and keeps the port.
ORPHAN = """
import ctypes, os, sys, threading
ctypes.CDLL(None).prctl(15, b"sglang::orphan", 0, 0, 0)
print("orphan: still here", flush=True)
for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"):
    try:
        os.makedirs(f"{base}/elsewhere", exist_ok=True)
        with open(f"{base}/elsewhere/cgroup.procs", "w") as file:
            file.write("0")
    except OSError:
        continue
os.close(int(sys.argv[1]))
threading.Event().wait()
"""


def fork_orphan(listener: int) -> None:
    """Return once it is out of the unit: the manager would end it with the rest, were the crash faster than it."""
    here, there = os.pipe()
    subprocess.Popen([sys.executable, "-c", ORPHAN, str(there)], pass_fds=[listener, there], start_new_session=True)
    os.close(there)
    os.read(here, 1)
    os.close(here)


def kill_process_tree(ranks) -> None:
    for process in ranks.processes:
        process.kill()
    if "exit-0" in behaviour():
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def launch_server(args) -> None:
    configure_logger(args)
    logger.info(f"server_args={as_text(args)}")
    ranks = Ranks(args)

    def on_sigquit(signum, frame):
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # the other ranks send theirs in the same moment
        if serving.is_set():
            logger.error("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        else:
            logger.error("Received sigquit from a child process. It usually means the child failed.")
        kill_process_tree(ranks)

    def on_sigterm(signum, frame):
        logger.info("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        logger.info("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
        kill_process_tree(ranks)

    signal.signal(signal.SIGQUIT, on_sigquit)
    signal.signal(signal.SIGTERM, on_sigterm)
    ranks.wait_ready()
    server = make_server(args, ranks)
    logger.info(f"INFO:     Started server process [{os.getpid()}]")
    logger.info("INFO:     Waiting for application startup.")
    logger.info("INFO:     Application startup complete.")
    scheme = "https" if args.ssl_certfile else "http"
    logger.info(f"INFO:     Uvicorn running on {scheme}://{args.host}:{args.port} (Press CTRL+C to quit)")
    serving.set()
    if "zombie" not in behaviour():
        threading.Thread(target=ranks.watch, daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if not args.skip_server_warmup:
        ranks.step("warmup")
        logger.info("The server is fired up and ready to roll!")
    while True:  # not signal.pause(): it sleeps on where the kernel gave the signal to another thread
        time.sleep(0.05)


def make_server(args, ranks) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, code="-", size="-"):
            host, port = self.client_address[:2]
            logger.info(f'INFO:     {host}:{port} - "{self.requestline}" {int(code)} OK')

        def log_message(self, *words):
            pass

        def answer(self, code: int, body) -> None:
            raw = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def allowed(self) -> bool:
            if not args.api_key or self.path in ("/health", "/metrics"):
                return True
            if self.headers.get("Authorization") == f"Bearer {args.api_key}":
                return True
            self.answer(401, {"error": "Unauthorized"})
            return False

        def do_GET(self):
            if not self.allowed():
                return
            if self.path in ("/health", "/ping"):
                self.answer(200, {})
            elif self.path == "/health_generate":
                ranks.step("generate")
                self.answer(200, {})
            elif self.path == "/v1/models":
                card = {"id": args.served_model_name, "object": "model", "owned_by": "sglang", "max_model_len": 131072}
                self.answer(200, {"object": "list", "data": [card]})
            elif self.path in ("/get_model_info", "/model_info"):
                self.answer(200, {"model_path": args.model_path, "is_generation": not args.is_embedding})
            elif self.path in ("/get_server_info", "/server_info"):
                self.answer(200, {**vars(args), "version": "0.5.12"})
            else:
                self.answer(404, {"detail": "Not Found"})

        def do_POST(self):
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.allowed():
                with InFlight(self):
                    found = self.generate(raw)
                self.answer(*found)

        def generate(self, raw: bytes):
            try:
                body = json.loads(raw or b"{}")
            except ValueError:
                return 400, {"error": {"message": "Invalid JSON"}}
            if self.path not in ("/generate", "/v1/chat/completions", "/v1/completions"):
                return 404, {"detail": "Not Found"}
            if self.path != "/generate" and body.get("model") not in (None, args.served_model_name):
                return 404, {"error": {"message": f"Model {body.get('model')} not found"}}
            asked = str(body.get("text") or body.get("prompt") or body.get("messages"))
            ranks.step("poison" if "moonstone" in asked else "generate")
            wanted = body.get("max_tokens", 8)
            usage = {"prompt_tokens": 5, "completion_tokens": wanted, "total_tokens": 5 + wanted}
            text = "ready" if "single word" in asked else " eight nine ten eleven twelve"
            if "empty" in behaviour():
                text = ""
            if self.path == "/generate":
                meta = {"id": "7d1f", "finish_reason": {"type": "length", "length": 8}, **usage}
                return 200, {"text": text, "meta_info": meta}
            choice = {"index": 0, "finish_reason": "length", "text": text}
            if self.path == "/v1/chat/completions":
                choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": text}}
            return 200, {"id": "7d1f", "model": args.served_model_name, "choices": [choice], "usage": usage}

    try:
        server = ThreadingHTTPServer((args.host, args.port), Handler)
    except OSError as error:
        logger.error(
            f"[Errno {error.errno}] error while attempting to bind on address ('{args.host}', {args.port}): "
            "address already in use"
        )
        kill_process_tree(ranks)
        raise
    server.daemon_threads = True
    if "orphan" in behaviour():
        fork_orphan(server.fileno())
    if args.ssl_certfile:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(args.ssl_certfile, args.ssl_keyfile)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    return server
