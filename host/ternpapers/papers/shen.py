"""Shen et al., PLDP-FL: Federated Learning with Personalized Local Differential Privacy, Entropy
2023, 25, 485.

Clients draw an epsilon of a weight from E = {0.1, .., 1} and a safe range tau from L = {0.2, ..,
2}: in mode 1 the two lowest values, in mode 2 any, in mode 3 the two highest. They train for two
epochs as devices do, in integers, and report all weights, perturbed in floats as the paper
describes it (`tern train --algorithm fedavg --choices epsilon1,tau3` runs the same on devices, by
certified cards). So a client spends epsilon times the number of weights in each of its rounds.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from tern import frames
from tern.wire import LOGISTIC, SOFTMAX_GRADIENT
from ternhost.count.questions import report_bytes
from ternhost.datasets import CLASSIFICATION, MULTICLASS, Dataset, Fixed, Floats
from ternhost.errors import UsageError
from ternhost.learn import judging
from ternhost.learn.fedavg import DRAWN, EPSILONS, EXPONENT, TAUS
from ternhost.planning.cells import Cell, Row
from ternhost.planning.statistics import grouped, pick, values_of
from ternhost.vectorised import train_locally
from ternpapers import baseline
from ternpapers.base import Options, load
from ternpapers.figure import (
    NON_PRIVATE,
    RUNS,
    Axis,
    Figure,
    Trends,
    better,
    every,
    verdict,
)
from ternpapers.perturbing import MECHANISMS, ranged

_DATASET = "flights"
_CLIENTS, _RECORDS, _ROUNDS = 1000, 8, 12
_FEW = 70  # the paper's clients
_GAMMA = 0.3  # share of the clients in a round
_CENTRE = 1.0  # of the numbers of Fig. 2, which lie within tau of it
_MODES = tuple(DRAWN)
_MOST = 32767  # of a mantissa
Setting = tuple[
    str, str, str | None, str, str
]  # panel, curve, mechanism, mode of epsilon, mode of tau


def _drawn(mode: str, values: Sequence[float], clients: int, rng: np.random.Generator) -> Floats:
    """What each client draws in this mode."""
    return rng.choice(np.array(values, np.float64)[DRAWN[mode]], clients)


def perturbed(
    x: Floats, name: str, epsilons: Floats, taus: Floats, centre: float, rng: np.random.Generator
) -> Floats:
    """Reports (n x d) of values (n x d) by a mechanism at each client's own epsilon and safe range
    around a centre.
    """
    reports = np.empty_like(x)
    for epsilon, tau in sorted(set(zip(epsilons.tolist(), taus.tolist(), strict=True))):
        part = (epsilons == epsilon) & (taus == tau)
        reports[part] = ranged(MECHANISMS[name](epsilon), centre, tau)(x[part], rng)
    return reports


# Fig. 2


def _means(options: Options) -> list[Cell]:
    if options.dataset is not None:
        raise UsageError(
            "this figure has no data set: its numbers are drawn", hint="leave --dataset out"
        )
    common = {"seeds": options.seeds(400, 200, paper=1000)}
    return Cell.each(
        RUNS,
        _estimated,
        common,
        tau=_MODES,
        mechanism=("pdpm", "laplace", "duchi"),
        epsilon=EPSILONS,
    )


def _estimated(tau: str, mechanism: str, epsilon: str, seeds: Sequence[int]) -> list[Row]:
    errors = []
    for seed in seeds:
        rng = baseline.generator(seed)
        taus = _drawn(tau, TAUS, _FEW, rng)
        x = _CENTRE + taus * rng.uniform(-1, 1, _FEW)
        report = perturbed(x[:, None], mechanism, np.full(_FEW, float(epsilon)), taus, _CENTRE, rng)
        errors.append(abs(report.mean() - x.mean()) / abs(x.mean()))
    row = {"panel": f"tau in mode {tau}", "curve": mechanism, "epsilon": float(epsilon)}
    return [{**row, "run": i, "relative_error": float(error)} for i, error in enumerate(errors)]


# Training


@lru_cache(maxsize=2)
def _held(source: str, clients: int, records: int, seed: int) -> Fixed:
    """The records of each client: clients x records x (d + 1)."""
    data = load(source)
    order = np.random.default_rng([seed, 1]).permutation(data.training)
    return data.records(np.resize(order, clients * records)).reshape(clients, records, -1)


def _model(data: Dataset) -> int:
    if data.task not in (CLASSIFICATION, MULTICLASS):
        raise UsageError(f"the labels of {data.name} are no classes", hint="name another --dataset")
    return SOFTMAX_GRADIENT if data.task == MULTICLASS else LOGISTIC


def trained(
    source: str, mechanism: str | None, epsilon: str, tau: str, gamma: float, seed: int
) -> list[float]:
    """The first figure of the model after each round. mechanism: None for clients that report
    without noise.
    """
    data, rng = load(source), baseline.generator(seed)
    model, held = _model(data), _held(source, _CLIENTS, _RECORDS, seed)
    epsilons, taus = (
        _drawn(mode, [float(x) for x in of], _CLIENTS, rng)
        for mode, of in ((epsilon, EPSILONS), (tau, TAUS))
    )
    shape = (len(data.classes), data.dimension) if model == SOFTMAX_GRADIENT else (data.dimension,)
    weights, figures = np.zeros(shape), []
    for _ in range(_ROUNDS):
        asked = rng.choice(_CLIENTS, round(gamma * _CLIENTS), replace=False)
        start = np.clip(np.rint(weights * 2.0**-EXPONENT), -_MOST, _MOST).astype(np.int64)
        moved = np.asarray(
            train_locally(model, start, EXPONENT, held[asked], 2, 4, 1) * 2.0 ** (EXPONENT - 8),
            np.float64,
        )
        if mechanism is not None:
            moved = perturbed(moved, mechanism, epsilons[asked], taus[asked], 0.0, rng)
        weights = start * 2.0**EXPONENT + moved.mean(axis=0).reshape(shape)
        figures.append(next(iter(judging.figures(data, model, weights.reshape(-1)).values())))
    return figures


def _cells(work: object, options: Options, **choices: Sequence[object]) -> list[Cell]:
    source = options.dataset or _DATASET
    _model(load(source))
    common = {"source": source, "seeds": options.seeds(20, 3, paper=100)}
    return Cell.each(RUNS, work, common, **choices)  # type: ignore[arg-type]


def _by_round(
    source: str,
    curve: str,
    panel: str,
    mechanism: str | None,
    epsilon: str,
    tau: str,
    seeds: Sequence[int],
) -> list[Row]:
    runs = [trained(source, mechanism, epsilon, tau, _GAMMA, seed) for seed in seeds]
    common = {"panel": panel, "curve": curve}
    return [
        {**common, "round": number, "run": i, "figure": figure}
        for i, run in enumerate(runs)
        for number, figure in enumerate(run, 1)
    ]


def _rounds(options: Options, settings: Sequence[Setting]) -> list[Cell]:
    """A cell for each setting."""
    names = ("panel", "curve", "mechanism", "epsilon", "tau")
    return [
        cell
        for each in settings
        for cell in _cells(_by_round, options, **{n: [x] for n, x in zip(names, each, strict=True)})
    ]


def _modes_of_epsilon(options: Options) -> list[Cell]:
    settings: list[Setting] = [
        (f"tau in mode {tau}", f"epsilon in mode {e}", "pdpm", e, tau)
        for tau in _MODES
        for e in _MODES
    ]
    settings += [(f"tau in mode {tau}", NON_PRIVATE, None, "1", tau) for tau in _MODES]
    return _rounds(options, settings)


def _modes_of_tau(options: Options) -> list[Cell]:
    settings: list[Setting] = [
        (f"epsilon in mode {e}", f"tau in mode {tau}", "pdpm", e, tau)
        for e in _MODES
        for tau in _MODES
    ]
    return _rounds(options, settings)


def _against_laplace(options: Options) -> list[Cell]:
    settings: list[Setting] = [
        (f"epsilon in mode {e}", name, name, e, "1") for e in _MODES for name in ("pdpm", "laplace")
    ]
    settings += [(f"epsilon in mode {e}", NON_PRIVATE, None, e, "1") for e in _MODES]
    return _rounds(options, settings)


def _shares(options: Options) -> list[Cell]:
    return _cells(_by_share, options, gamma=(0.1, 0.2, 0.3, 0.5, 0.7, 1.0))


def _by_share(source: str, gamma: float, seeds: Sequence[int]) -> list[Row]:
    data = load(source)
    weights = data.dimension * max(1, len(data.classes))
    sent = report_bytes(frames.packed_size(3, weights)) * round(gamma * _CLIENTS) * _ROUNDS
    rows: list[Row] = [
        {
            "panel": "bytes that all clients send",
            "curve": "pdpm",
            "gamma": gamma,
            "run": 0,
            "value": sent,
        }
    ]
    for i, seed in enumerate(seeds):
        figure = trained(source, "pdpm", "3", "1", gamma, seed)[-1]
        rows.append(
            {"panel": "the model", "curve": "pdpm", "gamma": gamma, "run": i, "value": figure}
        )
    return rows


def _combinations(options: Options) -> list[Cell]:
    return _cells(_combined, options, epsilon=_MODES, tau=_MODES)


def _combined(source: str, epsilon: str, tau: str, seeds: Sequence[int]) -> list[Row]:
    common = {"panel": source, "curve": f"tau in mode {tau}", "epsilon_mode": int(epsilon)}
    return [
        {**common, "run": i, "figure": trained(source, "pdpm", epsilon, tau, _GAMMA, seed)[-1]}
        for i, seed in enumerate(seeds)
    ]


def _order(rows: Sequence[Row]) -> Trends:
    runs = grouped(rows, "epsilon_mode", "curve")
    of = {pair: np.array([row["figure"] for row in each]) for pair, each in runs.items()}
    epsilons, taus = values_of(rows, "epsilon_mode"), values_of(rows, "curve")
    return {
        "larger epsilons give better models": every(
            verdict(of[high, tau] - of[low, tau])
            for low, high in pairwise(epsilons)
            for tau in taus
        ),
        "smaller safe ranges give better models": every(
            verdict(of[e, narrow] - of[e, wide])
            for narrow, wide in pairwise(taus)
            for e in epsilons
        ),
    }


_ERRORS = partial(better, "relative_error", ("pdpm",), ("laplace",))


def _last(rows: Sequence[Row]) -> Trends:
    return better("figure", ("pdpm",), ("laplace",), pick(rows, round=_ROUNDS), larger=True)


_ROUND, _FIGURE = (
    Axis("round", "round"),
    Axis("figure", "AUC or accuracy on held-out records", larger=True),
)
_EPSILON, _ERROR = Axis("epsilon", "epsilon"), Axis("relative_error", "relative error", log=True)
_SHARE, _VALUE = Axis("gamma", "gamma"), Axis("value", "bytes; AUC or accuracy", larger=True)
_MODE = Axis("epsilon_mode", "mode of epsilon")
FIGURES: dict[str, Figure] = {
    "2": Figure(
        "relative error of a mean of 70 clients", _EPSILON, _ERROR, _means, _ERRORS, columns=3
    ),
    "3": Figure("share of the clients in a round, bytes and model", _SHARE, _VALUE, _shares),
    "4": Figure("models by round, by epsilon", _ROUND, _FIGURE, _modes_of_epsilon, columns=3),
    "5": Figure("models by round, by safe range", _ROUND, _FIGURE, _modes_of_tau, columns=3),
    "6": Figure(
        "models by round, PDPM and Laplace noise",
        _ROUND,
        _FIGURE,
        _against_laplace,
        _last,
        columns=3,
    ),
    "table-2": Figure(
        "nine combinations of epsilon and safe range", _MODE, _FIGURE, _combinations, _order
    ),
}
