"""ESP32 and its relatives. Entropy: shared_specs/entropy.md.

os.urandom is truly random only while a radio runs (ESP-IDF, "Random Number Generation"), so a radio is on for seeding.
The chip mixes its noise before it can be read: the health tests see MIXED.
"""

import os
import sys

from tern import compat
from tern.boards import PinBoard
from tern.compat import feed
from tern.entropy import Generator


def radio():
    """Return the radio of this chip: an object with active(). Raises ImportError where there is none."""
    try:
        import network

        return network.WLAN(network.STA_IF)
    except (ImportError, AttributeError):
        import bluetooth

        return bluetooth.BLE()


def urandom(n):
    try:
        transmitter = radio()
    except ImportError:
        return b""  # the generator fails: better no report than one without true randomness
    was_active = transmitter.active()
    if not was_active:
        transmitter.active(True)
    try:
        return os.urandom(n)
    finally:
        if not was_active:
            transmitter.active(False)


class Board(PinBoard):
    """An ESP32 on its console UART or USB; which pin has an LED differs from board to board."""

    def __init__(self, led=None):
        super().__init__(led)
        self.name = sys.implementation._machine

    def keep(self, word=0):
        try:
            from machine import RTC
        except ImportError:  # an emulated board
            return 0
        kept = RTC().memory()
        if word:
            RTC().memory(word.to_bytes(4, "little"))
        return int.from_bytes(kept, "little")

    def unwatch(self):
        if compat.feed is not feed:  # it is on, and cannot be stopped: half an hour for who is at the console
            self.watch_ms = 1 << 21
            self.watch()

    def generator(self):
        try:
            transmitter = radio()
            was_active = transmitter.active()
            transmitter.active(True)  # once for the start-up tests and the first seed
        except ImportError:
            return Generator(urandom)
        try:
            return Generator(urandom)
        finally:
            transmitter.active(was_active)

    def temperature(self):
        import esp32

        if hasattr(esp32, "mcu_temperature"):
            return 1000 * esp32.mcu_temperature()
        return (esp32.raw_temperature() - 32) * 5000 // 9
