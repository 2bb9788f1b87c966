"""The law of a sum's noise, walked branch by branch through the device's code; its privacy; units
by the million.
"""

import math
import os
import random
import subprocess
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import pytest
from branches import LeftOut, walk
from checks import replaced
from spec import sums as spec
from spec.cards import sum_card
from test_sums import check_int16, check_units

from tern import noise as leaves
from tern import sums
from terntools.emulators.micropython import device_command, find_micropython

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _digits():
    with localcontext() as context:
        context.prec = 60
        yield


@lru_cache(100_000)
def decay(x):
    """exp(-x) of a Fraction."""
    return (Decimal(-x.numerator) / x.denominator).exp()


class Uniform:
    """A uniform number of n of which only what is asked is decided: whether it is at least a, or
    above 0.
    """

    def __init__(self, choose, n):
        self._choose, self._n = choose, n

    def __ge__(self, a):
        below = Decimal(a) / self._n
        return self._choose((below, 1 - below)) == 1

    def __gt__(self, zero):
        assert zero == 0
        return self >= 1


@pytest.mark.parametrize("n", [1, 2, 3, 5, 128, 129, 255, 256, 257, 1000, 65535, 65536])
def test_uniform_is_exact(n):
    """The device draws a number below n from random bytes, and draws again if the bytes give none.
    Over all strings of as many bytes as one attempt reads, each number comes equally often: so no
    rounding makes one likelier, on which the privacy of noise rests.
    """
    size = (spec.bits(n - 1) + 7) // 8  # bytes of one attempt
    counts, rejected = Counter(), 0
    for value in range(256**size):
        job = [0, size]  # the position in the bytes, and where they end
        drawn = leaves.uniform(value.to_bytes(size, "little") + bytes([255, 255, 0]), job, n)
        counts[drawn] += job[0] == size
        rejected += job[0] != size  # it goes on with the byte behind
    del counts[None]
    # Each number has 2**(8 size) / 2**bits strings; all other strings were rejected.
    assert {counts[v] for v in range(n)} == {256**size // (1 << spec.bits(n - 1))}
    assert rejected == 256**size - sum(counts[v] for v in range(n))


# a, n, b and m of a decay by a b / (n m).
FRACTIONS = [
    (1, 1, 1, 1),
    (1, 2, 1, 1),
    (2, 3, 1, 1),
    (255, 256, 1, 1),
    (1, 2**20, 1, 1),
    (2**20 - 1, 2**20, 1, 1),
    (1, 2, 1, 3),
    (5, 14, 6, 7),
    (2**20 - 1, 2**20, 2**20 - 1, 2**20),
    (1, 2, 1, 2**20),
    (0, 5, 1, 1),
    (3, 5, 0, 9),
]


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_each_bernoulli_has_its_exponential(fraction):
    """Exact noise is made of coins that fall with probability exp(-a b / (n m)), tossed with whole
    numbers alone. `walk` runs the device's code once for each outcome of its draws and adds up the
    probabilities: the coin has its probability to 60 binary digits.
    """
    a, n, b, m = fraction

    def run(choose):
        with replaced(leaves, int=lambda v: v, uniform=lambda pool, job, n: Uniform(choose, n)):
            return leaves.decays(b"", [0, 1], a, n, b, m)

    law = walk(run, Decimal(2) ** -72)
    assert 1 - law[0] - law[1] < Decimal(2) ** -64, "what is left out"
    assert abs(law[1] - decay(Fraction(a * b, n * m))) < Decimal(2) ** -60


@lru_cache
def noise(t, c, m, most, offset=None):
    """The law of the first Y and, jointly, of its acceptance: P(Z = z in the first attempt), for
    |z| <= most.

    Each Bernoulli has its exponential (above). offset: the only one of Y that is walked, which then
    is certain.
    """

    def run(choose):
        uniforms, decays = [], []

        def uniform(pool, job, n):
            if len(uniforms) == (2 if decays and decays[0] else 1):  # a second attempt
                raise LeftOut
            uniforms.append(n)
            if offset is not None and len(uniforms) == 1:
                return offset
            return choose([Decimal(1) / n] * n)

        def decays_(pool, job, a, n, b, m):
            if len(uniforms) == 1 and len(decays) * t > most:
                raise LeftOut
            p = decay(Fraction(a * b, n * m))
            if len(uniforms) == 2:  # it is accepted, or there is a second attempt
                decays.append(choose((Decimal(0), p)))
            else:
                decays.append(choose((1 - p, p)))
            return decays[-1]

        with replaced(leaves, uniform=uniform, decays=decays_):
            return leaves.noise(b"", [0, 1, t, 2 * c, t * m, m])

    return walk(run)


def accepted(law):
    total = sum(law.values())
    return {z: p / total for z, p in law.items()}


def shape(z, t, c, m):
    return decay(Fraction(z * z * m, 2 * c * t) if c else Fraction(abs(z), t))


# t, c and m of the noise (c = 0: Laplace), and how far it is walked.
LAWS = [
    (1, 1, 2, 20),
    (1, 1, 1, 20),
    (2, 7, 6, 24),
    (8, 8, 1, 90),
    (64, 64, 1, 700),
    (3, 11, 2, 60),
    (4, 1, 4, 30),
    (1, 4, 1, 40),
    (1, 1, 64, 9),
    (1, 2**14, 2**20, 9),
    (1, 0, 0, 40),
    (5, 0, 0, 180),
]


@pytest.mark.parametrize(("t", "c", "m", "most"), LAWS)
def test_the_noise_has_its_law(t, c, m, most):
    """The device's code draws the noise z with a probability in proportion to exp(-z**2 m / (2 c
    t)), or to exp(-|z| / t) where c is 0: the law from which its privacy follows. All branches of
    the code are walked up to `most`; what lies beyond is negligible.
    """
    law = accepted(noise(t, c, m, most))  # probability by value
    weights = {z: shape(z, t, c, m) for z in law}
    total = sum(weights.values())
    beyond_the_walk = sum(shape(z, t, c, m) for z in range(most + 1, 9 * most))
    assert beyond_the_walk / total < Decimal(2) ** -41

    distance = sum(abs(law[z] - weights[z] / total) for z in law)
    assert distance < Decimal(2) ** -80
    assert set(range(-most + t, most - t)) <= set(law), "no value is left out"


@pytest.mark.parametrize(
    # t, c and m: the variance of the normal noise is c t / m.
    "parameters",
    [(2**20, 2**19, 1), (2**20, 2**14, 1), (2**17, 2**19, 1), (2**10, 2**14, 2**10)],
)
def test_large_noise_is_accepted_as_often_as_it_should(parameters):
    """Normal noise is drawn as Laplace noise, which is accepted with some probability. For noise
    too large for a walk through all branches, single values of it are checked: Y = y is accepted
    with exp(-(y - c / m)**2 m / (2 c t)), the formula of cards.md.
    """
    t, c, m = parameters
    source = random.Random(t)
    # Y is a multiple of t and an offset below t: the least, the largest, and random ones.
    for offset in [0, 1, t - 1, *(source.randrange(t) for _ in range(20))]:
        law = noise(*parameters, 3 * t, offset)
        for z, probability in law.items():
            y = abs(z)
            laplace = decay(Fraction(y, t)) * (1 - decay(Fraction(1))) / 2
            acceptance = decay(Fraction((y * m * t - c * t) ** 2, 2 * c * t * m * t * t))
            assert abs(probability - laplace * acceptance) < Decimal(2) ** -100, z


def renyi_moment(law, other_law, alpha):
    """The sum of P**alpha Q**(1 - alpha) over the outputs that both laws P and Q have."""
    moment = Decimal(0)
    for output in law.keys() & other_law.keys():
        moment += law[output] ** alpha * other_law[output] ** (1 - alpha)
    return moment


def law_of(observe, noise_law, shift):
    """The law of what is observed of noise and a shift."""
    law = Counter()
    for z, probability in noise_law.items():
        law[observe(z + shift)] += probability
    return law


@pytest.mark.parametrize("unit", [0, 60])
@pytest.mark.parametrize(
    # t, c and m of the noise, the radius R, and how far the noise is walked.
    "parameters",
    [(1, 1, 2, 1, 40), (2, 7, 6, 2, 70), (8, 8, 1, 6, 240), (3, 11, 2, 5, 160)],
)
@pytest.mark.parametrize(
    "observe",
    [lambda z: z, lambda z: spec.symbol(z, 0, 4), lambda z: spec.symbol(z, 2, 3)],
    ids=["sum", "symbol", "coarse symbol"],
)
def test_neighbours_are_as_close_as_the_card_claims(parameters, unit, observe):
    """The definition of rho-zCDP, checked on the exact law: the Renyi divergence of the reports of
    two neighbours is at most alpha rho, for several alpha and the smallest rho that certification
    accepts for the card. A run of records (unit 60) adds its vector, of length R, or it does not.
    The vector of a whole device (unit 0) may be replaced by its opposite, which is 2 R away.
    """
    t, c, m, radius, most = parameters
    card = sums.Sum(sum_card(1, 2, unit, radius, t=t, c=c, m=m))
    shift = radius if unit else 2 * radius
    rho = smallest(card)
    exact = Fraction(10**6 * m * shift**2, 2 * c * t)
    assert exact <= rho < exact + 1

    # The laws of what is reported of 0 and of the vector's length.
    noise_law = accepted(noise(t, c, m, most))
    without, with_vector = law_of(observe, noise_law, 0), law_of(observe, noise_law, shift)
    rounding = Decimal(10) ** -45
    for alpha in (Decimal("1.01"), Decimal(2), Decimal(8), Decimal(20)):
        divergence = renyi_moment(without, with_vector, alpha).ln() / (alpha - 1)
        assert divergence <= alpha * rho / 10**6 + rounding


def smallest(card):
    """The least that the card keeps, in millionths."""
    low, high = 0, 20_000_000
    while high - low > 1:
        middle = (low + high) // 2
        if card.keeps(middle):
            high = middle
        else:
            low = middle
    return high


@pytest.mark.parametrize("unit", [0, 60])
@pytest.mark.parametrize(("t", "radius"), [(1, 1), (5, 3), (4, 9)])
def test_laplace_noise_keeps_its_epsilon(t, radius, unit):
    """Laplace noise hides which of two values, as far apart as the card allows, was reported. The
    smallest epsilon that its card certifies, in whole millionths, is the largest log-ratio of the
    exact law, rounded up: it neither claims too much privacy nor wastes any.
    """
    law = accepted(noise(t, 0, 0, 40 * t))
    apart = radius if unit else 2 * radius
    ratio = max(law[z] / law[z + apart] for z in law if z + apart in law)
    epsilon = smallest(sums.Sum(sum_card(1, 1, unit, radius, t=t)))
    assert ratio <= (Decimal(epsilon) / 10**6).exp() * (1 + Decimal(10) ** -50)
    assert ratio > (Decimal(epsilon - 1) / 10**6).exp()


def test_a_sum_that_is_rounded_last_would_exceed_the_radius():
    """Why each vector is rounded towards 0 before it is added: half a step in each of four values
    has norm 1. If the sum were rounded instead, such a vector could push all four values, at half
    steps by the others' sum, over the edge, and change it by 2.
    """
    unit, reach = 1 << 13, 1 << 14
    # Rounded last, one more unit changes each of four values by a step, where the others end as here.
    for others in (0, 5 * reach):
        rounded = [(total + reach // 2) // reach for total in (others, others + unit)]
        assert math.hypot(*[rounded[1] - rounded[0]] * 4) == 2

    # Rounded first, its length stays within the radius of 1.
    vector, clipped = spec.unit_vector([unit - 9] * 4, 2, 1, reach)
    assert not clipped
    assert spec.length_of(vector, 2) <= 1


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(200))
def test_units_on_32_bits_stay_within_the_radius(seed, tmp_path):
    """Clipping a vector to its radius uses whole numbers, which a 32-bit chip must not overflow.
    The checks of the device tests run on MicroPython with 32 bits and here; with --exhaustive, on a
    million random vectors and all values of int16.
    """
    program = tmp_path / "program.py"
    step = 1 if seed == 199 else 61  # of all values of int16, or of one in 61
    program.write_text(
        "import test_sums\n"
        f"test_sums.check_units({seed + 9}, 5000)\n"
        f"test_sums.check_int16({step})\n"
    )
    folders = [ROOT / "firmware", ROOT / "tests" / "device", ROOT / "tests", ".frozen"]
    env = {**os.environ, "MICROPYPATH": os.pathsep.join(map(str, folders))}
    subprocess.run(device_command(find_micropython(), program), env=env, cwd=tmp_path, check=True)

    # The same checks on CPython, where integers cannot overflow.
    check_units(seed + 1000, 500)
    check_int16(61 if seed else 1)
