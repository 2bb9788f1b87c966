"""Options of reports in protected inference and of their noise, also as MindSpore Federated has
them.

Its guide to the protection of inference results takes 1 for the L1 sensitivity of a vector of
probabilities, and noise of scale 1 / laplace_eval_eps. The sensitivity is 2, so the true epsilon is
twice laplace_eval_eps.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from tern.fixed import MAX_EPSILON
from ternhost.errors import UsageError
from ternhost.learn import designs
from ternhost.learn.clustering import LAPLACE, NOT_ENCRYPT
from ternhost.learn.designs import DeviceClass, epsilons_option, in_privacy
from ternhost.options import OptionGroup, option, require
from ternhost.privacy.base import MICRO, parse_epsilon

LABEL = "label"
VECTOR = "vector"
PROBABILITY = 0.9  # that noise is at most --noise, as in the guide

to_classify = partial(option, group="what to classify")
_NOISES = (NOT_ENCRYPT, LAPLACE)
_MOST = MAX_EPSILON // MICRO  # the true epsilon of a report
_NOTHING = 200  # the true epsilon above which tern says that noise protects nothing


def weakness(true: float) -> str:
    """Say, for people, what is wrong with noise at a true epsilon that no board accepts."""
    if true > _NOTHING:
        return f"protects nothing: a true epsilon of {true:,.10g}"
    return (
        f"is for simulations only: a true epsilon of {true:,.10g}, "
        f"and no board reports above {_MOST}"
    )


@dataclass(frozen=True)
class NoiseOptions(OptionGroup):
    """Options of a report of protected inference.

    The true `epsilon` replaces MindSpore's `laplace_eval_eps`.
    """

    answer: str = to_classify(
        VECTOR,
        "what a client reports: its class by randomised response, or all class probabilities with Laplace noise",
        choices=(LABEL, VECTOR),
    )
    epsilon: str | None = in_privacy(
        None, designs.EPSILON_HELP, metavar="E", shown="2", instead_of=("laplace_eval_eps",)
    )
    epsilons: str | None = epsilons_option("epsilon", "laplace_eval_eps")
    laplace_eval_eps: str = in_privacy(
        "1",
        f"epsilon as MindSpore counts it, half of the true epsilon; above {_MOST // 2} for simulated fleets only, "
        "since no board reports so",
        metavar="X",
    )
    noise: float | None = in_privacy(
        None,
        "noise that a probability gets at most, with --probability P: sets laplace_eval_eps by the formula of "
        "MindSpore's guide",
        metavar="X",
        instead_of=("epsilon", "epsilons", "laplace_eval_eps"),
    )
    probability: float | None = in_privacy(
        None, "with --noise: how often noise is at most that", metavar="P", shown=f"{PROBABILITY}"
    )
    privacy_eval_type: str = in_privacy(
        LAPLACE,
        "noise: LAPLACE, or NOT_ENCRYPT for none, on simulated fleets only",
        choices=_NOISES,
    )

    def check(self) -> None:
        """Raise UsageError for options out of bounds, or that contradict each other."""
        is_known = self.privacy_eval_type in _NOISES
        require(is_known, "privacy_eval_type", " or ".join(_NOISES), self.privacy_eval_type)
        if self.noise is not None:
            require(0 < self.noise < math.inf, "noise", "above 0", self.noise)
        if self.probability is not None:
            in_order = 0 < self.probability < 1
            require(in_order, "probability", "above 0 and below 1", self.probability)
            if self.noise is None:
                text = "--probability is how often noise is at most --noise"
                raise UsageError(text, "give both, or neither")
        if self.answer == LABEL and self.noise is not None:
            text = "--noise is of vectors, and labels are sent by randomised response"
            raise UsageError(text, "name --epsilon, or --answer vector")

        if self.privacy_eval_type == NOT_ENCRYPT:
            self._require_no_amount_of_noise()
        elif self.unprotected is None:
            self.classes()  # raises UsageError for an epsilon that makes no sense

    def _require_no_amount_of_noise(self) -> None:
        """Raise UsageError if an option says how much noise there is."""
        for name in ("epsilon", "epsilons", "noise"):
            if getattr(self, name) is not None:
                text = (
                    f"--{name} says how much noise there is, and {NOT_ENCRYPT} that there is none"
                )
                raise UsageError(text, hint="give one of them")

    def classes(self) -> list[DeviceClass]:
        """Return the classes of clients (those with the same epsilon), with their true epsilons.

        Raises UsageError for an epsilon that makes no sense, or at which no device reports.
        """
        if self.epsilons is not None:
            return DeviceClass.of_epsilons(self.epsilons)
        if self.epsilon is not None:
            return [DeviceClass(parse_epsilon(self.epsilon))]
        true_epsilon = 2 * self.setting  # MindSpore counts half of it
        if true_epsilon > _MOST:
            text = f"no device reports at a true epsilon of {true_epsilon:,.10g}, above {_MOST}"
            raise UsageError(
                text, "vectors of a simulated fleet show what it does: --fleet simulated:1000"
            )
        return [DeviceClass(parse_epsilon(true_epsilon))]

    @property
    def setting(self) -> Decimal:
        """MindSpore's laplace_eval_eps: as named, or the one at which noise is at most `noise`.

        Laplace noise of scale 1 / laplace_eval_eps is at most x with the probability p = 1 - exp(-x
        laplace_eval_eps), so the latter is -log(1 - p) / x. Raises UsageError unless it is above 0.
        """
        if self.noise is not None:
            probability = self.probability or PROBABILITY
            return Decimal(-math.log1p(-probability) / self.noise)
        try:
            setting = Decimal(self.laplace_eval_eps)
            if setting.is_finite() and setting > 0:
                return setting
        except ArithmeticError:  # it is no number
            pass
        raise UsageError(
            f"--laplace-eval-eps {self.laplace_eval_eps} must be a number above 0, half of the true epsilon",
            hint=f"to compare without noise, give --privacy-eval-type {NOT_ENCRYPT}",
        )

    @property
    def unprotected(self) -> float | None:
        """MindSpore's laplace_eval_eps if it is too large for any device, else None.

        MindSpore counts half of the true epsilon. A true epsilon above _MOST has so little noise
        that no device reports with it; then a simulation adds the noise in floats. Raises
        UsageError for a setting that is no number above 0.
        """
        is_noisy_vector = self.answer == VECTOR and self.privacy_eval_type == LAPLACE
        # Only laplace_eval_eps may be as large as that: a user who names a true epsilon means one
        # that devices report with.
        if not is_noisy_vector or self.epsilon is not None or self.epsilons is not None:
            return None
        true_epsilon = 2 * self.setting
        if true_epsilon <= _MOST:
            return None
        return float(self.setting)
