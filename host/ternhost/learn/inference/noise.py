"""Options of the reports of protected inference, and of their noise."""

from dataclasses import dataclass
from functools import partial

from tern.fixed import MAX_EPSILON
from ternhost.errors import UsageError
from ternhost.learn.designs import BudgetOptions, DeviceClass, in_privacy
from ternhost.options import option
from ternhost.privacy.base import MICRO, parse_epsilon

LABEL = "label"
VECTOR = "vector"

to_classify = partial(option, group="what to classify")
_MOST = MAX_EPSILON // MICRO  # the epsilon of a report
_MOST_SIMULATED = 10**9 * MICRO  # micro-epsilon, where no device reports
_NOTHING = 200  # the epsilon above which tern says that noise protects nothing


def weakness(epsilon: float) -> str:
    """Say, for people, what is wrong with noise at an epsilon that no board accepts."""
    if epsilon > _NOTHING:
        return f"protects nothing: an epsilon of {epsilon:,.10g}"
    return (
        f"is for simulations only: an epsilon of {epsilon:,.10g}, "
        f"and no board reports above {_MOST}"
    )


@dataclass(frozen=True)
class NoiseOptions(BudgetOptions):
    """Options of a report of protected inference."""

    answer: str = to_classify(
        VECTOR,
        "what a client reports: its class, or all class probabilities",
        choices=(LABEL, VECTOR),
    )
    no_noise: bool = in_privacy(
        False,
        "results without noise; on simulated fleets only",
        shown="",
        instead_of=("epsilon", "epsilons"),
    )

    def check(self) -> None:
        """Raise UsageError if an option says how much noise there is, and another that there is none."""
        names_noise = self.epsilons is not None or self.epsilon != type(self).epsilon
        if self.no_noise and names_noise:
            raise UsageError(
                "--no-noise and --epsilon exclude each other", hint="leave one of them out"
            )

    def classes(self) -> list[DeviceClass]:
        """Return the classes of clients (those with the same epsilon).

        There are none if no device reports, as results have less noise than any device adds. Raises
        UsageError for an epsilon that makes no sense.
        """
        if self.no_noise or self.unprotected is not None:
            return []
        return super().classes()

    @property
    def unprotected(self) -> float | None:
        """The epsilon of a report if it is too large for any device, else None.

        Then a simulation of vectors adds the noise in floats. Raises UsageError for a text that is
        no epsilon.
        """
        if self.answer != VECTOR or self.no_noise or self.epsilons is not None:
            return None
        epsilon = parse_epsilon(self.epsilon, _MOST_SIMULATED)
        if epsilon <= MAX_EPSILON:
            return None
        return epsilon / MICRO

    def require_noise(self) -> None:
        """Raise UsageError if results have less noise than any device adds, or none."""
        if self.no_noise:
            text = "no device sends a result without noise: what it sends is protected"
            raise UsageError(text, "compare with the score without noise, or use a simulated fleet")
        if self.unprotected is not None:
            text = f"no device reports at an epsilon of {self.unprotected:,.10g}, above {_MOST}"
            raise UsageError(
                text, "vectors of a simulated fleet show what it does: --fleet simulated:1000"
            )
