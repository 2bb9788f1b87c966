"""The algorithms of `tern train`: who is asked what in each round, and what the model learns from the answers.

A session (session.py) runs the rounds of either, on any fleet. Clients are counted from 0. With personalised budgets
they fall into classes, each with its own card, which are cohorts of a round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tern import card as cards
from tern.wire import LOCAL, MAX_BATCH, MAX_RATE
from ternhost.aggregate import estimate
from ternhost.aggregate.aggregator import Question, RoundResult
from ternhost.algorithms import averaging as fedavg
from ternhost.algorithms import levels as hiera
from ternhost.algorithms import training
from ternhost.algorithms.training import Trainer
from ternhost.datasets import Dataset, Fixed, Indices
from ternhost.errors import UsageError
from ternhost.fleet.provision import Policy
from ternhost.mechanisms.accounting import Account, Release
from ternhost.mechanisms.base import MICRO

if TYPE_CHECKING:
    from ternhost.runs.session import Options

FEDSGD = "fedsgd"
FEDAVG = "fedavg"
HIERA = "hiera"
ALGORITHMS = (FEDSGD, FEDAVG, HIERA)
# What boards need beside their client (mpy.ON_DEMAND).
MODULES: dict[str, tuple[str, ...]] = {FEDSGD: (), FEDAVG: ("local",), HIERA: ("lhp",)}
MOST_CLIENTS = 1000  # of FedAvg, by default, where boards have to be made for them


@dataclass(frozen=True)
class ReportDesign:
    """What a report of a class of clients is: k symbols of `card`, which may cost `epsilon` (micro); the variance
    of a value at 0; the class's share of the clients, and its safe range `tau` (None but for local training).
    """

    card: cards.Card
    k: int
    variance: float
    mechanism: str
    epsilon: int
    share: float = 1.0
    tau: float | None = None

    @property
    def cost(self) -> int:
        """What a report really costs, micro-epsilon."""
        epsilon: int = self.card.epsilon
        return self.k * epsilon

    def summary(self, clients: int, times: int) -> dict[str, Any]:
        """For JSON: the class, and what `times` reports cost each of its clients."""
        return {
            "epsilon": self.epsilon / MICRO,
            "tau": self.tau,
            "clients": clients,
            "k": self.k,
            "card": self.card.data.hex(),
            "card_hash": cards.card_hash(self.card.data).hex(),
            "levels": self.card.symbols,
            "epsilon_per_report": self.cost / MICRO,
            "epsilon_per_client": self.cost * times / MICRO,
        }


class Learner(Protocol):
    """What has a model and counts rounds: `training.Trainer` or `fedavg.Averager`."""

    round: int
    stopped: str | None

    @property
    def model(self) -> training.Floats: ...

    def fail(self) -> None: ...

    def state(self) -> dict[str, Any]: ...


class Algorithm(Protocol):
    """A run: `designs` of its classes of clients, who holds what, and the questions of each round."""

    designs: list[ReportDesign]
    rounds: int
    reports: int  # of all rounds
    times: int  # that a client takes part at most
    each: int  # records of a client
    records: Fixed  # of all clients, one after the other
    of_class: Indices  # the class of each client; of a simulated fleet's FedSGD, of each report

    @property
    def learner(self) -> Learner: ...

    def cohorts(self) -> list[tuple[Question, Indices]]:
        """The questions of the next round, and the clients that each is for."""

    def learn(self, result: RoundResult) -> dict[str, Any] | None:
        """Take the answers of that round; return what is worth telling of the estimate."""

    def exact(self, after_round: Callable[[training.Floats], None]) -> training.Floats:
        """The model of the same run without noise; `after_round` hears of the one after every round."""

    def told(self) -> dict[str, Any]:
        """What its result says beside that of the others."""


def clients_of(algorithm: Algorithm) -> int:
    """How many clients a fleet of boards needs."""
    return len(algorithm.of_class)


def policies(algorithm: Algorithm, budget: int | None) -> list[Policy]:
    """What each client allows: its class's epsilon in one report, and `budget` (None: what the run costs) for life."""
    own = [
        Policy(design.epsilon, budget or max(design.epsilon, design.cost * algorithm.times))
        for design in algorithm.designs
    ]
    return [own[i] for i in algorithm.of_class]


def accounts(algorithm: Algorithm, budget: int | None) -> list[Account]:
    """What the run costs a client of each class. Raises RefusedError beyond the budget: before it starts."""
    found = []
    for design in algorithm.designs:
        what = "coordinates" if design.tau is None else f"weights (tau {design.tau:g})"
        account = Account(budget)
        account.charge([Release(what, design.card.epsilon, design.k, algorithm.times)])
        found.append(account)
    return found


def shares(text: str) -> list[tuple[str, float]]:
    """`WHAT:SHARE,...` of the clients: (WHAT, SHARE) each, the shares made to add up to 1. Raises UsageError."""
    found = []
    for part in text.split(","):
        what, colon, share = part.strip().rpartition(":")
        try:
            found.append((what, float(share)))
        except ValueError:
            colon = ""
        if not colon or not what or not found[-1][1] > 0:
            raise UsageError(f"{part.strip()!r} is no class of clients", hint="such as 1:0.5,2:0.3,4:0.2")
    total = sum(share for _, share in found)
    if abs(total - 1) > 1e-6:
        raise UsageError(f"the shares of the clients add up to {total:g}", hint="they must add up to 1")
    return [(what, share / total) for what, share in found]


def divide(parts: Sequence[float], n: int, seed: int) -> Indices:
    """The class of each of n clients, at random, in these shares; in few bytes, since n may be millions."""
    ends = np.round(np.cumsum(parts) * n).astype(np.int64)
    sizes = np.diff(ends, prepend=0)
    each = np.repeat(np.arange(len(parts), dtype=np.min_scalar_type(len(parts))), sizes)
    return np.random.default_rng([seed, 2]).permutation(each) if len(parts) > 1 else each


class FedSGD:
    """LDP-FedSGD (training.py): every client takes part once, with the gradient at the model of its round."""

    each = 1
    times = 1

    def __init__(
        self,
        options: Options,
        dataset: Dataset,
        designs: list[ReportDesign],
        simulated: int | None,
        state: Mapping[str, Any] | None,
    ) -> None:
        """simulated: the number of clients of a simulated fleet. state: that of the trainer, to go on."""
        self.designs = designs
        self._dataset = dataset
        self._batch = options.batch
        self._settings = training.plan(
            training.MODELS[options.model],
            dataset.dimension,
            reports=options.reports,
            group=options.group,
            k=designs[0].k,
            variance=1 / sum(own.share / own.variance for own in designs),  # of their combination
            learning_rate=options.learning_rate,
            regularisation=options.regularisation,
        )
        self._dealt: Sequence[Indices]
        self._asked: Sequence[Indices]
        if simulated is None:
            self._dealt = training.choose_groups(dataset, options.reports, options.group, options.seed)
            positions = np.sort(np.concatenate(self._dealt))  # client i has the record at the i-th of these
            self._asked = [np.searchsorted(positions, group) for group in self._dealt]
        else:
            self._dealt = training.choose_simulated_groups(
                dataset, simulated, options.reports, options.group, options.seed
            )
            positions = np.arange(len(dataset.labels))
            self._asked = self._dealt
        self.records = dataset.records(positions)
        of_report = divide([own.share for own in designs], options.reports, options.seed)
        self._classes = np.split(of_report, np.cumsum([len(group) for group in self._asked])[:-1])
        self.of_class = of_report
        if simulated is None:
            self.of_class = np.empty_like(of_report)
            self.of_class[np.concatenate(self._asked)] = of_report
        self.rounds = self._settings.rounds
        self.reports = options.reports
        self._trainer = Trainer.restore(self._settings, state) if state else Trainer(self._settings)

    @property
    def learner(self) -> Learner:
        return self._trainer

    def cohorts(self) -> list[tuple[Question, Indices]]:
        parameters = self._trainer.question()
        asked, classes = self._asked[self._trainer.round], self._classes[self._trainer.round]
        return [
            (
                Question(
                    self._settings.model,
                    parameters.mantissas,
                    parameters.exponent,
                    design.card.data,
                    design.k,
                    self._batch,
                ),
                asked[classes == i],
            )
            for i, design in enumerate(self.designs)
            if (classes == i).any()
        ]

    def learn(self, result: RoundResult) -> dict[str, Any] | None:
        """Step along the mean gradient, the classes combined by inverse variance."""
        parts = [(cohort.card, cohort.counts) for cohort in result.cohorts]
        means = estimate.combine(parts, method=estimate.BOUND)  # few reports a coordinate
        self._trainer.update(means.mean, means.reports)
        return means.summary()

    def exact(self, after_round: Callable[[training.Floats], None]) -> training.Floats:
        trainer = training.train_exactly(
            self._settings, self._dataset, self._dealt, lambda trainer: after_round(trainer.model)
        )
        return trainer.model

    def told(self) -> dict[str, Any]:
        return {}


class HierA(FedSGD):
    """FedSGD whose gradients are reported by LHP, as level and sign, and estimated by HierA (hiera.py)."""

    def __init__(
        self,
        options: Options,
        dataset: Dataset,
        designs: list[ReportDesign],
        simulated: int | None,
        state: Mapping[str, Any] | None,
    ) -> None:
        """As FedSGD."""
        super().__init__(options, dataset, designs, simulated, state)
        self._levels = hiera.of_card(designs[0].card)
        self._mu = options.mu
        self._seed = options.seed

    def learn(self, result: RoundResult) -> dict[str, Any] | None:
        """Step along the mean gradient that HierA estimates."""
        counts = result.cohorts[0].counts
        matrix = counts.reshape(len(counts), self._levels.count, 2)
        mean = hiera.estimate(self._levels, matrix, self._mu, seed=self._seed + self._trainer.round)
        self._trainer.update(mean, counts.sum(axis=1))
        return None

    def told(self) -> dict[str, Any]:
        """What the paper states for a report, beside the true loss."""
        return {"epsilon_stated": self._levels.epsilon_stated / MICRO}


class FedAvg:
    """PLDP-FL (fedavg.py): clients train on records of their own and report how far each weight has moved."""

    def __init__(
        self,
        options: Options,
        dataset: Dataset,
        designs: list[ReportDesign],
        simulated: int | None,
        state: Mapping[str, Any] | None,
    ) -> None:
        """As FedSGD."""
        model = training.MODELS[options.model]
        chosen = tuple(
            fedavg.Choice(design.tau or 0.0, str(design.epsilon / MICRO), design.share) for design in designs
        )
        self._settings = fedavg.Settings(
            LOCAL + model,
            chosen,
            rounds=options.rounds,
            gamma=options.share,
            epochs=options.local_epochs,
            batch=min(options.batch or options.records, options.records, MAX_BATCH),
            rate=options.rate,
            k=designs[0].k,
            weights=options.weights,
        )
        if not 1 <= options.local_epochs <= 255 or not 0 <= options.rate <= MAX_RATE:
            raise UsageError(
                f"{options.local_epochs} epochs at a rate of 2**-{options.rate} cannot be",
                hint=f"give 1 to 255 epochs, and a rate of 0 to {MAX_RATE}",
            )
        self._positions = fedavg.deal(dataset, options.records, options.seed)
        there = simulated or len(self._positions)
        clients = options.clients or min(len(self._positions), simulated or MOST_CLIENTS)
        if clients > there:
            raise UsageError(
                f"{clients} clients of {options.records} records each cannot be had",
                hint=f"ask for at most --clients {there}",
            )
        if clients > len(self._positions):  # the records once more, for clients of their own
            self._positions = np.resize(self._positions, (clients, options.records))
        self._positions = self._positions[:clients]
        self._dataset = dataset
        self.designs = designs
        self.records = dataset.records(self._positions.reshape(-1))
        self.each = options.records
        self.of_class = divide([design.share for design in designs], clients, options.seed)
        self._classes = [
            fedavg.class_of(choice, design.card, np.flatnonzero(self.of_class == i))
            for i, (choice, design) in enumerate(zip(chosen, designs, strict=True))
        ]
        self._asked = fedavg.turns(
            clients, fedavg.group_size(self._settings, clients), options.rounds, options.seed
        )
        self.times = fedavg.most_turns(self._settings, clients)
        self.rounds = options.rounds
        self.reports = sum(map(len, self._asked))
        self._averager = fedavg.Averager(self._settings, dataset.dimension)
        if state:
            self._averager.restore(state)

    @property
    def learner(self) -> Learner:
        return self._averager

    def cohorts(self) -> list[tuple[Question, Indices]]:
        return [
            (
                Question(
                    self._settings.model,
                    self._averager.mantissas.tolist(),
                    fedavg.EXPONENT,
                    own.card.data,
                    self.designs[i].k,
                    self._settings.batch,
                    (self._settings.epochs, self._settings.rate, own.tau),
                ),
                clients,
            )
            for i, own, clients in self._parts()
        ]

    def _parts(self) -> list[tuple[int, fedavg.Class, Indices]]:
        asked = self._asked[self._averager.round]
        parts = [(i, own, np.intersect1d(asked, own.clients)) for i, own in enumerate(self._classes)]
        return [part for part in parts if len(part[2])]

    def learn(self, result: RoundResult) -> dict[str, Any] | None:
        """Move by the mean of the clients' moves."""
        parts = [own for _, own, _ in self._parts()]
        counts = [cohort.counts for cohort in result.cohorts]
        self._averager.update(fedavg.combine(self._settings, list(zip(parts, counts, strict=True))))
        return None

    def exact(self, after_round: Callable[[training.Floats], None]) -> training.Floats:
        settings = replace(self._settings, model=self._settings.model - LOCAL)
        averager = fedavg.train_exactly(
            settings,
            self._dataset,
            self._positions,
            self._asked,
            lambda averager: after_round(averager.model),
        )
        return averager.model

    def told(self) -> dict[str, Any]:
        return {}


_ALGORITHMS: dict[str, Callable[..., Algorithm]] = {FEDSGD: FedSGD, FEDAVG: FedAvg, HIERA: HierA}


def make(
    options: Options,
    dataset: Dataset,
    designs: list[ReportDesign],
    simulated: int | None,
    state: Mapping[str, Any] | None,
) -> Algorithm:
    """The algorithm that `options` name; see FedSGD."""
    return _ALGORITHMS[options.algorithm](options, dataset, designs, simulated, state)
