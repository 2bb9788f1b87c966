"""The reports whose intake `ingest` measures: of imaginary devices, the same each time."""

import hashlib
from dataclasses import dataclass
from functools import cache

import numpy as np

from tern import card as cards
from tern import wire
from ternhost.count.questions import Question
from ternhost.privacy import mechanisms

DIMENSION = 28
EPSILON, K = 2_000_000, 1
REPEATED = 100  # one of this number of messages is sent twice
_AHEAD = 60_000  # messages, at most, of which the load is ahead of the host
_AHEAD_REPORTS = 400_000


@dataclass(frozen=True)
class Load:
    """The published messages: `reports` different reports of `devices` devices, round after round,
    and repetitions.

    A message holds up to `batch` reports. The order of the devices of a round is random.
    """

    reports: int
    devices: int
    batch: int
    port: int
    password: str

    @property
    def rounds(self):
        return -(-self.reports // self.devices)

    @property
    def different(self):
        """The number of messages without the repetitions."""
        return sum(-(-self.in_round(number) // self.batch) for number in range(1, self.rounds + 1))

    @property
    def messages(self):
        return self.different + self.different // REPEATED

    @property
    def ahead(self):
        """The most messages that the load is ahead of the host."""
        return max(1, min(_AHEAD, _AHEAD_REPORTS // self.batch))

    def in_round(self, number):
        """The number of devices that report in round 1, 2, ..."""
        return min(self.devices, self.reports - (number - 1) * self.devices)

    def drawn(self, number):
        """The devices that report in a round, in their order, and their packed symbols (n x bytes)."""
        source = np.random.Generator(np.random.SFC64([1, number]))
        devices = source.permutation(self.in_round(number)) + 1
        symbols = source.integers(0, card().symbols, (len(devices), 1), np.uint8)
        return devices, symbols  # a symbol below 256 is its own packed form, of one byte


def key_of(device):
    """The key (32 bytes) of a device of this load."""
    return hashlib.sha256(b"ingest %d" % device).digest()


def question():
    return Question(wire.LOGISTIC, [0] * DIMENSION, wire.MAX_EXPONENT, bytes(card().data), K)


@cache
def card():
    return cards.decode(mechanisms.design("three-outputs", epsilon_micro=EPSILON).card)
