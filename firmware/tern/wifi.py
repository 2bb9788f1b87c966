"""Wi-Fi, for any link that needs it."""

import network

from tern.compat import const, ticks_diff, ticks_ms
from tern.tcp import Lost

_JOIN_MS = const(20000)


class Station:
    """The board in the network `ssid`."""

    def __init__(self, ssid, secret=None):
        self.radio = network.WLAN(network.STA_IF)
        self._ssid = ssid
        self._secret = secret
        self._since = None  # when it began to join

    def joined(self, lease=None):
        """Go on to join, without waiting; return whether it has. lease: a lease.Lease. Raises Lost after 20 seconds."""
        radio = self.radio
        if radio.isconnected():
            self._since = None
            return True
        now = ticks_ms()
        if self._since is None:
            self._since = now
            radio.active(True)
            if lease:
                lease.take()
            radio.connect(self._ssid, self._secret)
        elif ticks_diff(now, self._since) > _JOIN_MS:
            self._since = None
            radio.disconnect()  # an ESP32 would go on by itself
            raise Lost("cannot join the Wi-Fi network " + self._ssid)
        return False
