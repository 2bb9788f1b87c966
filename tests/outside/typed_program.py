"""A program of a user, which must pass `mypy --strict` against the installed package."""

import asyncio
from decimal import Decimal
from pathlib import Path

import ternhost
from ternhost import (
    Broker,
    Categorical,
    Data,
    Direct,
    Emulated,
    FedAvg,
    FedSGD,
    FedSum,
    Infer,
    Means,
    Numeric,
    Ports,
    Protection,
    Quantiles,
    Run,
    Schedule,
    Schema,
    Simulated,
    Status,
    Terms,
    Values,
)

statuses: list[Status] = []
directory: Path = Path("runs")

trained = ternhost.train(
    FedSGD(epsilon=2, reports=400, group=100, k=1, clip=4),
    Simulated(400),
    data="breast-cancer",
    protection=Protection(budget=Decimal(8), delta=1e-6),
    terms=Terms(deadline=None),
    name="first",
    directory=directory,
    on_status=statuses.append,
)
accuracy: float = trained.accuracy
weights: list[float] = trained.weights.tolist()
print(trained.name, accuracy, len(weights), len(statuses), trained.guarantees[0].run.words())
trained.plot().savefig("accuracy.png")

card = ternhost.design("pm-sub", Decimal("1.5"), 7)
print(card.epsilon, bool(card.certify("1.5")))
learners = (
    Direct(epsilon="0.5"),
    FedAvg(epsilon=0.5, card=card),
    FedSum(unit=60, run_epsilon=1),
    Means(unit="record"),
    Quantiles(quantiles=(0.5, "p90"), attributes=["petal width"], bins=64),
    Values(epsilons="1:0.5,4:0.5", card=card.data),
    Infer(answer="label"),
)
fleets = (Emulated(2), Emulated(1, "pico"), Ports("a0", "u1"), Broker(Path("my-broker")))
for fleet in fleets:
    print(fleet.name)


async def rounds() -> None:
    """Print the rounds of a run, while the event loop goes on."""
    async with Run(learners[0], Simulated(300), data="breast-cancer") as run:
        async for status in run:
            print(status.round, status.reports)
    print(run.result.figure("accuracy"))


asyncio.run(rounds())

for status in Run(FedSGD(), "simulated:200", data="iris", schedule=Schedule(rounds=2, every=0)):
    print(status.round)

collected = ternhost.collect(Values(epsilon=4), Simulated(200), data="wine")
for attribute in collected.attributes:
    estimate: float | None = attribute.estimate
    print(attribute.name, estimate)

distributions = ternhost.collect(Quantiles(quantiles=0.5), Simulated(200), data="wine")
for quantile in distributions.quantiles:
    interval: tuple[float, float] = (quantile.low, quantile.high)
    print(quantile.name, quantile.estimate, interval)
shares: list[float] = distributions.histograms["alcohol"].shares.tolist()

columns = {"home": ["a", "b"] * 50, "t": [5, 30] * 50, "state": ["cold", "warm"] * 50}
proposed: Schema = ternhost.describe(columns)
numbers = Numeric("t", Decimal(0), Decimal(40))
schema = Schema((numbers, Categorical("state", ("cold", "warm"))), label="state")
schema.write(directory / "mine.toml")
mine = Data(columns, by="home", held_out=0.2, schema=directory / "mine.toml")
of_mine = ternhost.train(FedSGD(epsilon=8), Simulated(2), data=mine)
names: list[str] = of_mine.device_model.predict({"t": [0, 40]}).tolist()
print(mine, proposed.label, names)
arrays = ([[0.5], [-0.5]] * 50, [1, -1] * 50)
print(ternhost.plan(FedSGD(epsilon=8), [50], data=arrays, runs=2, workers=1))

try:
    ternhost.train(FedSGD(epsilon=-1))
except ternhost.TernError as error:
    print(error.message, error.hint)
