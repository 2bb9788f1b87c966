"""Rounds of Flower's simulation, for `benchmarks.peers`, which runs this file with another Python.

    python flower_rounds.py CLIENTS DIMENSION ROUNDS

Each client has one record, and takes one step of gradient descent on it for logistic regression.
FedAvg averages the models of all clients. Prints one JSON object: the version of Flower, and the
time of each round but the first, which also starts Ray. The CPU time is that of this process and of
all processes that it has started, directly or not.
"""

import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

RATE = 0.1
CLIENTS, DIMENSION, ROUNDS = map(int, sys.argv[1:])
client_app = ClientApp()
server_app = ServerApp()
# When each round ended, by the clock, and the CPU time until then.
ends = []


@client_app.train()
def train(message: Message, context: Context) -> Message:
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    chance = np.random.default_rng(context.node_config["partition-id"])
    features = chance.uniform(-1, 1, DIMENSION)
    label = chance.integers(0, 2)
    gradient = (1 / (1 + np.exp(-features @ weights)) - label) * features
    content = {
        "arrays": ArrayRecord([weights - RATE * gradient]),
        "metrics": MetricRecord({"num-examples": 1}),
    }
    return Message(content=RecordDict(content), reply_to=message)


class Timed(FedAvg):
    """FedAvg, which also notes when a round has ended."""

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        assert len(replies) == CLIENTS
        aggregated = super().aggregate_train(server_round, replies)
        ends.append((time.monotonic(), cpu_seconds()))
        return aggregated


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = Timed(
        fraction_train=1.0,
        fraction_evaluate=0.0,
        min_train_nodes=CLIENTS,  # else it counts the clients before they have connected
        min_available_nodes=CLIENTS,
    )
    initial = ArrayRecord([np.zeros(DIMENSION)])
    strategy.start(grid=grid, initial_arrays=initial, num_rounds=ROUNDS + 1)


def cpu_seconds():
    """The CPU time of this process and of all that descend from it."""
    parents = {}
    used = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        process = int(path.parent.name)
        parents[process] = int(fields[1])
        used[process] = sum(map(int, fields[11:15]))  # also of children that have ended
    total = 0
    for process, ticks in used.items():
        ancestor = process
        while ancestor in parents and ancestor != os.getpid():
            ancestor = parents[ancestor]
        if ancestor == os.getpid():
            total += ticks
    return total / os.sysconf("SC_CLK_TCK")


run_simulation(server_app, client_app, num_supernodes=CLIENTS)
rounds = [
    {"seconds": end[0] - start[0], "cpu_seconds": end[1] - start[1]}
    for start, end in zip(ends, ends[1:])  # noqa: B905, RUF007
]
print(json.dumps({"version": version("flwr"), "rounds": rounds}))
