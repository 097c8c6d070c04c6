"""Parts that more than one verb builds, put together from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triage.settings import Settings
    from triage.store import Store
    from triage.worker import Worker

DAY = 86_400_000_000  # microseconds


def make_worker(settings: Settings, store: Store) -> Worker:
    """The worker with this configuration's channels."""
    from triage.channels import open_channels
    from triage.worker import Worker

    return Worker(store, open_channels(settings), retention=settings.retention_days * DAY)
