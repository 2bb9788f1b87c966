# mypy: ignore-errors
"""Prints what the device library computes for fixed data with fixed randomness.

self_check.py runs this on a board and here, and compares the lines. The arguments come from there
as numbers, since a deployed library has no names of constants any more.
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
    """A generator of random bytes that everybody knows, only for this check.

    Its bytes are the SHA-256 of "self-check 0", "self-check 1" and so on.
    """

    state = 1

    def __init__(self):
        super().__init__(bytes(16))
        self._blocks = 0

    def refill(self):
        """Add 32 bytes to those in the pool that were not used yet."""
        digest = hashlib.sha256(b"self-check %d" % self._blocks).digest()
        left = self.pool[self.cursor[0] : self.cursor[1]] + digest
        self._blocks += 1
        self.pool = left + bytes(16)
        self.cursor[0] = 0
        self.cursor[1] = len(left)

    def end_report(self):
        """Do nothing; a real generator gets new entropy before the next report."""


class Fixed(Base):
    """A board with the files of `directory`, whose random bytes are the same wherever it runs."""

    name = "fixed"

    def __init__(self, directory):
        self.directory = directory

    def generator(self):
        """Return the board's generator of random bytes."""
        return Known()


def of_card(data, n):
    """Return a line with what the privacy mechanism of a card does to `n` values.

    The card is the table from which the device samples; the line says whether the device certifies
    it, and has the outputs (symbols) of the values. These lie evenly from one end of [-1, 1] to the
    other one, in Q1.14 (16384 is 1).
    """
    card = decode(data)
    inputs = array("h", [-16384 + 32768 * i // (n - 1) for i in range(n)])
    outputs = array("H", [0] * n)
    sample(card, Known(), inputs, outputs, n)
    return "card %d %s" % (certify(card), bytes(outputs).hex())


def of_gradient(model, parameters, exponent, rows):
    """Return a line with the mean gradient of some records.

    parameters, exponent: of the model; a parameter p stands for p * 2**exponent. rows: records, each
    with its features and then its label, in Q1.14.
    """
    gradient = Gradient(len(parameters))
    gradient.reset()
    for row in rows:
        gradient.add(model, array("h", parameters), exponent, array("h", row))
    out = array("h", parameters)
    gradient.finish(out)
    return "gradient %d %s" % (model, bytes(out).hex())


def of_rounds(directory, frames):
    """Return a line for the answer to each ROUND frame, by the device with its files in `directory`."""
    client = Client(Fixed(directory))
    lines = []
    for frame in frames:
        n = client.answer(memoryview(frame))
        lines.append("report " + bytes(client.reply[:n]).hex())
    client.close()
    return lines
