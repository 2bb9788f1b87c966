"""The extreme probabilities of an LHP card are exact on every interpreter."""

from array import array

from streams import Keyed, uniform

from tern.card import T
from tern.lhp import extremes


def check(ends, inside, job):
    """Compare extremes() with integers of any size."""
    m, reported, left, right = job
    products = []
    for i in range(2 * m):
        p = inside[i // 2] * (m - 1) if i // 2 == reported else T - inside[i // 2]
        products.append(p * (left * (32768 - ends[i]) + right * ends[i]))
    limbs = array("I", bytes(24))
    extremes(ends, inside, job, limbs)
    least, most = [limbs[i] << 60 | limbs[i + 1] << 30 | limbs[i + 2] for i in (0, 3)]
    assert (least, most) == (min(products), max(products)), (ends, inside, job)


def test_extremes_are_exact():
    # An LHP card draws symbols whose probabilities lie on lines between two ends. The device needs
    # their extremes to bound its privacy loss, from integers of up to 90 bits, in limbs of 30;
    # check() compares with Python's integers. Here: random ends, and counts at the limits (T is
    # the total count).
    stream = Keyed(b"extremes", b"")
    counts = (1, 2, 32767, 32768, 32769, T // 2, T - 32768, T - 2, T - 1)

    def some():
        return (
            counts[uniform(stream, len(counts))]
            if uniform(stream, 2)
            else 1 + uniform(stream, T - 1)
        )

    for case in range(300):
        m = 2 + case % 15
        ends = array("H", [uniform(stream, 32769) for _ in range(2 * m)])
        ends[case % m] = 32768 * (case & 1)  # an end of the line
        inside = array("I", [some() for _ in range(m)])
        if case % 3 == 0:  # all nearly equal: every limb decides
            near, end = some(), uniform(stream, 32766)
            inside = array("I", [max(1, near - uniform(stream, 2)) for _ in range(m)])
            ends = array("H", [end + uniform(stream, 3) for _ in range(2 * m)])
        check(ends, inside, array("I", (m, uniform(stream, m), some(), some())))


def test_the_largest_products_do_not_overflow():
    for m in (2, 16):
        for high in (T - 1, 1):
            for end in (0, 32768):
                job = array("I", (m, m - 1, T - 1, T - 1))
                check(array("H", [end] * (2 * m)), array("I", [high] * m), job)
