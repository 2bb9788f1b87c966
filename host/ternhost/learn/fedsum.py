"""FedSGD of a few boards with many records each: every round, each board sends one sum of clipped
gradients.

The record, or a run of consecutive records, is the unit of privacy: distributed DP-SGD (Abadi et
al., CCS 2016) with exact discrete Gaussian noise on each board, so that the host needs no trust.
The budget is for life, in rho of zCDP.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tern import card as cards
from tern.ledger import RHO
from tern.wire import MAX_DIMENSION
from ternhost.count.disclosures import ReportCounts
from ternhost.count.estimate import sums_of
from ternhost.count.questions import Question
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Dataset, Holdings
from ternhost.datasets.holdings import deal
from ternhost.errors import UsageError
from ternhost.learn import public
from ternhost.learn.base import Cohort, Devices, Population, take
from ternhost.learn.descent import Public
from ternhost.learn.designs import ReportDesign, in_privacy
from ternhost.learn.learning import Learning, ModelOptions, to_learn
from ternhost.learn.parameters import MODELS, Floats, quantise
from ternhost.learn.refit import learner
from ternhost.options import require
from ternhost.privacy import gaussian_curve, sums
from ternhost.privacy.accounting import Policy, Release
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.units import UNIT_HELP, parse_unit

_STEPS = 128  # grid steps of a radius
_UNIT_SHOWN = "device; with sums, record"  # a run without options protects the device
_LIFE_HELP = (
    "epsilon, at --delta, for life, which the run spends: that a record or run was there; with --unit device, what "
    "all records are"
)


@dataclass(frozen=True)
class UnitOptions:
    """Options of what protects units within devices: their size, and the budget for life."""

    unit: str = in_privacy("record", UNIT_HELP, metavar="UNIT", shown=_UNIT_SHOWN)
    life: str = in_privacy("1", _LIFE_HELP, metavar="E")
    delta: str = in_privacy("1e-6", "delta of --life", metavar="D")
    records: int = to_learn(500, "public number of records of a device, at most", metavar="N")

    def __post_init__(self) -> None:
        unit = parse_unit(self.unit)
        _ = self.budget
        require(1 <= self.records <= 65535, "records", "1 to 65535", self.records)
        require(unit <= self.records, "unit", f"at most --records, {self.records}", unit)

    @property
    def budget(self) -> int:
        """Micro-rho for life. Raises UsageError."""
        epsilon = parse_epsilon(self.life, 1000 * MICRO, "--life") / MICRO
        return sums.rho_of(epsilon, sums.parse_delta(self.delta))


@dataclass(frozen=True)
class Options(UnitOptions, ModelOptions):
    """Options of sums over units."""

    public: str = to_learn(
        "", public.HELP, metavar=public.METAVAR, shown="none; direct: those of the data set"
    )

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        super().__post_init__()


@dataclass(frozen=True)
class SumDesign(ReportDesign):
    """A report of all sums, which costs its card once; `epsilon` is the budget for life in
    micro-rho.
    """

    delta: float = 1e-6

    @property
    def cost(self) -> int:
        """The cost of a report, micro-rho."""
        return int(self.card.epsilon)

    @property
    def policy(self) -> Policy:
        return Policy(self.epsilon, self.epsilon, RHO)

    def report_counts(self, times: int) -> ReportCounts:
        """All reports of a run together, as one that spends the whole budget: their cards differ
        from round to round.
        """
        body = sums.of(self.card)
        normal = gaussian_curve.rho_of_cards(self.epsilon, body)
        return {
            ReportKind(self.epsilon, gaussian=True, alone=True, unit=body.unit, normal=normal): 1
        }

    def release(self, times: int) -> Release:
        return Release("sums over units", self.cost, 1, times, RHO, True, self.epsilon)

    def summary(self, times: int) -> dict[str, Any]:
        each, life = (sums.epsilon_of(rho, self.delta) for rho in (self.cost, self.epsilon))
        levels = {
            "epsilon_per_report": each,
            "epsilon_paid": life,
            "rho_per_report": self.cost / MICRO,
        }
        return {**super().summary(times), "epsilon": life, "delta": self.delta, **levels}


class FedSum(Learning):
    """Every board answers every round; model, radius and rate of a round follow from the reports
    before it.
    """

    name = "fedsum"
    Options: ClassVar[Any] = Options

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        super().__init__(options, population, data)
        if population.schedule is not None:
            hint = "serve the fleet with fedsgd, or train it in runs: tern train --algorithm fedsum"
            raise UsageError("sums over units spend a budget in a planned number of rounds", hint)
        boards = population.clients or population.boards or population.devices
        if self.d > MAX_DIMENSION * 2:
            raise UsageError(
                f"a report of {self.d} sums fits no frame", "use fewer features or classes"
            )
        self.unit = parse_unit(options.unit)
        self.delta = sums.parse_delta(options.delta)
        self._budget: int = options.budget
        self.clients = boards or None
        found = public.named(options.public, self.dataset, self.d // self.classes, options.seed)
        self.reserved = found.reserved  # records of the data set that are no board's
        if self.dataset is not None and population.knows_records:
            self.holdings = self.deal(self.dataset, max(1, boards))
        known = Public(
            model=MODELS[self.model],
            features=self.d // self.classes,
            classes=self.classes,
            boards=max(1, boards),
            records=options.records,
            unit=self.unit or options.records,
            rho=self._budget / MICRO,
        )
        self._learner = learner(known, found.rows)
        self._spent = 0  # micro-rho
        self._plan()
        self.modules = ("softmax", "sums") if self.classes > 1 else ("sums",)

    def deal(self, data: Dataset, boards: int, *, again: bool = False) -> Holdings:
        """All records but the public ones, dealt to boards (`datasets.holdings.deal`)."""
        left = np.setdiff1d(data.training, self.reserved)
        records, options = data.records(np.arange(len(data.labels))), self.options
        return deal(data.name, records, left, boards, options.records, options.seed, again=again)

    def _plan(self) -> None:
        """Plan the next round, whose card costs its share of the budget, rounded down."""
        learner, options = self._learner, self.options
        self.rounds = self.times = learner.rounds
        self.reports = learner.rounds * (self.clients or 0) or None
        cost = int((learner.rho_share + 1e-12) * self._budget)
        if not cost:
            text = f"--life {options.life} is too little for {learner.rounds} rounds"
            raise UsageError(text, "name a larger one")
        radius = learner.radius
        clipped, kept = (round(tally / radius * _STEPS) for tally in learner.tally)
        units = math.ceil(options.records / self.unit) if self.unit else 1
        design = sums.design(
            cost=cost,
            unit=self.unit,
            radius=radius,
            steps=_STEPS,
            clipped=clipped,
            kept=kept,
            units=units,
            values=self.d + 1,
        )
        self._range = design.range
        card = cards.decode(design.card)
        variance, budget = design.sigma**2, self._budget
        self.designs = [SumDesign(card, self.d + 1, variance, "gaussian", budget, delta=self.delta)]

    @property
    def done(self) -> bool:
        return self._learner.done

    @property
    def weights(self) -> Floats:
        return quantise(self._learner.model).values  # as devices get it

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        everybody = np.arange(len(devices))
        return [(self.a_question(self.designs[0]), take(devices, everybody))]

    def a_question(self, design: ReportDesign) -> Question:
        parameters = quantise(self._learner.weights)
        asked = (
            MODELS[self.model],
            parameters.mantissas,
            parameters.exponent,
            design.card.data,
            design.k,
        )
        return Question(*asked, classes=self.classes, range=self._range)

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Take the sums of this round, of the boards that answered."""
        (cohort,) = result.cohorts
        self._spent += int(cohort.card.epsilon)
        body = sums.of(cohort.card)
        step = sums.grid(body, cohort.question.range)
        totals = sums_of(cohort)[0] if cohort.reports else np.zeros(self.d + 1)
        sigma = math.sqrt(sums.variance(body)) * step
        self._learner.take(totals[:-1], float(totals[-1]) * step, sigma, cohort.reports)
        self._plan()

    def chosen(self) -> dict[str, float]:
        return {"radius": self._learner.radius}

    def state(self) -> dict[str, Any]:
        return {"learner": self._learner.state(), "spent": self._spent}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._learner.restore(state["learner"])
        self._spent = int(state["spent"])
        self._plan()

    def how(self) -> dict[str, Any]:
        name = type(self._learner).__name__.lower()
        return {
            "stopped": "rounds" if self.done else None,
            "optimiser": name,
            "learning_rate": None,
        }

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        found = super().result(history)
        return {
            **found,
            "delta": self.delta,
            "rho": self._spent / MICRO,
            "unit": self.unit,
            "taus": {},
        }

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        *lines, _ = super().summary(result)
        values = f"a report has {result['k']} of the {result['d']} sums and a tally"
        return [*lines, f"{values}, with discrete Gaussian noise"]
