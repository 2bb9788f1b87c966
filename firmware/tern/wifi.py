"""Wi-Fi, for any link that needs it."""

import network

from tern import absence
from tern.compat import const, ticks_diff, ticks_ms
from tern.tcp import Lost

_JOIN_MS = const(20000)  # after which the board gives up to join
_LEASE_MS = const(8000)  # after which an address is missed


class Station:
    """The board as a station of a Wi-Fi network."""

    def __init__(self, ssid, secret=None):
        """ssid: the network's name; None for the one that the program joins. secret: its key."""
        self.radio = network.WLAN(network.STA_IF)
        self._ssid = ssid
        self._secret = secret
        self._since = None  # when it began to join
        self.reason = 0  # why it has not joined, as far as that is known

    def joined(self, lease=None):
        """Go on to join the network, without waiting; return whether the board has joined.

        lease: a lease.Lease, which may know the board's address, or None. Without an ssid the
        result is always True: joining is up to the program. Raises Lost after 20 seconds, or once
        the radio has given up.
        """
        radio = self.radio
        self.reason = 0
        if radio.isconnected():
            self._since = None
            return True
        if self._ssid is None:
            self.reason = absence.NO_SETTINGS
            return True
        now = ticks_ms()
        if self._since is None:
            self._since = now
            radio.active(True)
            try:
                # an ESP32 that tries for ever does not tell why it fails
                radio.config(reconnects=2)
            except (TypeError, ValueError):  # other radios do not try again
                pass
            if lease:
                lease.take()
            radio.connect(self._ssid, self._secret)
            return False
        ms = ticks_diff(now, self._since)
        reason = _why(radio)
        if ms > _JOIN_MS or reason not in (0, absence.NO_LEASE):
            self._since = None
            radio.disconnect()  # an ESP32 would go on by itself
            raise Lost("cannot join " + self._ssid, reason or absence.NOT_JOINED)
        if ms > _LEASE_MS:
            self.reason = reason
        return False

    def leave(self):
        """Switch the radio off, unless it has joined by other means."""
        if self._ssid is not None:
            self.radio.active(False)


def _why(radio):
    """Return why the radio has not joined, a reason of tern.absence; 0 while it tries.

    The CYW43 of a Pico W has status codes from -3 to 3, which is its STAT_GOT_IP. The ESP32 has
    those of ESP-IDF below 1000 for errors, and from 1000 on for states.
    """
    status = radio.status()
    # CYW43: -3 wrong key, -2 no such network, other negative ones failed, 2 joined without an
    # address. ESP-IDF: 15 and 204 handshake time-outs, 202 authentication failed, 201 no network.
    if status in (-3, 15, 202, 204):
        return absence.WIFI_KEY
    if status in (-2, 201):
        return absence.NO_NETWORK
    if status < 0 or (status < 1000 and network.STAT_GOT_IP > 3):
        return absence.NOT_JOINED
    try:
        if status == 2 or (status > 1000 and radio.status("rssi")):
            return absence.NO_LEASE
    except OSError:  # not even associated
        pass
    return 0
