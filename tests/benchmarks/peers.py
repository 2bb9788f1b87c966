"""Compares the host with what a user would take instead: NumPy, Flower and dp-accounting.

    python -m benchmarks.peers [--flower PYTHON] [--clients N] [--devices N] [--repeats N] [--json]

Each row is a ratio of two CPU times from one run, which hardly depends on the machine. Both sides
of a ratio are measured in turns, and the least time of each counts. --flower names a Python in which
Flower is installed. tern does not depend on Flower, so make a virtual environment for it:

    python -m venv flower && flower/bin/pip install "flwr[simulation]==1.42.0"
"""

import argparse
import json
import math
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from simulating import ask, begin, fleet_of

import ternhost
from benchmarks import machine, positive_count
from tern.fixed import ONE
from ternhost.privacy import certify, mechanisms

EPSILON = 2  # of a report
DATA = "synthetic-logistic"
_FLOWER_ROUNDS = Path(__file__).with_name("flower_rounds.py")
_ROUNDS = 3  # of Flower
_DELTA = 1e-6
# What is composed: epsilon of a report, and the number of reports.
_COMPOSED = ((0.1, 1_000), (0.02, 10_000))
_INTERVALS = 400  # in which dp-accounting divides the epsilon of a report


def least_times(repeats, *functions):
    """Call functions in turns, `repeats` times; return the least CPU time of each, in seconds."""
    least = [math.inf] * len(functions)
    for _ in range(repeats):
        for index, function in enumerate(functions):
            started = time.process_time()
            function()
            least[index] = min(least[index], time.process_time() - started)
    return least


def row(what, tern, peer, peer_name, **more):
    """A result: the CPU times of tern and of a peer, in seconds, and the second divided by the first."""
    return {
        "what": what,
        "peer": peer_name,
        "tern_cpu_seconds": float(f"{tern:.3g}"),
        "peer_cpu_seconds": float(f"{peer:.3g}"),
        "times": float(f"{peer / tern:.3g}"),
        **more,
    }


# A round of reports


class Fleet:
    """A simulated fleet of tern, and the same fleet in NumPy.

    tern computes in the integers of the devices, and samples from its certified card. NumPy computes
    in floating point, and so keeps no epsilon that could be proven.
    """

    def __init__(self, clients):
        self.algorithm = begin(
            "fedsgd",
            there=clients,
            data=DATA,
            epsilon=str(EPSILON),
            mechanism="three-outputs",
            reports=1000 * clients,
            group=clients,
            k="1",
        )
        self.driver = fleet_of(self.algorithm, clients)
        self.clients = clients
        self.number = 0

        holdings = self.driver.holdings
        records = holdings.records / ONE  # the label last
        self.features = records[:, :-1]
        self.labels = (np.sign(records[:, -1]) + 1) / 2
        self.own_records = holdings.positions(np.arange(clients))[:, 0]
        card = mechanisms.design("three-outputs", EPSILON).decode()
        laws = [certify.at_knot(card, i) for i in range(len(certify.knots(card)))]
        self.laws = np.array(laws, float).T
        self.knots = np.array(certify.knots(card), float) / ONE
        self.chance = np.random.default_rng(1)

    def tern_reports(self):
        """The counts of a round by coordinate and symbol."""
        self.number += 1
        cohorts = self.algorithm.cohorts(self.driver.devices)
        result = ask(self.driver, cohorts, self.number)
        assert result.reports == self.clients
        return result

    def tern_round(self):
        """The reports of a round, and a step of the model by them."""
        self.algorithm.learn(self.tern_reports(), self.driver.devices)

    def numpy_reports(self):
        """The counts of a round by coordinate and symbol."""
        features, residuals = self._residuals()
        dimension = features.shape[1]
        coordinates = self.chance.integers(0, dimension, self.clients)
        values = np.clip(residuals * features[np.arange(self.clients), coordinates], -1, 1)
        least = np.interp(values, self.knots, self.laws[0])
        least_two = least + np.interp(values, self.knots, self.laws[1])
        drawn = self.chance.random(self.clients)
        symbols = (drawn >= least).astype(int) + (drawn >= least_two)
        counts = np.bincount(3 * coordinates + symbols, minlength=3 * dimension)
        assert counts.sum() == self.clients

    def numpy_average(self):
        """A step of gradient descent on the record of each client, without any noise."""
        features, residuals = self._residuals()
        step = 0.1 * (residuals @ features) / self.clients
        assert step.any()

    def _residuals(self):
        """The features of each client's record, and the derivative of the loss there."""
        features, labels = self.features[self.own_records], self.labels[self.own_records]
        weights = np.zeros(features.shape[1])
        return features, 1 / (1 + np.exp(-features @ weights)) - labels


def reports(devices, repeats):
    """Rows about one round of reports of many simulated devices."""
    fleet = Fleet(devices)
    fleet.tern_reports()  # what is computed once for a card is not measured
    tern, peer = least_times(repeats, fleet.tern_reports, fleet.numpy_reports)
    what = f"reports of {devices:,} simulated devices, Three-Outputs at epsilon {EPSILON}"
    name = f"NumPy {version('numpy')}, in floating point"
    return [row(what, tern, peer, name, reports_per_s=round(devices / tern))]


def rounds(clients, repeats, flower):
    """Rows about one round of federated learning with few clients. flower: a Python with Flower."""
    fleet = Fleet(clients)
    fleet.tern_round()
    tern, average = least_times(repeats, fleet.tern_round, fleet.numpy_average)
    what = f"one round of {clients:,} simulated clients, logistic regression"
    rows = [row(what, tern, average, f"NumPy {version('numpy')}, without privacy")]
    if flower is None:
        return rows
    dimension = fleet.features.shape[1]
    words = [flower, str(_FLOWER_ROUNDS), str(clients), str(dimension), str(_ROUNDS)]
    ended = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
    result = json.loads(ended.stdout.splitlines()[-1])
    peer = min(one["cpu_seconds"] for one in result["rounds"])
    name = f"Flower {result['version']}, FedAvg on Ray, without privacy"
    return [*rows, row(what, tern, peer, name)]


# Composition


class Composition:
    """The epsilon, at `_DELTA`, of many reports of Three-Outputs, by tern and by dp-accounting.

    tern proves its epsilon for every pair of inputs. dp-accounting is given the two extreme ones.
    """

    def __init__(self, epsilon, count):
        """epsilon: of a report. count: of reports."""
        self.epsilon = epsilon
        self.card = ternhost.design("three-outputs", epsilon)
        # The next composition has one report less, so that nothing kept of an earlier one helps.
        self.tern_count = self.peer_count = count
        self.found = {}
        decoded = mechanisms.design("three-outputs", epsilon).decode()
        last_knot = len(certify.knots(decoded)) - 1
        self.extreme_laws = []
        for knot in (0, last_knot):
            law = certify.at_knot(decoded, knot)
            self.extreme_laws.append({symbol: math.log(p) for symbol, p in enumerate(law)})

    def by_tern(self):
        account = ternhost.account(self.card, self.tern_count, delta=_DELTA)
        self.found.setdefault("tern_epsilon", account.exact)
        self.tern_count -= 1

    def by_dp_accounting(self):
        interval = self.epsilon / _INTERVALS
        loss = pld.from_two_probability_mass_functions(
            *self.extreme_laws, value_discretization_interval=interval, symmetric=False
        )
        epsilon = loss.self_compose(self.peer_count).get_epsilon_for_delta(_DELTA)
        self.found.setdefault("peer_epsilon", epsilon)
        self.peer_count -= 1


def compositions(repeats):
    """Rows about what many reports of one device reveal together."""
    rows = []
    for epsilon, count in _COMPOSED:
        composition = Composition(epsilon, count)
        tern, peer = least_times(repeats, composition.by_tern, composition.by_dp_accounting)
        what = f"epsilon of {count:,} reports of Three-Outputs at epsilon {epsilon:g}"
        name = f"dp-accounting {version('dp-accounting')}, PLD of the extreme inputs"
        rows.append(row(what, tern, peer, name, **composition.found))
    return rows


def run(clients, devices, repeats, flower):
    """Compare everything; return the machine and the rows."""
    return {
        "machine": machine(),
        "repeats": repeats,
        "rows": [
            *rounds(clients, repeats, flower),
            *reports(devices, repeats),
            *compositions(repeats),
        ],
    }


def main():
    parser = argparse.ArgumentParser(description="Compare the host with other software.")
    parser.add_argument("--flower", metavar="PYTHON", help="in which Flower is installed")
    parser.add_argument("--clients", type=positive_count, default=1_000, help="of a round")
    parser.add_argument("--devices", type=positive_count, default=1_000_000, help="that report")
    parser.add_argument(
        "--repeats", type=positive_count, default=5, help="of which the fastest counts"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = vars(parser.parse_args())
    as_json = args.pop("json")
    result = run(**args)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    print(f"CPU seconds, the least of {result['repeats']}, on {result['machine']}")
    for each in result["rows"]:
        print(f"{each['what']}:")
        print(
            f"  tern {each['tern_cpu_seconds']:g} s, {each['peer']}: {each['peer_cpu_seconds']:g} s"
        )
        print(f"  it takes {each['times']:g} times as long as tern")


if __name__ == "__main__":
    sys.exit(main())
