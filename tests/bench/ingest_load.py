"""The reports whose intake is measured (`ingest`): of devices that are not there, the same each time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import wire
from ternhost.count.questions import Question
from ternhost.privacy import mechanisms

DIMENSION = 28
EPSILON, K = 2_000_000, 1
REPEATED = 100  # every so many messages one is sent twice
_AHEAD, _AHEAD_REPORTS = 60_000, 400_000  # messages, and reports, that the load is ahead of the host, at most

Devices = npt.NDArray[np.int64]
Symbols = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Load:
    """What is published: `reports` different ones of `devices` devices, round after round, and the repetitions.

    A message holds up to `batch` reports, in the order that chance has given the devices of a round.
    """

    reports: int
    devices: int
    batch: int
    port: int
    password: str

    @property
    def rounds(self) -> int:
        return -(-self.reports // self.devices)

    @property
    def different(self) -> int:
        """Messages without the repetitions."""
        return sum(-(-self.in_round(number) // self.batch) for number in range(1, self.rounds + 1))

    @property
    def messages(self) -> int:
        return self.different + self.different // REPEATED

    @property
    def ahead(self) -> int:
        """How many messages the load is ahead of the host, at most."""
        return max(1, min(_AHEAD, _AHEAD_REPORTS // self.batch))

    def in_round(self, number: int) -> int:
        """How many devices report in round 1, 2, ..."""
        return min(self.devices, self.reports - (number - 1) * self.devices)

    def drawn(self, number: int) -> tuple[Devices, Symbols]:
        """The devices that report in a round, in their order, and their packed symbols (n x bytes)."""
        source = np.random.Generator(np.random.SFC64([1, number]))
        devices = source.permutation(self.in_round(number)) + 1
        symbols = source.integers(0, card().symbols, (len(devices), 1), np.uint8)
        return devices, symbols  # one symbol of fewer than 256 takes a byte, and is its own packed form


def key_of(device: int) -> bytes:
    """The key of a device of this load; it protects nothing."""
    return hashlib.sha256(b"ingest %d" % device).digest()


def question() -> Question:
    return Question(wire.LOGISTIC, [0] * DIMENSION, wire.MAX_EXPONENT, bytes(card().data), K)


@cache
def card() -> cards.Card:
    found: cards.Card = cards.decode(mechanisms.design("three-outputs", epsilon_micro=EPSILON).card)
    return found
