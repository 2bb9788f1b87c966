"""LDP-FedSGD: each group of devices makes one step of the model.

Source: Zhao et al., IEEE IoT J. 8, 2021, Algorithm 1.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts, RoundResult
from ternhost.datasets import Dataset
from ternhost.errors import UsageError
from ternhost.learn import liar_results
from ternhost.learn.base import Cohort, Population, require_clients
from ternhost.learn.collecting import estimate
from ternhost.learn.designs import (
    DeviceClass,
    MechanismOptions,
    ReportDesign,
    by_class,
    pools_of,
)
from ternhost.learn.devices import Devices, most_turns, take
from ternhost.learn.models import projections, ranges, training
from ternhost.learn.models.learning import Learning, LearningOptions, to_learn
from ternhost.learn.models.optimisers import OPTIMISERS
from ternhost.learn.models.ranges import Ranges
from ternhost.learn.models.training import RoundReports, StepSettings, Trainer
from ternhost.learn.parameters import MODELS, Floats, reading_state
from ternhost.options import require
from ternhost.privacy import mechanisms, projection
from ternhost.text import clipped

_REPORTS = 20_000
_GROUP = 500
_UNLIMITED = 10**9  # the most devices or rounds where the number of reports is not named
_ROUNDS = 100  # of a run with more reports than that many groups
_ROUNDS_OF_MEANS = 20  # at least, where devices hold several records


@dataclass(frozen=True)
class GroupOptions(LearningOptions):
    """Options of algorithms that ask one group of devices after the other for a gradient."""

    reports: int | None = to_learn(
        None,
        metavar="N",
        shown=f"one per device, at most {_REPORTS}",
    )
    group: int = to_learn(
        0,
        "number of devices that a round asks",
        metavar="N",
        shown=f"{_GROUP}, or a hundredth of the reports; with --records at most a twentieth",
    )
    rounds: int | None = to_learn(
        None,
        shown="reports / group",
        instead_of=("group",),
        metavar="N",
    )
    rate: float | None = to_learn(None, metavar="X", shown="by the noise")
    regularisation: float = to_learn(1e-4, "add X times the weights to the gradient", metavar="X")
    optimiser: str = to_learn("averaging", "what updates the model", choices=lambda: OPTIMISERS)
    clip: str | int = to_learn("auto", metavar="R")
    tolerance: float = to_learn(
        0.0,
        "end after a round that moves no weight by more than X; 0: never",
        metavar="X",
    )

    def check(self) -> None:
        """Raise UsageError for a group or rounds that the number of reports does not allow."""
        require(self.reports is None or self.reports >= 1, "reports", "1 or more", self.reports)
        most = self.reports or _UNLIMITED
        must = f"1 to {most}, all the reports"
        require(0 <= self.group <= most, "group", must, self.group)  # 0: tern chooses
        in_order = not self.rounds or 0 < self.rounds <= most
        require(in_order, "rounds", must, self.rounds)
        require(self.tolerance >= 0, "tolerance", "0 or more", self.tolerance)
        ranges.parse(self.clip)  # raises UsageError for a range that cannot be

    def planned(self, devices: int, most: int = _REPORTS) -> Self:
        """Return these options with the numbers that the user left out: reports, group and rounds.

        Without `reports`, each device reports once, or, if `rounds` is named, in every round.

        devices: how many there are; 0: as many as the run needs. most: how many these are, where
        nothing says how many reports there shall be.
        """
        reports = self.reports
        if reports is None and self.rounds and devices:
            reports = self.rounds * devices
        if reports is None:
            reports = min(_REPORTS, devices or most)

        if self.rounds:
            group = _ceil(reports, self.rounds)
        elif self.group:
            group = self.group
        else:
            group = max(_GROUP, _ceil(reports, _ROUNDS))
            if self.most_records > 1:  # fewer devices tell enough for a step
                group = min(group, _ceil(reports, _ROUNDS_OF_MEANS))
        group = min(group, reports)
        if devices:
            group = min(group, devices)
        return replace(self, reports=reports, group=group, rounds=_ceil(reports, group))


def _ceil(dividend: int, divisor: int) -> int:
    """Return the quotient of two integers, rounded up."""
    return -(-dividend // divisor)


@dataclass(frozen=True)
class Options(MechanismOptions, GroupOptions):
    """Options of FedSGD."""


class FedSGD(Learning):
    """Every client takes part once, or, where there are more reports than clients, in turns."""

    name = "fedsgd"
    about = "many rounds of gradients; for any model"
    example = "--reports 20000 --group 500"
    Options: ClassVar[Any] = Options
    draws_groups = True

    def __init__(
        self,
        options: Any,
        population: Population,
        data: Dataset | None = None,
        classes: Sequence[DeviceClass] | None = None,
    ) -> None:
        """Plan the reports, the rounds, and the steps of the model.

        options: the `Options` of this module, or another algorithm's with the same fields.
        population: the devices that can be asked.
        data: the data set to learn from, instead of the one that the options name.
        classes: groups of devices that each have an epsilon of their own, instead of those that the
            options name.
        Raises UsageError for a plan that cannot be.
        """
        super().__init__(options, population, data)
        self._device_classes: Sequence[DeviceClass]
        if classes is None:
            self._device_classes = options.classes()
        else:
            self._device_classes = classes
        self.designs = self.make_designs()
        if self.classes > 1:
            self.modules = ("softmax",)
        self.holdings = self._training_records()
        self._plan_rounds()
        self._require_records()
        self._plan_training()

    def make_designs(self) -> list[ReportDesign]:
        """Design the report of each class of devices, which share an epsilon.

        A report has either k coordinates of the gradient, each perturbed by a mechanism, or, with
        the mechanism "projection", one symbol about the whole gradient. Raises UsageError for
        options that contradict each other.
        """
        options, classes = self.options, self._device_classes
        options.require_one_epsilon(
            len(classes)
        )  # raises UsageError for one card and many epsilons
        has_projections = options.mechanism == projections.NAME and options.card is None
        if has_projections:
            if options.named_k is not None:
                text = "a projection is about all coordinates"
                raise UsageError(text, "leave out --k")
            return [projections.design(device_class, self.d) for device_class in classes]

        k = options.choose_k(classes, self.d, of_gradients=True)
        designs = []
        for device_class in classes:
            designs.append(options.design(device_class, k, of_gradients=True))
        return designs

    def _plan_rounds(self) -> None:
        """Set how many rounds, clients and reports the run has, and how many clients a round asks.

        These clients are the group of the round. A served fleet follows its schedule instead of
        these options. Raises UsageError if the group of a round is larger than the fleet.
        """
        schedule = self._population.schedule
        available = self._available_clients
        if schedule:
            self.rounds = schedule.rounds
            self.reports = self.clients = None  # they grow as long as the fleet is served
            self._group: int = schedule.group(available)  # devices of a full round
            self.times = most_turns(max(1, available), self._group, schedule.rounds or 1)
            return

        group = self.options.group
        hint = f"use at most --group {available}"
        require_clients(group, available or group, " to ask in a round", hint)
        planned = self.options.planned(available, most=self._clients_to_make(_REPORTS))
        self.options = planned
        self.rounds = planned.rounds
        self.reports = planned.reports
        self._group = planned.group
        # Each client reports once, or several times if there are more reports than clients.
        self.clients = planned.reports
        if available:
            self.clients = min(planned.reports, available)
        self.times = _ceil(planned.reports, self.clients)  # that a client reports, at most

    def _require_records(self) -> None:
        """Raise UsageError if there are too few records for the clients.

        Where a fleet has a number of clients with one record each, some may have the same one.
        """
        super()._require_records()
        makes_clients = self._population.clients is None and not self._has_owners
        if self.holdings is not None and makes_clients:
            with_records = self.holdings.clients
            hint = f"use at most --reports {with_records}"
            require_clients(self.clients, with_records, ", each of which reports once", hint)

    def _plan_training(self) -> None:
        """Choose what follows from the expected noise: the first range, and the learning rate.

        The range says how far devices clip their values. Sets `trainer`, which makes the steps of
        the model.
        """
        self._plan_ranges()
        options = self.options
        settings = StepSettings(
            learning_rate=options.rate,
            regularisation=options.regularisation,
            optimiser=options.optimiser,
            horizon=self._horizon,
            classes=self.classes,
            tolerance=options.tolerance,
        )
        reports = RoundReports(
            devices=self._group, k=self._coordinates, variance=self._variance_of_step
        )
        plan = training.plan(
            model=MODELS[self.model],
            dimension=self.d,
            reports=reports,
            rounds=self.rounds,
            settings=settings,
            gives_up=self._population.schedule is None,
        )
        self.trainer = Trainer(plan)

    def _plan_ranges(self) -> None:
        """Choose the range of the first round, and which designs show how large values are."""
        report_count = self.reports or self._horizon * self._group
        reported = ranges.ReportedValues(
            model=MODELS[self.model],
            values=self.d,
            classes=self.classes,
            rounds=self._horizon,
            reported=report_count * self._coordinates,
            variance=self._variance_of_value,
            records=self.options.records_in_mean,
        )
        fixed_range = ranges.parse(self.options.clip)
        self._ranges = Ranges(reported, fixed_range)
        self._tau = 2.0**-self._ranges.exponent  # values of the last round were clipped to +-tau
        # The designs of rounds that also find out how large values are; it need not be found out if
        # the range is fixed.
        self._designs_showing_sizes = self.designs
        if fixed_range is None:
            self._designs_showing_sizes = [design_showing_sizes(design) for design in self.designs]

    @property
    def _horizon(self) -> int:
        """The number of rounds for which the learning rate is chosen."""
        schedule = self._population.schedule
        if schedule:
            return schedule.planned
        return self.rounds or 1

    @property
    def _coordinates(self) -> int:
        """About how many coordinates a report says something."""
        if self._projects:
            return self.d
        return self.designs[0].k

    @property
    def _variance_of_value(self) -> float:
        """The variance of a reported value whose input is 0, over all classes of devices.

        The estimates of the classes are combined by inverse variance, so that their precisions add up.
        """
        precision = sum(design.share / design.variance for design in self.designs)
        return 1 / precision

    @property
    def _variance_of_step(self) -> float:
        """The variance of a reported value, by which the learning rate is chosen.

        Means of several records are asked at a narrow range, where most values are clipped. Then a
        value is 1 instead of 0, and if few reports are about it, chance makes it differ by as much.
        """
        if self.options.records_in_mean > 1 and not self._projects:
            return self._variance_of_value + 1
        return self._variance_of_value

    def begin_at(self, weights: Floats) -> None:
        """Begin the training at these weights (d) instead of 0."""
        self.trainer.begin_at(weights)

    @property
    def _projects(self) -> bool:
        """Whether a report is about the whole gradient instead of k coordinates of it."""
        return self.designs[0].mechanism == projections.NAME

    # Questions

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        """Return the questions of the next round, each with the devices that it is for.

        The round asks one group of devices. All get the same model, and each class of devices gets
        a card (the table that perturbs values) for its own epsilon. In every tenth round the cards
        also show how large values are.

        devices: all devices of the run.
        """
        group = take(devices, self._group_of(len(devices), self.trainer.round))
        designs = self.designs
        if self.trainer.round % ranges.SHOW_SIZES_EVERY == 0:
            designs = self._designs_showing_sizes
        cohorts: list[Cohort] = []
        for members in by_class(self.designs, group, self.options.seed):
            cohorts.append((self.question_for(designs[members.number]), members.devices))
        return cohorts

    def pools(self, devices: Sequence[int] | Devices) -> list[Devices] | None:
        """Return, for each class that the next round asks, all devices that it could ask.

        A fleet may draw the devices of the round from these itself.

        devices: all devices of the run.
        Returns None if the round asks everybody.
        """
        group = take(devices, self._group_of(len(devices), self.trainer.round))
        client_count = len(devices)
        if self.clients:
            client_count = min(self.clients, client_count)
        everybody = take(devices, np.arange(client_count))
        return pools_of(self.designs, group, everybody, self.options.seed)

    def _group_of(self, clients: int, number: int) -> Devices:
        """Return which clients a round asks, as numbers from 0.

        Clients are asked in order if each reports once, and in shuffled turns if they report
        several times or if the fleet is served. The last round of a run may ask fewer clients than
        the others.

        clients: how many there are.
        number: the number of the round, from 0.
        """
        schedule = self._population.schedule
        if schedule:  # the fleet is served round after round
            return self._turn(clients, schedule.group(clients), number)
        start = number * self._group  # the reports before this round
        end = min(start + self._group, self.options.reports)
        if self.times > 1:
            return self._turn(clients, self._group, number)[: end - start]
        return np.arange(start, end)

    def question_for(self, design: ReportDesign) -> Question:
        """Return the question of the next round to a class: compute the gradient at this model.

        A class has the devices with the same epsilon, and so with the same report design and card
        (the table from which a device draws what it reports).

        design: the design of the reports of this class.
        """
        parameters = self.trainer.question()  # the weights: mantissas * 2**exponent
        range_ = self._ranges.exponent  # devices clip values to +-2**-range_
        # A report about a whole gradient is clipped by its norm instead, on which the card depends.
        if design.mechanism == projections.NAME:
            design, range_ = projections.with_radius(design, self.d, self._radius)
        return self._gradient_question(parameters, design, range_)

    @property
    def _radius(self) -> float:
        """The l2 norm to which devices clip whole gradients in the next round.

        The user may have named it by a fixed range r, for which it is 2**-r; otherwise it follows
        from the mean absolute value of the coordinates so far.
        """
        has_fixed_range = ranges.parse(self.options.clip) is not None
        if has_fixed_range:
            return float(2.0**-self._ranges.exponent)
        return projections.radius(self._ranges.mean_size, self.d)

    # Answers

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Make a step of the model along the mean gradient of the reports of a round.

        The reports also show how large values are, from which the range of the next round follows.
        A round without a report counts as failed.

        devices: not needed, as the counts of the result are complete.
        """
        self._moved_by_liars = None  # unless this round has reports about a gradient
        if not result.reports:
            self.trainer.fail()
            return
        has_projections = result.cohorts[0].vectors is not None
        if has_projections:
            self._learn_from_projections(result)
            return

        self._tau = 2.0 ** -result.cohorts[0].question.range  # the same for all classes
        mean, reports = self.estimate_of(result.number, result.cohorts, self._tau)
        weights = self.trainer.weights
        # What clipping left of the loss's curvature, on which the learning rate depends. It is found
        # before the reports of this round change the estimate.
        curvature_share = self._ranges.unclipped_share(self._tau)
        self._ranges.learn(weights, mean, reports, result.cohorts)
        # The first feature is the constant 1. Clipping biases its gradient by `skew`, where the
        # classes are not equally frequent.
        mean[0] -= self._ranges.skew(weights, self._tau)
        self.trainer.update(
            self.direction(mean), reports, tau=self._tau, curvature_share=curvature_share
        )

    def _learn_from_projections(self, result: RoundResult) -> None:
        """Make a step along the mean gradient of a round whose reports are about whole gradients."""
        first = result.cohorts[0]
        means = estimate.mean_of_projections(*result.cohorts)
        self.last_gradient = {"round": result.number, **means.summary()}
        self._moved_by_liars = liar_results.of_gradient(result.cohorts, means.mean)
        body = projection.of(first.card)
        self._tau = projection.real_radius(body, first.question.range)  # of the clipped gradients
        reports = means.reports.astype(np.float64)
        self.trainer.update(self.direction(means.mean), reports, tau=self._tau)

    def direction(self, mean: Floats) -> Floats:
        """Return the direction (d) that the model moves against: the mean gradient.

        A subclass may override it, for another algorithm.
        """
        return mean

    def estimate_of(
        self, number: int, cohorts: Sequence[CohortCounts], tau: float
    ) -> tuple[Floats, Floats]:
        """Estimate the mean gradient of a round from the reports of all classes of devices.

        number: the number of the round, to be stored in `last_gradient`.
        cohorts: the counts of reported symbols, of each class.
        tau: devices clipped their values to +-tau.
        Returns the mean (d), and the number of reports of each coordinate (d).
        """
        counts = [(cohort.card, cohort.counts) for cohort in cohorts]
        # A coordinate may have few reports, whose sample variance says little: so the bound by the
        # card is used.
        means = estimate.combine(counts, bound=True, tau=tau)
        self.last_gradient = {"round": number, **means.summary()}
        self._moved_by_liars = liar_results.of_gradient(cohorts, means.mean, tau)
        return means.mean, means.reports.astype(np.float64)

    # State and result

    def chosen(self) -> dict[str, float]:
        return {"tau": self._tau, "rate": self.trainer.rate}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "range": {**self._ranges.state(), "tau": self._tau}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises UsageError if it is of another learner."""
        super().restore(state)
        self._ranges.restore(state["range"])
        with reading_state("the range"):
            self._tau = float(state["range"]["tau"])

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {**super().result(history), "tau": self._tau, "taus": rounds_by_tau(history)}

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """Return the result in lines for people.

        The last ones say whether the run stopped early, and how values were clipped. `taus` of the
        result has the bounds of clipping, with the rounds in which each was used.
        """
        lines = super().summary(result)
        options = result["options"]
        if result["stopped"] == training.CLOSE:
            rounds = f"round {result['rounds']:,}"
            if options["rounds"]:
                rounds += f" of {options['rounds']:,}"
            text = f"stopped after {rounds}, which moved no weight of the model by more than "
            lines.append(f"{text}{options['tolerance']:g} (--tolerance)")
        if result["taus"]:
            chosen_by = "tau, by --clip"
            if result["options"]["clip"] == "auto":
                chosen_by = "tau, chosen by --clip auto"
            bound = "+-"  # each value was clipped
            if result["mechanism"] == projections.NAME:  # or the norm of a whole gradient
                bound = "a length of "
            lines.append(f"{clipped(result['taus'], bound)} ({chosen_by})")
        return lines


def rounds_by_tau(history: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many rounds clipped values to each tau, which is the key, as text.

    history: an entry for each round of a run.
    """
    return dict(Counter(f"{entry['tau']:g}" for entry in history))


def design_showing_sizes(design: ReportDesign) -> ReportDesign:
    """Return a report design of the same cost whose reports also show how large values are.

    Some rounds use it, to find out how far values should be clipped. A card (the table that
    perturbs values) of randomised response with three outputs, rr3, shows the mean of |x|. The
    result is the given design if its own card shows that already, or if no card of this cost can.
    """
    if design.mechanism == "lhp":
        return design
    is_projection = design.mechanism == projections.NAME
    if not is_projection and estimate.magnitude(design.card.data) is not None:
        return design
    card = mechanisms.design("rr3", epsilon_micro=design.card.epsilon).decode()
    if estimate.magnitude(card.data) is None:
        return design
    return replace(design, card=card, mechanism="rr3")
