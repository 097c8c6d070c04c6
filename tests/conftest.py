"""Options shared by all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

# A machine with much to do is slow, and no test is about that. The gate tries the same inputs each time, so that it
# says what a change did; `make seek` tries others.
settings.register_profile("gate", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("seek", settings.get_profile("gate"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the golden answers anew; review them as a diff")
