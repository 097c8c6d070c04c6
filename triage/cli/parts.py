"""Parts that more than one verb builds, put together from the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from triage.cli.identity import Session
    from triage.dashboard.desk import UnitState
    from triage.request import Requester
    from triage.rulebase.rule import Rule
    from triage.settings import Settings
    from triage.store import Store
    from triage.worker import Worker

DAY = 86_400_000_000  # microseconds


@contextmanager
def kept() -> Iterator[tuple[Store, Session]]:
    """The store, and who asked; as user `triage` where triage is installed."""
    from triage.cli.identity import enter
    from triage.store import open_store

    session = enter()
    store = open_store(session.settings)
    try:
        yield store, session
    finally:
        store.close()


@contextmanager
def hands_here(root: Path | None = None) -> Iterator[tuple[Requester, Session]]:
    """The hands that plan and file, on this machine or below `root`; and who asked."""
    with kept() as (store, session):
        from triage.request import Requester

        yield Requester(session.settings, store, root=root, uid=session.uid, sudo_uid=session.sudo_uid), session


def make_worker(settings: Settings, requester: Requester, *, shadow: bool = False) -> Worker:
    """The worker with this configuration's channels; it files rollbacks through the same hands as everybody."""
    from triage.autonomy import Deciding
    from triage.channels import open_channels
    from triage.debt import Collector
    from triage.prover import Prover
    from triage.views import PATIENCE as VIEW_PATIENCE
    from triage.worker import Worker

    rule = rule_here(settings)
    deciding = Deciding(settings.autonomy, requester.store, requester, rule=rule, shadow=shadow)
    return Worker(
        requester.store,
        open_channels(settings),
        results=requester.ledger.each,
        file_rollback=requester.file_rollback,
        settle_abandoned=requester.settle_abandoned,
        decide=deciding.round,
        collect_debts=Collector(requester.store, requester, rule).round,
        prover=Prover(
            requester.store,
            requester.manager,
            lambda unit: bool(requester.under_way(unit)),
            lambda owner: requester.manager_of(owner, patience=VIEW_PATIENCE),
        ),
        retention=settings.retention_days * DAY,
    )


def rule_here(settings: Settings) -> Callable[[str], Rule | None]:
    """The rule of that name; none at all where a file has a fault: what rests on rules is then left to people."""
    from triage.rulebase.shelf import Shelf
    from triage.shipped import rule_folders

    shelf = cache(lambda: Shelf(rule_folders(*settings.rules)))  # the worker's start must not wait for it

    def rule(name: str) -> Rule | None:
        present = shelf()()
        return None if present.trouble else present.rules.get(name)

    return rule


def make_dashboard(
    settings: Settings,
    store: Store,
    requester: Requester,
    *,
    units: Callable[[], tuple[UnitState, ...]] | None = None,
    read_only: bool = False,
) -> tuple[FastAPI, str]:
    """The application, and the link that may also change things (without a token where nothing may be changed)."""
    from triage.dashboard.app import create_app
    from triage.dashboard.auth import load_token, login_link
    from triage.rulebase.shelf import Shelf
    from triage.shipped import rule_folders

    token = load_token(settings.runtime_dir)
    app = create_app(
        settings,
        store,
        token=token,
        hands=requester,
        units=units or (lambda: units_here(settings)),
        in_force=Shelf(rule_folders(*settings.rules)),
        read_only=read_only,
    )
    host, port = settings.web.host, settings.web.port
    return app, f"http://{host}:{port}/" if read_only else login_link(host, port, token)


def units_here(settings: Settings, root: Path | None = None) -> tuple[UnitState, ...]:
    """The SGLang units of this machine. Raises Unreachable where there is no manager."""
    from triage.dashboard.desk import UnitState
    from triage.units.servers import find_servers
    from triage.units.systemctl import Systemd

    found = find_servers(Systemd(), settings.units, ())
    return tuple(UnitState(server.name, server.state, server.version, server.argv) for server in found)
