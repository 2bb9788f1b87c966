"""Files of instruments of many kinds: each gives the energy that is in it, or is refused."""

import pytest
from harness import meter_kinds
from harness.meter_kinds import KINDS

from ternbench import energy
from ternbench.meters import choice
from ternhost.errors import TernError


def measured(kind, folder):
    """The energy of a report in the file of a kind."""
    path = folder / kind.file
    path.write_bytes(kind.data)
    chosen = choice.parse(f"csv:{path}{kind.settings}")
    trace = chosen.open().read()
    active_low = chosen.settings.get("active_low", False)
    reports = chosen.settings.get("reports", 1)
    return energy.measure(trace, reports, "x", active_low=active_low)


def named(kinds):
    return [pytest.param(kind, id=kind.name) for kind in kinds]


@pytest.mark.parametrize("kind", named(kind for kind in KINDS if kind.refused is None))
def test_a_file_gives_its_energy(kind, tmp_path):
    report = measured(kind, tmp_path)
    assert report.net == pytest.approx(meter_kinds.MICROJOULES, rel=0.01)


@pytest.mark.parametrize("kind", named(kind for kind in KINDS if kind.refused is not None))
def test_a_file_that_leaves_something_open_is_refused(kind, tmp_path):
    with pytest.raises(TernError) as refusal:
        measured(kind, tmp_path)
    assert kind.refused in f"{refusal.value.message} {refusal.value.hint}"


def test_there_are_60_kinds_of_files_or_more():
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 60


@pytest.fixture
def channels(tmp_path):
    """A folder with the files of Otii's program, one for each channel, and their measurement.

    The input changes at the windows, and its file has a line for each change only.
    """
    kinds = {
        "Main current - Ace.csv": [meter_kinds.SECONDS, meter_kinds.AMPERES],
        "Main voltage - Ace.csv": [meter_kinds.SECONDS, meter_kinds.FIVE],
    }
    for name, columns in kinds.items():
        (tmp_path / name).write_text(meter_kinds.written("Timestamp,Value", columns))
    columns = [meter_kinds.SECONDS, meter_kinds.MARKER]
    text = meter_kinds.written("Timestamp,Value", columns, samples=meter_kinds.changes())
    (tmp_path / "GPI1 - Ace.csv").write_text(text)

    def measure(settings):
        meter = choice.parse(f"csv:{tmp_path / 'Main current - Ace.csv'}{settings}").open()
        return energy.measure(meter.read(), 1, "x")

    return measure


def test_marker_and_voltage_may_be_in_files_of_their_own(channels):
    report = channels(",marker=GPI1 - Ace.csv,voltage=Main voltage - Ace.csv")
    assert report.net == pytest.approx(meter_kinds.MICROJOULES, rel=0.01)


def test_a_second_file_must_hold_what_it_is_named_for(channels):
    with pytest.raises(TernError, match="no column of marker"):
        channels(",marker=Main voltage - Ace.csv,volts=5")
