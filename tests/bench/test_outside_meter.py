"""A meter of another package works as tern's own do: tests/outside/jsonl_meter.py."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from bench.known import BUSY, IDLE, VOLTS, known

from ternbench.meters import METERS
from ternhost import registry
from ternhost.registry import Registry

METER = Path(__file__).parents[1] / "outside/jsonl_meter.py"


@pytest.fixture
def recording(tmp_path):
    """A file of six windows of 20 ms, in the format of the meter."""
    lines = []
    for seconds, amperes, is_marked in zip(*known(10_000), strict=True):
        sample = {"s": seconds, "A": amperes, "V": VOLTS, "marker": bool(is_marked)}
        lines.append(json.dumps(sample))
    path = tmp_path / "recording.jsonl"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def forgotten():
    """The meter is afterwards no longer registered."""
    with METERS.lent("jsonl", None):
        yield


def test_a_file_that_is_named_before_the_command_brings_its_meter(
    forgotten, recording, tmp_path, tern
):
    words = ["--with", str(METER), "bench", "energy", "--meter", f"jsonl:{recording}", "--json"]
    words += ["--sessions", str(tmp_path / "sessions")]
    result = tern(*words).json
    microjoules = (BUSY - IDLE) * VOLTS * 0.02 * 1e6
    assert result["microjoules_per_report"] == pytest.approx(microjoules, rel=0.01)


def test_an_entry_point_brings_a_meter(forgotten, monkeypatch):
    points = {"tern.meters": [EntryPoint("jsonl", "jsonl_meter:JsonLines", "tern.meters")]}
    monkeypatch.setattr(registry, "entry_points", lambda group: points[group])
    monkeypatch.syspath_prepend(METER.parent)
    assert Registry(METERS.what, METERS.group, {})["jsonl"].__name__ == "JsonLines"
