"""Shen et al., PLDP-FL: Federated Learning with Personalized Local Differential Privacy.

Entropy 2023, 25, 485. Fig. 1 is a drawing, Table 1 is the notation, and Table 2 compares what
methods offer: these have nothing to compute. `means` has Fig. 2, `shares` Fig. 3 and `models`
Figs. 4 to 6. `averaging` trains the models, and `modes` has the modes of epsilon and of the safe
ranges.
"""

from ternpapers.figure import Figure
from ternpapers.papers.shen import means, models, shares

FIGURES: dict[str, Figure] = {"2": means.FIGURE, "3": shares.FIGURE, **models.FIGURES}
