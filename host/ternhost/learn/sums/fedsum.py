"""FedSGD of a few boards with many records each, which send sums of clipped gradients.

The record, or a run of consecutive records, is the unit of privacy: distributed DP-SGD (Abadi et
al., CCS 2016) with exact discrete Gaussian noise on each board, so that the host needs no trust.
Every board answers every round. The budget is for life, in rho of zCDP.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tern import card as cards
from tern.ledger import RHO
from tern.wire import MAX_DIMENSION
from ternhost.count.disclosures import ReportCounts
from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts, RoundResult
from ternhost.datasets import Dataset, Holdings
from ternhost.datasets.holdings import deal
from ternhost.errors import UsageError
from ternhost.learn import liar_results, liars
from ternhost.learn.base import Cohort, Population
from ternhost.learn.collecting.estimate import sums_of
from ternhost.learn.designs import ReportDesign, in_privacy
from ternhost.learn.devices import Devices, take
from ternhost.learn.models import public
from ternhost.learn.models.learning import Learning, ModelOptions, to_learn
from ternhost.learn.parameters import MODELS, Floats, quantise
from ternhost.learn.record_bound import RecordsOptions, records_option
from ternhost.learn.sums.refit import ENOUGH, Refit, descent_for
from ternhost.learn.sums.survey import PublicFacts
from ternhost.options import Number, require
from ternhost.privacy import gaussian_curve, sums
from ternhost.privacy.accounting import Policy, Release
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.units import parse_unit
from ternhost.text import counted

RECORDS = 500  # of a device at most, by default
_STEPS = 128  # grid steps of a radius
# A share of the budget that is added before it is rounded down to whole micro-rho, so that the
# error of a float does not cost one of them.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class UnitOptions(RecordsOptions):
    """Options of what protects units within devices: their size, and the budget for life."""

    usual_records: ClassVar[int] = RECORDS

    # A run without these options protects devices.
    unit: str | int = in_privacy(
        "record", metavar="UNIT", shown="record for noisy sums, else device"
    )
    run_epsilon: Number = in_privacy("1", metavar="E", shown="1, for noisy sums")
    delta: Number = in_privacy("1e-6", metavar="D")  # the run has the same
    records: int | None = records_option(RECORDS)

    def check(self) -> None:
        """Raise UsageError for a unit, budget or number of records that cannot be."""
        unit = parse_unit(self.unit)
        self.budget_in_rho()  # raises UsageError for an epsilon or delta that makes no sense
        if self.records is not None:
            require(unit <= self.records, "unit", f"at most --records, {self.records}", unit)

    def budget_in_rho(self) -> int:
        """Return the budget of the run in micro-rho of zCDP, which is that (epsilon, delta).

        It is 1 or more. Raises UsageError, also if the epsilon is less than one micro-rho, since a
        device can pay for no report then.
        """
        most_epsilon = 1000 * MICRO
        epsilon = parse_epsilon(self.run_epsilon, most_epsilon, "--run-epsilon") / MICRO
        delta = sums.parse_delta(self.delta)
        budget = sums.rho_of(epsilon, delta)
        if not budget:
            least = sums.epsilon_that_pays(1, delta)
            text = f"--run-epsilon {self.run_epsilon} at --delta {self.delta} pays for no report"
            raise UsageError(text, hint=f"name {least} or more")
        return budget

    @property
    def units_per_device(self) -> int:
        """The number of units of a device: runs of consecutive records that are protected together.

        It is 1 if the whole device is protected.
        """
        unit = parse_unit(self.unit)
        if unit == 0:
            return 1
        return math.ceil(self.most_records / unit)


@dataclass(frozen=True)
class Options(UnitOptions, ModelOptions):
    """Options of sums over units."""

    public: str | int | Path = to_learn("", metavar=public.METAVAR, shown="those of the data set")


@dataclass(frozen=True)
class SumDesign(ReportDesign):
    """The design of a report of noisy sums, whose cost does not grow with the number of sums.

    All costs are in millionths of rho, the privacy loss of zCDP. `epsilon` is the budget for life.
    """

    delta: float = 1e-6
    can_grow: bool = False  # whether there may be more rounds than planned

    @property
    def cost(self) -> int:
        """The cost of a report, in micro-rho."""
        return int(self.card.epsilon)

    @property
    def policy(self) -> Policy:
        return Policy(self.epsilon, self.epsilon, RHO)

    def report_counts(self, times: int) -> ReportCounts:
        """Return how many reports of each kind a device makes, from which its privacy loss follows.

        The result always has one report, whatever `times` is. The cards (tables of noise) differ
        from round to round, and together they spend the whole budget for life, `epsilon`; so all
        reports of a device are accounted for as a single one that costs the whole budget.
        """
        body = sums.of(self.card)
        report = ReportKind(
            self.epsilon,  # in millionths of rho, in spite of the name
            gaussian=True,  # so the cost is in rho, the privacy loss of zCDP
            alone=True,  # it is accounted for alone: mixing it with others' hides nothing of it
            unit=body.unit,  # the number of consecutive records that are protected together
            # The noise is discrete. Continuous normal noise of this rho discloses at least as much,
            # so that it can stand for the report where a normal distribution is needed.
            normal=gaussian_curve.rho_of_cards(self.epsilon, body),
        )
        return {report: 1}

    def release(self, times: int) -> Release:
        """Return what a device releases if it reports `times` times, from which users are told.

        It always releases the whole budget for life, since the cards of all rounds together are
        designed to spend it.
        """
        return Release(
            what="sums over units",  # a unit is a run of records that are protected together
            epsilon=self.cost,  # of one report
            values=1,  # a report costs its card once, however many sums it has
            times=times,
            measure=RHO,  # all costs are in millionths of rho, the privacy loss of zCDP
            gaussian=True,
            total=self.epsilon,  # the budget for life
            can_grow=self.can_grow,
        )

    def summary(self, times: int) -> dict[str, Any]:
        """Return the design for JSON, with what it costs.

        The design has costs in millionths of rho, the privacy loss of zCDP. Users think in
        epsilons, so each cost is converted to the epsilon that it is at `delta`.

        times: how often a device reports; it spends its whole budget for life in any case.
        """
        life = sums.epsilon_of(self.epsilon, self.delta)
        return {
            **super().summary(times),
            "epsilon": life,
            "delta": self.delta,
            "epsilon_per_report": sums.epsilon_of(self.cost, self.delta),
            "epsilon_paid": life,
            "rho_per_report": self.cost / MICRO,
        }


class FedSum(Learning):
    """Model, radius and rate of a round follow from the reports before it."""

    name = "fedsum"
    about = "noisy sums; protects records of a device, or runs of them"
    example = "--records 500"
    Options: ClassVar[Any] = Options

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        """Plan the descent of the model, and its first round.

        options: the `Options` of this module.
        population: the boards that can be asked.
        data: the data set to learn from, instead of the one that the options name.
        Raises UsageError if the fleet is served round after round without an end, or if a report
        is too long for a frame.
        """
        super().__init__(options, population, data)
        options = self.options  # with the most records of a device
        if population.schedule is not None:
            hint = "serve the fleet with fedsgd, or train it in runs: tern train fedsum"
            raise UsageError("sums over units spend a budget in a planned number of rounds", hint)
        if self.d > MAX_DIMENSION * 2:
            raise UsageError(
                f"a report of {self.d} sums is too long for a frame",
                "use fewer features or classes",
            )
        self.modules = ("sums",)
        if self.classes > 1:
            self.modules = ("softmax", "sums")

        # What is protected: runs of `unit` consecutive records (0: the device).
        self.unit = parse_unit(options.unit)
        self.delta = sums.parse_delta(options.delta)
        self._budget: int = options.budget_in_rho()
        self._spent = 0  # micro-rho

        # Who reports, and which records each board holds, where tern hands them out.
        self.clients = population.known_clients
        feature_count = self.d // self.classes
        # Those that the data set declares are taken unless the user names others, or none.
        named_rows = str(options.public) or public.declared(
            self.dataset, enough=max(ENOUGH, feature_count)
        )
        self._public = public.parse(
            named_rows,
            self.dataset,
            d=feature_count,
            seed=options.seed,
            schema=self.schema,
        )
        self.reserved = self._public.reserved  # records of the data set that no board gets
        if self.dataset is not None and population.knows_records:
            self.holdings = self._hand_out(self.dataset)
        boards = max(1, self.clients or 0)

        # How the model moves.
        facts = PublicFacts(
            model=MODELS[self.model],
            features=feature_count,
            classes=self.classes,
            boards=boards,
            records=options.most_records,
            unit=self.unit or options.most_records,
            rho=self._budget / MICRO,
        )
        self._descent = descent_for(facts, self._public.rows)
        self._plan_round()

    def _hand_out(self, data: Dataset) -> Holdings:
        """Give the training records to their owners, or else to the boards at random."""
        if data.owners is None:
            return self.deal(data, boards=max(1, self.clients or 0))
        holdings = self._training_records(reserved=self.reserved)
        assert holdings is not None
        self.clients = holdings.clients
        return holdings

    def deal(self, data: Dataset, boards: int, *, again: bool = False) -> Holdings:
        """Deal the training records to the boards at random, all but those that are public.

        boards: how many there are; each gets as many records as a device has at most.
        again: whether several boards may get the same records if there are too few; otherwise that
            raises UsageError.
        """
        positions = data.training_without(self.reserved)
        records = data.all_records
        stock = Holdings(records, positions, self.options.most_records)
        return deal(stock, name=data.name, boards=boards, seed=self.options.seed, again=again)

    def _plan_round(self) -> None:
        """Set the number of rounds, and design the report of the next round.

        A unit is a run of records that are protected together. A report has the sum of the clipped
        gradients of the board's units, and a tally, a counter that shows how many were clipped, all
        with Gaussian noise. It costs the share of the budget that the descent, which plans the
        rounds, gives to this one, rounded down. Raises UsageError if that is nothing.
        """
        descent, options = self._descent, self.options
        self.rounds = self.times = descent.rounds  # every board reports in every round
        self.reports = None  # unknown, unless the number of boards is known
        if self.clients:
            self.reports = descent.rounds * self.clients

        cost = int((descent.rho_share + _ROUNDING) * self._budget)  # micro-rho
        if not cost:
            text = f"--run-epsilon {options.run_epsilon} is too little for {descent.rounds} rounds"
            needed = math.ceil(1 / descent.least_share)  # micro-rho, of which each round gets one
            enough = sums.epsilon_that_pays(needed, self.delta)
            raise UsageError(text, f"name {enough} or more, which is enough for all rounds")
        # What a clipped unit, and what any other, adds to the tally. The descent counts in the units
        # of its radius of clipping, the plan in steps of the noise's grid: _STEPS to a radius.
        clipped_tally, other_tally = descent.tally
        plan = sums.SumPlan(
            cost=cost,
            unit=self.unit,
            radius=descent.radius,
            steps=_STEPS,
            clipped=round(clipped_tally / descent.radius * _STEPS),
            kept=round(other_tally / descent.radius * _STEPS),
            units=options.units_per_device,
            values=self.d + 1,  # and the tally
        )
        made = sums.design(plan)
        self._range = made.range
        report = SumDesign(
            card=cards.decode(made.card),
            k=self.d + 1,
            variance=made.sigma**2,
            mechanism="gaussian",
            epsilon=self._budget,
            delta=self.delta,
            can_grow=descent.can_take_more_rounds,
        )
        self.designs = [report]

    @property
    def done(self) -> bool:
        return self._descent.done

    @property
    def weights(self) -> Floats:
        return quantise(self._descent.model).values  # as devices get it

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        """Return the question of the next round, with the devices that it is for: all of them."""
        everybody = take(devices, np.arange(len(devices)))
        return [(self.question_for(self.designs[0]), everybody)]

    def question_for(self, design: ReportDesign) -> Question:
        """Return the question of the next round: for the sum of the units' gradients at the model.

        A unit is a run of records that are protected together.

        design: the design of the report, with the card (the table from which a device draws the
            noise).
        """
        # Weights are carried as integers: mantissas with an exponent that all of them share.
        parameters = quantise(self._descent.weights)
        return Question(
            model=MODELS[self.model],
            parameters=parameters.mantissas,
            exponent=parameters.exponent,
            card=design.card.data,
            k=design.k,
            classes=self.classes,
            range=self._range,  # r: devices multiply values by 2**r before they round them
        )

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Move the model along the sum of gradients that a round brought, and plan the next round.

        devices: not needed, as the sums are over all boards that answered.
        """
        (cohort,) = result.cohorts  # all boards get the same question
        self._spent += int(cohort.card.epsilon)  # each report costs that many millionths of rho
        totals = np.zeros(self.d + 1)
        self._moved_by_liars = None  # unless this round has reports
        if cohort.reports:
            totals, _ = sums_of(cohort)
            self._moved_by_liars = self._liars_of(cohort, totals[:-1])
        body = sums.of(cohort.card)  # the card is the table of the noise
        grid_step = sums.grid(body, cohort.question.range)  # in real units
        # The tally, which shows how many gradients were clipped, comes last. It is counted in grid
        # steps, and the descent takes real units.
        self._descent.learn(
            total=totals[:-1],
            tally=float(totals[-1]) * grid_step,
            sigma=math.sqrt(sums.variance(body)) * grid_step,
            boards=cohort.reports,
        )
        self._plan_round()

    def _liars_of(self, cohort: CohortCounts, totals: Floats) -> dict[str, Any]:
        """Return how far lies can have moved the mean gradient of a record, for the entry of a round.

        The gradient is the mean sum of a board over the number of records that a board has.

        totals: the sums of the gradients of all boards (d).
        """
        records: int = self.options.most_records
        return liar_results.of_length(
            liars.length_of_sums(cohort) / records,
            estimate=totals / (cohort.reports * records),
            reports=cohort.reports,
        )

    def chosen(self) -> dict[str, float]:
        return {"radius": self._descent.radius}

    def state(self) -> dict[str, Any]:
        return {"learner": self._descent.state(), "spent": self._spent}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._descent.restore(state["learner"])
        self._spent = int(state["spent"])
        self._plan_round()

    def optimisation(self) -> dict[str, Any]:
        """Return how the model was updated, for JSON: the rate differs from round to round."""
        stopped = None
        if self.done:
            stopped = "rounds"
        optimiser = type(self._descent).__name__.lower()  # "descent" or "refit"
        return {"stopped": stopped, "optimiser": optimiser, "rate": None}

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the result of learning, with what was spent of the budget for life, for JSON.

        history: an entry for each round.
        """
        return {
            **super().result(history),
            "public_rows": self._rows_in_result(),
            "delta": self.delta,
            "rho": self._spent / MICRO,  # of one board, in all rounds
            "unit": self.unit,  # records that are protected together; 0: all of a device
            "taus": {},  # values are not clipped one by one, as in other algorithms
        }

    def _rows_in_result(self) -> dict[str, Any]:
        """Return what the public rows were, and whether they suited the records, for JSON.

        "misfit" is about 1 for rows that suit; None if there are no rows, or too few to be used, or
        if the sums are too noisy to tell.
        """
        learner = self._descent
        rows: dict[str, Any] = {"from": self._public.name, "suited": False, "misfit": None}
        if isinstance(learner, Refit) and learner.can_be_checked:
            rows["suited"], rows["misfit"] = learner.rows_suit, learner.misfit
        return rows

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """Return the result in lines for people, with sums instead of coordinates in the last one."""
        lines = super().summary(result)
        sums_in_report = counted(result["k"] - 1, "sum")  # the tally is one of the k values
        lines[-1] = f"a report has {sums_in_report} and a tally, with discrete Gaussian noise"
        rows_line = _rows_line(result["public_rows"])
        if rows_line:
            lines.insert(-1, rows_line)
        return lines


def _rows_line(rows: Mapping[str, Any]) -> str:
    """Return a line for people about the public rows of a result; empty if there were none."""
    name = rows["from"]
    if not name:
        return ""
    if rows["suited"]:
        return f"the model was fitted with {name}"
    if rows["misfit"] is None:
        return (
            f"{name} are too few, or the sums too noisy to check them: the model goes without them"
        )
    return (
        f"{name} are of another population than the devices' records "
        f"(misfit {rows['misfit']:.1f}, where 1 is right): the model goes without them"
    )
