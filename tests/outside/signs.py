"""An algorithm of another package: sign-SGD (Bernstein et al., ICML 2018) with Adam, on the reports
of FedSGD.
"""

from dataclasses import dataclass

import numpy as np

from ternhost.learn.models import fedsgd
from ternhost.learn.models.optimisers import OPTIMISERS
from ternhost.options import option, require


@dataclass(frozen=True)
class Options(fedsgd.Options):
    """Options of FedSGD, and the size below which a mean counts as zero."""

    optimiser: str = option(
        "adam", "what updates the model", group="signs", choices=lambda: OPTIMISERS
    )
    dead_zone: float = option(
        0.0, "up to which size a mean gradient counts as 0", group="signs", metavar="X"
    )

    def check(self):
        require(0 <= self.dead_zone < 1, "dead_zone", "0 or more and below 1", self.dead_zone)


class SignSGD(fedsgd.FedSGD):
    """Moves by the signs of the mean gradient alone."""

    name = "signs"
    Options = Options

    def direction(self, mean):
        return np.where(np.abs(mean) > self.options.dead_zone, np.sign(mean), 0)
