"""Shen et al., PLDP-FL: Federated Learning with Personalized Local Differential Privacy.

Entropy 2023, 25, 485.

Clients draw an epsilon of a weight from E = {0.1, .., 1} and a safe range tau from L = {0.2, ..,
2}: in mode 1 the two lowest values, in mode 2 any, in mode 3 the two highest. They train for two
epochs as devices do, in integers, and report all weights, perturbed in floats as the paper
describes it. `tern train fedavg` runs the same on devices, by certified cards, with the --epsilons
that `ternpapers.safe_ranges` returns. So a client spends epsilon times the number of weights in
each of its rounds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from tern import frames
from tern.wire import LOGISTIC, SOFTMAX_GRADIENT
from ternhost.count.questions import report_bytes
from ternhost.datasets import CLASSIFICATION, MULTICLASS, Dataset, Fixed, Floats
from ternhost.errors import UsageError
from ternhost.learn import judging
from ternhost.learn.fedavg import EXPONENT
from ternhost.planning.cells import Cell, Row
from ternhost.planning.statistics import grouped, pick, values_of
from ternhost.vectorised import ModelParameters, train_locally
from ternpapers import baseline
from ternpapers.base import Options, load
from ternpapers.figure import (
    NON_PRIVATE,
    RUNS,
    Axis,
    Check,
    Figure,
    Verdict,
    better,
    every,
    gained,
)
from ternpapers.perturbing import MECHANISMS, ranged
from ternpapers.safe_ranges import DRAWN, EPSILONS, TAUS

_DATASET = "flights"
_CLIENTS, _RECORDS, _ROUNDS = 1000, 8, 12
_FEW = 70  # the paper's clients
_GAMMA = 0.3  # share of the clients in a round
_CENTRE = 1.0  # the numbers of Fig. 2 lie within tau of it
_MODES = tuple(DRAWN)
_MOST = 32767  # the largest mantissa
_EPOCHS, _BATCH = 2, 4  # of a client's training
_RATE = 1  # of a client's training, as a shift
_MORE_BITS = 8  # of the weights in a client's training than of those that it gets
_SYMBOLS = 3  # of PDPM's reports


@dataclass(frozen=True)
class Setting:
    """A curve of models by round.

    panel, curve: their names in the figure. mechanism: the name of the mechanism; None for no
    noise. epsilon, tau: the modes in which clients draw their epsilon and their safe range.
    """

    panel: str
    curve: str
    mechanism: str | None
    epsilon: str
    tau: str


def _drawn(mode: str, values: Sequence[float], clients: int, rng: np.random.Generator) -> Floats:
    """Draw one of the values that are allowed in a mode of the paper, for each client."""
    allowed = np.array(values, np.float64)[DRAWN[mode]]
    return rng.choice(allowed, clients)


def perturbed(
    x: Floats, name: str, epsilons: Floats, taus: Floats, centre: float, rng: np.random.Generator
) -> Floats:
    """Perturb values (n x d) at each client's own epsilon and safe range; return reports (n x d).

    name: that of the mechanism. epsilons: those of the n clients, for each value. taus: the half
    widths of their safe ranges. centre: the middle of all safe ranges.
    """
    reports = np.empty_like(x)
    choices = set(zip(epsilons.tolist(), taus.tolist(), strict=True))
    for epsilon, tau in sorted(choices):
        is_chosen = (epsilons == epsilon) & (taus == tau)
        perturb = ranged(MECHANISMS[name](epsilon), centre, tau)
        reports[is_chosen] = perturb(x[is_chosen], rng)
    return reports


# Fig. 2


def _means(options: Options) -> list[Cell]:
    """Return the cells of Fig. 2. Raises UsageError for a data set."""
    if options.data is not None:
        text = "this figure has no data set: its numbers are drawn"
        raise UsageError(text, hint="leave --data out")
    return Cell.for_each_combination(
        table=RUNS,
        work=_estimated,
        common={"seeds": options.seeds(default=400, quick=200, paper=1000)},
        tau=_MODES,
        mechanism=("pdpm", "laplace", "duchi"),
        epsilon=EPSILONS,
    )


def _estimated(tau: str, mechanism: str, epsilon: str, seeds: Sequence[int]) -> list[Row]:
    """Return the relative error of the mean of _FEW clients' numbers in each run.

    tau: the mode in which clients draw their safe ranges.
    """
    rows: list[Row] = []
    for run, seed in enumerate(seeds):
        rng = baseline.generator(seed)
        taus = _drawn(tau, TAUS, _FEW, rng)
        values = _CENTRE + taus * rng.uniform(-1, 1, _FEW)
        epsilons = np.full(_FEW, float(epsilon))
        reports = perturbed(values[:, None], mechanism, epsilons, taus, _CENTRE, rng)
        error = float(abs(reports.mean() - values.mean()) / abs(values.mean()))
        row = {"panel": f"tau in mode {tau}", "curve": mechanism, "epsilon": float(epsilon)}
        rows.append({**row, "run": run, "relative_error": error})
    return rows


# Training


@lru_cache(maxsize=2)
def _held(source: str, clients: int, records: int, seed: int) -> Fixed:
    """Deal records to clients at random; return those of each client (clients x records x (d + 1)).

    If there are too few, several clients hold the same ones.
    """
    data = load(source)
    order = np.random.default_rng([seed, 1]).permutation(data.training)
    positions = np.resize(order, clients * records)  # repeats the order if it is too short
    return data.records(positions).reshape(clients, records, -1)


def _model(data: Dataset) -> int:
    """Return the number of the model for a data set: softmax or logistic regression.

    Raises UsageError if the labels are no classes.
    """
    if data.task not in (CLASSIFICATION, MULTICLASS):
        raise UsageError(f"the labels of {data.name} are no classes", hint="name another --data")
    if data.task == MULTICLASS:
        return SOFTMAX_GRADIENT
    return LOGISTIC


def trained(
    source: str, mechanism: str | None, epsilon: str, tau: str, gamma: float, seed: int
) -> list[float]:
    """Train by federated averaging, and return how good the model is after each round.

    That is the AUC of two classes, else the accuracy. source: the data set. mechanism: its name;
    None for clients that report without noise. epsilon, tau: the modes in which clients draw their
    epsilon and their safe range. gamma: the share of the clients in a round.
    """
    data = load(source)
    rng = baseline.generator(seed)
    model = _model(data)
    records = _held(source, _CLIENTS, _RECORDS, seed)
    epsilons = _drawn(epsilon, [float(value) for value in EPSILONS], _CLIENTS, rng)
    taus = _drawn(tau, [float(value) for value in TAUS], _CLIENTS, rng)

    shape: tuple[int, ...] = (data.dimension,)
    if model == SOFTMAX_GRADIENT:
        shape = (len(data.classes), data.dimension)
    weights = np.zeros(shape)
    figures: list[float] = []
    for _ in range(_ROUNDS):
        clients = rng.choice(_CLIENTS, round(gamma * _CLIENTS), replace=False)
        # The mantissas of the weights, as devices get them: weights = mantissas * 2**EXPONENT.
        mantissas = np.rint(weights * 2.0**-EXPONENT)
        start = np.clip(mantissas, -_MOST, _MOST).astype(np.int64)
        updates = _local_updates(model, start, records[clients])
        if mechanism is not None:
            updates = perturbed(
                updates, mechanism, epsilons[clients], taus[clients], centre=0.0, rng=rng
            )
        weights = start * 2.0**EXPONENT + updates.mean(axis=0).reshape(shape)
        first_figure, *_ = judging.figures(data, model, weights.reshape(-1)).values()
        figures.append(first_figure)
    return figures


def _local_updates(model: int, start: npt.NDArray[np.int64], records: Fixed) -> Floats:
    """Train on each client's records as devices do; return how much its weights move (n x weights).

    start: the mantissas of the weights, with EXPONENT. The results of devices have eight more bits.
    """
    parameters = ModelParameters(model, start, EXPONENT)
    mantissas = train_locally(parameters, records, _EPOCHS, _BATCH, _RATE)
    return np.asarray(mantissas * 2.0 ** (EXPONENT - _MORE_BITS), np.float64)


def _cells(
    work: Callable[..., list[Row]], options: Options, **choices: Sequence[object]
) -> list[Cell]:
    """Return a cell for each combination of the choices, on the data set of the options.

    work: what each cell calls, with the data set, the seeds and a combination.
    """
    source = options.data or _DATASET
    _model(load(source))  # raises if its labels are no classes
    seeds = options.seeds(default=20, quick=3, paper=100)
    common = {"source": source, "seeds": seeds}
    return Cell.for_each_combination(table=RUNS, work=work, common=common, cost=1.0, **choices)


def _by_round(source: str, setting: Setting, seeds: Sequence[int]) -> list[Row]:
    """Return how good the model of a curve is after each round of each run."""
    rows: list[Row] = []
    for run, seed in enumerate(seeds):
        figures = trained(
            source, setting.mechanism, setting.epsilon, setting.tau, gamma=_GAMMA, seed=seed
        )
        for number, figure in enumerate(figures, start=1):
            row = {"panel": setting.panel, "curve": setting.curve, "round": number}
            rows.append({**row, "run": run, "figure": figure})
    return rows


def _rounds(options: Options, settings: Sequence[Setting]) -> list[Cell]:
    """Return a cell for each curve."""
    return _cells(_by_round, options, setting=settings)


def _modes_of_epsilon(options: Options) -> list[Cell]:
    """Return the cells of Fig. 4: a panel for each mode of tau, with PDPM and without privacy."""
    settings = []
    for tau, epsilon in product(_MODES, _MODES):
        panel, curve = f"tau in mode {tau}", f"epsilon in mode {epsilon}"
        settings.append(Setting(panel, curve, "pdpm", epsilon, tau))
    for tau in _MODES:
        settings.append(Setting(f"tau in mode {tau}", NON_PRIVATE, None, "1", tau))
    return _rounds(options, settings)


def _modes_of_tau(options: Options) -> list[Cell]:
    """Return the cells of Fig. 5: a panel for each mode of epsilon, with PDPM."""
    settings = []
    for epsilon, tau in product(_MODES, _MODES):
        panel, curve = f"epsilon in mode {epsilon}", f"tau in mode {tau}"
        settings.append(Setting(panel, curve, "pdpm", epsilon, tau))
    return _rounds(options, settings)


def _against_laplace(options: Options) -> list[Cell]:
    """Return the cells of Fig. 6: PDPM, Laplace noise and no privacy, for each mode of epsilon."""
    settings = []
    for epsilon, name in product(_MODES, ("pdpm", "laplace")):
        settings.append(Setting(f"epsilon in mode {epsilon}", name, name, epsilon, "1"))
    for epsilon in _MODES:
        settings.append(Setting(f"epsilon in mode {epsilon}", NON_PRIVATE, None, epsilon, "1"))
    return _rounds(options, settings)


def _shares(options: Options) -> list[Cell]:
    """Return the cells of Fig. 3: several shares of the clients in a round."""
    return _cells(_by_share, options, gamma=(0.1, 0.2, 0.3, 0.5, 0.7, 1.0))


def _by_share(source: str, gamma: float, seeds: Sequence[int]) -> list[Row]:
    """Return the bytes that all clients send, and how good the final model of each run is.

    gamma: the share of the clients in a round.
    """
    data = load(source)
    weights = data.dimension * max(1, len(data.classes))
    bytes_of_report = report_bytes(frames.packed_size(_SYMBOLS, weights))
    all_bytes = bytes_of_report * round(gamma * _CLIENTS) * _ROUNDS
    common = {"curve": "pdpm", "gamma": gamma}
    rows: list[Row] = [
        {"panel": "bytes that all clients send", **common, "run": 0, "value": all_bytes}
    ]
    for run, seed in enumerate(seeds):
        figure = trained(source, "pdpm", "3", "1", gamma, seed)[-1]
        rows.append({"panel": "the model", **common, "run": run, "value": figure})
    return rows


def _combinations(options: Options) -> list[Cell]:
    """Return the cells of Table 2: every mode of epsilon with every mode of tau."""
    return _cells(_combined, options, epsilon=_MODES, tau=_MODES)


def _combined(source: str, epsilon: str, tau: str, seeds: Sequence[int]) -> list[Row]:
    """Return how good the final model of each run is, with these modes of epsilon and tau."""
    common = {"panel": source, "curve": f"tau in mode {tau}", "epsilon_mode": int(epsilon)}
    rows = []
    for run, seed in enumerate(seeds):
        figure = trained(source, "pdpm", epsilon, tau, _GAMMA, seed)[-1]
        rows.append({**common, "run": run, "figure": figure})
    return rows


def _figures_by_modes(rows: Sequence[Row]) -> dict[tuple[int, str], Floats]:
    """Return how good the models of all runs are, by the mode of epsilon and the curve of tau."""
    figures = {}
    for (epsilon_mode, curve), runs in grouped(rows, "epsilon_mode", "curve").items():
        figures[epsilon_mode, curve] = np.array([row["figure"] for row in runs])
    return figures


def _larger_epsilons_are_better(rows: Sequence[Row]) -> Verdict:
    """Test whether the next mode of epsilon gives better models, at each mode of tau."""
    figures = _figures_by_modes(rows)
    cases = []
    modes = pairwise(values_of(rows, "epsilon_mode"))
    for (lower, higher), tau in product(modes, values_of(rows, "curve")):
        cases.append(gained(figures[higher, tau] - figures[lower, tau]))
    return every(cases)


def _smaller_ranges_are_better(rows: Sequence[Row]) -> Verdict:
    """Test whether the mode of tau before gives better models, at each mode of epsilon."""
    figures = _figures_by_modes(rows)
    cases = []
    modes = pairwise(values_of(rows, "curve"))
    for (narrower, wider), epsilon in product(modes, values_of(rows, "epsilon_mode")):
        cases.append(gained(figures[epsilon, narrower] - figures[epsilon, wider]))
    return every(cases)


_ORDER = {
    "larger epsilons give better models": _larger_epsilons_are_better,
    "smaller safe ranges give better models": _smaller_ranges_are_better,
}
_THAN_LAPLACE = "PDPM is better than Laplace noise"
_ERRORS = {_THAN_LAPLACE: partial(better, "relative_error", ("pdpm",), ("laplace",))}


def _last(rows: Sequence[Row]) -> Verdict:
    """Test whether the final models are better with PDPM than with Laplace noise."""
    return better("figure", ("pdpm",), ("laplace",), pick(rows, round=_ROUNDS), larger=True)


_ROUND = Axis("round", "round")
_FIGURE = Axis("figure", "AUC or accuracy on held-out records", larger=True)
_EPSILON = Axis("epsilon", "epsilon")
_ERROR = Axis("relative_error", "relative error", log=True)
_SHARE = Axis("gamma", "gamma")
_VALUE = Axis("value", "bytes; AUC or accuracy", larger=True)
_MODE = Axis("epsilon_mode", "mode of epsilon")


def _by_rounds(
    title: str,
    cells: Callable[[Options], list[Cell]],
    statements: Mapping[str, Check] | None = None,
) -> Figure:
    """Return a figure of models by round, with three panels beside each other."""
    return Figure(f"models by round, {title}", _ROUND, _FIGURE, cells, statements or {}, columns=3)


_MEAN_ERRORS = "relative error of a mean of 70 clients"
_COMBINATIONS = "nine combinations of epsilon and safe range"
FIGURES: dict[str, Figure] = {
    "2": Figure(_MEAN_ERRORS, _EPSILON, _ERROR, _means, _ERRORS, columns=3),
    "3": Figure("share of the clients in a round, bytes and model", _SHARE, _VALUE, _shares),
    "4": _by_rounds("by epsilon", _modes_of_epsilon),
    "5": _by_rounds("by safe range", _modes_of_tau),
    "6": _by_rounds("PDPM and Laplace noise", _against_laplace, {_THAN_LAPLACE: _last}),
    "table-2": Figure(_COMBINATIONS, _MODE, _FIGURE, _combinations, _ORDER),
}
