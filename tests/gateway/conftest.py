"""Fixtures that tests of gateways share."""

import pytest
from hypothesis import HealthCheck, settings

from ternhost.store.store import Store
from terntools.emulators.micropython import find_micropython

# A busy machine must not fail a test.
_SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("tern", **_SETTINGS)
settings.register_profile("exhaustive", **_SETTINGS, max_examples=1000)


def pytest_configure(config):
    settings.load_profile("exhaustive" if config.getoption("exhaustive") else "tern")


@pytest.fixture
def store(tmp_path):
    """An open, empty store at tmp_path / "store.sqlite"."""
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.fixture(scope="session")
def micropython():
    return find_micropython()
