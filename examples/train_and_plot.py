"""Train a model on simulated devices at three epsilons, and draw the accuracy round by round."""

import argparse

from matplotlib.figure import Figure

import ternhost
from ternhost import FedSGD, Simulated

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--clients", type=int, default=20_000)
parser.add_argument("--picture", default="accuracy.png")
args = parser.parse_args()

figure = Figure(layout="constrained")
axes = figure.subplots()
for epsilon in (0.5, 1, 2):
    learner = FedSGD(epsilon=epsilon, reports=args.clients)
    result = ternhost.train(learner, Simulated(args.clients))
    history = result.history
    axes.plot(history["reports"].cumsum(), history["accuracy"], label=f"epsilon {epsilon:g}")
    print(f"epsilon {epsilon:g}: accuracy {result.accuracy:.4f}, in {result.directory}")
axes.axhline(result.figures["accuracy_optimum"], color="k", linestyle=":", label="without privacy")
axes.set(xlabel="reports", ylabel="accuracy on held-out records")
axes.legend()
figure.savefig(args.picture)
print(f"look at {args.picture}")
