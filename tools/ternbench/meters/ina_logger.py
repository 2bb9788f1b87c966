# mypy: ignore-errors
"""Runs on a second Pico (MicroPython): sends rows of an INA226 or INA228 and a marker pin, see
ina.py.

SDA is GP4, SCL is GP5, the marker GP2.
"""

import struct
import sys
import time
from binascii import b2a_base64

from machine import I2C, Pin

_ROWS = 16


def _start(bus, kind, address):
    # Continuous shunt and bus conversions, as short as the chip has them, no averaging.
    if kind == "ina226":
        bus.writeto_mem(address, 0x00, b"\x40\x07")
        return (0x02, 2, 0, False), (0x01, 2, 0, True)
    bus.writeto_mem(address, 0x00, b"\x00\x00")
    bus.writeto_mem(address, 0x01, b"\xb0\x00")
    return (0x05, 3, 4, False), (0x04, 3, 4, True)


def _read(bus, address, register, buffer):
    number, size, shift, signed = register
    view = memoryview(buffer)[:size]
    bus.readfrom_mem_into(address, number, view)
    value = 0
    for byte in view:
        value = value << 8 | byte
    if signed and value >> (8 * size - 1):
        value -= 1 << (8 * size)
    return value >> shift


def log(kind, address, milliseconds):
    bus = I2C(0, sda=Pin(4), scl=Pin(5), freq=400_000)  # the fastest that both chips take
    marker = Pin(2, Pin.IN, Pin.PULL_DOWN)
    volts, shunt = _start(bus, kind, address)
    rows = bytearray(12 * _ROWS)
    buffer = bytearray(3)
    write = sys.stdout.buffer.write
    print("ready")
    start = time.ticks_ms()
    n = 0
    while time.ticks_diff(time.ticks_ms(), start) < milliseconds:
        bus_voltage = _read(bus, address, volts, buffer) & 0x3FFFFFFF
        if marker():
            bus_voltage |= 1 << 30
        struct.pack_into(
            "<Iii", rows, n, time.ticks_us(), bus_voltage, _read(bus, address, shunt, buffer)
        )
        n += 12
        if n == len(rows):
            write(b2a_base64(rows))
            n = 0
    write(b"end\n")
