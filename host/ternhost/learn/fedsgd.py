"""LDP-FedSGD (Zhao et al., IEEE IoT J. 8, 2021, Algorithm 1): each group of devices makes one step
of the model.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tern.wire import MAX_RANGE
from ternhost.count import estimate
from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts, RoundResult
from ternhost.datasets import Dataset, Holdings
from ternhost.errors import UsageError
from ternhost.learn import projections, ranges, training
from ternhost.learn.base import Cohort, Devices, Population, most_turns, take
from ternhost.learn.designs import Mechanised, ReportDesign, by_class, pools_of
from ternhost.learn.learning import Learning, LearningOptions, to_learn
from ternhost.learn.optimisers import OPTIMISERS
from ternhost.learn.parameters import MODELS, Floats, reading_state
from ternhost.learn.ranges import Ranges
from ternhost.learn.training import Trainer
from ternhost.options import require
from ternhost.privacy import mechanisms, projection
from ternhost.text import clipped

_REPORTS = 20_000
_GROUP = 500
_ROUNDS = 100  # of a run with more reports than that many groups


@dataclass(frozen=True)
class GroupOptions(LearningOptions):
    """Options of algorithms that ask one group of devices after the other for a gradient."""

    reports: int | None = to_learn(
        None,
        "number of reports; with fewer devices than that, each reports in several rounds, and spends as much in "
        "each",
        metavar="R",
        shown=f"one per device, at most {_REPORTS}",
    )
    group: int = to_learn(
        0,
        "number of devices asked in each round",
        metavar="G",
        shown=f"{_GROUP}, or a hundredth of the reports if that is more, but never more than there are",
    )
    rounds: int | None = to_learn(
        None,
        "number of rounds; without --reports, each of them asks all devices of the fleet",
        shown="the reports over the group; fedavg: 20",
        instead_of=("group",),
        metavar="N",
    )
    learning_rate: float | None = to_learn(
        None, "learning rate of the optimiser", metavar="X", shown="follows from the noise"
    )
    regularisation: float = to_learn(1e-4, "add X times the weights to the gradient", metavar="X")
    optimiser: str = to_learn("averaging", "what updates the model", choices=lambda: OPTIMISERS)
    range: str = to_learn(
        "auto",
        f"clip values to +-2**-R, R from 0 to {MAX_RANGE}; auto chooses R for each round from earlier reports",
        metavar="auto|R",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.reports is None or self.reports >= 1, "reports", "1 or more", self.reports)
        most = self.reports or 10**9
        require(0 <= self.group <= most, "group", f"1 to {most}, all the reports", self.group)
        require(
            0 < (self.rounds or 1) <= most, "rounds", f"1 to {most}, all the reports", self.rounds
        )
        ranges.named(self.range)

    def planned(self, devices: int) -> Self:
        """The same with the numbers of a run that ends by itself. devices: that there are; 0: as
        many as it needs.
        """
        reports = self.reports or (self.rounds or 0) * devices or min(_REPORTS, devices or _REPORTS)
        if self.rounds:
            group = -(-reports // self.rounds)
        else:
            group = self.group or max(_GROUP, -(-reports // _ROUNDS))
        group = min(group, reports, devices or reports)
        return replace(self, reports=reports, group=group, rounds=-(-reports // group))


@dataclass(frozen=True)
class Options(Mechanised, GroupOptions):
    """Options of FedSGD."""


class FedSGD(Learning):
    """Every client takes part once, or, where there are more reports than clients, in turns."""

    name = "fedsgd"
    Options: ClassVar[Any] = Options
    draws_groups = True

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        super().__init__(options, population, data)
        self.designs = self.designed()
        self.modules = ("softmax",) if self.classes > 1 else ()
        schedule = population.schedule
        there = population.clients or population.devices
        if schedule:
            self.rounds, self.reports, self.clients = schedule.rounds, None, None
            self._group: int = schedule.group(there)  # of a full round
            self.times = most_turns(max(1, there), self._group, schedule.rounds or 1)
        else:
            hint = f"ask for at most --group {there}"
            population.require_enough(
                options.group, there or options.group, " to ask in a round", hint
            )
            self.options = options = options.planned(there)
            self.rounds, self.reports, self._group = options.rounds, options.reports, options.group
            self.clients = min(options.reports, there or options.reports)
            self.times = -(-options.reports // self.clients)
        self.holdings = self._hold()
        variance = 1 / sum(
            design.share / design.variance for design in self.designs
        )  # of their combination
        rounds = schedule.planned if schedule else self.rounds or 1
        model, fixed, k = MODELS[self.model], ranges.named(options.range), self.designs[0].k
        if self.designs[0].mechanism == projections.NAME:  # each report is about all coordinates
            k = self.d
        values = (self.reports or rounds * self._group) * k
        noise = {"values_reported": values, "variance": variance}
        self._ranges = Ranges(model, self.d, self.classes, rounds=rounds, fixed=fixed, **noise)
        run: dict[str, Any] = {
            "rounds": self.rounds,
            "horizon": rounds,
            "gives_up": schedule is None,
        }
        run |= {
            name: getattr(options, name)
            for name in ("learning_rate", "regularisation", "optimiser")
        }
        run |= {"group": self._group, "k": k, "variance": variance, "classes": self.classes}
        self._trainer = Trainer(training.plan(model, self.d, **run))
        self._tau = 2.0**-self._ranges.exponent  # of the last round
        self._scouts = [scout(design) if fixed is None else design for design in self.designs]

    def begin_at(self, weights: Floats) -> None:
        """Begin at these weights (d) instead of 0."""
        at = weights.tolist()
        optimiser = self._trainer.optimiser
        optimiser.restore({**optimiser.state(), "weights": at, "average": at})

    def designed(self) -> list[ReportDesign]:
        """The design of each class's reports."""
        classes = self.options.classes()
        self.options.require_one_epsilon(len(classes))
        if self.options.mechanism == projections.NAME and self.options.card is None:
            if self.options.k or self.options.levels or self.options.mechanism_options:
                text = "a projection is about all coordinates, on a radius that is learned"
                raise UsageError(text, "leave out --k, --levels and the mechanism's options")
            return [projections.designed(epsilon, self.d, share) for epsilon, share in classes]
        k = self.options.k_of(classes, self.d, of_gradients=True)
        return [
            self.options.design(epsilon, k, share=share, of_gradients=True)
            for epsilon, share in classes
        ]

    def _hold(self) -> Holdings | None:
        holdings = self._records()
        # The clients that there are report as often as it takes.
        if holdings is not None and self._population.clients is None:
            there = len(holdings.order)
            hint = f"ask for at most --reports {there}"
            self._population.require_enough(
                self.clients, there, ", each of which reports once", hint
            )
        return holdings

    def _asked(self, clients: int, number: int) -> Devices:
        """The clients (from 0) of a round (from 0)."""
        if schedule := self._population.schedule:
            return self._turn(clients, schedule.group(clients), number)
        start = number * self._group
        end = min(start + self._group, self.options.reports)
        if self.times > 1:
            return self._turn(clients, self._group, number)[: end - start]
        return np.arange(start, end)

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        asked = take(devices, self._asked(len(devices), self._trainer.round))
        scouts = self._trainer.round % ranges.SCOUTED == 0
        return [
            (self.a_question(self._scouts[i] if scouts else design), members)
            for i, design, members in by_class(self.designs, asked, self.options.seed)
        ]

    def pools(self, devices: Sequence[int] | Devices) -> list[Devices] | None:
        asked = take(devices, self._asked(len(devices), self._trainer.round))
        everybody = take(devices, np.arange(min(self.clients or len(devices), len(devices))))
        return pools_of(self.designs, asked, everybody, self.options.seed)

    def a_question(self, design: ReportDesign) -> Question:
        asked, range_ = self._trainer.question(), self._ranges.exponent
        if design.mechanism == projections.NAME:
            design, range_ = projections.asked(design, self.d, self._radius)
        parts = (
            self._trainer.plan.model,
            asked.mantissas,
            asked.exponent,
            design.card.data,
            design.k,
        )
        return Question(*parts, self.options.batch, classes=self.classes, range=range_)

    @property
    def _radius(self) -> float:
        """Of the next round's projections: a fixed range names it, else it follows from the size of
        coordinates.
        """
        if ranges.named(self.options.range) is not None:
            return float(2.0**-self._ranges.exponent)
        return projections.radius(self._ranges.mean_size, self.d)

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Step along the mean gradient, the classes combined by inverse variance."""
        if not result.reports:
            self._trainer.fail()
            return
        first = result.cohorts[0]  # the same for all
        tau = self._tau = 2.0**-first.question.range
        if first.vectors is None:
            mean, reports = self.estimate_of(result.number, result.cohorts, tau)
            kept = self._ranges.kept(tau)
            self._ranges.learn(self._trainer.weights, mean, reports, result.cohorts)
            mean[0] -= self._ranges.skew(self._trainer.weights, tau)
        else:
            means = estimate.mean_of_projections(*result.cohorts)
            self.last = {"round": result.number, **means.summary()}
            mean, reports, kept = means.mean, means.reports.astype(np.float64), 1.0
            tau = self._tau = projection.real_radius(
                projection.of(first.card), first.question.range
            )
        self._trainer.update(self.direction(mean), reports, tau, kept)

    def direction(self, mean: Floats) -> Floats:
        """The direction that the model moves against: the mean gradient; another algorithm may
        change it.
        """
        return mean

    def estimate_of(
        self, number: int, cohorts: Sequence[CohortCounts], tau: float
    ) -> tuple[Floats, Floats]:
        """The mean gradient, and how many reports each coordinate of it rests on."""
        parts = [(cohort.card, cohort.counts) for cohort in cohorts]
        means = estimate.combine(parts, bound=True, tau=tau)  # few reports a coordinate
        self.last = {"round": number, **means.summary()}
        return means.mean, means.reports.astype(np.float64)

    def chosen(self) -> dict[str, float]:
        return {"tau": self._tau, "rate": self._trainer.rate}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "range": {**self._ranges.state(), "tau": self._tau}}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._ranges.restore(state["range"])
        with reading_state("the range"):
            self._tau = float(state["range"]["tau"])

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {**super().result(history), "tau": self._tau, "taus": taus_of(history)}

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        lines = super().summary(result)
        if result["taus"]:
            how = (
                "tau, chosen by --range auto"
                if result["options"]["range"] == "auto"
                else "tau, by --range"
            )
            sign = "a length of " if result["mechanism"] == projections.NAME else "+-"
            lines.append(f"{clipped(result['taus'], sign)} ({how})")
        return lines


def taus_of(history: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The number of rounds of each tau."""
    return dict(Counter(f"{entry['tau']:g}" for entry in history))


def scout(design: ReportDesign) -> ReportDesign:
    """A report of the same cost that tells the size of values, too; the same one where it does, or
    where none can.
    """
    if design.mechanism == "lhp":
        return design
    if design.mechanism != projections.NAME and estimate.magnitude(design.card.data) is not None:
        return design
    card = mechanisms.design("rr3", epsilon_micro=design.card.epsilon).decode()
    return (
        design
        if estimate.magnitude(card.data) is None
        else replace(design, card=card, mechanism="rr3")
    )
