"""Fixtures of the tests that need a real systemd. Where none can be booted they fail and say why, unless
TRIAGE_E2E=skip."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.box import Box, BoxError, why_not
from tests.e2e.installed import Installed

HERE = Path(__file__).parent
INSTALL_SECONDS = 400


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if item.get_closest_marker("timeout") is None:  # the first test of a box also pays for its installation
                item.add_marker(pytest.mark.timeout(INSTALL_SECONDS))
            if os.environ.get("TRIAGE_E2E") == "skip":
                item.add_marker(pytest.mark.skip(reason="TRIAGE_E2E=skip"))


def booted(name: str) -> Iterator[Box]:
    if reason := why_not():
        pytest.fail(reason, pytrace=False)
    try:
        with Box(name) as one:
            yield one
    except BoxError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def box() -> Iterator[Box]:
    """A bare box: systemd, journald, D-Bus, this machine's programs; no triage in it."""
    yield from booted("bare")


@pytest.fixture(scope="session")
def triage() -> Iterator[Installed]:
    """One box for all stories, with triage installed and running; each story has a unit and a port of its own."""
    for one in booted("triage"):
        installed = Installed(one)
        installed.install()
        yield installed
