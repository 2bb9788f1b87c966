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
    root = n
    while root * root > n:
        root = (root + n // root) >> 1
    return root


def expected(samples):
    """Mean, deviation, jerk and crossings of the samples, in integers of any width."""
    n = len(samples)
    total = sum(samples)
    squares = sum(sample * sample for sample in samples)
    variance = (n * squares - total * total) // (n * n)
    jerk = crossings = 0
    for before, after in zip(samples, samples[1:]):
        jerk += abs(after - before)
        crossings += (n * before > total) != (n * after > total)
    return [total // n, exact_root(variance), jerk // (n - 1), crossings]


def scaled(raw, scale):
    """The features as the device scales them: -1 at the lower end, 1 at the upper one."""
    features = []
    for value, (low, high) in zip(raw, scale):
        held = max(low, min(high, value))
        features.append((2 * held - low - high) * ONE // (high - low))
    return features


def signals(words, n):
    """Samples of an axis: a constant, noise of several sizes, steps, and the ends of int16."""
    level = words.between(-32768, 32767)
    noises = []
    for size in (3, 1000, 32767):
        noises.append([words.between(-size - 1, size) for _ in range(n)])
    return noises + [
        [level] * n,
        [(-32768, 32767)[i & 1] for i in range(n)],
        [-32768] * (n // 2) + [32767] * (n - n // 2),
        [-32768] + [32767] * (n - 1),
        [-32768] * n,
        [32767] * n,
    ]


def fill(window, axes):
    """Push these samples; only the last push, which fills the window, may return True."""
    n = len(axes[0])
    for i in range(n):
        assert window.push(*[axis[i] for axis in axes]) == (i == n - 1)


def test_features_are_exact():
    # A Window takes n samples of three axes of a sensor (and their length) and gives four features
    # of each: mean, deviation, jerk and crossings of the mean. They equal a reference in exact
    # integers, before and after each is scaled to -1..1.
    words = Words(1)
    for n in (2, 3, 100, 256):
        kinds = signals(words, n)
        # (low, high) of mean, deviation, jerk and crossings, by default.
        axis_scale = [(-8192, 8192), (0, 2048), (0, 1024), (0, max(1, n // 3))]
        length_scale = [(2048, 6144), (0, 1024), (0, 512), (0, max(1, n // 3))]
        for turn in range(len(kinds)):
            axes = [kinds[(turn + j) % len(kinds)] for j in range(3)]
            window = Window(n, length=True)
            out = array("h", bytes(2 * window.d))
            fill(window, axes)
            window.features(out)
            # The length of a sample is computed from halves, which cannot overflow.
            lengths = []
            for sample in zip(*axes):
                lengths.append(exact_root(sum((value >> 1) ** 2 for value in sample)))
            raw = []
            for channel in axes + [lengths]:
                raw += expected(channel)
            assert list(window.raw) == raw, (n, turn)
            assert list(out) == [ONE] + scaled(raw, axis_scale * 3 + length_scale)


def test_the_largest_sums_stay_in_bounds():
    """The bounds in the docstring of sums() hold: 32 bits do not wrap, and small ints suffice."""
    # `samples` lie in a ring that begins at index 3. out: the squares of the deviations in two
    # parts, the sum of the steps between samples (jerk), and how often the mean is crossed.
    out = array("i", bytes(16))
    n, begin = 256, 3
    for low in (-32768, -1, 0, 32766):
        for high in (-32768, 32767):
            for share in (0, 1, n // 2, n - 1):
                samples = [high] * share + [low] * (n - share)
                ring = array("H", [sample + 32768 for sample in samples])
                turned = samples[begin:] + samples[:begin]
                for mean in (0, sum(samples) // n):
                    total = sums(mean + 32768, out, n - 1, ring, begin, n, 0)
                    assert total == sum(samples) - n * mean
                    squares = sum((sample - mean) ** 2 for sample in samples)
                    assert (out[0] << 8) + out[1] == squares and 0 <= out[1] < 1 << 16
                    jerk = sum(abs(turned[i] - turned[i - 1]) for i in range(1, n))
                    assert out[2] == jerk < 1 << 24
                    above = [sample > mean for sample in turned]
                    assert out[3] == sum(above[i] != above[i - 1] for i in range(1, n))
                assert out[0] < (1 << 30) - (1 << 14)  # a small int


def test_each_window_begins_a_hop_after_the_one_before():
    # A window is n samples of a sensor; the next begins `hop` samples later, so that they overlap
    # if hop < n. Two axes are recorded until ten windows were full.
    words = Words(2)
    for n, hop in ((4, 1), (8, 4), (8, 8), (100, 37), (256, 128)):
        samples = [signals(words, n + 9 * hop)[2] for _ in range(2)]
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
    # (Until the program asks for the features.)
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
    # `scale` gives a (low, high) for each of the four features of an axis, which maps to -1..1;
    # what lies outside is clipped.
    scale = ((0, 4095), (0, 500), (10, 11), (-5, 65530))
    words = Words(3)
    for top in (4000, 20, 0):
        window = Window(16, axes=1, scale=scale)
        assert window.d == 5  # a constant 1 and four features
        v = [words.between(0, top) for _ in range(16)]
        out = array("h", bytes(2 * 7))
        fill(window, [v])
        window.features(out, 2)
        assert list(out) == [ONE, 0] + scaled(expected(v), scale) + [0]

    # Values at the ends of a range, the widest and the narrowest.
    for low, high, raw in ((-32768, 32767, -32768), (-32768, 32767, 32767), (0, 1, 0), (0, 1, 1)):
        window = Window(2, axes=1, scale=((low, high),) * 4)
        out = array("h", bytes(2 * 5))
        fill(window, [[raw, raw]])
        window.features(out)
        assert out[1] == (-ONE if raw == low else ONE)


def test_a_window_of_bad_sizes_is_refused():
    # A window has 2 to 256 samples, begins 1 to n samples after the last, and has 1 to 3 axes of a
    # sensor.
    for arguments in (
        (1,),  # n
        (257,),
        (128, 0),  # n, hop
        (128, 129),
        (128, 64, 0),  # n, hop, axes
        (128, 64, 4),
    ):
        raises(ValueError, Window, *arguments)


def test_a_scale_needs_a_range_of_at_most_16_bits_for_each_feature():
    # A window of three axes has 12 features, or 16 with the length. `scale` gives each a (low,
    # high), with 1 <= high - low < 2**16.
    good = ((0, 1),) * 12
    Window(128, scale=good)
    Window(128, scale=((-1, 65534),) * 12)
    wrong = [((low, high),) + good[1:] for low, high in ((0, 65536), (1, 1), (1, 0))]
    for scale in [good[:11], good + ((0, 1),)] + wrong:
        raises(ValueError, Window, 128, 64, 3, False, scale)
    raises(ValueError, Window, 128, 64, 3, True, good)  # of three axes and the length


def test_features_need_a_full_window_and_room():
    # Three axes have 12 features, and the first element is the constant 1: `out` needs 13.
    window = Window(4)
    out = array("h", bytes(2 * 13))
    raises(ValueError, window.features, out)  # no sample yet
    for _ in range(4):
        window.push(1, 2, 3)
    raises(IndexError, window.features, out[:12])
    raises(IndexError, window.features, out, 2)  # from the third element on
    window.features(out)


def test_two_sensors_share_a_row_and_its_constant():
    """The second sensor writes behind the first, where a row of their features has no gap."""
    motion, warmth = Window(4, axes=2), Window(8, axes=1, scale=((0, 100),) * 4)
    fill(motion, [[100, -100, 300, 5], [7, 8, 9, 10]])
    fill(warmth, [[20, 21, 22, 23, 24, 25, 26, 27]])
    row = array("h", bytes(2 * (motion.d + warmth.d - 1)))
    motion.features(row)
    warmth.features(row, motion.d)
    default = [(-8192, 8192), (0, 2048), (0, 1024), (0, 1)]
    of_motion = scaled(list(motion.raw), default * 2)
    of_warmth = scaled(list(warmth.raw), [(0, 100)] * 4)
    assert list(row) == [ONE] + of_motion + of_warmth


def filled(n=128, **options):
    words = Words(5)
    window = Window(n, **options)
    fill(window, [[words.between(-20000, 20000) for _ in range(n)] for _ in range(3)])
    return window, array("h", bytes(2 * window.d))


def test_no_call_allocates():
    # Samples may come in an interrupt, in which MicroPython cannot allocate memory; nor may
    # counting lost samples.
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
