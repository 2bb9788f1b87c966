"""The model from one answer of each device, in a few rounds instead of a hundred.

The mean gradient of the logistic loss at the model 0 tells the direction of the optimum, up to the
second moment of the features, which public rows without labels bring (Wang, Zhang, Gaboardi and Xu,
ALT 2021). Later rounds ask the devices that have not answered at the model so far, if that is told
clearly (`observations`). A device reports about its whole gradient at once (`projections`) or about
one coordinate of it, whichever promises the smaller error.

Without public rows, a share of the devices tell the direction of their features, and nothing of the
label. Made-up rows of that mean direction stand for the population.

The model is as good as the rows. Where the answers are so clear that this shows, the second half of
the devices go on by descent, which needs no rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tern.wire import LOGISTIC, VALUES
from ternhost.count import estimate
from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts, RoundResult
from ternhost.datasets import Dataset
from ternhost.errors import UsageError
from ternhost.learn import projections, public
from ternhost.learn.base import Cohort, Devices, Population, take
from ternhost.learn.designs import Mechanised, ReportDesign, by_class, class_of
from ternhost.learn.fedsgd import FedSGD, taus_of
from ternhost.learn.learning import Learning, LearningOptions, to_learn
from ternhost.learn.observations import DIRECTION, Observation, Observations, made_up
from ternhost.learn.parameters import Floats, quantise, reading_state
from ternhost.options import names_of, require
from ternhost.privacy import certify, projection
from ternhost.privacy.base import MICRO
from ternhost.text import clipped, counted

_REPORTS = 20_000
_MOMENTS = 0.15
_ROUNDS, _WITHOUT = 2, 6  # with public rows, and without
_NARROWEST = 4  # range of a coordinate
_MISFIT = 3.0  # beyond this, public rows are of another population
_THEN = "auto", FedSGD.name, "none"
# Where descent is better: `Observations.limited`, and `certain` if the rows do not suit.
_LIMITED, _CLEAR = 30.0, 40.0


@dataclass(frozen=True)
class Options(LearningOptions):
    """Options of learning from one answer of each device."""

    reports: int | None = to_learn(
        None,
        "number of reports, each of another device",
        metavar="R",
        shown=f"one per device, else {_REPORTS}",
    )
    public: str = to_learn("", public.HELP, metavar=public.METAVAR, shown="those of the data set")
    moments: float | None = to_learn(
        None,
        "share of the devices that tell of their features instead of their gradients, in place of public rows",
        metavar="SHARE",
        shown=f"{_MOMENTS} without public rows",
    )
    then: str = to_learn(
        "auto",
        "the second half of the devices go on by descent; auto: where that is expected to be better",
        choices=_THEN,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.reports is None or self.reports >= 1, "reports", "1 or more", self.reports)
        require(0 <= (self.moments or 0) < 1, "moments", "0 or more and below 1", self.moments)
        require(self.then in _THEN, "then", f"one of {', '.join(_THEN)}", self.then)
        if self.moments is not None and self.public not in ("", "none"):
            raise UsageError(
                "--moments takes the place of public rows", "leave out --public, or --moments"
            )


class Direct(Learning):
    """Each device answers once: in a run the rounds ask equal parts of them, in a served fleet
    those that have not answered.
    """

    name = "direct"
    Options: ClassVar[Any] = Options
    once = True

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        super().__init__(options, population, data)
        if self.model != "logistic":
            hint = "name --algorithm fedsgd, or --model logistic"
            raise UsageError(f"one answer of each device learns no {self.model} model", hint)
        declared = len(self.dataset.public) if self.dataset and options.moments is None else 0
        text = options.public or (str(declared) if declared else "none")
        self._public = public.named(text, self.dataset, self.d, options.seed)
        self._seen = self._observations(None)
        self._model = self._seen.weights
        self._features: Observation | None = None  # the mean direction of the features
        self._descent: FedSGD | None = None
        there = population.clients or population.devices
        self._schedule = population.schedule
        expected = options.reports or there or _REPORTS
        self._second_half = slice(expected // 2, expected)  # of the clients
        if self._schedule:
            self.rounds, self.reports, self.clients = self._schedule.rounds, None, None
            if options.then == FedSGD.name:
                text = "devices that are served answer whenever they are awake: no half of them is left"
                raise UsageError(text, "serve --algorithm fedsgd, or leave out --then")
        else:
            hint = f"ask for at most --reports {there}, or for more of each with --algorithm fedsgd"
            why = ", each of which answers once"
            population.require_enough(options.reports, there or expected, why, hint)
            if options.then == FedSGD.name and expected < 2:
                raise UsageError("one device has no second half to descend", "leave out --then")
            self.reports = self.clients = expected
            self.rounds = min(_ROUNDS if self._share == 0 else _WITHOUT, expected)
        self._designed(expected)
        self.modules = ("collect",) * bool(self._share) + ("projection",) * (self._range is None)
        self.holdings = self._records(leave_out=self._public.reserved)
        self._round = 0

    @property
    def _share(self) -> float:
        """Of the devices, to tell of their features."""
        if self._public.rows is not None:
            return 0.0
        return _MOMENTS if self.options.moments is None else float(self.options.moments)

    def _observations(self, features: Observation | None) -> Observations:
        if self._public.rows is not None:
            return Observations(LOGISTIC, self._public.rows)
        direction = None
        if features is not None:
            # By James and Stein: noise in all directions would look like features that vary
            # together.
            direction = features.gradient.copy()
            noise, length = (self.d - 2) * features.variance, float(direction[1:] @ direction[1:])
            direction[1:] *= max(0.0, 1 - noise / max(length, noise))
        return Observations(LOGISTIC, made_up(self.d, direction), invented=True)

    def _designed(self, reports: int) -> None:
        """Choose what a report is about: the whole gradient, or a coordinate of it on the range
        `_range`.
        """
        classes = self.options.classes()
        self._whole = [projections.designed(epsilon, self.d, share) for epsilon, share in classes]
        self.designs = self._whole
        self._range: int | None = None
        if self._public.rows is None:  # nothing is known of how large values are
            return
        one, nothing = Mechanised(), np.zeros(self.d)
        k = one.k_of(classes, self.d, of_gradients=True)
        single = [
            one.design(epsilon, k, share=share, of_gradients=True) for epsilon, share in classes
        ]
        noise = _together(self._whole, [design.variance for design in self._whole]) * DIRECTION**2
        least = self._seen.promise(Observation(nothing, nothing, noise / reports, DIRECTION))
        for r in range(1, _NARROWEST + 1):
            values = np.clip(self._public.rows / 2 * 2.0**r, -1, 1)
            seconds = [certify.moments(design.card).mean_second_moment(values) for design in single]
            noise = _together(single, seconds) * 4.0**-r * self.d / k
            promise = self._seen.promise(
                Observation(nothing, nothing, noise / reports, tau=2.0**-r)
            )
            if promise < least:
                least, self._range, self.designs = promise, r, single

    @property
    def done(self) -> bool:
        if self._descent:
            return self._descent.done
        return self.rounds is not None and self._round >= self.rounds

    @property
    def weights(self) -> Floats:
        if self._descent:
            return self._descent.weights
        return quantise(self._model).values  # as devices get it

    # Descent

    @property
    def _helps(self) -> bool:
        """Whether descent is expected to make more of the second half of the devices."""
        seen = self._seen
        if self.options.then != "auto" or self.last is None:
            return bool(self.options.then == FedSGD.name)
        return seen.limited >= _LIMITED if seen.suited else seen.certain >= _CLEAR

    def _descend(self) -> FedSGD:
        """Let the second half of the devices go on from the model so far."""
        same = {name: getattr(self.options, name) for name in names_of(LearningOptions)}
        # Its reports cost no more than an answer. Each class has more decimals, as equal texts
        # would name one twice.
        costs = (
            f"{each.cost / MICRO:.{6 + i}f}:{each.share}" for i, each in enumerate(self.designs)
        )
        same["epsilons"] = ",".join(costs)
        options = FedSGD.Options(**same, reports=self._second_half.stop - self._second_half.start)
        population = replace(self._population, clients=options.reports)
        descent = self._descent = FedSGD(options, population, self.dataset)
        descent.begin_at(self._model)
        self.rounds = self._round + (descent.rounds or 0)
        return descent

    def chosen(self) -> dict[str, float]:
        return self._descent.chosen() if self._descent and self._descent.last else {}

    # Rounds

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        if self._descent:
            return self._descent.cohorts(devices[self._second_half])
        asked, seed = take(devices, self._asked(len(devices))), self.options.seed
        tells = class_of(asked, [1 - self._share, self._share], seed + 1)
        return [
            (question(design), members)
            for part, designs, question in (
                (asked[tells == 0], self.designs, self.a_question),
                (asked[tells == 1], self._whole, self._of_features),
            )
            if len(part)
            for _, design, members in by_class(designs, part, seed)
        ]

    def _asked(self, clients: int) -> Devices:
        """The clients (from 0) of the next round."""
        if self._schedule:
            order = np.random.default_rng([self.options.seed, self._round]).permutation(clients)
            return np.sort(order[: self._schedule.group(max(clients, self._population.devices))])
        assert self.rounds is not None
        assert self.reports is not None
        return np.arange(*(self.reports * (self._round + i) // self.rounds for i in range(2)))

    def a_question(self, design: ReportDesign) -> Question:
        at, radius = self._seen.question()
        range_ = self._range
        parameters = quantise(at)
        if range_ is None:
            design, range_ = projections.asked(design, self.d, radius)
        parts = LOGISTIC, parameters.mantissas, parameters.exponent, design.card.data, design.k
        return Question(*parts, self.options.batch, range=range_)

    def _of_features(self, design: ReportDesign) -> Question:
        design, range_ = projections.asked(design, self.d, 1.0)  # |x| is at least 1
        return Question(VALUES, [1] * self.d, 0, design.card.data, 1, range=range_)

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Take the answers of this round, and fit the model to all of them; or make a step of
        descent.
        """
        if self._descent:
            self._descent.learn(result, devices[self._second_half])
            return
        self._round += 1
        cohorts = [cohort for cohort in result.cohorts if cohort.reports]
        if features := [cohort for cohort in cohorts if cohort.question.model == VALUES]:
            told, _ = _observed(features)
            both = self._features = (self._features and self._features.joined(told)) or told
            state, self._seen = self._seen.state(), self._observations(both)
            self._seen.restore(state)
        if gradients := [cohort for cohort in cohorts if cohort.question.model == LOGISTIC]:
            told, means = _observed(gradients)
            self.last = {"round": result.number, **means.summary()}
            self._seen.add(told)
        if cohorts and self.last:
            self._seen.fit()
            self._model = self._seen.lengthened()
        asked = self.reports and self.rounds and self.reports * self._round // self.rounds
        if asked and asked == self._second_half.start and self._helps:
            self._descend()

    def state(self) -> dict[str, Any]:
        features = self._features and [self._features.gradient.tolist(), self._features.variance]
        state = {
            "round": self._round,
            "last": self.last,
            "features": features,
            "seen": self._seen.state(),
        }
        return {**state, "descent": self._descent and self._descent.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        with reading_state("one answer of each device"):
            self._round, self.last = int(state["round"]), state["last"]
            if state["features"]:
                direction, variance = (
                    np.array(state["features"][0], float),
                    float(state["features"][1]),
                )
                self._features = Observation(np.zeros(self.d), direction, variance, 1.0)
                self._seen = self._observations(self._features)
            self._seen.restore(state["seen"])
            self._model = self._seen.lengthened()
            if state["descent"]:
                self._descend().restore(state["descent"])

    def how(self) -> dict[str, Any]:
        if self._descent:
            how = self._descent.how()
            return {**how, "optimiser": f"direct, then {how['optimiser']}"}
        return {
            "stopped": "rounds" if self.done else None,
            "optimiser": "direct",
            "learning_rate": None,
        }

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        seen, descent = self._seen, self._descent
        rows = {"from": self._public.name, "suited": seen.suited, "misfit": seen.misfit}
        more = {
            "public_rows": rows,
            "weights_error": seen.deviations().tolist(),
            "taus": {},
            "then": None,
        }
        if descent:  # the errors were of the model before it
            more |= {"weights_error": None, "taus": taus_of(history[self._round :])}
            more["then"] = {"algorithm": descent.name, "rounds": len(history) - self._round}
            more["last_gradient"] = descent.last
        return {**super().result(history), **more}

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        rows = result["public_rows"]
        odd = f" (misfit {rows['misfit']:.1f}, where 1 is right)" * (rows["misfit"] > _MISFIT)
        if not rows["from"] and result["options"].get("moments") == 0:
            words = "without public rows: the features are taken for uncorrelated, with a mean of 0"
        elif not rows["from"]:
            words = "without public rows: devices told the mean direction of their features"
        elif rows["suited"]:
            words = f"the second moment of the features is that of {rows['from']}{odd}"
        elif odd:
            words = f"{rows['from']} are of another population than the devices' records{odd}: "
            words += "the model goes without them"
        else:
            words = f"{rows['from']} tell no more than uncorrelated features: the model goes without them"
        lines = [*super().summary(result), words]
        if then := result["then"]:
            rounds = counted(then["rounds"], "round")
            words = f"the second half of the devices went on by descent, in {rounds}"
            lines.append(f"{words}: {clipped(result['taus'])}")
        return lines


def _together(designs: Sequence[ReportDesign], variances: Sequence[float]) -> float:
    """The variance of a value by the reports of all classes together, as of one report."""
    pairs = zip(designs, variances, strict=True)
    return 1 / sum(design.share / variance for design, variance in pairs)


def _observed(cohorts: Sequence[CohortCounts]) -> tuple[Observation, estimate.Estimate]:
    """The mean vector of the reports to one question."""
    question, card = cohorts[0].question, cohorts[0].card  # the same for all but their epsilon
    radius, tau = None, 2.0**-question.range
    if cohorts[0].vectors is None:
        means = estimate.combine(
            [(each.card, each.counts) for each in cohorts], bound=True, tau=tau
        )
    else:
        radius = projection.real_radius(projection.of(card), question.range)
        means = estimate.mean_of_projections(*cohorts)
    at = (
        np.array(question.parameters, np.float64)
        * 2.0**question.exponent
        * (question.model == LOGISTIC)
    )
    variance = float(np.square(means.standard_error).mean())
    if not math.isfinite(variance):  # a coordinate that nobody reported
        known = np.isfinite(means.standard_error)
        variance = (
            float(np.square(means.standard_error[known]).mean()) * len(known) / max(1, known.sum())
        )
    return Observation(at, np.nan_to_num(means.mean), variance, radius, tau), means
