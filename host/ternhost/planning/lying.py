"""What lying devices can do to the first round of a training, beside what noise does."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tern import wire
from ternhost.count.rounds import CohortCounts
from ternhost.learn import liars
from ternhost.learn.models.learning import Learning
from ternhost.learn.one_answer.direct_base import observation_of
from ternhost.planning.simulation import fleet_of, rounds


def first_round(learner: Learning, seed: int, share: Fraction) -> dict[str, Any] | None:
    """Simulate the first round of a training; return how far liars can move its mean gradient.

    The bound is for honest devices whose mean gradient would be estimated as 0. The result has
    - reports: how many devices answered about gradients
    - liars: how many of them lie
    - moved: the l2 norm of the most by which these can move the estimate; None if there is no bound
    - noise: the l2 norm of the estimate's standard errors
    - relative: how often `moved` is that; None if there is no bound
    It is None if the round has no answer about gradients.

    learner: FedSGD or Direct, before its first round. seed: of the devices' random draws. share: of
    the devices that lie.
    """
    result = next(rounds(learner, fleet_of(learner, seed)))
    # Some devices may be asked about their features instead.
    cohorts = [
        cohort
        for cohort in result.cohorts
        if cohort.reports and cohort.question.model != wire.VALUES
    ]
    if not cohorts:
        return None
    observation, _ = observation_of(cohorts)
    values = len(observation.gradient)
    noise = math.sqrt(values * observation.variance)
    moved = _moved(cohorts, values, share)
    reports = sum(cohort.reports for cohort in cohorts)
    is_bounded = math.isfinite(moved)
    return {
        "reports": reports,
        "liars": int(liars.liars_among(reports, share)),
        "moved": moved if is_bounded else None,
        "noise": noise,
        "relative": moved / noise if is_bounded else None,
    }


def _moved(cohorts: Sequence[CohortCounts], values: int, share: Fraction) -> float:
    """Return the l2 norm of the most by which liars can move a mean gradient that is 0.

    cohorts: the answers about gradients. values: of a gradient. share: of the devices that lie.
    """
    nothing = np.zeros(values)
    if cohorts[0].vectors is not None:  # a report is a direction for a whole gradient
        return liars.length_of_projections(cohorts, nothing, share)
    tau = 2.0 ** -cohorts[0].question.range  # devices clipped each value to +-tau
    counts = [(cohort.card, cohort.counts) for cohort in cohorts]
    return liars.length_of_means(counts, nothing, cohorts[0].k, tau=tau, share=share)


def text_lines(first_rounds: Sequence[dict[str, Any]], share: float) -> list[str]:
    """Return lines for people: for each number of devices what liars can do.

    first_rounds: as of `first_round`, each with its number of `devices`. share: that of the liars.
    """
    lines = [f"{100 * share:g} % of the devices lying can move the gradient of the first round by"]
    for row in first_rounds:
        line = f"{row['devices']:>17,}   as far as they like"
        if row.get("relative") is not None:
            line = (
                f"{row['devices']:>17,}   at most {row['relative']:.3g} times its noise "
                f"({row['liars']:,} of {row['reports']:,} that answer)"
            )
        lines.append(line)
    return lines
