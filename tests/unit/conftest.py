"""What the tests of the host share."""

from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from ternhost import datasets

# A machine that is busy with other things is no fault of what is tested.
_SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("tern", **_SETTINGS)
settings.register_profile("exhaustive", **_SETTINGS, max_examples=1000)


def pytest_configure(config):
    settings.load_profile("exhaustive" if config.getoption("exhaustive") else "tern")


@pytest.fixture(scope="session", autouse=True)
def flights_are_read_once():
    """Half a second and more each time, and the default of most commands."""
    with pytest.MonkeyPatch.context() as patch:
        for table, name in (
            (datasets._WITHOUT_FILES, "flights"),
            (datasets._WITHOUT_FILES, "flights-planned"),
            (datasets.TABLES, "flights-table"),
        ):
            patch.setitem(table, name, cache(table[name]))
        yield


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures of reports are empty files: drawing one takes half a second."""
    monkeypatch.setattr("ternhost.run.report.plots.png", lambda figure: b"")


@pytest.fixture
def coarse(monkeypatch):
    """Pictures of reports have few dots, which are drawn sooner."""
    monkeypatch.setattr("ternhost.run.report.plots.DPI", 30)
