"""Shen et al., PLDP-FL: Federated Learning with Personalized Local Differential Privacy.

Entropy 2023, 25, 485. Fig. 1 is a drawing, Table 1 is the notation, and Table 2 compares what
methods offer: these have nothing to compute. The other figures are in `ternpapers.pldp`.
"""

from ternpapers.figure import Figure
from ternpapers.pldp import means, models

FIGURES: dict[str, Figure] = {"2": means.FIGURE, **models.FIGURES}
