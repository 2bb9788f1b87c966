"""Measures the error of estimated means for each mechanism, by epsilon.

The values are Gaussian attributes, and the numbers of a data set. The paper has 16 dimensions and
Gaussians of means 0, 1/3, 2/3 and 1, truncated to [-1, 1]. Every client reports k of its d
attributes (Algorithm 6 of Zhao et al. 2021). The error is the squared error of a mean, averaged
over the d means and the runs. The optimal card has the least mean second moment for equally likely
values.
"""

from functools import lru_cache

from ternhost import datasets
from ternhost.datasets.shipped import synthetic
from ternhost.learn.collecting import collect
from ternhost.learn.designs import coordinates_by_rule
from ternhost.planning.cells import Cell, Row
from ternhost.planning.simulation import collection, repeated, squared_error
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO
from ternpapers.base import Contender, Options
from ternpapers.figure import RUNS, Axis, Figure

_COMPARED = ("laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub", "hm-tp", "rr3", "optimal")
_D = 16  # attributes of a client
_REAL = "flights"
_GAUSSIANS = {f"Gaussian, mean {mean:.2g}": mean for mean in (0.0, 1 / 3, 2 / 3, 1.0)}


@lru_cache(maxsize=4)
def _values(source: str, clients: int, seed: int) -> datasets.Fixed:
    """Return the values of each client (clients x d).

    source: a name of _GAUSSIANS, or a data set.
    """
    if source in _GAUSSIANS:
        return synthetic.attributes(clients, _D, mean=_GAUSSIANS[source], seed=seed).numeric
    return collect.load(source)[0].numeric[:clients]


def cells(options: Options) -> list[Cell]:
    """Return a cell for each source of values, epsilon and mechanism.

    A cell measures how far the means that are estimated from noisy reports are from the true ones.
    """
    clients = 100_000
    epsilons = [0.5, 1.0, 2.0, 4.0, 6.0, 8.0]
    if options.quick:
        clients = 20_000
        epsilons = [1.0, 4.0]
    seeds = options.seeds(default=40, quick=3, step=1000)
    return Cell.for_each_combination(
        table=RUNS,
        work=_collected,
        common={"clients": clients, "seeds": seeds},
        cost=_cost,
        source=options.sets(_REAL, *_GAUSSIANS),
        epsilon=epsilons,
        contender=options.compared(*_COMPARED).values(),
    )


def _cost(contender: Contender, **_: object) -> float:
    """Return the relative duration of a cell: the optimal card is searched for, which takes long."""
    if contender.label == "optimal":
        return 15
    return 1


def _collected(
    source: str, clients: int, epsilon: float, contender: Contender, seeds: range
) -> list[Row]:
    """Collect means with a mechanism, and return their squared error in each run.

    A client reports k of its values, each at epsilon / k.
    """
    values = _values(source, clients, seeds[0])
    micro_epsilon = round(epsilon * MICRO)
    k = coordinates_by_rule("wide", micro_epsilon, values.shape[1])
    card = contender.card(micro_epsilon // k, mechanisms.VALUES)
    algorithm = collection(values, epsilon=f"{epsilon:g}", k=k, card=card.data.hex())
    common = {
        "panel": source,
        "clients": len(values),
        "d": values.shape[1],
        "epsilon": epsilon,
        "k": k,
    }
    rows = []
    for run, collected in enumerate(repeated(algorithm, seeds)):
        error = squared_error(collected)
        rows.append({**common, "curve": contender.label, "run": run, "squared_error": error})
    return rows


FIGURE = Figure(
    "errors of means by tern's reports",
    Axis("epsilon", "epsilon of a client's report"),
    Axis("squared_error", "mean squared error of a mean", log=True),
    cells,
)
outcome = FIGURE.outcome
