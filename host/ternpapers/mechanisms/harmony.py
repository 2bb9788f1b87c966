"""Harmony for one value (Nguyen et al., arXiv 1606.05053): the distribution of Duchi's mechanism."""

from ternhost.privacy.mechanism import fixed, untried
from ternhost.privacy.mechanisms import duchi

_SAME = "the same distribution as Duchi's mechanism, so its card"
HARMONY = fixed(
    "harmony",
    2,
    duchi.card,
    lambda _: (_SAME,),
    tries=untried,
    about="Duchi's mechanism under the name of Nguyen et al. 2016",
)
