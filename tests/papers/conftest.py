"""Fixtures that the tests of the papers share."""

import pytest


@pytest.fixture
def coarse(monkeypatch):
    """Pictures have few dots, which are drawn sooner."""
    monkeypatch.setattr("ternhost.plots.canvas.DPI", 30)
