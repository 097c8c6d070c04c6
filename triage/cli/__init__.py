"""The command line: each verb lives in the module of this package that is named here and is imported only when used.

`triage --help` therefore imports click and nothing else. Exit codes are those of the error tree in `triage.model`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from triage import __version__
from triage.collector import collect_seldom

if TYPE_CHECKING:
    from triage.model import TriageError

# verb -> (module below triage.cli, one line for --help)
VERBS: dict[str, tuple[str, str]] = {
    "run": ("services", "Watch, worker and web in one command."),
    "watch": ("services", "Read the journal and record crashes."),
    "worker": ("services", "Deliver alerts, import results, prune."),
    "web": ("services", "Serve the dashboard on loopback."),
    "scan": ("scan", "Diagnose a log without a database."),
    "incidents": ("incidents", "List, show and settle incidents."),
    "apply": ("applying", "Apply a remedy of an incident, prove it, or take it back."),
    "rollback": ("applying", "Undo an action."),
    "actions": ("actions", "List and show actions."),
    "guards": ("guards", "What holds triage back: the breaker, rules that failed."),
    "workarounds": ("workarounds", "Applied remedies still in force, and their retiring."),
    "verify": ("actions", "Probe a unit's server with a real request."),
    "units": ("units", "SGLang units found, their flags, version and state."),
    "rules": ("authoring", "List, show, check, try and draft rules."),
    "report": ("bundle", "A masked bundle for an upstream bug report."),
    "alerts": ("alerts", "Test and list alert channels."),
    "db": ("admin", "Upgrade, check and back up the database."),
    "config": ("admin", "Check and show the settings."),
    "doctor": ("admin", "What is missing on this machine, and the command that mends it."),
}


class LazyGroup(click.Group):
    """Loads a verb's module on first use. A verb's function is named after it, in the module VERBS gives."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"triage.cli.{VERBS[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="triage")
def triage() -> None:
    """Crash triage for SGLang units: what failed first, why, and the remedy, applied and proved."""


def main() -> None:
    """Entry point: turns the error tree into exit codes and one line on stderr."""
    collect_seldom()
    try:
        triage.main(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.exceptions.Abort:
        click.echo("triage: interrupted, nothing was changed", err=True)
        sys.exit(3)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except _error_tree() as error:  # evaluated only where there is an error: --help need not pay for the model
        click.echo(f"triage: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        click.echo(f"triage: {error}", err=True)
        _end(70)
    except Exception:  # noqa: BLE001 - exit 1 means 'a crash was found' to whoever calls scan
        import traceback  # not for --help

        traceback.print_exc()
        click.echo("triage: this is a defect of triage; please report it with the lines above", err=True)
        _end(70)


def _error_tree() -> type[TriageError]:
    from triage.model import TriageError

    return TriageError


def _end(code: int) -> NoReturn:
    """Without Python's own flush at exit, which would fail on the same full disk and change the code."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)
