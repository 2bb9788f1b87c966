"""The simulations of a plan for a fleet that exists, and how good each model is."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ternhost.datasets import Dataset, Indices
from ternhost.errors import UsageError
from ternhost.learn.models.optimum import fit
from ternhost.learn.models.projections import Split
from ternhost.learn.models.training import TrainingPlan
from ternhost.learn.parameters import MODELS, Floats
from ternhost.planning import quality
from ternhost.planning.cells import Cell, Row
from ternhost.planning.existing import NO_ROWS, Existing, micro_epsilon, split_to_run
from ternhost.planning.simulation import fleet_of, rounds, simulate

# The model is judged after these rounds, and after the last.
_JUDGED_ROUNDS = (1, 2, 3, 4, 8, 15, 30, 60, 100)
# The epsilons of the picture, as multiples of the one that the user asked for.
_NEIGHBOURS = (0.25, 0.5, 2.0)


def all_cells(
    existing: Existing,
    splits: Sequence[Split],
    has_public_rows: bool,
    neighbours: Sequence[Existing],
) -> list[Cell]:
    """Return all simulations of a plan.

    splits: the reports of a device to try. has_public_rows: whether to simulate with public rows
    and without. neighbours: the same fleet with other epsilons, for a picture.
    """
    options = existing.options
    as_asked = str(options.public)
    seeds = range(options.seed, options.seed + existing.runs)
    common = {"existing": existing}
    cells = Cell.for_each_combination(
        table="without privacy", work=_without_privacy, common=common, seed=seeds
    )
    # With public rows, if there are any, and without. With them there are fewer rounds, so that a
    # run takes less time.
    cost_of_run = {as_asked: 5}
    if has_public_rows:
        cost_of_run = {as_asked: 1, NO_ROWS: 5}
    for public, cost in cost_of_run.items():
        cells += Cell.for_each_combination(
            table="rounds", work=_learned, common=common, cost=cost, public=[public], seed=seeds
        )
    cells += Cell.for_each_combination(
        table="answers", work=_answered, common=common, split=splits, seed=seeds
    )

    few_seeds = seeds[: few_runs(existing)]
    for other in neighbours:
        common = {"existing": other}
        cells += Cell.for_each_combination(
            table="rounds",
            work=_learned,
            common=common,
            cost=cost_of_run[as_asked],
            public=[as_asked],
            seed=few_seeds,
        )
        best = split_to_run(other, other.learner(options.seed))
        cells += Cell.for_each_combination(
            table="answers", work=_answered, common=common, split=[best], seed=few_seeds
        )
    return cells


def neighbours_of(existing: Existing, progress: Callable[[str], None]) -> list[Existing]:
    """Return the same fleet with a quarter, half and twice the epsilon, for a picture.

    An epsilon at which one of the units has no report is left out. progress: as in `plan`.
    """
    neighbours = []
    for factor in _NEIGHBOURS:
        other = existing.with_epsilon(round(factor * micro_epsilon(existing)))
        try:
            learner = other.learner(other.options.seed)
            data, model = other.loaded
            best = split_to_run(other, learner)
            other.whole_devices(best).learner(data, model, other.options.seed)
        except UsageError as error:
            progress(f"the picture has no epsilon {other.options.run_epsilon}: {error}")
            continue
        neighbours.append(other)
    epsilons = ", ".join(str(other.options.run_epsilon) for other in neighbours)
    progress(f"for the picture, also epsilon {epsilons} with {few_runs(existing)} runs each")
    return neighbours


def few_runs(existing: Existing) -> int:
    """Return how many runs each of the other epsilons of a picture has."""
    return max(2, existing.runs // 2)


def _learned(existing: Existing, public: str, seed: int) -> list[Row]:
    """Run FedSum once; return how good its model is after each of the judged rounds.

    A row has the number of rounds, and how good the model is, as of `quality.of_model`. public,
    seed: as in `Existing.learner`.
    """
    learner = existing.learner(seed, public)
    fleet = fleet_of(learner, seed)
    epsilon = micro_epsilon(existing)
    rows: list[Row] = []
    for number, _ in enumerate(rounds(learner, fleet), start=1):
        if number in _JUDGED_ROUNDS or learner.done:
            run = {"public": public, "epsilon": epsilon, "seed": seed, "rounds": number}
            rows.append({**run, "reports": number, **quality.of_learner(learner)})
    return rows


def _answered(existing: Existing, split: Split, seed: int) -> list[Row]:
    """Train once from reports that each protect a device; return one row, as those of `_learned`.

    split: the reports of each device.
    """
    data, model = existing.loaded
    learner = existing.whole_devices(split).learner(data, model, seed)
    simulate(learner, seed)
    run = {"epsilon": micro_epsilon(existing), "seed": seed, "rounds": learner.rounds}
    return [{**run, "reports": split.reports, **quality.of_learner(learner)}]


def _without_privacy(existing: Existing, seed: int) -> list[Row]:
    """Return how good the best model on the same records is, as one row (`quality.of_model`)."""
    data, model = existing.loaded
    fedsum = existing.learner(seed)
    holdings = fedsum.holdings
    assert holdings is not None
    weights = best_weights(data, model, holdings.order)
    return [quality.of_model(data, model, weights, fedsum.threshold_of(weights))]


def best_weights(data: Dataset, model: str, positions: Indices) -> Floats:
    """Return the weights of the best model on the records at these positions, without privacy."""
    same_records = replace(data, features=data.features[positions], labels=data.labels[positions])
    nothing_held_out = np.zeros(len(positions), np.bool_)
    for_training = same_records.divided(nothing_held_out)
    return fit(MODELS[model], for_training, TrainingPlan.regularisation)
