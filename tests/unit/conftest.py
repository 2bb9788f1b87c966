"""What the tests of the host share."""

import pytest
from hypothesis import HealthCheck, settings

# A machine that is busy with other things is no fault of what is tested.
_SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("tern", **_SETTINGS)
settings.register_profile("exhaustive", **_SETTINGS, max_examples=1000)


def pytest_configure(config):
    settings.load_profile("exhaustive" if config.getoption("exhaustive") else "tern")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
