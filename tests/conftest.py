"""Options shared by all tests."""

import pytest
from hypothesis import HealthCheck, settings

# A machine with much to do is slow, and no test is about that.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the golden answers anew; review them as a diff")
