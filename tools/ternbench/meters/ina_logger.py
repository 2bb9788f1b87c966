# mypy: ignore-errors
"""The program on a second Pico that sends what an INA226 or INA228 and a marker pin tell.

ina.py describes its output. The chip's SDA is at GP4 and its SCL at GP5. The marker, a pin of the
board that is measured, is at GP2.
"""

import struct
import sys
import time
from binascii import b2a_base64

from machine import I2C, Pin

_ROW = "<Iii"  # microseconds, bus voltage, shunt voltage
_ROW_BYTES = 12
_ROWS = 16  # rows in a line
_MARKER = 1 << 30  # the bit of the bus voltage that tells the marker


def configure(bus, kind, address):
    """Let the chip measure all the time; return its registers of the bus voltage and of the shunt voltage.

    kind: "ina226" or "ina228". A register is returned as a tuple: its number, how many bytes it has,
    by how many bits its value is shifted to the left, and whether it is signed.
    """
    # By the tables of the datasheets: continuous measurements of shunt and bus voltage, as short
    # as the chip has them, without averaging. The INA226 has one register for that. The INA228 has
    # two: 0x00 selects the wider range of the shunt voltage, 0x01 the measurements.
    if kind == "ina226":
        bus.writeto_mem(address, 0x00, b"\x40\x07")
        bus_voltage = (0x02, 2, 0, False)
        shunt_voltage = (0x01, 2, 0, True)
    else:
        bus.writeto_mem(address, 0x00, b"\x00\x00")
        bus.writeto_mem(address, 0x01, b"\xb0\x00")
        bus_voltage = (0x05, 3, 4, False)
        shunt_voltage = (0x04, 3, 4, True)
    return bus_voltage, shunt_voltage


def read_register(bus, address, register, buffer):
    """Return the value of a register of the chip as an integer.

    address: of the chip on the bus. register: a tuple that `configure` returned. buffer: to read into,
    at least as large as the register.
    """
    number, size, shift, signed = register
    view = memoryview(buffer)[:size]
    bus.readfrom_mem_into(address, number, view)
    value = 0
    for byte in view:
        value = value << 8 | byte
    is_negative = signed and value >> (8 * size - 1)  # the highest bit
    if is_negative:  # two's complement
        value -= 1 << (8 * size)
    return value >> shift


def log(kind, address, milliseconds):
    """Send a line of base64 whenever _ROWS rows are full, and the line "end" after so many milliseconds.

    kind: "ina226" or "ina228". address: of the chip on the I2C bus.
    """
    bus = I2C(0, sda=Pin(4), scl=Pin(5), freq=400_000)  # the fastest that both chips take
    marker = Pin(2, Pin.IN, Pin.PULL_DOWN)
    bus_register, shunt_register = configure(bus, kind, address)
    rows = bytearray(_ROW_BYTES * _ROWS)
    buffer = bytearray(3)
    write = sys.stdout.buffer.write
    print("ready")
    start = time.ticks_ms()
    end_of_rows = 0
    while time.ticks_diff(time.ticks_ms(), start) < milliseconds:
        bus_voltage = read_register(bus, address, bus_register, buffer) & (_MARKER - 1)
        if marker():
            bus_voltage |= _MARKER
        microseconds = time.ticks_us()
        shunt_voltage = read_register(bus, address, shunt_register, buffer)
        struct.pack_into(_ROW, rows, end_of_rows, microseconds, bus_voltage, shunt_voltage)
        end_of_rows += _ROW_BYTES
        if end_of_rows == len(rows):
            write(b2a_base64(rows))
            end_of_rows = 0
    write(b"end\n")
