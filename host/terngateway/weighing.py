"""One report of each device, or many rounds: which tells more below the same bound.

The counts of a site hide a report among those of the other devices that got the same question. A
device that reports once may therefore have a far larger epsilon for this report than one that
reports in each of many rounds: what these rounds disclose adds up.

Both plans get the largest epsilon of a report that keeps the bound. They are compared by the squared
error that is expected of the model's scores. One report of each device is about its whole gradient
at the model 0, and public rows turn the mean of these gradients into a model. Many rounds are a
gradient descent. It needs no rows, and goes on to the optimum as long as the noise allows, but is
slow along features that vary together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from terngateway import planning
from terngateway.options import options_of
from terngateway.tables import GatewayTables
from ternhost.count.members import Integers
from ternhost.errors import RefusedError
from ternhost.learn import choice
from ternhost.learn.base import Learner
from ternhost.learn.models.fedsgd import FedSGD
from ternhost.learn.models.learning import Learning, LearningOptions
from ternhost.learn.one_answer.direct import Direct
from ternhost.options import names_of
from ternhost.privacy.base import MICRO
from ternhost.run.options import RunOptions
from ternhost.store.store import Store

ROUNDS = 20  # of the plan with many rounds, in each of which every device reports
# The error of a real descent over the expected one, for which the best learning rate and the best
# range are known beforehand. With this factor the comparison agrees with measured models of three
# data sets, with 300, 1,000 and 3,000 devices at each of three sites.
_OVER_BEST = 1.35
_MADE = ("simulated", "emulated")  # fleets whose devices have every module of the device library

Make = Callable[[RunOptions], Learner]
"""Makes the learner of a run from its options. Raises TernError."""


@dataclass(frozen=True)
class Candidate:
    """A plan of a run with the largest epsilon of a report that keeps the bound.

    options: those of the run. learner: for these options.
    """

    options: RunOptions
    learner: Learner

    @property
    def epsilon(self) -> float:
        """The epsilon of a report."""
        return float(self.options.learning.epsilon)

    @property
    def local_epsilon(self) -> float:
        """The epsilon of all reports of a device together, toward who sees each of them."""
        costs = [design.cost * self.learner.times for design in self.learner.designs]
        return max(costs) / MICRO

    @property
    def words(self) -> str:
        """The plan for people, with its epsilons."""
        if self.learner.times == 1:
            return f"one report of each device at epsilon {self.epsilon:.3g}"
        return (
            f"{self.learner.times} reports at epsilon {self.epsilon:.3g} each, "
            f"{self.local_epsilon:.3g} together"
        )


def may_weigh(options: RunOptions, learner: Learner, store: Store) -> bool:
    """Whether both plans are possible, and the user leaves the choice to tern.

    One report of each device is possible for two classes, if public rows are known or a device holds
    many records, and if no device can lack the module for it. options: of the run, with the learner
    that the core has chosen. store: of the host.
    """
    if not _is_left_to_tern(options) or not isinstance(learner, Learning):
        return False
    if learner.dataset is None or not _all_have_modules(store):
        return False
    return choice.suits_direct(learner.model, learner.dataset, learner.records_per_device)


def _is_left_to_tern(options: RunOptions) -> bool:
    """Whether the user has named neither the algorithm nor how often devices report."""
    is_chosen_by_tern = bool(options.reason)
    is_of_gradients = options.algorithm in (Direct.name, FedSGD.name)
    is_run = options.schedule is None  # and not served
    return options_of(options).chooses_plan and is_chosen_by_tern and is_of_gradients and is_run


def _all_have_modules(store: Store) -> bool:
    """Whether no device behind the gateways can lack a module of the device library."""
    gateways = GatewayTables(store).gateways()
    return all(gateway.here.get("fleet") in _MADE for gateway in gateways)


def better_plan(
    options: RunOptions, make: Make, store: Store, devices: Mapping[str, Integers]
) -> RunOptions:
    """Return the options of the plan that promises the better model, with its reason.

    options: of the run, whose algorithm and epsilon are to be chosen. make: makes a learner. devices:
    by name of the site, the devices that can be asked. Raises RefusedError if neither plan keeps the
    bound.
    """
    shared = {name: getattr(options.learning, name) for name in names_of(LearningOptions)}
    once = Direct.Options(**shared, at_once=True)
    many = FedSGD.Options(**shared, rounds=ROUNDS)
    candidates = []
    refusals = []
    for algorithm, learning in ((Direct.name, once), (FedSGD.name, many)):
        planned = replace(options, algorithm=algorithm, learning=learning)
        try:
            candidates.append(_with_largest_epsilon(planned, make, store, devices))
        except RefusedError as error:
            refusals.append(error)
    if not candidates:
        raise refusals[0]
    if len(candidates) == 1:
        (only,) = candidates
        reason = f"{only.words} (tern train {only.options.algorithm}): no other plan keeps --toward-server"
        return replace(only.options, reason=reason)
    return _better(*candidates)


def _with_largest_epsilon(
    options: RunOptions, make: Make, store: Store, devices: Mapping[str, Integers]
) -> Candidate:
    """Return a plan with the largest epsilon of a report. Raises RefusedError; the rest as above."""
    any_epsilon = make(options)  # its groups and rounds do not depend on the epsilon
    fitted = planning.with_largest_epsilon(options, any_epsilon, store, devices)
    return Candidate(fitted, make(fitted))


def _better(once: Candidate, many: Candidate) -> RunOptions:
    """Return the options of the better one of two plans, with the reason in a sentence.

    once: one report of each device. many: many rounds.
    """
    if not isinstance(once.learner, Direct):  # each device holds many records
        return _chosen(once, many, "one answer tells of many records")
    error_of_once = once.learner.expected_error
    assert error_of_once is not None  # as public rows are known
    error_of_rounds = _error_of_rounds(once.learner, many.learner)
    if error_of_rounds < error_of_once:
        better, other = many, once
    else:
        better, other = once, many
    smaller, larger = sorted([error_of_once, error_of_rounds])
    comparison = f"the expected squared error of a score is {smaller:.2g}, not {larger:.2g}"
    return _chosen(better, other, comparison)


def _error_of_rounds(once: Direct, many: Learner) -> float:
    """Return the expected squared error of the scores of a model that learns in many rounds.

    once: knows the public rows, by which the error is computed. many: the learner in many rounds.
    """
    assert many.reports is not None
    devices_of_round = many.reports // ROUNDS
    return _OVER_BEST * once.error_of_descent(many.designs, ROUNDS, devices_of_round)


def _chosen(better: Candidate, other: Candidate, comparison: str) -> RunOptions:
    """Return the options of the better plan, with the reason. comparison: why it is better."""
    reason = (
        f"{better.words} (tern train {better.options.algorithm}) instead of {other.words} "
        f"(tern train {other.options.algorithm}): {comparison}"
    )
    return replace(better.options, reason=reason)


def all_at_once(options: RunOptions) -> RunOptions:
    """Return the options of a run with all devices in one round, if its algorithm is `direct`.

    So each report is hidden among the most others. A served fleet, and one of which the user wants
    the second half to descend, have rounds of their own.
    """
    learning: Any = options.learning
    if options.algorithm != Direct.name or options.schedule is not None:
        return options
    if learning.then == FedSGD.name:
        return options
    return replace(options, learning=replace(learning, at_once=True))
