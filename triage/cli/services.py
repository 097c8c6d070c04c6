"""The long-running verbs: each builds the parts and runs one loop; `run` starts all three as children.

A fault in libsystemd must not take the dashboard down, a dead dashboard must not silence alerts, a hanging receiver
must not delay reading: so they are three processes. All end on SIGTERM and SIGINT after the transaction at hand; killed
harder, they go on where the store says.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import click

from triage.notify import notify, watchdog_interval

log = logging.getLogger("triage")

BEAT = 5.0  # seconds between two signs of life where the manager asks for none
METERS_EVERY = 5.0  # seconds between two notes of what was counted
WORK_EVERY = 1.0  # seconds between two rounds of the worker
RESTART_AFTER = (1.0, 2.0, 5.0, 15.0, 60.0)  # seconds; how `run` spaces the restarts of a child that keeps ending


def now_us() -> int:
    return time.time_ns() // 1000


class Stop:
    """Set by SIGTERM or SIGINT; the loops look at it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._event.set())

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)


class Heart:
    """Tells the manager that the loop still turns, as often as it wants to hear it."""

    def __init__(self) -> None:
        self._every = watchdog_interval() or BEAT
        self._last = 0.0

    def beat(self, status: Callable[[], str]) -> None:
        present = time.monotonic()
        if present - self._last >= self._every:
            self._last = present
            notify("WATCHDOG=1", f"STATUS={status()}")


def start_logging() -> None:
    """One line an event on stderr, which is the journal under systemd; levels as sd-daemon(3) has them there."""
    if os.environ.get("JOURNAL_STREAM"):
        for level, number in ((logging.WARNING, 4), (logging.ERROR, 3), (logging.INFO, 6), (logging.DEBUG, 7)):
            logging.addLevelName(level, f"<{number}>")
        logging.basicConfig(level=logging.INFO, format="%(levelname)s%(message)s")
    else:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s: %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)


@click.command()
@click.option("--source", "specs", metavar="SPEC", default="journal:", show_default=True, help="What to read.")
def watch(specs: str) -> None:
    """Read the journal of the SGLang units and record their crashes, until told to stop."""
    from triage.cli.identity import enter
    from triage.diagnose import diagnose
    from triage.engine.assemble import Assembler
    from triage.engine.gate import Gate
    from triage.meter import Meter
    from triage.model import Batch
    from triage.pipeline import run as run_pipeline
    from triage.rematch import Rematch
    from triage.rulebase.shelf import LiveBook, Shelf
    from triage.shipped import rule_folders
    from triage.sources import open_source
    from triage.store import open_store

    start_logging()
    settings, stop, heart = enter(journal=True).settings, Stop(), Heart()
    store = open_store(settings, upgrade=True)
    cursor, contexts = store.resume(specs)
    rulebook = LiveBook(Shelf(rule_folders(*settings.rules)))
    assembler = Assembler(contexts)
    source = open_source(specs, units=settings.units, cursor=cursor, follow=True, gate=Gate(assembler))
    meter = Meter()
    told, turn = 0.0, -1  # rules may have changed while nothing watched
    rematch = Rematch(store, lambda crash: diagnose(crash, rulebook))

    def each_round(batch: Batch) -> bool:
        nonlocal told, turn
        meter.saw(batch, now_us())
        for text in rulebook.follow():  # rules that changed, have a fault, or were put out of force
            log.warning("%s", text)
        if turn != rulebook.turn:
            turn = rulebook.turn
            rematch.begin()
        for text in rematch.go_on(now_us()):
            log.info("%s", text)
        heart.beat(lambda: f"{meter.lines} lines read from {specs}")
        present = time.monotonic()
        if present - told >= METERS_EVERY:
            told = present
            store.put_counters(meter.counters())
        return not stop

    notify("READY=1", f"STATUS=reading {specs}")
    log.info("reading %s for %s", specs, " ".join(settings.units))
    try:
        run_pipeline(
            source,
            assembler,
            meter.timed(lambda crash: diagnose(crash, rulebook)),
            store,
            clock=now_us,
            each_round=each_round,
            notice=log.warning,
        )
    finally:
        notify("STOPPING=1")
        store.put_counters(meter.counters())
        source.close()
        store.close()


_SHADOW = click.option("--shadow", is_flag=True, help="Write down what [autonomy] would do, and do nothing.")


@click.command()
@_SHADOW
def worker(shadow: bool) -> None:
    """Deliver alerts, import the results of actions, file rollbacks that are due, decide, prune."""
    from triage.cli.identity import enter
    from triage.cli.parts import make_worker
    from triage.request import Requester
    from triage.store import open_store

    start_logging()
    settings, stop, heart = enter().settings, Stop(), Heart()
    store = open_store(settings, upgrade=True)
    # Its rounds may not wait for a server that is asked for its flags: alerts and rollbacks would, and the watchdog.
    at_work = make_worker(settings, Requester(settings, store, patience=0), shadow=shadow)
    notify("READY=1", "STATUS=at work")
    said: set[str] = set()
    try:
        while not stop:
            errors = at_work.run_once(now_us(), patience=WORK_EVERY).errors
            for error in errors:
                if error not in said:  # what lasts is said once, not once a second
                    log.error("%s", error)
            said = set(errors)
            heart.beat(lambda: "at work")
            stop.wait(WORK_EVERY)
    finally:
        notify("STOPPING=1")
        at_work.close()
        store.close()


@click.command()
@click.option("--host", help="Address to listen on; loopback only.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("--read-only", is_flag=True, help="Serve pages and change nothing.")
def web(host: str | None, port: int | None, read_only: bool) -> None:
    """Serve the dashboard on loopback."""
    from triage.cli.identity import enter
    from triage.cli.parts import make_dashboard
    from triage.cli.serving import bound, serve
    from triage.dashboard.auth import check_bind
    from triage.request import Requester
    from triage.store import open_store

    start_logging()
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = enter({"web": given} if given else None).settings
    check_bind(settings.web.host)
    listener = bound(settings.web.host, settings.web.port)
    settings = settings.at_port(listener.getsockname()[1])
    store = open_store(settings, upgrade=True)
    # A page must not wait a minute: it says that the server is being asked.
    app, link = make_dashboard(settings, store, Requester(settings, store, patience=0), read_only=read_only)
    try:
        serve(app, listener, started=lambda: click.echo(f"triage: dashboard at {link}"))
    finally:
        store.close()


@click.command()
@click.option("--read-only", is_flag=True, help="Record and show, but neither alert nor change anything.")
@click.option("--source", "sources", metavar="SPEC", multiple=True, help="What to read; may be given several times.")
@click.option("--host", help="Address of the dashboard; loopback only.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the dashboard.")
@_SHADOW
def run(read_only: bool, sources: tuple[str, ...], host: str | None, port: int | None, shadow: bool) -> None:
    """Watch, worker and dashboard in one command; Ctrl-C ends all three."""
    from triage.cli.identity import enter

    enter(journal=True)  # the settings are checked once, and said once, before anything starts
    stop = Stop()
    web_options = [*(["--host", host] if host else []), *(["--port", str(port)] if port is not None else [])]
    wanted = [["watch", "--source", spec] for spec in sources or ("journal:",)]
    wanted.append(["web", *web_options, *(["--read-only"] if read_only else [])])
    if not read_only:
        wanted.append(["worker", *(["--shadow"] if shadow else [])])
    children = [Child(arguments) for arguments in wanted]
    try:
        while not stop:
            for child in children:
                child.keep_running()
            stop.wait(0.2)
    finally:
        for child in children:
            child.end()


class Child:
    """One of `run`'s processes: started, and started again with growing pauses when it ends by itself."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._ends = 0
        self._start_at = 0.0

    def keep_running(self) -> None:
        present = time.monotonic()
        if self._process is None:
            if present >= self._start_at:
                command = [sys.executable, "-m", "triage", *self._arguments]
                self._process = subprocess.Popen(command, start_new_session=True)
            return
        code = self._process.poll()
        if code is None:
            return
        self._process = None
        if code == 0:  # a file was read to its end
            self._start_at = float("inf")
            return
        pause = RESTART_AFTER[min(self._ends, len(RESTART_AFTER) - 1)]
        self._ends += 1
        self._start_at = present + pause
        name = self._arguments[0]
        click.echo(f"triage: {name} ended with {code}; starting it again in {pause:g} s", err=True)

    def end(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
