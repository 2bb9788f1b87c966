"""Fixtures that the tests of the host share."""

from contextlib import ExitStack
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from ternhost import datasets
from ternhost.store.store import Store

# A busy machine must not fail a test.
_SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("tern", **_SETTINGS)
settings.register_profile("exhaustive", **_SETTINGS, max_examples=1000)


def pytest_configure(config):
    settings.load_profile("exhaustive" if config.getoption("exhaustive") else "tern")


@pytest.fixture(scope="session", autouse=True)
def flights_are_read_once():
    """Most commands read the flights by default, which takes half a second or more."""
    with ExitStack() as stack:
        for name in ("flights", "flights-planned"):
            source = datasets.SOURCES[name]
            stack.enter_context(
                datasets.SOURCES.lent(name, replace(source, read=cache(source.read)))
            )
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        table = datasets.TABLES["flights-table"]
        patch.setitem(datasets.TABLES, "flights-table", cache(table))
        yield


@pytest.fixture
def store(tmp_path):
    """An open, empty store at tmp_path / "store.sqlite"."""
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures of reports are empty files: drawing one takes half a second."""
    monkeypatch.setattr("ternhost.plots.canvas.png", lambda figure: b"")
    monkeypatch.setattr("ternhost.plots.canvas.svg", lambda figure, name: "<svg></svg>")


@pytest.fixture
def coarse(monkeypatch):
    """Pictures of reports have few dots, which are drawn sooner."""
    monkeypatch.setattr("ternhost.plots.canvas.DPI", 30)
