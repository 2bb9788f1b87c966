# mypy: ignore-errors
"""Runs on a device and here: the library's results for fixed data with fixed randomness, for
self_check.py.

Constants come from there, since a deployed library has them folded in, and no names of them.
"""

import hashlib
from array import array

from tern.boards import Base
from tern.card import certify, decode
from tern.client import Client
from tern.entropy import Stream
from tern.gradient import Gradient
from tern.sampler import sample


class Known(Stream):
    """A public generator, only for this check."""

    state = 1

    def __init__(self):
        super().__init__(bytes(16))
        self._blocks = 0

    def refill(self):
        digest = hashlib.sha256(b"self-check %d" % self._blocks).digest()
        left = self.pool[self.cursor[0] : self.cursor[1]] + digest
        self._blocks += 1
        self.pool = left + bytes(16)
        self.cursor[0] = 0
        self.cursor[1] = len(left)

    def end_report(self):
        pass


class Fixed(Base):
    """A board with the files of `directory`, whose random bytes are the same wherever it runs."""

    name = "fixed"

    def __init__(self, directory):
        self.directory = directory

    def generator(self):
        return Known()


def of_card(data, n):
    """Whether a card is certified, and the symbols of `n` inputs from one end of [-1, 1] to the
    other.
    """
    card = decode(data)
    xs = array("h", [-16384 + 32768 * i // (n - 1) for i in range(n)])
    out = array("H", [0] * n)
    sample(card, Known(), xs, out, n)
    return "card %d %s" % (certify(card), bytes(out).hex())


def of_gradient(model, parameters, exponent, rows):
    """The mean gradient of some records, each its features and its label."""
    gradient = Gradient(len(parameters))
    gradient.reset()
    for row in rows:
        gradient.add(model, array("h", parameters), exponent, array("h", row))
    out = array("h", parameters)
    gradient.finish(out)
    return "gradient %d %s" % (model, bytes(out).hex())


def of_rounds(directory, frames):
    """The answers to these ROUNDs of the device whose files are in `directory`."""
    client = Client(Fixed(directory))
    lines = []
    for frame in frames:
        n = client.answer(memoryview(frame))
        lines.append("report " + bytes(client.reply[:n]).hex())
    client.close()
    return lines
