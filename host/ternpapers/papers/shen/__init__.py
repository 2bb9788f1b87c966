"""Shen et al., PLDP-FL: Federated Learning with Personalized Local Differential Privacy.

Entropy 2023, 25, 485. Fig. 1 is a drawing, Table 1 is the notation, and Table 2 compares what
methods offer: these have nothing to compute. `means` has the errors of means, `averaging` the
training of models, and `models` the figures about them.
"""

from ternpapers.figure import Figure
from ternpapers.papers.shen import means, models

FIGURES: dict[str, Figure] = {"2": means.FIGURE, **models.FIGURES}
