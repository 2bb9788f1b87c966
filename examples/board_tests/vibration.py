"""The program of this project, which runs on the board: it describes how a machine vibrates."""

from array import array

from tern.features import Window

SAMPLES = 32
window = Window(SAMPLES, hop=SAMPLES, axes=1)
row = array("h", bytes(2 * window.d))


def features(samples):
    """Return the features of 32 samples: 1, mean, deviation, jerk and crossings, each from -ONE to ONE."""
    for sample in samples:
        window.push(sample)
    window.features(row)
    return list(row)
