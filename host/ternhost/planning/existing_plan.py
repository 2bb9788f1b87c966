"""Estimates what a fleet that exists can learn, for two units of privacy side by side.

Here the number of devices is fixed, and each holds several records. One unit is a part of these
records: FedSum adds up noisy sums over many rounds. The other unit is the whole device: each answers
once, or a few times, about all of its records (`whole_devices`). Both are simulated several times,
with the same epsilon for the life of a device, and are compared with the best model on the same
records without privacy.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ternhost.learn.models import judging
from ternhost.learn.models.projections import Split
from ternhost.planning import quality, records
from ternhost.planning.cells import FinishedCells, run_cells
from ternhost.planning.existing import Existing, splits_to_try
from ternhost.planning.existing_runs import all_cells, best_weights, neighbours_of
from ternhost.planning.existing_units import part_of_records, reads_public_rows, whole_device


def plan(
    existing: Existing,
    progress: Callable[[str], None] = lambda message: None,
    *,
    epsilons: bool = False,
) -> dict[str, Any]:
    """Simulate the fleet several times; return the result for JSON, and for `side_by_side`.

    It has an entry for each unit of privacy, with how good the model is (`quality.of_runs`), and
    the same of other models to compare both with.

    progress: called with a line of text after each part of the work.
    epsilons: whether to simulate a quarter, half and twice the epsilon, too, with half as many
        runs, for a picture.
    Raises UsageError.
    """
    data, model = existing.loaded
    options = existing.options
    measure = judging.measure(data)
    learner = existing.learner(options.seed, str(options.public))
    holdings = learner.holdings
    assert holdings is not None
    has_public_rows = reads_public_rows(learner)
    splits = splits_to_try(existing, learner)
    neighbours: list[Existing] = []
    if epsilons:
        neighbours = neighbours_of(existing, progress)

    cells = all_cells(existing, splits, has_public_rows, neighbours)
    only_in_memory = FinishedCells(None, options={})
    rows = run_cells(cells, only_in_memory, progress, existing.workers)
    return {
        "data": options.data,
        "d": data.dimension,
        "model": model,
        "devices": existing.device_count,
        "records": learner.options.most_records,
        "held": len(holdings.order),
        "distinct": len(np.unique(holdings.order)),
        "run_epsilon": float(options.run_epsilon),
        "delta": float(options.delta),
        "measure": measure,
        **records.facts(data, model),
        "runs": existing.runs,
        **quality.of_reference(quality.of_baseline(data, model), "baseline"),
        "without_privacy": quality.of_runs(rows["without privacy"], measure),
        **_public_rows_alone(existing, splits[-1]),
        "units": [
            part_of_records(existing, learner, rows, measure, has_public_rows),
            whole_device(existing, learner, rows, measure, splits),
        ],
    }


def _public_rows_alone(existing: Existing, split: Split) -> dict[str, Any]:
    """Return how good a model is that learns from the labels of the public rows, without devices.

    It is named "public_alone", as of `quality.of_reference`, and "public_labels" is the number of
    these rows. The result is empty if the public rows have no labels. split: the reports of a
    device.
    """
    data, model = existing.loaded
    learner = existing.whole_devices(split).learner(data, model, existing.options.seed)
    reserved = np.asarray(learner.reserved, np.int64)
    if not len(reserved) or (data.labels[reserved] == data.labels[reserved[0]]).all():
        return {}
    weights = best_weights(data, model, reserved)
    quality_of_rows = quality.of_model(data, model, weights, learner.threshold_of(weights))
    figures = quality.of_reference(quality_of_rows, "public_alone")
    return {**figures, "public_labels": len(reserved)}
