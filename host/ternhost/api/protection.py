"""What a run shall protect: the object that is given to a run beside its learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ternhost.options import Number


@dataclass(frozen=True)
class Protection:
    """What a run protects, and how much it may cost in all.

    - unit: what is protected: "device", "record", or a number of consecutive records; None: as the
      learner does by default
    - budget: the lifetime epsilon of what is protected, which all runs together must not exceed;
      None: what this run costs
    - delta: of every (epsilon, delta) of the run; None: 1e-6

    The epsilon of a report, or of the whole run, is an option of the learner.
    """

    unit: str | int | None = None
    budget: Number | None = None
    delta: Number | None = None

    def options(self) -> Mapping[str, Number]:
        """Return the options of a run that this object sets, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}
