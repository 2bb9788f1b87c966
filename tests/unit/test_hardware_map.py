"""Hardware maps: boards are read as they are written, and mistakes are named with their place."""

import codecs
import contextlib
import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from harness.hardware_maps import RIGHT, WRONG
from hypothesis import given, settings

from ternhost import errors
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.ports import names
from terntools.testing import commits, expectations, hardware, hardware_map
from terntools.testing.expectations import Expectation
from terntools.testing.hardware import MappedBoard, UsbSocket

RIGHT_TEXTS = {
    kind.name: kind.data.decode() for kind in RIGHT if not kind.data.startswith(codecs.BOM_UTF16)
}


@pytest.fixture(autouse=True)
def no_boards_on_usb(monkeypatch):
    monkeypatch.setattr(names, "find", list)


def plug_in(monkeypatch, **ports):
    """Make boards be found on USB: their ports by their serial numbers."""
    boards = []
    for serial_number, port in ports.items():
        boards.append(names.Device(port, names.RP2, "a Pico", "2e8a:0005", serial_number))
    monkeypatch.setattr(names, "find", lambda: boards)


@pytest.fixture
def read(tmp_path):
    """`read(text)`: the boards of a map with this text."""

    def read(text):
        path = tmp_path / "map.yaml"
        path.write_text(text)
        return hardware_map.read_map(path)

    return read


def plain(value):
    """Return a board's field with its dataclasses as tuples, so that it can be compared."""
    if dataclasses.is_dataclass(value):
        return dataclasses.astuple(value)
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value


@pytest.mark.parametrize("kind", RIGHT, ids=lambda kind: kind.name)
def test_a_map_is_read_as_it_is_written(tmp_path, kind):
    path = tmp_path / "map.yaml"
    path.write_bytes(kind.data)
    boards = hardware_map.read_map(path)
    assert len(boards) == len(kind.boards)
    for board, expected in zip(boards, kind.boards, strict=True):
        assert {key: plain(getattr(board, key)) for key in expected} == expected


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.name)
def test_a_mistake_in_a_map_is_named_with_its_line_and_column(tmp_path, tern, kind):
    path = tmp_path / "map.yaml"
    path.write_bytes(kind.data)
    for name, text in kind.beside.items():
        (tmp_path / name).write_text(text)
    error = tern("hil", "--hardware-map", str(path), code=kind.code).err
    assert f", line {kind.line}, column {kind.column}: " in error
    assert kind.names in error


def test_more_than_sixty_kinds_of_maps_are_tried():
    assert len(RIGHT) + len(WRONG) > 60


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(RIGHT_TEXTS.values())),
    st.integers(0, 200),
    st.text("-:[]{}&*!|>'\"%@`#,?<\\ \n\t09é", max_size=4),
)
def test_a_map_that_is_changed_anywhere_is_read_or_refused(text, position, change):
    """Nothing but the errors that tern reports is raised, whatever a typing error makes of a map."""
    changed = text[:position] + change + text[position:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "map.yaml")
        path.write_text(changed)
        with contextlib.suppress(UsageError, DeviceError):
            hardware_map.read_map(path)


BY_ID = "- {connected: true, id: 0006, platform: rpi_pico}"


def test_a_board_without_a_port_is_found_by_its_id(read, monkeypatch):
    plug_in(monkeypatch, **{"0006": "/dev/ttyACM3", "6": "/dev/ttyACM4"})
    (board,) = read(BY_ID)
    assert board.serial == "/dev/ttyACM3"


def test_a_board_whose_serial_number_only_begins_with_the_id_is_another_board(read, monkeypatch):
    plug_in(monkeypatch, **{"00061": "/dev/ttyACM3"})
    with pytest.raises(DeviceError):
        read(BY_ID)


def test_an_id_at_two_ports_is_refused(read, monkeypatch):
    """Some makers give the same serial number to all of their boards."""
    twins = [names.Device(f"/dev/u{n}", names.ESP32, "CP210x", "10c4:ea60", "0006") for n in (0, 1)]
    monkeypatch.setattr(names, "find", lambda: twins)
    with pytest.raises(UsageError, match="several ports"):
        read(BY_ID)


def test_a_port_at_which_the_board_is_no_longer_is_refused(read, monkeypatch):
    plug_in(monkeypatch, **{"0006": "/dev/ttyACM3"})
    with pytest.raises(UsageError, match="ttyACM3"):
        read(BY_ID.replace("}", ", serial: /dev/ttyACM0}"))


def test_boards_at_one_port_by_a_link_are_refused(read, tmp_path):
    (tmp_path / "port").touch()
    (tmp_path / "link").symlink_to(tmp_path / "port")
    text = "- {connected: true, id: ID, platform: p, serial: PORT}\n"
    first = text.replace("ID", "a").replace("PORT", str(tmp_path / "port"))
    second = text.replace("ID", "b").replace("PORT", str(tmp_path / "link"))
    with pytest.raises(UsageError, match="two connected boards"):
        read(first + second)


def test_a_map_that_is_too_large_is_refused(read):
    with pytest.raises(UsageError):
        read(250_001 * "#")


def test_a_long_map_is_read(read):
    """A laboratory has fewer than 1,000 boards."""
    boards = [
        f"- {{connected: true, id: b{n}, platform: p, serial: /dev/b{n}}}\n" for n in range(999)
    ]
    assert len(read("".join(boards))) == 999


def test_expectations_may_be_in_a_file_beside_the_map(read, tmp_path):
    (tmp_path / "pico.yaml").write_text("heap-bytes: 70000\n")
    (board,) = read("- {connected: true, id: x, platform: pico-emulated, expect: pico.yaml}")
    assert str(board.expect[0]) == "at most 70,000"


def test_hil_names_the_boards_of_the_map_if_an_id_is_wrong(tmp_path, tern):
    (tmp_path / "map.yaml").write_text("- {connected: true, id: desk, platform: pico-emulated}\n")
    error = tern("hil", "--hardware-map", str(tmp_path / "map.yaml"), "dsk", code=errors.USAGE).err
    assert "desk" in error


def test_pytest_says_where_a_map_is_wrong_without_a_traceback(tmp_path):
    (tmp_path / "map.yaml").write_text("- connected: ture\n")
    (tmp_path / "test_it.py").write_text("def test_it(dut):\n    pass\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--hardware-map",
        "map.yaml",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert ended.stderr.startswith("ERROR: map.yaml, line 1, column 14: connected")


EXPECTING = "- {connected: true, id: x, platform: pico-emulated, expect:"


@pytest.mark.parametrize(
    ("terms", "passing", "failing"),
    [
        ("100", [0, 100], [100.1]),
        ("{value: 100, tolerance: 10%}", [50, 110], [110.1]),
        ("{value: 100, tolerance: 5, direction: higher}", [95, 500], [94.9]),
        ("{value: 100, tolerance: 5, direction: equal}", [95, 105], [94.9, 105.1]),
    ],
)
def test_an_expectation_has_a_value_a_tolerance_and_a_direction(read, terms, passing, failing):
    (board,) = read(f"{EXPECTING} {{heap-bytes: {terms}}}}}")
    (expectation,) = board.expect
    assert all(map(expectation.allows, passing))
    assert not any(map(expectation.allows, failing))


EXPECT = (Expectation("heap-bytes", 100), Expectation("energy-uj", 9, tolerance=1))


@pytest.fixture
def history(tmp_path):
    """The history of figures at the commits "a" to "f"."""
    path = tmp_path / "map.history.jsonl"
    for commit, heap in zip("abcdef", (100, 90, 101, 102, 99, 103), strict=True):
        energy = 11 if commit == "a" else 10.5
        values = {"heap-bytes": heap, "energy-uj": energy}
        expectations.append(path, "one", EXPECT, values, commit)
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


def test_without_commits_the_history_names_dates(tmp_path):
    path = tmp_path / "map.history.jsonl"
    (record, _) = expectations.append(path, "one", EXPECT, {"heap-bytes": 103, "energy-uj": 9})
    (sentence,) = expectations.moves(expectations.read(path)).values()
    assert sentence.endswith(f"since {record['date']}")


def test_hil_says_why_figures_are_kept_without_a_commit(here, tern, monkeypatch):
    monkeypatch.setenv("PATH", str(here))  # there is no Git
    monkeypatch.setattr("terntools.testing.hil.run", lambda *_: [])  # no tests are run
    board = "{connected: true, id: desk, platform: rv32-emulated, expect: {heap-bytes: 1}}"
    (here / "map.yaml").write_text(f"- {board}\n")
    printed = tern("hil", "--hardware-map", "map.yaml", "--json")
    assert printed.json["commit"] is None
    assert printed.json["why_no_commit"] == commits.current().why_none
    assert commits.current().why_none in printed.err


def test_a_hub_switches_power_off_and_on(tmp_path, monkeypatch):
    """A board whose entry names a port of a USB hub is restarted with the program uhubctl, whose
    calls a script in its place writes down.
    """
    monkeypatch.setattr(hardware.time, "sleep", lambda seconds: None)
    program, calls = tmp_path / "uhubctl", tmp_path / "calls"
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    board = MappedBoard("x", "pico", "/dev/x", power=UsbSocket("1-1", 2))

    board.power_cycle()

    assert calls.read_text().splitlines() == ["-l 1-1 -p 2 -a off", "-l 1-1 -p 2 -a on"]


def test_power_that_a_script_cannot_switch_is_an_error():
    with pytest.raises(DeviceError):
        MappedBoard("x", "pico", "/dev/x", power_script="false").power_cycle()
