"""The probe asks as a client would, and believes only a real answer; waiting sees a crash at once."""

import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from triage.actions.address import ASKED, Endpoint, Kind, endpoint
from triage.actions.probe import healthy, probe
from triage.actions.readiness import ByHand, Limits, Proof
from triage.model import Refused
from triage.rulebase.catalogue import catalogue
from triage.units.sockets import Ears
from triage.units.systemctl import Loaded, State


class StandIn:
    """A server in a thread. `answers` maps a path to (status, body) or to a deed."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, Any] = {
            "/health": (200, ""),
            "/v1/models": (200, {"data": [{"id": "kimi"}]}),
            "/v1/chat/completions": (200, {"choices": [{"message": {"content": "ready"}}]}),
        }
        self.asked: list[tuple[str, str | None, Any]] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                stand_in.asked.append((self.path, self.headers.get("Authorization"), body))
                answer = stand_in.answers.get(self.path, (404, ""))
                if callable(answer):
                    answer(self)
                    return
                data = answer[1].encode() if isinstance(answer[1], str) else json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.server.daemon_threads = True
        self.port: int = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def at(self, **more: Any) -> Endpoint:
        return Endpoint(**{"kind": Kind.GENERATION, "port": self.port, **more})


@pytest.fixture
def server() -> Iterator[StandIn]:
    made = StandIn()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_an_answer_proves(server: StandIn) -> None:
    answer = probe(server.at(key="s3", model="kimi"), 10)
    assert (answer.ok, answer.proved, answer.text) == (True, True, "answered 'ready'")
    path, key, body = server.asked[-1]
    assert (path, key) == ("/v1/chat/completions", "Bearer s3")
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("kimi", 0, 32)


def test_thinking_counts_as_an_answer(server: StandIn) -> None:
    message = {"content": None, "reasoning_content": "The user wants"}
    server.answers["/v1/chat/completions"] = (200, {"choices": [{"message": message}]})
    assert probe(server.at(), 10).ok


def test_a_model_without_a_chat_template_completes(server: StandIn) -> None:
    server.answers["/v1/chat/completions"] = (400, {"message": "no chat template"})
    server.answers["/v1/completions"] = (200, {"choices": [{"text": " eight nine ten"}]})
    assert probe(server.at(), 10).ok


@pytest.mark.parametrize(
    ("path", "answer", "reason"),
    [
        ("/v1/chat/completions", (200, {"choices": [{"message": {"content": "  "}}]}), "empty text"),
        ("/v1/chat/completions", (500, {"message": "dead"}), "says 500"),
        ("/v1/chat/completions", (200, "garbage"), "no proper answer"),
        ("/v1/chat/completions", (200, {"choices": []}), "no proper answer"),
        ("/v1/models", (401, ""), "says 401"),
        ("/v1/models", (200, {"data": [{"id": "another"}]}), "another server"),
        ("/v1/chat/completions", lambda handler: handler.connection.close(), "no proper answer"),
    ],
)
def test_what_is_no_answer_proves_nothing(server: StandIn, path: str, answer: Any, reason: str) -> None:
    server.answers[path] = answer
    found = probe(server.at(model="kimi"), 10)
    assert not found.ok
    assert reason in found.text


def test_a_hanging_server_costs_the_limit_and_one_request(server: StandIn) -> None:
    released = threading.Event()
    server.answers["/v1/chat/completions"] = lambda _: released.wait(30)
    found = probe(server.at(), 1.5)
    released.set()
    assert not found.ok
    assert "no answer to the probe" in found.text
    assert [path for path, _, _ in server.asked].count("/v1/chat/completions") == 1


def test_a_dead_scheduler_behind_a_living_server_does_not_cost_the_limit(server: StandIn) -> None:
    released = threading.Event()
    server.answers["/v1/chat/completions"] = lambda _: released.wait(60)
    found = probe(server.at(), 60, lambda: "the unit ended")
    released.set()
    assert (found.ok, found.text) == (False, "the unit ended")
    assert found.seconds < 30


def test_what_generates_nothing_is_asked_what_it_can(server: StandIn) -> None:
    server.answers["/v1/embeddings"] = (200, {"data": [{"embedding": [0.1, 0.2]}]})
    assert probe(server.at(kind=Kind.EMBEDDING), 10).text == "an embedding of 2 numbers"
    half = probe(server.at(kind=Kind.HALF, note="its partner"), 10)
    assert (half.ok, half.proved, half.text) == (True, False, "its partner")
    follower = probe(server.at(kind=Kind.FOLLOWER, port=1, note="no requests"), 10)
    assert (follower.ok, follower.proved) == (True, False)


def test_health_is_asked_without_the_key(server: StandIn) -> None:
    assert healthy(server.at(key="s3"))[0]
    assert server.asked == [("/health", None, None)]
    server.answers["/health"] = (503, "")
    assert healthy(server.at()) == (False, "/health says 503")
    assert not healthy(Endpoint(Kind.GENERATION, port=1))[0]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_a_server_with_its_own_certificate_is_asked_over_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-subj", "/CN=gpu-a", "-days", "2", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    made = StandIn(context)
    assert probe(made.at(tls=True), 10).ok
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("--model-path /m", Endpoint(Kind.GENERATION)),
        (
            "--host 0.0.0.0 --port=8000 --api-key k --served-model-name kimi --ssl-certfile c --ssl-keyfile k",
            Endpoint(Kind.GENERATION, "127.0.0.1", 8000, True, "k", "kimi"),
        ),
        ("--host :: --port 1 --port 2", Endpoint(Kind.GENERATION, "::1", 2)),
        ("--host 10.0.0.5", Endpoint(Kind.GENERATION, "10.0.0.5")),
    ],
)
def test_where_to_ask_comes_from_the_command(command: str, expected: Endpoint) -> None:
    assert endpoint(("/v/python", "-m", "sglang.launch_server", *command.split())) == expected


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("python -m sglang.launch_server --is-embedding", Kind.EMBEDDING),
        ("python -m sglang.launch_server --node-rank 1 --nnodes 2", Kind.FOLLOWER),
        ("python -m sglang.launch_server --node-rank 0 --nnodes 2", Kind.GENERATION),
        ("python -m sglang.launch_server --disaggregation-mode prefill", Kind.HALF),
        ("python -m sglang_router.launch_router", Kind.ROUTER),
        ("/opt/sglang/bin/sglang serve --port 1", Kind.GENERATION),
        ("/usr/bin/sleep 5", Kind.UNKNOWN),
    ],
)
def test_what_cannot_generate_is_known_by_its_flags(command: str, kind: Kind) -> None:
    found = endpoint(tuple(command.split()))
    assert found.kind is kind
    assert bool(found.note) == (kind is not Kind.GENERATION)


# ---------------------------------------------------------------- waiting


class Sequence:
    """A manager that gives one state after another, the last one for ever."""

    live = True

    def __init__(self, *states: State, command: str = "/usr/bin/sleep 5", stopped: str = "") -> None:
        self.states = list(states)
        self.command = tuple(command.split())
        self.stopped = stopped

    def state(self, name: str) -> State:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def loaded(self, name: str) -> Loaded:
        return Loaded((self.command,), ("PORT=7",), ())

    def asked_to_stop(self, name: str, invocation: str) -> bool:
        return invocation in self.stopped


def running(active: str = "active", invocation: str = "new", **more: Any) -> State:
    return State(
        **{"active": active, "sub": "running", "result": "success", "restarts": 0, "pid": 1, **more},
        invocation=invocation,
    )


def proof(manager: Any, **limits: float) -> Proof:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    return Proof(manager, Limits(**limits), lambda: clock[0], sleep)


def test_a_unit_that_cannot_be_asked_is_watched_for_a_while() -> None:
    answer = proof(Sequence(running("activating"), running())).ready("u", "new", lambda _: None)
    assert answer.ok
    assert "not understood" in answer.text


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ((running(), running(invocation="newer")), "started again by systemd"),
        ((running("activating"), running("failed", result="exit-code")), "ended: failed, exit-code"),
        ((running("activating", sub="auto-restart", result="signal"),), "ended"),
        ((running("activating"),), "not ready within 1800 s"),
    ],
)
def test_a_crash_while_loading_ends_the_wait(states: tuple[State, ...], reason: str) -> None:
    answer = proof(Sequence(*states)).ready("u", "new", lambda _: None)
    assert not answer.ok
    assert reason in answer.text


@pytest.mark.parametrize(
    ("after", "invocation", "said"),
    [
        ((running("failed", result="signal"),), "", "was stopped by somebody"),
        ((running("inactive", invocation=""),), "", "was stopped by somebody"),
        ((running("deactivating", job=True), running("activating", invocation="newer")), "newer", "was restarted by"),
        ((running(invocation="newer"),), "newer", "was restarted by"),
    ],
)
def test_a_job_of_somebody_is_no_crash(after: tuple[State, ...], invocation: str, said: str) -> None:
    with pytest.raises(ByHand, match=said) as job:
        proof(Sequence(running("activating"), *after, stopped="new")).ready("u", "new", lambda _: None)
    assert job.value.invocation == invocation


def test_a_server_is_ready_when_health_says_so_for_a_while(server: StandIn) -> None:
    told: list[str] = []
    calls = iter(range(100))

    def loading(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(503 if next(calls) < 3 else 200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.answers["/health"] = loading
    manager = Sequence(running(), command=f"python -m sglang.launch_server --port {server.port}")
    answer = proof(manager).ready("u", "new", told.append)
    assert (answer.ok, answer.seconds) == (True, 3.0)
    assert told[0] == "0 s: /health says 503"


def test_a_crash_just_after_the_answer_is_one(server: StandIn) -> None:
    command = f"python -m sglang.launch_server --port {server.port}"
    well, dead = running(), running("failed", result="signal")
    answer = proof(Sequence(well, well, dead, command=command)).probe("u", "new")
    assert not answer.ok
    assert "ended: failed, signal" in answer.text
    assert proof(Sequence(well, command=command)).probe("u", "new").ok


def test_a_restart_is_over_when_a_new_invocation_runs() -> None:
    old, stopping = running(invocation="old"), running("deactivating", invocation="old", job=True)
    found = proof(Sequence(old, stopping, running())).restarted("u", "old", lambda _: None)
    assert found.invocation == "new"
    with pytest.raises(Refused, match="did not start"):
        proof(Sequence(running("failed", invocation="old"))).restarted("u", "old", lambda _: None)


def test_variables_of_the_unit_are_filled_in() -> None:
    manager = Sequence(running(), command="python -m sglang.launch_server --port ${PORT}")
    assert proof(manager).endpoint("u").port == 7


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="above zero"):
        Limits(ready=0)


@pytest.mark.parametrize(
    ("argv", "url"),
    [
        (("/bin/bash", "-c", "exec sglang serve /m --port 8001 2>&1"), "http://127.0.0.1:8001"),
        (("/bin/bash", "-lc", "X=1 exec python -m sglang.launch_server --port $PORT --host ::1"), "http://[::1]:8002"),
        (("/bin/bash", "-c", 'exec python -m sglang.launch_server --port "$PORT" $MORE'), "http://10.0.0.9:8002"),
        (
            ("docker", "run", "-p", "8000:30000", "image", "python3", "-m", "sglang.launch_server"),
            "http://127.0.0.1:8000",
        ),
        (
            (
                "podman",
                "run",
                "--publish=127.0.0.1:8003:7000/tcp",
                "image",
                "bash",
                "-c",
                "sglang serve /m --port 7000",
            ),
            "http://127.0.0.1:8003",
        ),
    ],
)
def test_the_server_behind_a_script_or_a_container_is_found(argv: tuple[str, ...], url: str) -> None:
    found = endpoint(argv, {"PORT": "8002", "MORE": "--host 10.0.0.9"})
    assert (found.kind, found.url) == (Kind.GENERATION, url)


SERVE = "exec python -m sglang.launch_server --model-path /m"


@pytest.mark.parametrize(
    "script",
    [
        f"P=32101; {SERVE} --port $P",
        f"P=32101 {SERVE} --port $P",
        f"export PORT=32101; {SERVE} --port $PORT",  # the unit's own PORT is another
        f"source /etc/ports; {SERVE} --port $PORT",
        f"{SERVE} --port ${{P:-32101}}",
        f"{SERVE} --port $(cat /run/port)",
        f"{SERVE} --port $((32000 + 101))",
        f"ARGS=(--port 32101); {SERVE} ${{ARGS[@]}}",
        f'{SERVE} "$@"',
        f"{SERVE} $LATER",
        f"{SERVE} --api-key $(cat /run/key)",
    ],
)
def test_what_a_shell_puts_in_is_never_guessed(script: str) -> None:
    found = endpoint(("/bin/bash", "-c", script), {"PORT": "8002"})
    assert (found.kind, found.port, found.inside) == (Kind.UNKNOWN, 0, True)
    assert "the shell puts something in" in found.note


def test_a_port_of_no_number_is_not_asked_at_another() -> None:
    assert endpoint(("python", "-m", "sglang.launch_server", "--port", "")).kind is Kind.UNKNOWN
    assert endpoint(("python", "-m", "sglang.launch_server", "--port=http")).kind is Kind.UNKNOWN


def test_abbreviated_flags_are_taken_as_the_server_takes_them() -> None:
    words = "--por 8001 --hos ::1 --api-k s3 --served kimi --ssl-cert=c --load-f dummy"
    found = endpoint(("python", "-m", "sglang.launch_server", *words.split()))
    assert found == Endpoint(Kind.GENERATION, "::1", 8001, True, "s3", "kimi", made_up=True)
    assert endpoint(("python", "-m", "sglang.launch_server", "--node-r", "1")).kind is Kind.FOLLOWER


def test_no_other_flag_is_the_beginning_of_one_that_is_looked_for() -> None:
    book = catalogue()
    assert [flag for flag in ASKED if any(flag != name and flag.startswith(name) for name in book._flags)] == []


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ("", ""),
        ("-p 30000", ""),
        ("-p 8000:7000", ""),
        ("-P", ""),
        ("-p8001:30000", "http://127.0.0.1:8001"),
        ("-p 10.0.0.5:8001:30000", "http://10.0.0.5:8001"),
        ("--publish 8000-8009:29995-30004", "http://127.0.0.1:8005"),
        ("--network host", "http://127.0.0.1:30000"),
        ("--net=host", "http://127.0.0.1:30000"),
    ],
)
def test_a_container_is_asked_where_it_publishes(options: str, url: str) -> None:
    argv = ("docker", "run", *options.split(), "image", "python3", "-m", "sglang.launch_server", "--host", "0.0.0.0")
    found = endpoint(argv)
    assert not found.inside
    assert (found.url if found.kind is Kind.GENERATION else "") == url
    assert bool(found.note) is (not url)


@pytest.mark.parametrize("before", ["sudo -u sglang", "/usr/bin/su sglang -c", "runuser -u sglang --"])
def test_who_leaves_the_unit_is_not_held_to_it(before: str) -> None:
    words = "python -m sglang.launch_server --port 1"
    argv = (*before.split(), words) if before.endswith("-c") else (*before.split(), *words.split())
    assert endpoint(argv).inside is before.startswith("runuser")


# ---------------------------------------------------------------- whose server it is


@pytest.fixture
def cgroup(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the kernel says: `ears` of the port, `argvs` of the unit's processes."""
    told: dict[str, Any] = {"ears": Ears(True), "argvs": ()}
    monkeypatch.setattr("triage.actions.readiness.ears", lambda *_: told["ears"])
    monkeypatch.setattr("triage.actions.readiness.listeners", lambda: ())
    monkeypatch.setattr("triage.actions.readiness.command_lines", lambda _: told["argvs"])
    return told


def in_cgroup() -> State:
    return running(cgroup="/system.slice/u.service")


def scripted(text: str) -> Any:
    manager = Sequence(in_cgroup())
    manager.command = ("/bin/bash", "-c", text)
    return manager


def test_somebody_elses_server_proves_nothing(server: StandIn, cgroup: dict[str, Any]) -> None:
    cgroup["ears"] = Ears(False, "sglang-b.service")
    manager = Sequence(in_cgroup(), command=f"python -m sglang.launch_server --port {server.port}")
    reason = f"somebody else answers on port {server.port}: sglang-b.service, not u"
    assert proof(manager, ready=30).ready("u", "new", lambda _: None).text == f"not ready within 30 s: {reason}"
    assert proof(manager).probe("u", "new").text == reason
    assert proof(manager).speed("u") == 0.0
    assert server.asked == []


def test_the_port_is_found_by_the_process_that_runs(server: StandIn, cgroup: dict[str, Any]) -> None:
    manager = scripted(f"P={server.port}; exec python -m sglang.launch_server --port $$P")
    cgroup["argvs"] = (("bash",), ("python", "-m", "sglang.launch_server", "--port", str(server.port)), ("sh", "x"))
    assert proof(manager).ready("u", "new", lambda _: None).seconds == 0.0
    answer = proof(manager).probe("u", "new")
    assert (answer.ok, answer.proved) == (True, True)
    assert answer.asked == f"generation http://127.0.0.1:{server.port}"


def test_a_server_that_comes_late_behind_a_script_is_waited_for(server: StandIn, cgroup: dict[str, Any]) -> None:
    manager, ticks = scripted("source /etc/ports; exec python -m sglang.launch_server --port $$P"), []

    def later(_: str) -> None:
        ticks.append(1)
        if len(ticks) == 5:
            cgroup["argvs"] = (("python", "-m", "sglang.launch_server", "--port", str(server.port)),)

    answer = proof(manager).ready("u", "new", later)
    assert (answer.text, answer.seconds) == ("/health says 200", 5.0)


@pytest.mark.parametrize("heard", [Ears(False), Ears(False, "b.service"), Ears(None)])
def test_what_a_process_says_of_its_port_has_to_be_the_units_own(
    server: StandIn, cgroup: dict[str, Any], heard: Ears
) -> None:
    manager = scripted("exec python -m sglang.launch_server --port $$P")
    cgroup["argvs"] = (("python", "-m", "sglang.launch_server", "--port", str(server.port)),)
    cgroup["ears"] = heard
    assert not proof(manager, ready=30).ready("u", "new", lambda _: None).ok
    assert not proof(manager).probe("u", "new").ok
    assert server.asked == []


def test_two_servers_of_one_unit_are_not_chosen_from(cgroup: dict[str, Any]) -> None:
    manager = scripted("exec python -m sglang.launch_server --port $$P")
    cgroup["argvs"] = tuple(("python", "-m", "sglang.launch_server", "--port", port) for port in ("1", "2"))
    assert proof(manager).endpoint("u").kind is Kind.UNKNOWN


def test_where_it_was_proved_is_asked_again_where_nothing_else_tells(cgroup: dict[str, Any]) -> None:
    manager = scripted("exec python -m sglang.launch_server --api-key k --port $$P")
    found = proof(manager).endpoint("u", "embedding http://[::1]:32101")
    assert (found.kind, found.url, found.key, found.seen) == (Kind.EMBEDDING, "http://[::1]:32101", "k", True)
    direct = Sequence(in_cgroup(), command="python -m sglang.launch_server --port 7")
    assert proof(direct).endpoint("u", "generation http://127.0.0.1:1").port == 7


def test_a_variable_of_a_file_that_cannot_be_read_is_not_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Sequence(running(), command="python -m sglang.launch_server $ARGS")
    told = Loaded((manager.command,), (), (), (("/etc/sglang.env", False),))
    monkeypatch.setattr(manager, "loaded", lambda _: told)
    monkeypatch.setattr("triage.actions.readiness._unreadable", lambda path: path == "/etc/sglang.env")
    found = proof(manager).endpoint("u")
    assert (found.kind, "cannot be read here" in found.note) == (Kind.UNKNOWN, True)
