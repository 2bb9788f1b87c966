"""Compute the expected results of shared_specs/vectors/cards.json and sampler.json, for the inputs in them.

    PYTHONPATH=tests:tests/device python tests/vectors/make_core.py

The cards are small ones chosen by hand, in the bytes of spec.cards, and such that their claim is
just kept, or just not. The library certifies them and draws from them; the tests check what that
means by exact enumeration. spec.sums and spec.projection draw with wide integers.
"""

import struct
from array import array

from parts import VECTORS, computed, write
from spec import projection, sums
from streams import Replay

from tern import sampler
from tern.card import CardError, card_hash, certify, decode
from tern.entropy import POSITION
from tern.fixed import exp_lower


def too_small(card):
    """The largest epsilon (micro) that the card does not keep."""
    low, high = 0, card.epsilon
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if certify(card, middle) else (middle, high)
    return low


def verdict(case):
    """Whether a card decodes and is certified, and what it then is."""
    data = bytes.fromhex(case["card"])
    try:
        card = decode(data)
    except CardError:
        return {"decodes": False, "certified": False, "result": "invalid"}
    certified = certify(card)
    expected = {
        "decodes": True,
        "certified": certified,
        "symbols": card.symbols,
        "hash": card_hash(data),
        "result": "valid" if certified else "invalid",
    }
    if certified:
        expected["too_small"] = too_small(card)
    return expected


def bound(case):
    return {"exp_lower": f"{exp_lower(case['epsilon']):032x}"}


def drawn(case, draw):
    """The symbols of draw(card, stream), and how many bytes of the case's stream they take."""
    stream = Replay(bytes.fromhex(case["stream"]))
    symbols = draw(bytes.fromhex(case["card"]), stream)
    return {"symbols": symbols, "bytes_used": stream.cursor[POSITION]}


def sample(case):
    def draw(card, stream):
        out = array("H", [0] * len(case["xs"]))
        sampler.sample(decode(card), stream, array("h", case["xs"]), out, len(out))
        return list(out)

    return drawn(case, draw)


def noisy_sums(case):
    def draw(card, stream):
        t, c, m, coarse, bits = struct.unpack_from("<IIIBB", card, 18)
        noisy = [value + sums.noise(stream.byte, t, c, m) for value in case["sums"]]
        return [sums.symbol(value, coarse, bits) for value in noisy]

    return drawn(case, draw)


def projections(case):
    """Draws one after the other, as many as the case has."""

    def draw(card, stream):
        fields = struct.unpack_from("<BBIIH", card, 5)  # n, k, a, b, R
        values, question = case["values"], bytes.fromhex(case["question"])
        return [projection.symbol(stream.byte, values, question, *fields) for _ in case["symbols"]]

    return drawn(case, draw)


def main():
    cards = computed("cards.json", tests=verdict, exp_lower=bound)
    write(VECTORS / "cards.json", **cards)
    samples = computed("sampler.json", tests=sample, sums=noisy_sums, projections=projections)
    write(VECTORS / "sampler.json", **samples)


if __name__ == "__main__":
    main()
