"""What a picture of a card's outputs must show so that something can be seen on its axes."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_RARE = 1e-3  # the most that an input reports beyond each end of the x axis
_HIDDEN = 50.0  # so many times smaller than the highest, a probability cannot be seen


def shown(values: Floats, probabilities: Floats) -> npt.NDArray[np.bool_]:
    """Return which outputs a picture shows, as a mask: all but the rare ones at both ends.

    Some mechanisms have thousands of outputs of which nearly all are hardly ever reported. An output
    is left out if, for each input, it and those beyond it are reported with a probability of at most
    one in a thousand together.

    values: of the outputs. probabilities: inputs x outputs.
    """
    order = np.argsort(values)
    in_order = probabilities[:, order]
    up_to = np.cumsum(in_order, axis=1)
    from_here = np.cumsum(in_order[:, ::-1], axis=1)[:, ::-1]
    rare_at_left = (up_to <= _RARE).all(axis=0)
    rare_at_right = (from_here <= _RARE).all(axis=0)
    mask = np.empty(len(values), np.bool_)
    mask[order] = ~(rare_at_left | rare_at_right)
    return mask


def needs_logarithm(probabilities: Floats) -> bool:
    """Return whether most probabilities would be invisible on a linear axis, beside the highest."""
    positive = probabilities[probabilities > 0]
    return bool(np.median(positive) < probabilities.max() / _HIDDEN)
