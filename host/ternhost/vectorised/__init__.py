"""The vectorised twin of the device library: many clients at once, in NumPy.

It computes their symbols, coordinates and gradients. Every draw belongs to a *lane* with random
bytes of its own, and takes those that the firmware would take, in the same order: on `ReplayLanes`
the results equal those of tern.sampler and tern.coordinates; `RandomLanes` are fresh bytes of a
NumPy generator. The first byte nearly always decides a draw, so whole arrays are looked up and only
the lanes still in doubt go on. All arithmetic that decides a symbol is integer, as on the device.
"""

from ternhost.vectorised import projection, sums
from ternhost.vectorised.lanes import Array, Lanes, RandomLanes, ReplayLanes, choose, random_bits
from ternhost.vectorised.models import (
    ModelParameters,
    bins,
    class_probabilities,
    gradients,
    hashed,
    hashes,
    labels,
    probabilities,
    residuals,
    scores,
    shares,
    sigmoids,
    softmax_gradients,
    train_locally,
)
from ternhost.vectorised.sampling import sample, sample_categories

__all__ = [
    "Array",
    "Lanes",
    "ModelParameters",
    "RandomLanes",
    "ReplayLanes",
    "bins",
    "choose",
    "class_probabilities",
    "gradients",
    "hashed",
    "hashes",
    "labels",
    "probabilities",
    "projection",
    "random_bits",
    "residuals",
    "sample",
    "sample_categories",
    "scores",
    "shares",
    "sigmoids",
    "softmax_gradients",
    "sums",
    "train_locally",
]
