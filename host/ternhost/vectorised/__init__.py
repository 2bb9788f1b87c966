"""The vectorised twin of the device library: symbols, coordinates and gradients of many clients at once, in NumPy.

Every draw belongs to a *lane*, which has random bytes of its own. A function here handles all lanes together and takes
from each lane the bytes that the firmware would take, in the same order: on replayed bytes (`ReplayLanes`) its symbols
are those of tern.sampler, draw for draw, and its coordinates those of tern.coordinates. `RandomLanes` are the fast
path: fresh bytes of a NumPy generator, and the very same code.

It is fast because the first byte of a draw nearly always decides: whole arrays of bytes are looked up, and only the few
lanes that are still in doubt go on. All arithmetic that decides a symbol is integer, as on the device.
"""

from ternhost.vectorised.lanes import Array, Lanes, RandomLanes, ReplayLanes, choose, random_bits
from ternhost.vectorised.models import (
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
    "Array", "Lanes", "RandomLanes", "ReplayLanes", "choose", "class_probabilities", "gradients", "hashed",
    "hashes", "labels", "probabilities", "random_bits", "residuals", "sample", "sample_categories", "scores",
    "shares", "sigmoids", "softmax_gradients", "train_locally",
]  # fmt: skip
