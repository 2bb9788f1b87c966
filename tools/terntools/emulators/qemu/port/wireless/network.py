"""A stand-in for the ESP32's module `network`: one Wi-Fi station, whose air is QEMU's user network."""

import time

import _nic

STA_IF = 0
AP_IF = 1
STAT_IDLE = 1000
STAT_CONNECTING = 1001
STAT_GOT_IP = 1010
_JOIN_MS = 100


class WLAN:
    IF_STA = STA_IF
    IF_AP = AP_IF
    _joining = None  # since when; of all objects, as there is one radio
    _ssid = None

    def __init__(self, interface=STA_IF):
        if interface != STA_IF:
            raise ValueError("there is a station only")

    def active(self, on=None):
        if on is None:
            return _nic.radio()
        if not on:
            self.disconnect()
        return _nic.radio(on)

    def connect(self, ssid=None, key=None, *, bssid=None):
        if not _nic.radio():
            raise OSError("Wifi Not Started")
        WLAN._ssid = ssid
        WLAN._joining = time.ticks_ms()

    def disconnect(self):
        WLAN._joining = None
        _nic.up(False)

    def isconnected(self):
        if WLAN._joining is None or time.ticks_diff(time.ticks_ms(), WLAN._joining) < _JOIN_MS:
            return False
        _nic.up(True)
        return True

    def status(self, what=None):
        if what == "rssi":
            return -50
        return (
            STAT_GOT_IP
            if self.isconnected()
            else STAT_IDLE
            if WLAN._joining is None
            else STAT_CONNECTING
        )

    def ifconfig(self):
        if not self.isconnected():
            return ("0.0.0.0", "0.0.0.0", "0.0.0.0", "0.0.0.0")
        return ("10.0.2.15", "255.255.255.0", "10.0.2.2", "10.0.2.3")

    def config(self, what):
        return {"mac": b"\x52\x54\x00\x12\x34\x56", "ssid": WLAN._ssid or "", "channel": 1}[what]
