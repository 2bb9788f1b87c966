"""Federated averaging in floats, as Shen et al. describe PLDP-FL, on softmax regression.

It is for simulations only. `tern train fedavg` runs PLDP-FL on devices, in integers and by
certified cards.

Source: Shen et al., Entropy 2023, 25, 485, Algorithm 1. In a round a share gamma of the clients is
drawn. Each of them trains the model on its own records, in epochs of batches, and perturbs every
weight at its own epsilon, within its own safe range. The new model is the mean of the reports.

In the paper a client reports its *weights*, with a safe range around 0. tern's devices report by
how much their weights have *changed* in this round. This is the paper's Algorithm 2 with the centre
c of a weight's safe range at the weight that the client was sent, which the server knows, too.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import softmax

from tern.fixed import ONE
from ternhost.datasets import Dataset, Floats
from ternpapers import baseline
from ternpapers.base import load
from ternpapers.perturbing import MECHANISMS, ranged
from ternpapers.safe_ranges import Choices, choice_of

CLIENTS = 100  # of the paper's experiments
RECORDS = 600  # of each client, as if 60,000 pictures of MNIST were divided among 100
EPOCHS = 5  # of a client's training in a round
BATCH = 20  # records
# The paper's learning rate is .01. With it, softmax regression on `digits` comes to an accuracy of
# .97 without noise, but only to .12 with PDPM in mode 1 of epsilon and of the safe ranges, where
# guessing has .10. With the next power of ten, it comes to .19.
RATE = 0.1

# What clients report.
WEIGHTS = "weights"
CHANGES = "changes"

# These distinguish the draws of clients and records from those of noise.
_CHOOSING = 2
_DEALING = 3


@dataclass(frozen=True)
class Averaging:
    """A run of PLDP-FL.

    mechanism: the name of the mechanism; None for clients that report without noise. choices:
    the epsilon of a weight and the tau that the clients take in turn. gamma: the share of the
    clients in a round. reported: WEIGHTS, or their CHANGES in the round.
    """

    mechanism: str | None
    choices: Choices
    gamma: float = 0.7
    reported: str = WEIGHTS


def accuracies(source: str, run: Averaging, rounds: int, seed: int) -> list[float]:
    """Train a model, and return its accuracy on held-out records after each round.

    source: the name of a data set of several classes. seed: that of all draws. Runs with the same
    seed deal the same records and draw the same clients. Raises UsageError if the data set does not
    name its classes.
    """
    data = load(source, classes=True)
    features, labels = _dealt(source, seed)
    noise, choosing = baseline.generator(seed), np.random.default_rng([seed, _CHOOSING])
    weights = np.zeros((len(data.classes), data.dimension))
    accuracies_by_round = []
    for _ in range(rounds):
        clients = choosing.choice(CLIENTS, round(run.gamma * CLIENTS), replace=False)
        trained = train_on_clients(weights, features[clients], labels[clients])
        choices = tuple(choice_of(client, run.choices) for client in clients)
        weights = _mean_report(weights, trained, choices, run, noise)
        accuracies_by_round.append(accuracy(data, weights))
    return accuracies_by_round


def _mean_report(
    start: Floats,
    trained: Floats,
    choices: Choices,
    run: Averaging,
    rng: np.random.Generator,
) -> Floats:
    """Return the model (classes x d) that the server makes of the clients' reports.

    start: the weights before the round. trained: those of each client after it (clients x classes x
    d). choices: those of these clients. rng: draws the noise.
    """
    centre = np.zeros_like(start)
    if run.reported == CHANGES:
        centre = start
    values = (trained - centre).reshape(len(trained), -1)
    if run.mechanism is not None:
        values = perturbed(values, run.mechanism, choices, 0.0, rng)
    return np.asarray(centre + values.mean(axis=0).reshape(start.shape))


def perturbed(
    values: Floats,
    mechanism: str,
    choices: Choices,
    centre: float,
    rng: np.random.Generator,
) -> Floats:
    """Perturb the values of n clients (n x d) by their own choices; return their reports (n x d).

    mechanism: its name. choices: those of these clients; each of them clips its values to
    [centre - tau, centre + tau].
    """
    reports = np.empty_like(values)
    for i, (epsilon, tau) in enumerate(choices):
        perturb = ranged(MECHANISMS[mechanism](epsilon), centre, radius=tau)
        reports[i] = perturb(values[i], rng)
    return reports


def train_on_clients(start: Floats, features: Floats, labels: Floats) -> Floats:
    """Train the model on the records of each of n clients; return their weights (n x classes x d).

    start: the weights that all of them begin with (classes x d). features: n x records x d. labels:
    1 for the class of a record, and 0 for the others (n x classes x records).
    """
    clients, records, _ = features.shape
    weights = np.repeat(start[None], clients, axis=0)
    for _ in range(EPOCHS):
        for first in range(0, records, BATCH):
            batch = slice(first, first + BATCH)
            x = features[:, batch]
            probabilities = softmax(weights @ x.swapaxes(1, 2), axis=1)  # n x classes x records
            residuals = probabilities - labels[:, :, batch]
            weights -= (RATE / x.shape[1]) * (residuals @ x)
    return weights


def accuracy(data: Dataset, weights: Floats) -> float:
    """Return the share of the held-out records whose class has the largest score."""
    features, labels = data.judged
    predicted = (features @ weights.T).argmax(axis=1)
    return float((predicted == labels).mean())


@lru_cache(maxsize=1)
def _dealt(source: str, seed: int) -> tuple[Floats, Floats]:
    """Deal RECORDS training records to each client at random; return their features and labels.

    If there are too few, several clients hold the same ones. The shapes are those of
    `train_on_clients`.
    """
    data = load(source, classes=True)
    order = np.random.default_rng([seed, _DEALING]).permutation(data.training)
    dealt = np.resize(order, (CLIENTS, RECORDS))  # repeats the order if it is too short
    of_class = np.arange(len(data.classes))[None, :, None]
    labels = data.labels[dealt][:, None, :] == of_class
    return data.features[dealt] / ONE, labels.astype(np.float64)
