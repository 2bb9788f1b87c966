"""Attackers of a fleet through its broker: a host that lies, a client that floods, and one that
never reads.

The liar has all rights of the host and the keys of all devices; the others have the password of a
device.
"""

import dataclasses
import random
import struct
import threading
import time
from collections import Counter

from framing import encoded

from harness.raw_client import RawClient, board_client
from tern import card as cards
from tern import host_frames, wire
from tern.links import mqtt
from ternhost.reach.broker import mosquitto_files
from ternhost.reach.broker.mosquitto_files import password_line

_FAR = 100_000  # rounds ahead, beyond those of the true host
_REPEATS = 5
_CONNECTS = 20.0  # seconds within which a board reconnects to a broker


def attackers(access, directory, *users):
    """Give `users` the host's rights on the broker of `directory`, before it starts; return an
    Access for each.

    The host itself stays connected beside them, since a second client of its name would end its
    session.
    """
    with (
        open(directory / mosquitto_files.PASSWORDS, "a") as passwords,
        open(directory / mosquitto_files.ACCESS, "a") as rights,
    ):
        for user in users:
            print(password_line(user, user), file=passwords)
            print(f"user {user}\ntopic readwrite {access.prefix}/#", file=rights)
    return [dataclasses.replace(access, user=user, password=user) for user in users]


class Liar:
    """Sends devices ROUNDs that they must refuse. `injected` counts them by kind."""

    def __init__(self, access, card, dimension, k, seed=1):
        self.injected, self._access, self._card = Counter(), access, card
        self._d, self._k, self._random = dimension, k, random.Random(seed)

    def attack(self, board, device, key, last):
        """Lie to a device once its board, of that name, is connected. last: a round that all have
        answered, or 0.
        """
        client = RawClient(self._access, self._access.user, self._access.password)
        try:
            client.subscribe(mqtt.HELLO % (self._access.prefix, board))
            if not client.messages(_CONNECTS, 1):
                return
            for kind, frame in self._lies(device, key, last):
                client.publish(mqtt.DOWN % (self._access.prefix, board), frame)
                self.injected[kind] += 1
        finally:
            client.close()

    def _lies(self, device, key, last):
        stranger = self._random.randbytes(wire.KEY_BYTES)
        far = last + _FAR
        for _ in range(_REPEATS):
            yield "forged round", self._round(stranger, device, far)
            yield "forged round", self._round(stranger, wire.FLEET, last + 1)
        cheap = bytearray(self._card)  # claims half of what it costs
        struct.pack_into("<I", cheap, 1, cards.decode(self._card).epsilon // 2)
        for _ in range(_REPEATS):
            yield "lying card", self._round(key, device, far, card=bytes(cheap))
            yield "dear round", self._round(key, device, far, k=self._d)
        if last:
            for _ in range(_REPEATS):
                yield "round asked again, changed", self._round(key, device, last)
            for number in range(last, max(0, last - _REPEATS), -1):
                yield "round backwards", self._round(key, device, number)

    def _round(self, key, device, number, card=None, k=None):
        parameters = [self._random.randrange(-(1 << 15), 1 << 15) for _ in range(self._d)]
        question = wire.LOGISTIC, parameters, card or self._card, k or self._k
        return encoded(host_frames.encode_round, key, device, number, *question, exponent=-14)


class Flood(threading.Thread):
    """Sends damaged and forged reports under the name of one device, as fast as the broker takes
    them.
    """

    def __init__(self, access, keys, device, seconds):
        super().__init__(daemon=True)
        self._client = board_client(access, keys, device)
        self._topic = mqtt.UP % (access.prefix, mqtt.name(device))
        self._device, self._seconds = device, seconds
        self.start()

    @property
    def sent(self):
        return self._client.flooded

    def run(self):
        forged = struct.pack("<BII", wire.REPORT, self._device, 1) + bytes(9)
        many = struct.pack("<BIH", wire.REPORTS, 1, 1) + (forged[1:5] + bytes(9)) * 195
        payloads = (forged, many, b"\x82", b"\x84" + bytes(20))
        end = time.monotonic() + self._seconds
        try:
            for payload in payloads:
                self._client.flood(
                    self._topic, payload, max(0.0, end - time.monotonic()) / len(payloads)
                )
        except OSError:  # the broker was killed, or accepts no more
            pass
        self._client.close()


def slow_reader(access):
    """A client that has subscribed to all messages of boards, and never reads them."""
    client = RawClient(access, access.user, access.password)
    client.subscribe(mqtt.UP % (access.prefix, "+"))
    client.subscribe(mqtt.HELLO % (access.prefix, "+"))
    return client
