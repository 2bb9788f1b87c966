"""Hardware maps: mistakes are named, power is switched as they say, and boards are found by USB id."""

import re
import sys
from pathlib import Path

import pytest
from harness.port import silent
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo

from ternhost.errors import DeviceError, UsageError
from ternhost.reach import fleet
from ternhost.reach.ports import names
from terntools.boards import devices
from terntools.testing import expectations, hardware, hil, history_plot

BOARD = "- {connected: true, id: x, platform: pico, serial: /dev/x"


def expecting(figures):
    return f"{BOARD}, expect: {figures}}}"


def read(tmp_path, text):
    path = tmp_path / "map.yaml"
    path.write_text(text)
    return hardware.read_map(path)


def test_a_hardware_map_of_twister_is_read(tmp_path):
    first, second = read(
        tmp_path,
        "- connected: true\n  id: e661\n  platform: pico\n  product: Pico\n  runner: uf2\n  serial: /dev/ttyACM0\n"
        "  baud: 230400\n  fixtures: [ppk2, 'wifi:lab']\n  notes: desk\n  power: {hub: 1-1, port: 2}\n"
        "- connected: false\n  id: gone\n  platform: esp32\n"
        "- {connected: true, id: two, platform: pico-emulated}\n",
    )
    assert (first.id, first.serial, first.baud) == ("e661", "/dev/ttyACM0", 230400)
    assert (second.id, second.serial, second.baud) == ("two", None, 115200)
    assert first.fixtures == ("ppk2", "wifi:lab")
    assert first.has_power_control
    assert not second.has_power_control


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id: x", "not a hardware map"),
        ("- [", "cannot read"),
        ("- {connected: false, id: x, platform: pico, serial: /dev/x}", "no connected board"),
        ("- {connected: true, id: x, platform: pico, serial: /dev/x, colour: red}", "no 'colour'"),
        ("- {connected: true, id: x, serial: /dev/x}", "platform are missing"),
        (
            "- {connected: true, id: x, platform: pico, serial: /dev/x, power: {hub: 1}}",
            "needs hub and port",
        ),
        (f"{BOARD}, meter: ppk2}}", "meter has options of tern bench energy"),
        (expecting("[1]"), "expect must be a table of figures"),
        (expecting("none.yaml"), "cannot read .*none.yaml"),
        (expecting("{latency-ms: 4.4}"), "there is no figure 'latency-ms'"),
        (expecting("{latency-us: 4.4 ms}"), "latency-us needs a value in us"),
        (expecting("{latency-us: {tolerance: 1}}"), "latency-us needs a value in us"),
        (
            expecting("{heap-bytes: {value: 1, tolerance: 5 kB}}"),
            "a tolerance .in the same unit or %",
        ),
        (
            expecting("{heap-bytes: {value: 1, direction: down}}"),
            "a direction .lower, higher, equal",
        ),
        (expecting("{heap-bytes: {value: 1, unit: kB}}"), "heap-bytes needs a value in bytes"),
        (expecting("{heap-bytes: .nan}"), "heap-bytes needs a value in bytes"),
        (
            "- &a {connected: true, id: x, platform: pico, serial: /dev/x}\n- *a",
            "two boards of one id",
        ),
    ],
)
def test_mistakes_in_a_map_are_named(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("terms", "passing", "failing"),
    [
        ("100", [0, 100], [100.1]),
        ("{value: 100, tolerance: 10%}", [50, 110], [110.1]),
        ("{value: 100, tolerance: 5, direction: higher}", [95, 500], [94.9]),
        ("{value: 100, tolerance: 5, direction: equal}", [95, 105], [94.9, 105.1]),
    ],
)
def test_an_expectation_has_a_value_a_tolerance_and_a_direction(tmp_path, terms, passing, failing):
    (tmp_path / "figures.yaml").write_text(f"heap-bytes: {terms}\n")
    for figures in ("figures.yaml", f"{{heap-bytes: {terms}}}"):
        ((expectation,),) = (board.expect for board in read(tmp_path, expecting(figures)))
        assert all(map(expectation.allows, passing))
        assert not any(map(expectation.allows, failing))


def test_the_history_names_the_commits_that_moved_a_figure(tmp_path, monkeypatch, tern):
    history = tmp_path / "map.history.jsonl"
    words = ["hil", "--hardware-map", str(tmp_path / "map.yaml"), "--history"]
    assert "run tern hil with a map that says what to expect" in tern(*words, code=2).err
    expect = expectations.parse({"heap-bytes": 100, "energy-uj": {"value": 9, "tolerance": 1}}, "x")
    for commit, heap in zip("abcdef", (100, 90, 101, 102, 99, 103), strict=True):
        monkeypatch.setattr(expectations, "commit", lambda commit=commit: commit)
        expectations.append(
            history, "one", expect, {"heap-bytes": heap, "energy-uj": 11 - ord(commit) // 99}
        )
    result = tern(*words, "--json").json
    assert result["moves"] == [
        "one: heap-bytes 103, expected at most 100, since commit f; it was 99 at e",
        "one: energy-uj 11, expected at most 10, since commit a",
    ]
    assert Path(result["picture"]).read_bytes().startswith(b"\x89PNG")
    (axes, _) = history_plot.draw(expectations.read(history)).axes
    assert [line.get_label() for line in axes.lines] == ["measured", "missed", "at most"]
    assert list(axes.lines[1].get_ydata()) == [101, 102, 103]
    assert [label.get_text() for label in axes.get_xticklabels()] == list("abcdef")
    for text, fault in (
        (history.read_text() + "{}\n", "a line that tern hil did not write"),
        ("", "no figures yet"),
    ):
        history.write_text(text)
        assert fault in tern(*words, code=2).err
    history.write_text("{}\n")
    (tmp_path / "map.yaml").write_text(expecting("{heap-bytes: 1}"))
    words = [*words[:-1], "--sessions", str(tmp_path / "sessions")]
    tern(*words, code=2)  # before any test
    assert (
        "--history-file"
        in tern(*words, "--history-file", str(tmp_path / "none" / "file"), code=5).err
    )
    assert not (tmp_path / "sessions").exists()


def test_a_board_without_a_port_is_looked_for_by_its_id(tmp_path):
    with pytest.raises(DeviceError, match="id:no-such-board"):
        read(tmp_path, "- {connected: true, id: no-such-board, platform: pico}")


def test_a_hub_switches_power_off_and_on(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "_OFF_SECONDS", 0)
    board = hardware.MappedBoard("x", "pico", "/dev/x", power={"hub": "1-1", "port": 2})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="uhubctl is not installed"):
        board.power_cycle()
    hub, calls = tmp_path / "uhubctl", tmp_path / "calls"
    hub.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    hub.chmod(0o755)
    board.power_cycle()
    assert calls.read_text().splitlines() == ["-l 1-1 -p 2 -a off", "-l 1-1 -p 2 -a on"]


def test_the_users_command_switches_power_off_and_on(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "_OFF_SECONDS", 0)
    script, calls = tmp_path / "relay.py", tmp_path / "calls"
    script.write_text(f"import sys; open({str(calls)!r}, 'a').write(sys.argv[1] + ' ')")
    hardware.MappedBoard(
        "x", "pico", "/dev/x", power_script=f"{sys.executable} {script}"
    ).power_cycle()
    assert calls.read_text() == "off on "
    with pytest.raises(DeviceError, match="cannot switch x off"):
        hardware.MappedBoard("x", "pico", "/dev/x", power_script="false").power_cycle()
    with pytest.raises(UsageError, match="no way to switch"):
        hardware.MappedBoard("x", "pico", "/dev/x").power_cycle()


def test_the_report_has_a_margin_at_every_width_of_the_window():
    page = hil.page([hil.BoardResult(hardware.MappedBoard("e661", "pico", None), hil.PASSED, 1.0)])
    (body,) = re.findall(r"^body \{([^}]*)\}$", page, re.MULTILINE)
    rules = dict(
        re.split(r":\s*", rule.strip(), maxsplit=1) for rule in body.split(";") if rule.strip()
    )
    assert rules["margin"].split()[1] == "auto", "the page is centred in a wide window"
    assert rules["padding"].split()[1] != "0"
    assert "<meta name=viewport" in page


# Boards are found by USB id, and have the names of mpremote


def port(name, vid, pid, serial_number):
    info = ListPortInfo(name)
    info.vid, info.pid, info.serial_number = vid, pid, serial_number
    return info


PICO = port("/dev/ttyACM1", 0x2E8A, 0x0005, "e6614103e7452d2f")
ESP = port("/dev/ttyUSB0", 0x10C4, 0xEA60, "0001")
METER = port("/dev/ttyACM0", 0x1915, 0xC00A, "F00D")
MODEM = port("/dev/ttyACM2", 0x1234, 0x5678, "X")


@pytest.fixture
def plugged(monkeypatch):
    return lambda *ports: monkeypatch.setattr(list_ports, "comports", lambda: list(ports))


def test_boards_and_instruments_are_found_by_usb_id(plugged):
    plugged(ESP, MODEM, METER, PICO)
    ports = names.find()
    families = {"/dev/ttyACM0": "instrument", "/dev/ttyACM1": "rp2", "/dev/ttyUSB0": "esp32"}
    assert [(port.port, port.family) for port in ports] == [*families.items()]
    assert ports[1].usb_id == "2e8a:0005"


def test_names_are_those_of_mpremote(plugged):
    plugged(METER, PICO)
    assert [names.resolve(name) for name in ("a3", "u0", "c7")] == [
        "/dev/ttyACM3",
        "/dev/ttyUSB0",
        "COM7",
    ]
    assert {names.resolve(name) for name in ("auto", "id:e6614103e7452d2f", "id:e66")} == {
        "/dev/ttyACM1"
    }
    for name in ("socket://127.0.0.1:7777", "port:/dev/null"):
        assert names.resolve(name) == name.removeprefix("port:")
    assert fleet.parse("port:auto, id:F00D,a3").ports == [
        "/dev/ttyACM1",
        "/dev/ttyACM0",
        "/dev/ttyACM3",
    ]


def test_an_ambiguous_or_invalid_name_lists_what_there_is(plugged):
    plugged(ESP, PICO)
    with pytest.raises(UsageError, match=r"/dev/ttyACM1 .*, /dev/ttyUSB0 "):
        names.resolve("auto")
    with pytest.raises(UsageError, match="a serial number after id:"):
        names.resolve("id:")
    with pytest.raises(UsageError, match="there is no board 'pico'") as caught:
        names.resolve("pico")
    assert "socket://" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "code"),
    [("pico", 2), ("id:", 2), ("auto", 3), ("id:77", 3), ("/dev/ttyACM99", 3), ("a99", 3)],
)
def test_a_name_means_the_same_in_every_command(name, code, plugged, tern, tmp_path):
    plugged(METER)
    (tmp_path / "main.py").write_text("import tern.update\n")
    store = ["--store", str(tmp_path / "store")]
    tern("device", "add", "7", *store)
    package = ["--machine", "pico", "--main", str(tmp_path / "main.py")]
    commands = [["device", "ping", name], ["update", "7", *store, *package, "--board", name]]
    commands.append(["deploy", name] if code == 3 else ["relay", name, "--broker", str(tmp_path)])
    commands += [
        [*words, "--fleet", f"port:{name}"] for words in (["device", "ping"], ["train", *store])
    ]
    assert len({tern(*command, code=code).err for command in commands}) == 1


def test_a_board_that_cannot_be_opened_stays_on_the_list(plugged, tern):
    plugged(port("/dev/no-such-port", 0x2E8A, 0x0005, "1"))
    (board,) = tern("devices", "--json").json["devices"]
    assert (board["port"], board["firmware"]) == ("/dev/no-such-port", None)


def test_a_silent_port_has_no_identity():
    with silent() as port:
        assert devices.identify(port) == devices.Identity(None, None, None)
