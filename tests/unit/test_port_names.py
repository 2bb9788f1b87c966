"""Boards are found by USB id, and have the names of mpremote, the same in every command."""

import pytest
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo

from ternhost.reach.ports import names


def port(name, vid, pid, serial_number):
    info = ListPortInfo(name)
    info.vid, info.pid, info.serial_number = vid, pid, serial_number
    return info


PICO = port("/dev/ttyACM1", 0x2E8A, 0x0005, "e6614103e7452d2f")
ESP = port("/dev/ttyUSB0", 0x10C4, 0xEA60, "0001")
METER = port("/dev/ttyACM0", 0x1915, 0xC00A, "F00D")
MODEM = port("/dev/ttyACM2", 0x1234, 0x5678, "X")


@pytest.fixture
def plugged(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # no emulated boards of the user
    return lambda *ports: monkeypatch.setattr(list_ports, "comports", lambda: list(ports))


def test_boards_and_instruments_are_found_by_usb_id(plugged):
    plugged(ESP, MODEM, METER, PICO)
    ports = names.find()
    families = {"/dev/ttyACM0": "instrument", "/dev/ttyACM1": "rp2", "/dev/ttyUSB0": "esp32"}
    assert [(port.port, port.family) for port in ports] == [*families.items()]
    assert ports[1].usb_id == "2e8a:0005"


@pytest.mark.parametrize(
    ("name", "port"),
    [
        ("a3", "/dev/ttyACM3"),
        ("u0", "/dev/ttyUSB0"),
        ("c7", "COM7"),
        ("auto", "/dev/ttyACM1"),  # the only board; an instrument is none
        ("id:e6614103e7452d2f", "/dev/ttyACM1"),
        ("id:e66", "/dev/ttyACM1"),
        ("socket://127.0.0.1:7777", "socket://127.0.0.1:7777"),
        ("port:/dev/null", "/dev/null"),
    ],
)
def test_names_are_those_of_mpremote(plugged, name, port):
    plugged(METER, PICO)
    assert names.resolve(name) == port


@pytest.mark.parametrize(
    ("name", "code"),
    [("pico", 2), ("id:", 2), ("auto", 3), ("id:77", 3), ("/dev/ttyACM99", 3), ("a99", 3)],
    ids=["no port", "empty id", "any board", "unknown id", "absent port", "short for absent port"],
)
def test_a_name_means_the_same_in_every_command(name, code, plugged, tern, tmp_path):
    """A board can be named by its port, a short form of it (a0) or its USB id (id:...). With one
    plugged instrument and no board, every command refuses the same name with the same message. Exit
    code 2: no such name can be; 3: it could be, but is not plugged in.
    """
    plugged(METER)
    main, store = tmp_path / "main.py", str(tmp_path / "store")
    main.write_text("import tern.update\n")
    tern("keys", "add", "7", "--store", store)
    package = ["--store", store, "--machine", "pico", "--main", str(main)]
    commands = [
        ["board", "info", name],
        ["train", "--store", store, "--fleet", f"port:{name}"],
        ["board", "update", "7", *package, "--board", name],
    ]
    if code == 3:  # a port that is not there
        commands.append(["board", "deploy", name])
    else:
        commands.append(["relay", name, "--broker", str(tmp_path)])
    messages = {tern(*command, code=code).err for command in commands}
    assert len(messages) == 1
