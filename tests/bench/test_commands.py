"""`tern bench`: the energy of a report, sessions, and commands that cannot run."""

import time
from pathlib import Path

import pytest
from bench.known import BUSY, IDLE, known

from ternbench import current_model
from ternhost.errors import FAILED, USAGE
from terntools.sessions import Session


def test_energy_is_time_by_current_plus_the_energy_of_the_wire():
    report = {
        "median": 9000.0,  # microseconds
        "receive": 1300.0,
        "send": 200.0,
        "bytes_in": 120,
        "bytes_out": 18,
    }
    watts = 3.3 * 27.1e-3  # of an RP2040 that works
    wire_seconds = (120 + 18) * 10 / 12e6  # USB at full speed, ten bits a byte
    wire_watts = 3.3 * 1.4e-3

    energies = current_model.load("rp2040").report_energies(report)

    assert energies.computing == pytest.approx(7.5e-3 * watts * 1e6)  # in microjoules
    link_joules = 1.5e-3 * watts + wire_seconds * wire_watts
    assert energies.link == pytest.approx(link_joules * 1e6)


def test_sessions_that_begin_in_the_same_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda layout: "20261124-120000")
    # Each looks before another makes its folder.
    monkeypatch.setattr(Path, "exists", lambda path: False)
    folders = [Session(tmp_path / "sessions").directory.name for _ in range(3)]
    assert folders == ["20261124-120000", "20261124-120000-2", "20261124-120000-3"]


@pytest.fixture
def export(tmp_path):
    """The words of a command that reads an export of six windows of 20 ms at 3.3 V."""
    rows = [
        f"{seconds},{amperes},{int(is_marked)}\n"
        for seconds, amperes, is_marked in zip(*known(10_000), strict=True)
    ]
    path = tmp_path / "export.csv"
    path.write_text("time_s,current_a,marker\n" + "".join(rows))
    words = ["bench", "energy", "--meter", f"csv:{path},volts=3.3", "--json"]
    return [*words, "--sessions", str(tmp_path / "sessions")]


def test_an_export_gives_the_energy_of_a_report(export, tern):
    result = tern(*export).json
    microjoules = (BUSY - IDLE) * 3.3 * 0.02 * 1e6
    assert result["microjoules_per_report"] == pytest.approx(microjoules, rel=0.01)


def test_the_result_says_what_was_taken_for_what(export, tern):
    assert tern(*export).json["recording"]["taken"] == {
        "time": {"column": "time_s", "unit": "s"},
        "current": {"column": "current_a", "unit": "A"},
        "supply": {"setting": "volts=3.3"},
        "marker": {"column": "marker"},
    }


def test_the_result_has_the_rate_of_the_recording(export, tern):
    recording = tern(*export).json["recording"]
    assert recording["samples_per_second"] == pytest.approx(10_000)


def test_the_result_has_the_mean_power(export, tern):
    busy_share = 6 * 0.02 / 0.33
    mean_amperes = IDLE + (BUSY - IDLE) * busy_share
    assert tern(*export).json["mean_milliwatts"] == pytest.approx(3300 * mean_amperes, rel=0.01)


def test_the_text_names_each_column(export, tern):
    words = [word for word in export if word != "--json"]
    text = tern(*words).out
    assert all(name in text for name in ("time_s", "current_a", "volts=3.3", "marker"))


@pytest.fixture
def of_1000_volts(export):
    """The words of a command that reads an export with a supply that no board has."""
    return [word.replace("volts=3.3", "volts=1000") for word in export]


def test_a_supply_that_no_board_has_is_refused(of_1000_volts, tern):
    assert "--anyway" in tern(*of_1000_volts, code=FAILED).json["hint"]


def test_a_supply_that_no_board_has_can_be_accepted(of_1000_volts, tern):
    assert tern(*of_1000_volts, "--anyway").json["volts"] == 1000


def test_a_session_keeps_figures_text_and_pictures(export, tern):
    tern(*export)
    (session,) = Path(export[-1]).iterdir()
    files = {path.name for path in session.iterdir()}
    assert files == {"log.txt", "energy.json", "energy.txt", "page.png"}
    assert "uJ a report" in (session / "energy.txt").read_text()


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("bench latency --fleet pico-emulated:2", "--fleet must be one board"),
        ("bench latency --d 0", "--k must be 1 to --d"),
        ("bench profile --reports 0", "--reports must be 1 to"),
        ("bench energy --meter csv", "--meter csv"),
        ("bench energy --meter csv:file.csv,volts=-3", "volts"),
        ("bench energy --meter csv:file.csv,ohms=3", "ohms"),
        ("bench energy --meter joulescope,range=1A", "range"),
        ("bench energy --meter model:here", "--meter model"),
        ("bench battery --chip esp32 --sleep -3uA", "--sleep"),
        ("bench energy --meter model --fleet emulated:1", "--meter model"),
        ("bench energy --meter ina228:a1", "needs a board to"),
        ("bench energy --meter ppk2 --fleet port:/dev/no-such-port", "--meter ppk2 needs a port"),
    ],
)
def test_a_command_that_cannot_run_says_why_and_writes_nothing(here, tern, command, option):
    refused = tern(*command.split(), code=USAGE)
    assert option in refused.err
    assert not refused.out
    assert not list(here.iterdir())
