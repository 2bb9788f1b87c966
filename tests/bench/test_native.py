"""The sampler in C, the reference of `tern bench latency`, draws the same symbols as the library's
sampler.
"""

import random
from array import array
from pathlib import Path

import pytest
from streams import Replay

import ternspecs
from tern import sampler
from tern.card import HIERARCHY, LAPLACE, MIXTURE, decode
from tern.fixed import ONE
from ternbench import subjects
from terntools.boards import fold, mpy

CARDS = sorted((Path(next(iter(ternspecs.__path__))) / "cards").glob("*-[26].card"))
VALUES = 40
PROGRAM = """
from array import array
from tern import sampler
from tern.card import decode
from tern.entropy import Stream

class Replay(Stream):
    def __init__(self, data):
        super().__init__(data + bytes(16))
        self.cursor[1] = len(data)

class Slow(Replay):
    # Its pool grows by one byte at a time, so that leaves must undo and go on.
    def __init__(self, data):
        super().__init__(data)
        self.limit = self.cursor[1]
        self.cursor[1] = 0
    def refill(self):
        assert self.cursor[1] < self.limit
        self.cursor[1] += 1

def draw(card, data, xs):
    card, xs = decode(card), array("h", xs)
    draws = []
    for kind in Replay, Slow:
        stream = kind(data)
        out = array("H", (0 for _ in xs))
        sampler.sample(card, stream, xs, out, len(xs))
        draws.append((list(out), stream.cursor[0]))
    return draws
"""


@pytest.fixture(scope="module")
def draw():
    with subjects.subject("pico-emulated:1") as on:
        on.install({})
        on.call(f"exec({PROGRAM!r}, globals())")
        leaves = "[id(leaf) for leaves in sampler._LEAVES.values() for leaf in leaves]"
        leaves = fold.fold_program(
            leaves, mpy.library("armv6m")
        )  # private names are shorter on a board
        viper = on.call(leaves)
        assert on.use_native()
        assert len(set(on.call(leaves)) - set(viper)) == 2
        yield lambda *arguments: on.call(f"draw{arguments!r}")


@pytest.mark.slow
def test_both_samplers_draw_the_same_symbols_from_the_same_bytes(draw, sampled):
    rng, shapes = random.Random(1), set()
    for path in sampled(CARDS, 4):
        card = decode(path.read_bytes())
        if card.shape in (LAPLACE, MIXTURE, HIERARCHY):
            continue
        shapes.add(card.shape)
        data = rng.randbytes(64 * VALUES)
        values = [-ONE, ONE, 0, -32768, 32767]
        while len(values) < VALUES:
            values.append(rng.randint(-ONE, ONE))
        stream, symbols = Replay(data), array("H", [0] * VALUES)
        sampler.sample(card, stream, array("h", values), symbols, VALUES)
        expected = (list(symbols), stream.cursor[0])
        assert draw(path.read_bytes(), data, values) == [expected] * 2, path.name
    assert len(shapes) == 2
