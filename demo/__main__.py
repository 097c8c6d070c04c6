"""`make demo`: the main job on a recorded crash, into a fresh database, with the dashboard on loopback.

The crash is the journal of an eight-rank stand-in (demo/record.py made it); the unit that is mended is a copy in a
folder of the demo's own (`--root`), so that nothing of this machine is touched and no systemd is needed.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import click

HERE = Path(__file__).resolve().parent
UNIT = "sglang-k26-dflash.service"
CRASH = HERE / "crash.export"


@click.command()
@click.option("--port", default=8475, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--folder", default=HERE.parent / "var" / "demo", type=click.Path(path_type=Path), help="Made anew.")
@click.option("--no-serve", is_flag=True, help="Diagnose and stop; no dashboard.")
def demo(port: int, folder: Path, no_serve: bool) -> None:
    """The main job, end to end, without touching this machine."""
    folder = folder.resolve()
    prepare(folder)
    from triage.settings import load_settings

    say(1, f"a fresh database, and a unit to mend, below {folder}")
    settings = load_settings(arguments={"web": {"port": port}})
    say(2, f"reading the journal of {UNIT} on gpu-07: {CRASH.relative_to(HERE.parent)}")
    number = diagnose(settings.database)
    root = folder / "root"
    say(3, f"stored as incident {number}; the same on the command line:")
    command = f"TRIAGE_STATE_DIR={folder / 'state'} .venv/bin/triage"
    click.echo(f"      {command} incidents explain {number}")
    click.echo(f"      {command} apply {number} --root {root} --dry-run")
    if not no_serve:
        dashboard(settings, root)


def prepare(folder: Path) -> None:
    """Everything of an earlier demo goes; the environment points at the new one."""
    shutil.rmtree(folder, ignore_errors=True)
    units = folder / "root" / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    shutil.copy(HERE / UNIT, units / UNIT)
    os.environ.update(TRIAGE_STATE_DIR=str(folder / "state"), TRIAGE_RUNTIME_DIR=str(folder / "run"))
    for name in [
        name for name in os.environ if name.startswith("TRIAGE_") and name[7:] not in ("STATE_DIR", "RUNTIME_DIR")
    ]:
        del os.environ[name]  # the caller's own configuration is none of the demo's business
    empty = folder / "triage.toml"
    empty.write_text("# the demo's own: all defaults\n")
    os.environ["TRIAGE_CONFIG"] = str(empty)


def diagnose(database: str) -> int:
    """The pipeline of `watch`, over the recorded journal. Gives the incident's number."""
    from triage.cli.report import print_crash
    from triage.diagnose import diagnose as name_it
    from triage.engine.assemble import Assembler
    from triage.model import Batch
    from triage.pipeline import run
    from triage.rulebase.rulebook import Rulebook
    from triage.rulebase.rulefile import rule_folders
    from triage.sources import open_source
    from triage.store import Store

    store = Store(database)
    store.upgrade()
    rulebook = Rulebook.load(rule_folders())
    read, started = 0, time.monotonic()

    def each_round(batch: Batch) -> bool:
        nonlocal read
        read += len(batch.lines)
        return True

    source = open_source(str(CRASH))
    run(source, Assembler(), lambda crash: name_it(crash, rulebook), store, clock=now, each_round=each_round)
    source.close()
    click.echo(f"      {read} lines, {time.monotonic() - started:.1f} s\n")
    incident = store.incidents().rows[0].number
    print_crash(dict(store.incident(incident).crashes[0].document))
    click.echo("")
    store.close()
    return incident


def dashboard(settings: object, root: Path) -> None:
    """The page, with hands that reach no further than the demo's folder; until Ctrl-C."""
    from triage.cli.parts import make_dashboard, make_worker
    from triage.cli.serving import bound, serve
    from triage.dashboard.desk import UnitState
    from triage.request import Requester
    from triage.settings import Settings
    from triage.store import Store
    from triage.units.unitfile import effective

    assert isinstance(settings, Settings)
    listener = bound(settings.web.host, settings.web.port)
    settings = settings.at_port(listener.getsockname()[1])
    store = Store(settings.database, base_url=settings.base_url)
    requester = Requester(settings, store, root=root)

    def units() -> tuple[UnitState, ...]:
        argv = effective(requester.manager.read_unit(UNIT), with_drop_in=True).commands[0].argv
        return (UnitState(UNIT, "a copy; never started", None, argv),)

    worker = make_worker(settings, requester)
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.5):
            worker.run_once(now())

    app, link = make_dashboard(settings, store, requester, units=units)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def started() -> None:
        say(4, "the dashboard, until Ctrl-C; preview, apply it to the copy, undo it (no journal is read here):")
        click.echo(f"      {link}")

    try:
        serve(app, listener, started)
    finally:
        stop.set()
        thread.join(5)
        worker.close()
        store.close()


def now() -> int:
    return time.time_ns() // 1000


def say(step: int, text: str) -> None:
    click.echo(f"  [{step}] {text}")


if __name__ == "__main__":
    demo()
