"""A stand-in for the ESP32's module `network` on an emulated board, as its /network.py: the air of
/air.json.

{"ssid": ..., "key": ..., "lease": whether DHCP answers}. As MicroPython's, it tells why it cannot
join only once it has given up, after `reconnects`, and the reason is ESP-IDF's.
"""

import json
import time

import _nic

STA_IF = 0
STAT_IDLE = 1000
STAT_CONNECTING = 1001
STAT_GOT_IP = 1010
_NO_AP_FOUND = 201
_4WAY_HANDSHAKE_TIMEOUT = 15
_ATTEMPT_MS = 300

with open("/air.json") as file:
    AIR = json.load(file)


class WLAN:
    since = None  # when it began to join; of all objects, as there is one radio
    failure = 0
    reconnects = None

    def __init__(self, interface=STA_IF):
        pass

    def active(self, on=None):
        return _nic.radio() if on is None else _nic.radio(on)

    def config(self, what=None, **settings):
        if what:
            return {"mac": b"\x52\x54\x00\x12\x34\x56", "ssid": AIR["ssid"], "channel": 1}[what]
        WLAN.reconnects = settings["reconnects"]

    def connect(self, ssid=None, key=None):
        WLAN.since = time.ticks_ms()
        WLAN.failure = 0
        if ssid != AIR["ssid"]:
            WLAN.failure = _NO_AP_FOUND
        elif key != AIR["key"]:
            WLAN.failure = _4WAY_HANDSHAKE_TIMEOUT

    def disconnect(self):
        WLAN.since = None
        _nic.up(False)

    def isconnected(self):
        if WLAN.since is None or WLAN.failure or not AIR["lease"]:
            return False
        if time.ticks_diff(time.ticks_ms(), WLAN.since) < _ATTEMPT_MS:
            return False
        _nic.up(True)
        return True

    def status(self, what=None):
        if what == "rssi":
            if WLAN.since is None or WLAN.failure:
                raise OSError("Wifi Not Connected")
            return -50
        if self.isconnected():
            return STAT_GOT_IP
        if WLAN.since is None:
            return WLAN.failure or STAT_IDLE
        tried = time.ticks_diff(time.ticks_ms(), WLAN.since) // _ATTEMPT_MS
        given_up = WLAN.failure and WLAN.reconnects is not None and tried > WLAN.reconnects
        return WLAN.failure if given_up else STAT_CONNECTING

    def ifconfig(self):
        if not self.isconnected():
            return ("0.0.0.0", "0.0.0.0", "0.0.0.0", "0.0.0.0")
        return ("10.0.2.15", "255.255.255.0", "10.0.2.2", AIR.get("name_server", "10.0.2.3"))
