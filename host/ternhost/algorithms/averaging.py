"""PLDP-FL: federated averaging of perturbed models, each client with a safe range and an epsilon of its own.

Source: Shen et al., Entropy 2023, 25, 485; FedAvg: McMahan et al., AISTATS 2017. In a round a share gamma of the
clients starts at the model, trains E local epochs in batches of B (tern.local), and reports k of its d weights: how
far each has moved, as a share of the client's safe range tau, through a card at the client's epsilon. A card unbiased
on [-1, 1] is unbiased on the range scaled by tau, whichever mechanism it is; the paper's own is PDPM.

What composes: a report costs a client k times its card's epsilon, and the rounds that it takes part in add up (user
level). Clients are dealt in shuffled turns, so that none takes part more often than any other by more than a round,
and the cost is known before the run starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.wire import MAX_EXPONENT, MAX_TAU
from ternhost import mechanisms, vectorised
from ternhost.aggregate import estimate
from ternhost.aggregate.aggregator import Counts
from ternhost.algorithms import training
from ternhost.datasets import Dataset
from ternhost.drivers.simulated import count, lanes_at_a_time
from ternhost.errors import UsageError
from ternhost.mechanisms import certify
from ternhost.mechanisms.accounting import Account, Release
from ternhost.mechanisms.base import MICRO, parse_epsilon
from ternhost.vectorised import RandomLanes, random_bits

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

EXPONENT = MAX_EXPONENT  # of the model's mantissas: weights to +-8, in steps of 2**-12
_FINE = 2.0 ** (EXPONENT - 8)  # the unit of local training

_FAILURES = 3  # so many rounds without a report, one after the other, end a run

# How reports of clients with different tau and epsilon are put together; both are unbiased.
CLIENTS = "clients"  # every client counts the same, as in FedAvg
VARIANCE = "variance"  # inverse variance: where the clients are of one population, the least noise
WEIGHTS = (CLIENTS, VARIANCE)


@dataclass(frozen=True)
class Choice:
    """What a class of clients chooses: the safe range tau and the epsilon of one report (all of its k weights)."""

    tau: float
    epsilon: str
    share: float = 1.0  # of the clients


# The modes of the paper's experiments: what clients may choose for themselves.
MODES: dict[str, tuple[Choice, ...]] = {
    "same": (Choice(0.25, "8"),),
    "epsilon": (Choice(0.25, "2", 1 / 3), Choice(0.25, "8", 1 / 3), Choice(0.25, "16", 1 / 3)),
    "tau": (Choice(0.125, "8", 1 / 3), Choice(0.25, "8", 1 / 3), Choice(0.5, "8", 1 / 3)),
    "both": (Choice(0.125, "2", 1 / 3), Choice(0.25, "8", 1 / 3), Choice(0.5, "16", 1 / 3)),
}


@dataclass(frozen=True)
class Settings:
    """Of a run: a share `gamma` of the clients a round, `epochs` E, `batch` B (0: all), learning rate 2**-rate."""

    model: int
    choices: tuple[Choice, ...]
    rounds: int = 20
    gamma: float = 0.1
    epochs: int = 2
    batch: int = 8
    rate: int = 2
    k: int | None = None  # weights a report; None: all
    mechanism: str = "pdpm"
    levels: int | None = None
    weights: str = CLIENTS
    averaging: float = 3.0  # of the models of the rounds, as in LDP-FedSGD
    budget: int | None = None  # of a client, micro-epsilon

    def __post_init__(self) -> None:
        if self.rounds < 1 or not 0 < self.gamma <= 1:
            raise UsageError(
                "a run needs a round, and a round a share gamma of the clients, above 0 and at most 1"
            )
        if self.weights not in WEIGHTS:
            raise UsageError(f"there are no weights {self.weights!r}", hint=f"one of: {', '.join(WEIGHTS)}")
        if not self.choices or not math.isclose(sum(choice.share for choice in self.choices), 1):
            raise UsageError("the shares of the clients' choices must add up to 1")


@dataclass(frozen=True)
class Class:
    """Clients of one choice."""

    choice: Choice
    clients: Indices
    card: cards.Card
    tau: int  # in fine units
    value: float  # of tau, in units of the weights
    second_moment: float  # of a report in units of the weights, at worst


class Averager:
    """The model of one run: `mantissas` go out, the estimated mean move of each weight comes back."""

    def __init__(self, settings: Settings, d: int) -> None:
        self.settings = settings
        self.weights: Floats = np.zeros(d)
        self.model: Floats = np.zeros(
            d
        )  # the average of the rounds' models, in which the later ones weigh more
        self.round = 0  # rounds that have ended, with or without an update
        self.updates = 0
        self.stopped: str | None = None
        self._failed = 0

    @property
    def mantissas(self) -> Indices:
        """What the clients of the next round start from."""
        return np.rint(self.weights / 2.0**EXPONENT).astype(np.int64)

    def update(self, change: Floats) -> None:
        """End a round by the estimated mean move of each weight."""
        moved = self.mantissas * 2.0**EXPONENT + change
        self.weights = np.clip(moved, -training.LARGEST_WEIGHT, training.LARGEST_WEIGHT)
        averaging = self.settings.averaging
        self.updates += 1
        self.model = self.model + (averaging + 1) / (averaging + self.updates) * (self.weights - self.model)
        self._failed = 0
        self._end_round()

    def fail(self) -> None:
        """End a round that had no report."""
        self._failed += 1
        self._end_round()

    def _end_round(self) -> None:
        self.round += 1
        if self._failed >= _FAILURES:
            self.stopped = training.QUORUM
        elif self.round >= self.settings.rounds:
            self.stopped = training.ROUNDS

    def state(self) -> dict[str, Any]:
        """All that changes in a run, for JSON; `restore` takes it back exactly."""
        return {
            "round": self.round,
            "updates": self.updates,
            "stopped": self.stopped,
            "failed": self._failed,
            "weights": self.weights.tolist(),
            "average": self.model.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what gave `state()`. Raises UsageError if it is of another dimension or not a state."""
        try:
            weights, model = np.array(state["weights"], np.float64), np.array(state["average"], np.float64)
            self.round, self.updates = int(state["round"]), int(state["updates"])
            self.stopped, self._failed = state["stopped"], int(state["failed"])
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"the stored state of training cannot be read: {error}") from error
        if weights.shape != self.weights.shape or model.shape != self.model.shape:
            raise UsageError("the stored state of training is of a model of another dimension")
        self.weights, self.model = weights, model


def deal(dataset: Dataset, records: int, seed: int) -> Indices:
    """Give every client `records` training records of its own: their positions, clients x records."""
    order = np.random.default_rng(seed).permutation(dataset.training)
    clients = len(order) // records
    if records < 1 or clients < 1:
        raise UsageError(f"{dataset.name} has {len(order)} records to train on: no client gets {records}")
    return order[: clients * records].reshape(clients, records)


def divide(settings: Settings, clients: int, k: int, seed: int) -> list[Class]:
    order = np.random.default_rng(seed).permutation(clients)
    ends = np.round(np.cumsum([choice.share for choice in settings.choices]) * clients).astype(int)
    classes = []
    for choice, start, end in zip(settings.choices, [0, *ends], ends, strict=False):
        design = mechanisms.design(
            settings.mechanism, levels=settings.levels, epsilon_micro=parse_epsilon(choice.epsilon) // k
        )
        classes.append(class_of(choice, design.decode(), np.sort(order[start:end])))
    return classes


def class_of(choice: Choice, card: cards.Card, clients: Indices) -> Class:
    """The class of these clients. Raises UsageError for a safe range that no frame can carry."""
    tau = round(choice.tau / _FINE)
    if not 1 <= tau <= MAX_TAU:
        raise UsageError(
            f"a safe range of {choice.tau:g} cannot be", hint=f"give {_FINE:g} to {MAX_TAU * _FINE:g}"
        )
    value = tau * _FINE
    second = float(certify.moments(card).worst_second_moment()) * value**2
    return Class(choice, clients, card, tau, value, second)


def turns(clients: int, group: int, rounds: int, seed: int) -> list[Indices]:
    """Who takes part in each round: everybody once, in random order, before anybody again."""
    rng = np.random.default_rng(seed)
    queue: Indices = np.empty(0, np.int64)
    dealt = []
    for _ in range(rounds):
        if len(queue) < group:
            rest = np.setdiff1d(np.arange(clients), queue)
            again = np.concatenate([rng.permutation(rest), rng.permutation(queue)])
            queue = np.concatenate([queue, again])
        dealt.append(queue[:group])
        queue = queue[group:]
    return dealt


def plan(settings: Settings, clients: int, d: int) -> dict[str, Account]:
    """What the run will cost a client of each choice, before it starts. Raises RefusedError beyond the budget."""
    k = d if settings.k is None else settings.k
    if not 1 <= k <= d:
        raise UsageError(f"{k} of {d} weights cannot be reported")
    times = most_turns(settings, clients)
    accounts = {}
    for part in divide(settings, clients, k, 0):
        account = Account(settings.budget)
        account.charge([Release("weights", part.card.epsilon, k, times)])
        accounts[f"tau {part.choice.tau:g}, epsilon {part.choice.epsilon}"] = account
    return accounts


def most_turns(settings: Settings, clients: int) -> int:
    """How often a client takes part at most."""
    return -(-settings.rounds * group_size(settings, clients) // clients)


def group_size(settings: Settings, clients: int) -> int:
    """How many clients take part in a round."""
    return max(1, round(settings.gamma * clients))


def run(
    settings: Settings,
    dataset: Dataset,
    records: int,
    seed: int = 1,
    report: Callable[[int, float], None] = lambda number, judged: None,
) -> dict[str, Any]:
    """Train on simulated clients of `records` records each. `report` hears of every round and its figure.

    Returns `accuracy` (or `squared_error`) of the model averaged over the rounds, `..._last` of the last one and
    `..._nonprivate` of the same run without noise or ranges; `clipped`, the share of weights that moved beyond
    their range (known to a simulation only); `accounting` by choice; `history`. Raises UsageError, RefusedError.
    """
    d = dataset.dimension
    positions = deal(dataset, records, seed)
    accounts = plan(settings, len(positions), d)
    k = d if settings.k is None else settings.k
    classes = divide(settings, len(positions), k, seed)
    asked = turns(len(positions), group_size(settings, len(positions)), settings.rounds, seed)
    private, last, clipped, history = _rounds(settings, dataset, positions, asked, classes, k, seed, report)
    exact = train_exactly(settings, dataset, positions, asked)
    figure = "accuracy" if dataset.task == "classification" else "squared_error"
    return {
        figure: training.judge(dataset, private),
        f"{figure}_last": training.judge(dataset, last),
        f"{figure}_nonprivate": training.judge(dataset, exact.model),
        f"{figure}_nonprivate_last": training.judge(dataset, exact.weights),
        "clients": len(positions),
        "clients_a_round": len(asked[0]),
        "rounds": settings.rounds,
        "clipped": clipped,
        "weights": private.tolist(),
        "history": history,
        "accounting": {name: account.summary() for name, account in accounts.items()},
    }


def _rounds(
    settings: Settings,
    dataset: Dataset,
    positions: Indices,
    asked: list[Indices],
    classes: list[Class],
    k: int,
    seed: int,
    report: Callable[[int, float], None] = lambda number, judged: None,
) -> tuple[Floats, Floats, float, list[float]]:
    # The averaged model, the last one, the share of moves clipped, and the figure of every round.
    d = dataset.dimension
    averager = Averager(settings, d)
    clipped = moves = 0
    history = []
    for number, clients in enumerate(asked):
        bits = random_bits(seed, number)
        change, out = _private_change(
            settings, dataset, positions, clients, classes, averager.mantissas, k, bits
        )
        clipped, moves = clipped + out, moves + len(clients) * d
        averager.update(change)
        history.append(training.judge(dataset, averager.model))
        report(number + 1, history[-1])
    return averager.model, averager.weights, clipped / max(1, moves), history


def train_exactly(
    settings: Settings,
    dataset: Dataset,
    positions: Indices,
    asked: Sequence[Indices],
    after_round: Callable[[Averager], None] = lambda averager: None,
) -> Averager:
    """The same clients in the same rounds, whose moves are averaged as they are, without noise or ranges."""
    averager = Averager(settings, dataset.dimension)
    for clients in asked:
        moves = [
            _moves(settings, dataset, positions, part, averager.mantissas)
            for part in _chunks(clients, positions, dataset.dimension)
        ]
        averager.update(np.concatenate(moves).mean(axis=0) * _FINE)
        after_round(averager)
    return averager


def _chunks(clients: Indices, positions: Indices, d: int) -> list[Indices]:
    step = lanes_at_a_time(positions.shape[1] * (d + 1))
    return [clients[start : start + step] for start in range(0, len(clients), step)]


def _moves(
    settings: Settings, dataset: Dataset, positions: Indices, clients: Indices, mantissas: Indices
) -> npt.NDArray[np.int64]:
    rows = positions[clients]
    records = dataset.records(rows.reshape(-1)).reshape(*rows.shape, -1)
    try:
        return vectorised.train_locally(
            settings.model, mantissas, EXPONENT, records, settings.epochs, settings.batch, settings.rate
        )
    except ValueError as error:
        raise UsageError(
            f"clients cannot train so: {error}", hint="batch and records are at most 32"
        ) from error


def _private_change(
    settings: Settings,
    dataset: Dataset,
    positions: Indices,
    clients: Indices,
    classes: list[Class],
    mantissas: Indices,
    k: int,
    bits: np.random.BitGenerator,
) -> tuple[Floats, int]:
    # The estimated mean move of each weight, 0 where nobody reported, and how many moves were clipped.
    d = dataset.dimension
    parts = []
    clipped = 0
    for part in classes:
        counts = np.zeros((d, part.card.symbols), np.int64)
        for chunk in _chunks(np.intersect1d(clients, part.clients), positions, d):
            moved = _moves(settings, dataset, positions, chunk, mantissas)
            clipped += int((np.abs(moved) > part.tau).sum())
            inputs = vectorised.shares(moved, np.full(len(chunk), part.tau))
            lanes = RandomLanes(bits, len(chunk))
            chosen = vectorised.choose(lanes, d, k)
            drawn = vectorised.sample(
                part.card, lanes, np.take_along_axis(inputs, chosen.astype(np.intp), axis=1)
            )
            counts += count(d, part.card.symbols, chosen, drawn)
        parts.append((part, counts))
    return combine(settings, parts), clipped


def combine(settings: Settings, parts: Sequence[tuple[Class, Counts]]) -> Floats:
    """The estimated mean move of each weight from the reports of each class (d x symbols), 0 where nobody reported."""
    d = len(parts[0][1])
    total, weight = np.zeros(d), np.zeros(d)
    for part, counts in parts:
        reports = counts.sum(axis=1)
        own = reports * (1.0 if settings.weights == CLIENTS else 1 / part.second_moment)
        total += own * np.nan_to_num(estimate.estimate(part.card, counts).mean) * part.value
        weight += own
    mean: Floats = np.divide(total, weight, out=np.zeros(d), where=weight > 0)
    return mean


def budget_for(settings: Settings, clients: int, d: int) -> float:
    """The most that any client spends in a run, in epsilon at user level."""
    return max(account.user_level for account in plan(settings, clients, d).values()) / MICRO
