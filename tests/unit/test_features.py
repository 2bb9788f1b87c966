"""Windows and their features against NumPy in float64; their scale, and the command that computes
it.
"""

from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tern.features import Window
from ternhost.errors import USAGE
from terntools.boards import scale

ONE = 16384
int16 = st.integers(-32768, 32767)


def windows_of(samples):
    """Windows of every length, each equally likely."""
    return st.integers(2, 256).flatmap(lambda n: st.lists(samples, min_size=n, max_size=n))


def features(samples, **options):
    """The features of n x axes samples by a Window: scaled, with the constant; and before scaling."""
    window = Window(len(samples), axes=len(samples[0]), **options)
    out = array("h", bytes(2 * window.d))
    for sample in samples:
        full = window.push(*map(int, sample))
    assert full
    window.features(out)
    return np.array(out), np.array(window.raw)


def reference(samples, length=False):
    """The features of n x axes samples in float64, without rounding.

    Of each channel: the mean, the deviation, the mean step, and how often it crosses its mean.
    """
    channels = np.asarray(samples, np.float64).T
    if length:
        channels = np.vstack([channels, np.linalg.norm(channels, axis=0) / 2])
    values = []
    for channel in channels:
        is_above = channel > channel.mean()
        crossings = np.count_nonzero(is_above[1:] != is_above[:-1])
        mean_step = np.abs(np.diff(channel)).mean()
        values += [channel.mean(), channel.std(), mean_step, crossings]
    return np.array(values)


@given(windows_of(st.tuples(int16, int16, int16)))
@settings(max_examples=60, deadline=None)
def test_the_channel_of_the_length_holds_half_the_vector_s_length(samples):
    """A window of samples of three axes has, with `length`, a fourth channel: half of the length of
    the vector of a sample, which does not depend on how a sensor is turned. Its features differ
    from those in float64 by rounding alone.
    """
    _, raw = features(samples, length=True)
    errors = reference(samples, length=True) - raw
    mean, deviation, mean_step, _ = errors[-4:]  # of the last channel

    # Each component loses at most 1/2, the root at most 1: less than 1 + sqrt(3) / 2 = 1.87 in a
    # length, of either sign, and another 1 where a feature is rounded down.
    assert -1.87 < mean < 1.87 + 1
    assert abs(deviation) < 1.87 + 1
    assert abs(mean_step) < 2 * 1.87


@given(
    windows_of(st.sampled_from((-32768, 32767, 0, -1))),
    st.integers(-32768, 32766),
    st.integers(1, 65535),
)
@settings(max_examples=100, deadline=None)
def test_scaled_features_are_rounded_down_and_clipped(samples, low, width):
    high = low + width
    out, raw = features([(v,) for v in samples], scale=((low, high),) * 4)
    exact = (2 * np.clip(raw, low, high).astype(np.float64) - low - high) / (high - low) * ONE
    assert out[0] == ONE
    assert (out[1:] == np.floor(exact + 1e-9)).all()
    assert (np.abs(out) <= ONE).all()


def recordings():
    rows = np.random.default_rng(1).normal(0, 0.3, (3, 1300, 3))
    return "\n".join(
        "".join("{:.4f},{:.4f},{:.4f}\n".format(*row) for row in part) for part in rows
    )


def test_a_scale_is_computed_from_recordings(tmp_path, tern):
    """A feature's scale is the range that devices map to -1 .. 1. The command computes one for each
    feature from recordings of a sensor: here, of three axes with normal noise of deviation 0.3.
    """
    path = tmp_path / "public.csv"
    path.write_text("x,y,z\n" + recordings())
    # 8192 steps of a sensor for 1, and a fourth channel for the length of the vector.
    words = ["data", "scale", str(path), "--times", "8192", "--json", "--length"]

    found = tern(*words).json["scale"]

    assert len(found) == 4 * 4, "four features of three axes and the length"
    of_mean, of_deviation, *_ = found  # of x, whose mean is 0 and whose deviation is 0.3
    standard_error = 0.3 * 8192 / 128**0.5  # of the mean of a window of 128 samples
    low, high = of_mean
    assert -4 * standard_error < low < -standard_error
    assert standard_error < high < 4 * standard_error
    least, most = of_deviation
    assert least < 0.3 * 8192 < most


def test_a_scale_is_the_same_from_a_table_with_decimal_commas(tmp_path, tern):
    points = tmp_path / "points.csv"
    points.write_text("x,y,z\n" + recordings())
    commas = tmp_path / "commas.csv"
    commas.write_text(points.read_text().replace(",", ";").replace(".", ","))
    scales = []
    for path in (points, commas):
        scales.append(tern("data", "scale", str(path), "--times", "8192", "--json").json["scale"])
    assert scales[0] == scales[1]


@pytest.mark.parametrize("cell", ["nan", "1e9", "word", "9" * 5000])
def test_a_recording_with_a_wrong_sample_is_refused_with_its_line(tmp_path, tern, cell):
    path = tmp_path / "public.csv"
    path.write_text("x,y\n0.1,0.2\n\n0.1,0.2\n0.3," + cell + "\n")
    assert "public.csv, line 5, column y" in tern("data", "scale", str(path), code=USAGE).err


def test_recordings_are_divided_by_blank_lines(tmp_path):
    path = tmp_path / "public.csv"
    path.write_text("x,y\n\n1,2\n3,4\n\n\n5,6\n\n")
    assert list(scale.read(path)) == [[(1, 2), (3, 4)], [(5, 6)]]
