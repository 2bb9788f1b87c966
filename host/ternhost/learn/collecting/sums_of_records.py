"""The base of collecting sums over all records of a device, in a planned number of rounds.

The record, or a run of consecutive records, is the unit of privacy, as in FedSum. Every device
answers every round. A round asks for the sums of a part of what is collected, and for a tally, a
count of the units.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tern import card as cards
from ternhost.count.questions import Question
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Holdings, Table
from ternhost.datasets.holdings import deal
from ternhost.errors import UsageError
from ternhost.learn.base import Cohort, Learner, Population, report_summary
from ternhost.learn.collecting.collect import client_data_for
from ternhost.learn.collecting.estimate import QUANTILE, sums_of
from ternhost.learn.devices import Devices
from ternhost.learn.owners import to_owners
from ternhost.learn.record_bound import bound_note
from ternhost.learn.sums.fedsum import SumDesign
from ternhost.privacy import sums
from ternhost.privacy.base import MICRO
from ternhost.privacy.units import parse_unit
from ternhost.text import counted

MOST_STEPS = 4096  # grid steps of a radius: as many as there may be
LEAST_BITS = 8  # of the symbol of a sum
MOST_SUMS = sums.MOST_BYTES - 1  # of a report, beside the tally, at LEAST_BITS each
_MOST_BITS = 16
_NOISE_REACH = 8  # standard deviations of the noise for which a symbol has room


@dataclass(frozen=True, kw_only=True)
class SumPart:
    """The attributes that one round asks for, and how devices report their sums."""

    columns: tuple[int, ...]  # numbers of the attributes, in the order of the table
    design: SumDesign

    @property
    def name(self) -> str:
        """What the round asks for, in a word or two."""
        raise NotImplementedError

    def question(self, width: int, first: int) -> Question:
        """Return the question that asks devices for the sums of these attributes.

        width: the number of features in a record.
        first: the number of features that come before the attributes; they are never asked for.
        """
        raise NotImplementedError


PartT = TypeVar("PartT", bound=SumPart)  # of the rounds of a subclass


class SumsOfRecords(Learner, Generic[PartT]):
    """Asks every device in each round, for sums of all its records.

    A subclass plans the rounds in its `__init__`, after that of this class, and hands them over to
    `_plan_rounds`.
    """

    command = "collect"
    modules = ("sums",)
    # What a user can do who wanted to serve a fleet.
    instead_of_serving: ClassVar[str]

    def __init__(self, options: Any, population: Population, data: Table | None = None) -> None:
        """Find out what devices hold and what is protected, and give out the records.

        options: those of the subclass, which are `UnitOptions` and `OwnerOptions`.
        population: the devices that can be asked.
        data: what the devices hold, instead of the data set that the options name.
        Raises UsageError if the fleet is served round after round without an end.
        """
        self.options = options
        if population.schedule is not None:
            raise UsageError(
                "sums over units spend a budget in a planned number of rounds",
                self.instead_of_serving,
            )
        self._data = client_data_for(options, population, data)
        self._table = self._data.table
        bounded = options.with_bound(self._table, self._table.training)
        self.notes += bound_note(self._table, bounded.records, named=options.records)
        self.options = options = bounded

        # What is protected: units, which are runs of `unit` consecutive records; 0: all records of a
        # device together. The budget is an epsilon at this delta.
        self.unit = parse_unit(options.unit)
        self.delta = sums.parse_delta(options.delta)
        self._units = options.units_per_device  # how many units a device has
        self._budget: int = options.budget_in_rho()  # for all rounds, in micro-rho of zCDP

        # Who reports, and which records each device holds, where tern hands them out.
        self.clients = population.known_clients  # None: unknown before the run
        self._require_suited()
        if population.knows_records:
            self.holdings = self._hand_out(population)

    def _require_suited(self) -> None:
        """Raise UsageError if the options do not suit the data, before records are given out."""

    def _hand_out(self, population: Population) -> Holdings:
        """Give the records to their owners, or else to the devices at random."""
        table, options = self._table, self.options
        if table.owners is not None:
            owned = to_owners(table, table.training, population.clients, options.records)
            self.notes += owned.notes
            self.clients = owned.holdings.clients
            return owned.holdings
        stock = Holdings(self._data.records, table.training, options.records)
        return deal(stock, name=table.name, boards=self.clients or 1, seed=options.seed)

    def _plan_rounds(self, parts: Sequence[PartT]) -> None:
        """Set how many rounds there are, each of which asks every device for one part."""
        self._parts = list(parts)
        self.rounds = self.times = len(self._parts)  # every device reports in each round
        self.reports = None
        if self.clients is not None:
            self.reports = self.clients * self.rounds
        designs = [part.design for part in self._parts]
        dearest = max(designs, key=lambda design: design.cost)
        self.designs = [dearest]  # it stands for all in what the run needs of boards
        self._answers: list[dict[str, Any]] = []  # one for each round that has ended

    def _sum_design(self, plan: sums.SumPlan, made: sums.SumDesign) -> SumDesign:
        """Return the design of the reports of a round, from the plan of its card and the card."""
        return SumDesign(
            card=cards.decode(made.card),
            k=plan.values,
            variance=made.sigma**2,
            mechanism="gaussian",
            epsilon=self._budget,
            delta=self.delta,
        )

    @property
    def _records_per_unit(self) -> int:
        """The number of records of a unit: of all of the device's, if the device is the unit."""
        return int(self.unit or self.options.records)

    # The rounds

    @property
    def done(self) -> bool:
        return len(self._answers) >= len(self._parts)

    def _question(self, part: PartT) -> Question:
        return part.question(self._data.width, self._data.first)

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        """Ask every device for the sums of the next part."""
        return [(self._question(self._parts[len(self._answers)]), devices)]

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Store the totals of a round over all devices, with their standard errors.

        They are 0 if nobody reported.

        devices: not needed, since totals do not depend on who reported.
        """
        (cohort,) = result.cohorts  # all devices get the same question
        value_count = len(cohort.counts)
        totals, errors = np.zeros(value_count), np.zeros(value_count)
        if cohort.reports:
            totals, errors = sums_of(cohort)
        answer = {"totals": totals.tolist(), "errors": errors.tolist(), "reports": result.reports}
        self._answers.append(answer)

    def state(self) -> dict[str, Any]:
        return {"answers": list(self._answers)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._answers = list(state["answers"])

    # The result

    def _cost_and_parts(self) -> dict[str, Any]:
        """Return what all rounds cost, and of which reports, for the result of a run."""
        part_summaries = []
        for part, answer in zip(self._parts, self._answers, strict=True):
            part_summaries.append(self._part_summary(part, answer["reports"]))
        cost_of_all = sum(part.design.cost for part in self._parts)  # in micro-rho
        return {
            "unit": self.unit,
            "delta": self.delta,
            "rho": cost_of_all / MICRO,
            "parts": part_summaries,
        }

    def _part_summary(self, part: PartT, reports: int) -> dict[str, Any]:
        """Describe a round for JSON: its attributes, its reports, and how many devices reported."""
        attribute_count = len(part.columns)
        return {
            "name": part.name,
            "d": attribute_count,
            **part.design.summary(1),
            "k": attribute_count,
            "reports": reports,
            **report_summary(part.design, self._question(part)),
        }

    def _values(self, column: int) -> npt.NDArray[np.int16] | None:
        """Return the values of all devices in a column; None if the host does not know them."""
        if self.holdings is None:
            return None
        values: npt.NDArray[np.int16] = self.holdings.records[self.holdings.order, column]
        return values


def reports_line(result: Mapping[str, Any]) -> str:
    """Return the line for people about the reports of a run, and about the number of records."""
    reports = f"{counted(result['reports'], 'report')} about {result['records']:,.0f} records"
    half_interval = QUANTILE * result["records_error"]
    return f"{reports} (+-{half_interval:.0f}) in {result['seconds']:.1f} s"


def narrowest_design(plan: sums.SumPlan, largest_sum: int) -> sums.SumDesign | None:
    """Design a card for noisy sums whose symbols have as few bits as possible.

    A card is the table of noise from which devices draw; a symbol is a noisy sum as it is sent.
    Each symbol must have room for the largest sum and for its noise, up to _NOISE_REACH standard
    deviations.

    plan: what the card has to do; its number of bits is not used.
    largest_sum: the largest absolute sum of a device, in grid steps.
    Returns None if no number of bits is enough that lets all sums fit into a report.
    """
    most_bits = min(_MOST_BITS, 8 * sums.MOST_BYTES // plan.values)
    for bits in range(LEAST_BITS, most_bits + 1):
        made = sums.design(replace(plan, bits=bits))
        body = sums.of(cards.decode(made.card))
        noise = math.sqrt(sums.variance(body))
        # A symbol is a signed integer, and stands for 2**coarse grid steps.
        largest_symbol = 2 ** (body.coarse + bits - 1)
        if largest_sum + _NOISE_REACH * noise < largest_symbol:
            return made
    return None
