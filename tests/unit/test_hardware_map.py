"""Hardware maps: mistakes are named, figures have expectations, power is switched as they say."""

import re
import sys
from pathlib import Path

import pytest

from ternhost.errors import DeviceError, UsageError
from terntools.testing import board_figures, expectations, hardware, hil_report, history_plot
from terntools.testing.board_run import BoardResult
from terntools.testing.hardware import MappedBoard

BOARD = "- {connected: true, id: x, platform: pico, serial: /dev/x"


@pytest.fixture
def read(tmp_path):
    """`read(text)`: the boards of a map with this text."""

    def read(text):
        path = tmp_path / "map.yaml"
        path.write_text(text)
        return hardware.read_map(path)

    return read


def test_a_hardware_map_of_twister_is_read(read):
    (board,) = read(
        "- connected: true\n  id: e661\n  platform: pico\n  product: Pico\n  runner: uf2\n"
        "  serial: /dev/ttyACM0\n  baud: 230400\n  fixtures: [ppk2, 'wifi:lab']\n  notes: desk\n"
        "  power: {hub: 1-1, port: 2}\n"
    )
    power = {"hub": "1-1", "port": 2}
    assert board == MappedBoard(
        "e661", "pico", "/dev/ttyACM0", 230400, ("ppk2", "wifi:lab"), "desk", power
    )


def test_a_board_that_is_not_connected_is_left_out(read):
    away = "- {connected: false, id: away, platform: esp32}\n"
    assert [board.id for board in read(f"{away}{BOARD}}}")] == ["x"]


def test_an_emulated_board_needs_no_port(read):
    (board,) = read("- {connected: true, id: two, platform: pico-emulated}")
    assert (board.serial, board.fleet) == (None, "pico-emulated:1")


def test_a_board_without_a_port_is_looked_for_by_its_id(read):
    with pytest.raises(DeviceError, match="id:no-such-board"):
        read("- {connected: true, id: no-such-board, platform: pico}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id: x", "not a hardware map"),
        ("- [", "cannot read"),
        ("- {connected: false, id: x, platform: pico, serial: /dev/x}", "no connected board"),
        (f"{BOARD}, colour: red}}", "no 'colour'"),
        ("- {connected: true, id: x, serial: /dev/x}", "platform are missing"),
        (f"{BOARD}, power: {{hub: 1}}}}", "needs hub and port"),
        (f"{BOARD}, meter: ppk2}}", "meter has options of tern bench energy"),
        (f"{BOARD}}}\n{BOARD}}}", "two boards of one id"),
        (f"{BOARD}, expect: none.yaml}}", "cannot read .*none.yaml"),
    ],
)
def test_mistakes_in_a_map_are_named(read, text, message):
    with pytest.raises(UsageError, match=message):
        read(text)


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ([1], "expect must be a table of figures"),
        ({"latency-ms": 4.4}, "there is no figure 'latency-ms'"),
        ({"latency-us": "4.4 ms"}, "latency-us needs a value in us"),
        ({"latency-us": {"tolerance": 1}}, "latency-us needs a value in us"),
        ({"heap-bytes": {"value": 1, "tolerance": "5 kB"}}, "a tolerance .in the same unit or %"),
        ({"heap-bytes": {"value": 1, "direction": "down"}}, "a direction .lower, higher, equal"),
        ({"heap-bytes": {"value": 1, "unit": "kB"}}, "heap-bytes needs a value in bytes"),
        ({"heap-bytes": float("nan")}, "heap-bytes needs a value in bytes"),
    ],
)
def test_mistakes_in_an_expectation_are_named(expect, message):
    with pytest.raises(UsageError, match=message):
        expectations.parse(expect, "x")


@pytest.mark.parametrize(
    ("terms", "passing", "failing"),
    [
        (100, [0, 100], [100.1]),
        ({"value": 100, "tolerance": "10%"}, [50, 110], [110.1]),
        ({"value": 100, "tolerance": 5, "direction": "higher"}, [95, 500], [94.9]),
        ({"value": 100, "tolerance": 5, "direction": "equal"}, [95, 105], [94.9, 105.1]),
    ],
)
def test_an_expectation_has_a_value_a_tolerance_and_a_direction(terms, passing, failing):
    (expectation,) = expectations.parse({"heap-bytes": terms}, "x")
    assert all(map(expectation.allows, passing))
    assert not any(map(expectation.allows, failing))


@pytest.mark.parametrize("stated", ["figures.yaml", "{heap-bytes: 100}"])
def test_expectations_are_in_the_map_or_in_a_file_that_it_names(read, tmp_path, stated):
    (tmp_path / "figures.yaml").write_text("heap-bytes: 100\n")
    (board,) = read(f"{BOARD}, expect: {stated}}}")
    assert board.expect == expectations.parse({"heap-bytes": 100}, "x")


def test_a_figure_whose_package_is_missing_says_so(monkeypatch):
    monkeypatch.setattr(board_figures, "MEASUREMENTS", {})
    reason = board_figures.why_not_measured("heap-bytes", MappedBoard("x", "pico", None))
    assert reason == "heap-bytes is measured by the package ternbench, which is not installed"


def test_a_figure_that_needs_a_meter_says_so(monkeypatch):
    monkeypatch.setattr(board_figures, "MEASUREMENTS", {"energy-uj": None})
    reason = board_figures.why_not_measured("energy-uj", MappedBoard("x", "pico", None))
    assert "add meter:" in reason


EXPECT = expectations.parse({"heap-bytes": 100, "energy-uj": {"value": 9, "tolerance": 1}}, "x")


@pytest.fixture
def history(tmp_path, monkeypatch):
    """The history of figures at the commits "a" to "f"."""
    path = tmp_path / "map.history.jsonl"
    for commit, heap in zip("abcdef", (100, 90, 101, 102, 99, 103), strict=True):
        monkeypatch.setattr(expectations, "commit", lambda commit=commit: commit)
        energy = 11 if commit == "a" else 10.5
        expectations.append(path, "one", EXPECT, {"heap-bytes": heap, "energy-uj": energy})
    return path


@pytest.fixture
def hil(tmp_path):
    """The words of `tern hil` for the map of the history."""
    return ["hil", "--hardware-map", str(tmp_path / "map.yaml")]


def test_the_history_names_the_commits_that_moved_a_figure(history, hil, tern):
    assert tern(*hil, "--history", "--json").json["moves"] == [
        "one: heap-bytes 103, expected at most 100, since commit f; it was 99 at e",
        "one: energy-uj 11, expected at most 10, since commit a",
    ]


def test_the_history_is_drawn_with_misses_and_limits(history, hil, tern):
    picture = tern(*hil, "--history", "--json").json["picture"]
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    (axes, _) = history_plot.draw(expectations.read(history)).axes
    assert [line.get_label() for line in axes.lines] == ["measured", "missed", "at most"]
    assert list(axes.lines[1].get_ydata()) == [101, 102, 103]
    assert [label.get_text() for label in axes.get_xticklabels()] == list("abcdef")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "run tern hil with a map that says what to expect"),
        ("", "no figures yet"),
        ("{}\n", "a line that tern hil did not write"),
    ],
)
def test_a_history_that_cannot_be_drawn_says_why(tmp_path, hil, tern, text, message):
    if text is not None:
        (tmp_path / "map.history.jsonl").write_text(text)
    assert message in tern(*hil, "--history", code=2).err


@pytest.mark.parametrize(
    ("history_file", "code"), [("map.history.jsonl", 2), ("no-folder/map.history.jsonl", 5)]
)
def test_a_bad_history_is_found_before_any_test_runs(tmp_path, hil, tern, history_file, code):
    (tmp_path / "map.history.jsonl").write_text("{}\n")
    (tmp_path / "map.yaml").write_text(f"{BOARD}, expect: {{heap-bytes: 1}}}}")
    sessions = tmp_path / "sessions"
    words = ["--sessions", str(sessions), "--history-file", str(tmp_path / history_file)]
    tern(*hil, *words, code=code)
    assert not sessions.exists()


@pytest.fixture
def at_once(monkeypatch):
    """A board need not be off for a while."""
    monkeypatch.setattr(hardware.time, "sleep", lambda seconds: None)


def test_a_hub_switches_power_off_and_on(tmp_path, monkeypatch, at_once):
    hub, calls = tmp_path / "uhubctl", tmp_path / "calls"
    hub.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    hub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    MappedBoard("x", "pico", "/dev/x", power={"hub": "1-1", "port": 2}).power_cycle()
    assert calls.read_text().splitlines() == ["-l 1-1 -p 2 -a off", "-l 1-1 -p 2 -a on"]


def test_a_script_switches_power_off_and_on(tmp_path, at_once):
    script, calls = tmp_path / "relay.py", tmp_path / "calls"
    script.write_text(f"import sys; open({str(calls)!r}, 'a').write(sys.argv[1] + ' ')")
    command = f"{sys.executable} {script}"
    MappedBoard("x", "pico", "/dev/x", power_script=command).power_cycle()
    assert calls.read_text() == "off on "


@pytest.mark.parametrize(
    ("power", "message"),
    [
        ({"power_script": "false"}, "cannot switch x off"),
        ({}, "no way to switch"),
        ({"power": {"hub": "1-1", "port": 2}}, "uhubctl is not installed"),
    ],
)
def test_power_that_cannot_be_switched_says_why(power, message, monkeypatch):
    if "power" in power:
        monkeypatch.setenv("PATH", "")
    with pytest.raises((DeviceError, UsageError), match=message):
        MappedBoard("x", "pico", "/dev/x", **power).power_cycle()


def test_the_report_has_a_margin_at_every_width_of_the_window():
    page = hil_report.page([BoardResult(MappedBoard("e661", "pico", None))])
    (body,) = re.findall(r"^body \{([^}]*)\}$", page, re.MULTILINE)
    rules = dict(re.findall(r"([\w-]+):\s*([^;]+)", body))
    assert rules["margin"].split()[1] == "auto", "the page is centred in a wide window"
    assert rules["padding"].split()[1] != "0"
    assert "<meta name=viewport" in page
