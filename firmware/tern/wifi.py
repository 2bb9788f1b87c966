"""Wi-Fi, for any link that needs it."""

import network

from tern import compat
from tern.compat import const, sleep_ms, ticks_diff, ticks_ms
from tern.tcp import Lost

_JOIN_MS = const(20000)
_LOOK_MS = const(100)


def join(ssid, secret=None):
    """Join the network `ssid`, unless the board is in one. Raises Lost where it is not within 20 seconds."""
    station = network.WLAN(network.STA_IF)
    if not station.isconnected():
        station.active(True)
        station.connect(ssid, secret)
    start = ticks_ms()
    while not station.isconnected():
        if ticks_diff(ticks_ms(), start) > _JOIN_MS:
            raise Lost("cannot join the Wi-Fi network " + ssid)
        compat.feed()
        sleep_ms(_LOOK_MS)
