"""Integer features of windows agree with numbers of any width, are computed in time, and do not use
the heap.
"""

import sys
import time
from array import array

from checks import raises, taken_by, without_heap
from streams import Words

from tern.features import Window, sums

ONE = 16384


def exact_root(n):
    x = n
    while x * x > n:
        x = (x + n // x) >> 1
    return x


def expected(v):
    """Mean, deviation, jerk and crossings of a list of samples, in integers of any width."""
    n = len(v)
    total = sum(v)
    variance = (n * sum(x * x for x in v) - total * total) // (n * n)
    jerk = sum(abs(v[i] - v[i - 1]) for i in range(1, n)) // (n - 1)
    crossings = sum((n * v[i] > total) != (n * v[i - 1] > total) for i in range(1, n))
    return [total // n, exact_root(variance), jerk, crossings]


def scaled(raw, scale):
    out = []
    for v, (low, high) in zip(raw, scale):
        out.append((2 * max(low, min(high, v)) - low - high) * ONE // (high - low))
    return out


def signal(words, n, kind):
    """Samples of one axis: a constant, noise of several sizes, the ends of int16 in turn, steps, an
    end of int16.
    """
    if kind == 0:
        level = words.between(-32768, 32767)
        return [level] * n
    if kind < 4:
        size = (3, 1000, 32767)[kind - 1]
        return [words.between(-size - 1, size) for _ in range(n)]
    if kind == 4:
        return [(-32768, 32767)[i & 1] for i in range(n)]
    if kind == 5:
        return [-32768 if i < n // 2 else 32767 for i in range(n)]
    if kind == 6:
        return [32767 if i else -32768 for i in range(n)]
    return [(-32768, 32767)[kind - 7]] * n


KINDS = 9


def fill(window, axes, first=0):
    """Push the samples of lists from `first` on; only the last push, which fills the window, may
    return True.
    """
    n = len(axes[0])
    for i in range(first, n):
        assert window.push(*[axis[i] for axis in axes]) == (i == n - 1)


def test_features_are_exact():
    words = Words(1)
    for n in (2, 3, 100, 256):
        for turn in range(KINDS):
            axes = [signal(words, n, (turn + j) % KINDS) for j in range(3)]
            window = Window(n, length=True)
            out = array("h", bytes(2 * window.d))
            fill(window, axes)
            window.features(out)
            lengths = [exact_root(sum((v >> 1) ** 2 for v in sample)) for sample in zip(*axes)]
            raw = []
            for channel in axes + [lengths]:
                raw += expected(channel)
            assert list(window.raw) == raw, (n, turn, list(window.raw), raw)
            axis = [(-8192, 8192), (0, 2048), (0, 1024), (0, max(1, n // 3))]
            length = [(2048, 6144), (0, 1024), (0, 512), (0, max(1, n // 3))]
            assert list(out) == scaled(raw, axis * 3 + length) + [ONE]
            assert all(-ONE <= v <= ONE for v in out)


def test_the_largest_sums_stay_in_bounds():
    """The bounds in the docstring of sums() hold: 32 bits do not wrap, and small ints suffice."""
    out = array("i", bytes(16))
    n = 256
    for low in (-32768, -1, 0, 32766):
        for high in (-32768, 32767):
            for share in (0, 1, n // 2, n - 1):
                v = [high if i < share else low for i in range(n)]
                ring = array("H", (x + 32768 for x in v))
                for mean in (0, sum(v) // n):
                    total = sums(mean + 32768, out, n - 1, ring, 3, n, 0)
                    assert total == sum(v) - n * mean
                    squares = sum((x - mean) ** 2 for x in v)
                    assert (
                        (out[0] << 8) + out[1] == squares
                        and out[0] <= 1 << 30
                        and 0 <= out[1] < 1 << 16
                    )
                    turned = v[3:] + v[:3]
                    assert (
                        out[2] == sum(abs(turned[i] - turned[i - 1]) for i in range(1, n)) < 1 << 24
                    )
                    above = [x > mean for x in turned]
                    assert out[3] == sum(above[i] != above[i - 1] for i in range(1, n))
                assert out[0] < (1 << 30) - (1 << 14)  # a small int


def test_each_window_begins_a_hop_after_the_one_before():
    words = Words(2)
    for n, hop in ((4, 1), (8, 4), (8, 8), (100, 37), (256, 128)):
        samples = [signal(words, n + 9 * hop, 3) for _ in range(2)]
        window = Window(n, hop, axes=2)
        out = array("h", bytes(2 * window.d))
        begun = 0
        for i in range(n + 9 * hop):
            if window.push(samples[0][i], samples[1][i]):
                assert i == begun + n - 1
                window.features(out)
                assert not window.full()
                one, other = [expected(axis[begun : begun + n]) for axis in samples]
                assert list(window.raw) == one + other
                begun += hop
        assert begun == 10 * hop and not window.lost


def test_a_full_window_waits_while_samples_come():
    """An interrupt goes on sampling: a hop of samples fits into the window, and the others are
    counted as lost.
    """
    n, hop = 20, 10
    window = Window(n, hop, axes=1)
    out = array("h", bytes(2 * window.d))
    v = [i * i for i in range(1000)]
    at = 0
    while not window.lost:
        full = window.push(v[at])
        assert full == (at >= n - 1)
        at += 1
    kept = at - 1
    assert kept >= n + hop
    begun = 0
    while window.full():
        window.features(out)
        assert list(window.raw) == expected(v[begun : begun + n])
        begun += hop
    assert begun > 0 and begun + n > kept
    assert window.lost == 1


def test_each_feature_has_its_own_scale():
    scale = ((0, 4095), (0, 500), (10, 11), (-5, 65530))
    words = Words(3)
    for top in (4000, 20, 0):
        window = Window(16, axes=1, scale=scale)
        assert window.d == 5
        v = [words.between(0, top) for _ in range(16)]
        out = array("h", bytes(2 * 7))
        fill(window, [v])
        window.features(out, 1)
        assert list(out) == [0] + scaled(expected(v), scale) + [ONE, 0]
    for low, high, raw in ((-32768, 32767, -32768), (-32768, 32767, 32767), (0, 1, 0), (0, 1, 1)):
        window = Window(2, axes=1, scale=((low, high),) * 4)
        out = array("h", bytes(2 * 5))
        fill(window, [[raw, raw]])
        window.features(out)
        assert out[0] == (-ONE if raw == low else ONE)


def test_bad_arguments_are_refused():
    for arguments in ((1,), (257,), (128, 0), (128, 129), (128, 64, 0), (128, 64, 4)):
        raises(ValueError, Window, *arguments)
    good = ((0, 1),) * 12
    Window(128, scale=good)
    Window(128, scale=((-1, 65534),) * 12)
    wrong = [((low, high),) + good[1:] for low, high in ((0, 65536), (1, 1), (1, 0))]
    for scale in [good[:11], good + ((0, 1),)] + wrong:
        raises(ValueError, Window, 128, 64, 3, False, scale)
    raises(ValueError, Window, 128, 64, 3, True, good)
    window = Window(4)
    out = array("h", bytes(2 * 13))
    raises(ValueError, window.features, out)
    for _ in range(4):
        window.push(1, 2, 3)
    assert raises(IndexError, window.features, out[:12])
    assert raises(IndexError, window.features, out, 1)
    window.features(out)


def filled(n=128, **options):
    words = Words(5)
    window = Window(n, **options)
    fill(window, [[words.between(-20000, 20000) for _ in range(n)] for _ in range(3)])
    return window, array("h", bytes(2 * window.d))


def test_no_call_allocates():
    window, out = filled(256, length=True)
    window.lost = 1 << 29

    def calls():
        window.features(out)
        for _ in range(1000):
            window.push(-32768, -32768, -32768)
        window.features(out)

    without_heap(calls)


def test_twelve_features_take_at_most_four_milliseconds_of_a_pico():
    """Measured for 3 x 128 samples, with at most 64 bytes of heap; an emulated Pico takes the same
    time in each run.
    """
    if sys.platform != "rp2":
        return
    window, out = filled()
    allocated = taken_by(lambda: window.features(out))
    start = time.ticks_us()
    window.features(out)
    taken = time.ticks_diff(time.ticks_us(), start)
    print("features of 3 x 128 samples:", taken, "us,", allocated, "bytes")
    assert taken <= 4000 and allocated <= 64
