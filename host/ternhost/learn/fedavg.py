"""PLDP-FL: federated averaging of perturbed models, each client with a safe range tau and an
epsilon of its own.

Source: Shen et al., Entropy 2023, 25, 485; FedAvg: McMahan et al., AISTATS 2017. In a round a share
gamma of the clients trains E epochs in batches of B (tern.local) and reports how far k of d weights
have moved, as shares of tau. A card that is unbiased on [-1, 1] is unbiased on the scaled range,
whichever mechanism it is; the paper's own is PDPM. A report costs a client k times its card's
epsilon, and its reports add up (user level). Clients take shuffled turns, so that all take part
equally often to within a round, and the cost is known before the run starts.

`--choices epsilonI,tauJ` takes the paper's settings, I and J from 1 to 3. There a client reports
all d weights, and its epsilon is that of one weight. So its user-level epsilon grows by d times
that in each of its rounds: for the 28 weights of `flights` in 12 rounds it is up to 67.2 in mode
epsilon1, and up to 336 in epsilon2 and epsilon3.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tern.wire import LOCAL, LOCAL_SOFTMAX, MAX_BATCH, MAX_EXPONENT, MAX_RATE, MAX_TAU
from ternhost.count import estimate
from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts, RoundResult
from ternhost.datasets import Dataset, Holdings, Indices
from ternhost.errors import UsageError
from ternhost.learn.base import Cohort, Devices, Population, most_turns, take
from ternhost.learn.designs import Choice, Mechanised, ReportDesign, by_class, pools_of
from ternhost.learn.learning import Learning, LearningOptions
from ternhost.learn.parameters import MODELS, Floats
from ternhost.learn.training import Trainer, TrainingPlan
from ternhost.options import option, require
from ternhost.privacy import certify

EXPONENT = MAX_EXPONENT  # of the model's mantissas: weights to +-8, in steps of 2**-12
FINE = 2.0 ** (EXPONENT - 8)  # the unit of local training

# How reports of clients with different tau and epsilon are put together; both are unbiased.
CLIENTS = "clients"  # every client counts the same, as in FedAvg
VARIANCE = "variance"  # inverse variance: where the clients are of one population, the least noise
WEIGHTS = (CLIENTS, VARIANCE)

_average = partial(option, group="fedavg")


# Presets of tern: what clients choose for themselves.
MODES: dict[str, tuple[Choice, ...]] = {
    "same": (Choice(0.25, "8"),),
    "epsilon": (Choice(0.25, "2", 1 / 3), Choice(0.25, "8", 1 / 3), Choice(0.25, "16", 1 / 3)),
    "tau": (Choice(0.125, "8", 1 / 3), Choice(0.25, "8", 1 / 3), Choice(0.5, "8", 1 / 3)),
    "both": (Choice(0.125, "2", 1 / 3), Choice(0.25, "8", 1 / 3), Choice(0.5, "16", 1 / 3)),
}

# The sets of the paper's experiments: clients draw epsilon from one and tau from the other, each
# value equally often.
EPSILONS = tuple(f"{i / 10:g}" for i in range(1, 11))  # of a weight
TAUS = tuple(i / 5 for i in range(1, 11))
# By the paper's mode: the two lowest values, all, the two highest.
DRAWN = {"1": slice(2), "2": slice(None), "3": slice(-2, None)}

_PAPER = re.compile("epsilon([123]), ?tau([123])")
_HINT = f"such as 0.25:2:0.5,0.5:8:0.5, or the paper's epsilon1,tau3, or one of: {', '.join(MODES)}"


@dataclass(frozen=True)
class Options(Mechanised, LearningOptions):
    clients: int = _average(
        0, "number of clients", shown="all, but at most 1000 on boards", metavar="N"
    )
    records: int = _average(8, "records per client", metavar="N")
    rounds: int = _average(20, "number of rounds", metavar="N")
    share: float | None = _average(
        None,
        "share of the clients that report in a round",
        metavar="GAMMA",
        shown="1 / rounds: each client reports once, as nearly as it goes",
    )
    local_epochs: int = _average(2, "epochs that a client trains in a round", metavar="E")
    local_rate: int = _average(0, "the learning rate on a client is 2**-N", metavar="N")
    tau: float = _average(0.25, "clip a weight's change in a round to +-TAU", metavar="TAU")
    choices: str | None = _average(
        None,
        f"tau, epsilon and share of each class of clients; or a preset: {', '.join(MODES)}; or epsilonI,tauJ: "
        "modes I and J, 1 to 3, of the paper of PLDP-FL, where a client reports all weights, each at its epsilon",
        metavar="TAU:E:SHARE,...",
        instead_of=("epsilon", "epsilons", "tau"),
    )
    weights: str = _average(
        CLIENTS, "weight of a class: its clients, or inverse variance", choices=WEIGHTS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clients >= 0, "clients", "0 (all) or more", self.clients)
        require(self.records >= 1, "records", "1 or more", self.records)
        require(self.rounds >= 1, "rounds", "1 or more", self.rounds)
        require(
            self.share is None or 0 < self.share <= 1, "share", "above 0 and at most 1", self.share
        )
        require(1 <= self.local_epochs <= 255, "local_epochs", "1 to 255", self.local_epochs)
        require(0 <= self.local_rate <= MAX_RATE, "local_rate", f"0 to {MAX_RATE}", self.local_rate)
        require(self.weights in WEIGHTS, "weights", " or ".join(WEIGHTS), self.weights)
        name, what = ("tau", "") if self.choices is None else ("choices", "of safe ranges ")
        for choice in self.chosen():
            tau = choice.tau or 0.0
            must = f"{what}{FINE:g} to {MAX_TAU * FINE:g}"  # what a frame can carry
            require(FINE <= tau <= MAX_TAU * FINE, name, must, f"{tau:g}")

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes of the paper that are named: of epsilon and of tau, "1" to "3" each; or none."""
        paper = _PAPER.fullmatch(self.choices or "")
        return paper.groups() if paper else ()

    def chosen(self) -> list[Choice]:
        """The choice of each class of clients. Raises UsageError."""
        if self.choices is None:
            return [Choice(self.tau, epsilon, share) for epsilon, share in self.classes()]
        if self.choices in MODES:
            return list(MODES[self.choices])
        if self.modes:
            return of_the_paper(*self.modes)
        return Choice.read(self.choices, _HINT)


def of_the_paper(epsilon: str, tau: str) -> list[Choice]:
    """The choices of clients in these modes of the paper, "1" to "3" each."""
    pairs = list(product(EPSILONS[DRAWN[epsilon]], TAUS[DRAWN[tau]]))
    return [Choice(tau, epsilon, 1 / len(pairs)) for epsilon, tau in pairs]


def range_units(design: ReportDesign) -> int:
    """The safe range of a design in fine units."""
    assert design.tau is not None
    return round(design.tau / FINE)


def second_moment(design: ReportDesign) -> float:
    """The worst second moment of a report, in units of the weights."""
    return (
        float(certify.moments(design.card).worst_second_moment())
        * (range_units(design) * FINE) ** 2
    )


class FedAvg(Learning):
    """Clients train on records of their own and report how far each weight has moved."""

    name = "fedavg"
    Options = Options
    draws_groups = True

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        super().__init__(options, population, data)
        self.modules = ("local", "softmax") if self.classes > 1 else ("local",)
        chosen = options.chosen()
        options.require_one_epsilon(len(chosen))
        # A report is `times` reports of `values` weights, each of them at the epsilon of its class.
        values, times = (
            options.k_of([(choice.epsilon, choice.share) for choice in chosen], self.d),
            1,
        )
        if options.modes:
            values, times = 1, options.k or self.d
        self.designs = [self._designed(choice, values, times) for choice in chosen]
        schedule = population.schedule
        self.rounds = (schedule or options).rounds
        self._share: float | None = (schedule or options).share
        self.clients = None if schedule else options.clients or None
        self.holdings = self._hold()
        clients = self.clients or population.devices
        if not schedule:
            if not clients:
                text = "the number of clients of this fleet is unknown, and the cost depends on it"
                raise UsageError(text, "give --clients, or name the --store with their keys")
            self.clients = clients
        self.times = most_turns(max(1, clients), self._group(clients), self.rounds or 1)
        self.reports = None if schedule else options.rounds * self._group(clients)
        # The server's step is the mean move itself: a rate of 1, and nothing that stops it before
        # its last round.
        fixed: dict[str, Any] = {"expected": 1.0, "learning_rate": 1.0, "regularisation": 0.0}
        fixed |= {"patience": None, "failures": None if schedule else TrainingPlan.failures}
        self._trainer = Trainer(TrainingPlan(MODELS[self.model], self.d, self.rounds, **fixed))

    def _designed(self, choice: Choice, values: int, times: int) -> ReportDesign:
        fixed = {"share": choice.share, "tau": choice.tau}
        design: ReportDesign = self.options.design(choice.epsilon, values, **fixed)
        return replace(design, k=values * times, epsilon=design.epsilon * times, what="weight")

    def _group(self, clients: int) -> int:
        """The number of clients in a round."""
        group = (
            clients // self.options.rounds if self._share is None else round(self._share * clients)
        )
        return max(1, group)

    def _hold(self) -> Holdings | None:
        each = self.options.records
        holdings = self._records(each)
        if holdings is None:
            return None
        assert self.dataset is not None
        most = holdings.clients
        if most < 1:
            text = f"{self.dataset.name} has {len(holdings.order)} records to train on: no client gets {each}"
            raise UsageError(text, "ask for fewer --records")
        there = self._population.clients or most
        clients = self.clients or min(
            most, self._population.clients or self._population.most or most
        )
        hint = f"ask for at most --clients {there}"
        self._population.require_enough(clients, there, f" of {each} records each", hint)
        if not self._population.schedule:
            self.clients = clients
        return Holdings(holdings.records, holdings.order[: min(clients, most) * each], each)

    def _mantissas(self, weights: Floats) -> Indices:
        """The weights that the clients of the next round start from."""
        return np.rint(weights / 2.0**EXPONENT).astype(np.int64)

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        clients = len(devices)
        asked = take(devices, self._turn(clients, self._group(clients), self._trainer.round))
        parts = by_class(self.designs, asked, self.options.seed)
        return [(self.a_question(design), members) for _, design, members in parts]

    def pools(self, devices: Sequence[int] | Devices) -> list[Devices] | None:
        clients = len(devices)
        asked = take(devices, self._turn(clients, self._group(clients), self._trainer.round))
        return pools_of(self.designs, asked, take(devices, np.arange(clients)), self.options.seed)

    def a_question(self, design: ReportDesign) -> Question:
        model = LOCAL_SOFTMAX if self.classes > 1 else LOCAL + self._trainer.plan.model
        mantissas = self._mantissas(self._trainer.weights).tolist()
        records: int = self.options.records
        batch = min(self.options.batch or records, records, MAX_BATCH)
        local = (self.options.local_epochs, self.options.local_rate, range_units(design))
        return Question(
            model, mantissas, EXPONENT, design.card.data, design.k, batch, local, self.classes
        )

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Move by the mean of the clients' moves: each is where its client began, less where it
        ended.
        """
        if not result.reports:
            self._trainer.fail()
            return
        change = combine(
            [(self._design(cohort), cohort) for cohort in result.cohorts], self.options.weights
        )
        started = self._mantissas(self._trainer.weights) * 2.0**EXPONENT
        self._trainer.update(self._trainer.weights - started - change, np.ones(self.d))

    def _design(self, cohort: CohortCounts) -> ReportDesign:
        asked = cohort.question.local[-1], cohort.card.data
        return next(
            design for design in self.designs if (range_units(design), design.card.data) == asked
        )


def combine(parts: Sequence[tuple[ReportDesign, CohortCounts]], weights: str) -> Floats:
    """The estimated mean move of each weight from the reports of each class, 0 where nobody
    reported.
    """
    d = len(parts[0][1].counts)
    total, weight = np.zeros(d), np.zeros(d)
    for design, cohort in parts:
        reports = cohort.counts.sum(axis=1)
        share = reports * (1.0 if weights == CLIENTS else 1 / second_moment(design))
        mean = np.nan_to_num(estimate.combine([(cohort.card, cohort.counts)]).mean)
        total += share * mean * (range_units(design) * FINE)
        weight += share
    return np.divide(total, weight, out=np.zeros(d), where=weight > 0)
