"""Hardware maps: mistakes are named, figures have expectations, power is switched as they say."""

import pytest

from ternhost.errors import DeviceError, UsageError
from terntools.testing import expectations, hardware
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


TWISTER = """
- connected: true
  id: e661
  platform: pico
  product: Pico
  runner: uf2
  serial: /dev/ttyACM0
  baud: 230400
  fixtures: [ppk2, 'wifi:lab']
  notes: desk
  power: {hub: 1-1, port: 2}
"""


def test_a_hardware_map_of_twister_is_read(read):
    """Twister, Zephyr's test runner, lists the boards of a desk in a YAML file. Its keys are taken,
    and those that it has for itself (product, runner) are passed over.
    """
    (board,) = read(TWISTER)
    assert board == MappedBoard(
        id="e661",
        platform="pico",
        serial="/dev/ttyACM0",
        baud=230400,
        fixtures=("ppk2", "wifi:lab"),
        notes="desk",
        power={"hub": "1-1", "port": 2},
    )


def test_a_board_that_is_not_connected_is_left_out(read):
    away = "- {connected: false, id: away, platform: esp32}\n"
    assert [board.id for board in read(f"{away}{BOARD}}}")] == ["x"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- [", "cannot read"),
        ("- {connected: false, id: x, platform: pico, serial: /dev/x}", "no connected board"),
        (f"{BOARD}, colour: red}}", "colour"),
        (f"{BOARD}, power: {{hub: 1}}}}", "hub and port"),
        (f"{BOARD}}}\n{BOARD}}}", "two boards of one id"),
    ],
)
def test_mistakes_in_a_map_are_named(read, text, reason):
    with pytest.raises(UsageError, match=reason):
        read(text)


@pytest.mark.parametrize(
    "expect",
    [
        {"latency-ms": 4.4},  # the figure is latency-us
        {"latency-us": "4.4 ms"},
        {"heap-bytes": {"value": 1, "direction": "down"}},
        {"heap-bytes": float("nan")},
    ],
)
def test_an_expectation_with_a_mistake_is_refused(expect):
    with pytest.raises(UsageError):
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


def test_outside_of_a_repository_the_history_names_dates(tmp_path, monkeypatch):
    path = tmp_path / "map.history.jsonl"
    monkeypatch.setattr(expectations, "commit", lambda: expectations.NO_COMMIT)
    (record, _) = expectations.append(path, "one", EXPECT, {"heap-bytes": 103, "energy-uj": 9})
    (sentence,) = expectations.moves(expectations.read(path)).values()
    assert sentence.endswith(f"since {record['date']}")


def test_a_hub_switches_power_off_and_on(tmp_path, monkeypatch):
    """A board whose entry names a port of a USB hub is restarted with the program uhubctl, whose
    calls a script in its place writes down.
    """
    monkeypatch.setattr(hardware.time, "sleep", lambda seconds: None)
    program, calls = tmp_path / "uhubctl", tmp_path / "calls"
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    board = MappedBoard("x", "pico", "/dev/x", power={"hub": "1-1", "port": 2})

    board.power_cycle()

    assert calls.read_text().splitlines() == ["-l 1-1 -p 2 -a off", "-l 1-1 -p 2 -a on"]


def test_power_that_a_script_cannot_switch_is_an_error():
    with pytest.raises(DeviceError):
        MappedBoard("x", "pico", "/dev/x", power_script="false").power_cycle()
