"""What both learners of one answer of each device have in common."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tern.wire import VALUES
from ternhost.count.rounds import CohortCounts
from ternhost.datasets import Indices
from ternhost.learn.collecting import estimate
from ternhost.learn.collecting.estimate import Estimate
from ternhost.learn.models import public
from ternhost.learn.models.learning import Learning
from ternhost.learn.one_answer.direct_options import Options
from ternhost.learn.one_answer.observations import Observation
from ternhost.privacy import projection


class DirectLearning(Learning):
    """The base of learners that ask each device once, in a few rounds.

    A subclass counts the rounds in `_round`.
    """

    name = "direct"
    Options: ClassVar[Any] = Options

    _round: int  # how many have ended

    def _public_rows(self) -> public.PublicRows:
        """Return features of records that everybody may know, to stand for those of the devices.

        They are the rows that the user names, else those that the data set declares to be public,
        unless the devices are to report their features instead. The result also says which records
        of the data set they are, since no device may hold these.
        """
        text = self.options.public  # a file, a number of records, "none", or "" if not named
        devices_report_features = self.options.moments is not None
        if not text:
            text = "none"
            if not devices_report_features:
                text = public.declared(self.dataset)
        return public.parse(
            text, self.dataset, d=self._feature_count(), seed=self.options.seed, schema=self.schema
        )

    def _group_of_served(self, clients: int) -> Indices:
        """Return which clients of a served fleet the next round asks, as numbers from 0.

        They are drawn at random from those that have not answered. clients: how many these are.
        """
        schedule = self._population.schedule
        assert schedule is not None
        order = np.random.default_rng([self.options.seed, self._round]).permutation(clients)
        # A share of the fleet, not of those that are left.
        group_size = schedule.group(max(clients, self._population.devices))
        return np.sort(order[:group_size])

    @property
    def done(self) -> bool:
        return self.rounds is not None and self._round >= self.rounds

    def optimisation(self) -> dict[str, Any]:
        """Return how the model was updated, for JSON.

        It is the optimiser, its learning rate if there was one, and why the training stopped.
        """
        stopped = None
        if self.done:
            stopped = "rounds"
        return {"stopped": stopped, "optimiser": "direct", "rate": None}


def observation_of(cohorts: Sequence[CohortCounts]) -> tuple[Observation, Estimate]:
    """Turn the answers of all classes of devices to one question into an observation.

    An observation has the mean gradient, and one variance for the noise in all of its values. A
    value that nobody reported counts as 0, which raises that variance. Also returns the estimated
    means with their intervals.

    cohorts: what each class of devices reported. A class has an epsilon, and so a card (a certified
        table of probabilities, from which devices draw what they report), of its own.
    """
    question = cohorts[0].question  # the same for all classes but for the card
    tau = 2.0**-question.range  # devices clipped each value to +-tau
    radius = None  # they did not clip whole gradients
    has_projections = cohorts[0].vectors is not None
    if has_projections:  # each report is a direction for a whole gradient, clipped to a radius
        radius = projection.real_radius(projection.of(cohorts[0].card), question.range)
        means = estimate.mean_of_projections(*cohorts)
    else:
        counts = [(cohort.card, cohort.counts) for cohort in cohorts]
        means = estimate.combine(counts, bound=True, tau=tau)

    weights = np.zeros(len(means.mean))  # at which the gradients were taken
    if question.model != VALUES:  # otherwise features were asked for, which have no weights
        weights = np.array(question.parameters, np.float64) * 2.0**question.exponent
    errors = means.standard_error
    variance = float(np.square(errors).mean())
    if not math.isfinite(variance):  # nobody reported some of the coordinates: their error is nan
        is_reported = np.isfinite(errors)
        mean_square = float(np.square(errors[is_reported]).mean())
        variance = mean_square * len(is_reported) / max(1, is_reported.sum())
    observation = Observation(
        weights=weights,
        gradient=np.nan_to_num(means.mean),
        variance=variance,
        radius=radius,
        tau=tau,
    )
    return observation, means
