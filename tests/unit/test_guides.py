"""The pictures of the guides are up to date, and the snippets for sensors read them."""

import re
import sys
import types
from array import array
from pathlib import Path
from struct import pack

import guide_pictures
import liar_tables
import pytest

from tern.features import Window

SENSORS = (Path(__file__).parents[2] / "docs/guides/sensors.md").read_text()
SNIPPETS = dict(
    # The first word of each heading, and the first block of Python before the next heading.
    re.findall(
        r"^## (\S+?):? (?:(?!^## ).)*?```python\n(.*?)```", SENSORS, re.MULTILINE | re.DOTALL
    )
)


@pytest.mark.parametrize("name", guide_pictures.PICTURES)
def test_a_picture_is_up_to_date(name):
    drawn = guide_pictures.PICTURES[name]()
    assert (guide_pictures.FOLDER / name).read_text() == drawn, "python docs/guide_pictures.py"


def test_the_table_of_what_liars_can_do_is_up_to_date():
    assert liar_tables.PAGE.read_text() == liar_tables.text(), "python docs/liar_tables.py"


class I2C:
    """A bus with an MPU-6050 at 0x68 (registers by RM-MPU-6000A)."""

    def __init__(self, bus, sda, scl, freq):
        self._registers = {0x6B: 0x40}  # asleep after power-on

    def writeto_mem(self, address, register, data):
        assert address == 0x68
        self._registers[register] = data[0]

    def readfrom_mem(self, address, register, n):
        assert (address, register, n) == (0x68, 0x3B, 6)
        assert self._registers[0x6B] & 0x40 == 0, "asleep"
        one_g = 16384 >> (self._registers.get(0x1C, 0) >> 3 & 3)
        return pack(">hhh", 0, -1, one_g)


class Pin:
    """A pin, and its analogue value."""

    IN = 0
    read_u16 = staticmethod(lambda: 65535)
    value = staticmethod(lambda: 1)

    def __init__(self, pin, mode=None):
        pass


@pytest.fixture
def snippets(monkeypatch):
    """The guide's snippets, by sensor; they run on a board with all sensors."""
    monkeypatch.setitem(sys.modules, "machine", types.SimpleNamespace(I2C=I2C, ADC=Pin, Pin=Pin))
    monkeypatch.setitem(sys.modules, "time", types.SimpleNamespace(sleep_ms=lambda ms: None))
    return SNIPPETS


@pytest.mark.parametrize(
    ("sensor", "expected"),
    [
        ("MPU-6050", (0, -1, 8192)),  # an accelerometer that lies still: 1 g on the third axis
        ("A", (32767,)),  # an analogue input at its maximum
        ("HC-SR501", (8192,)),  # a motion sensor that sees motion
    ],
)
def test_a_snippet_reads_its_sensor_and_makes_records(snippets, tmp_path, sensor, expected):
    """The guide has a snippet for each sensor, and one that makes records from it. They run here
    with stand-ins for the pins and the bus. A window full of samples becomes one record with the
    label that the program gives.
    """
    names = {}
    exec(SNIPPETS[sensor] + SNIPPETS["From"], names)
    assert names["sample"]() == expected

    label = 16384  # 1 in fixed point
    window, recorder = names["window"], names["recorder"]
    assert isinstance(window, Window)
    recorder.open(str(tmp_path))
    for _ in range(window.n):
        names["step"](label)
    recorder.flush()

    assert recorder.count == 1
    record = array("h", bytes(2 * (window.d + 1)))
    recorder.take(0, record)
    assert (record[0], record[-1]) == (16384, label), "the constant comes first, the label last"
