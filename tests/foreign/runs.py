"""Simulated runs on the sets that tern does not bundle: each function makes rows of a `Cell`.

They train as `tern train` and plan as `tern plan` do, in memory. A seed determines all that is
random.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from foreign.sets import RIGHT, SETS, STATION_AND_WEEK, Files, files_of
from ternhost import datasets
from ternhost.datasets import CLASSIFICATION, MULTICLASS, Dataset, Selection
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.models import judging
from ternhost.learn.models.learning import Learning
from ternhost.learn.one_answer.direct import Direct
from ternhost.learn.parameters import MODELS, SUITED
from ternhost.learn.sums import fedsum
from ternhost.planning import existing_plan, one_report, quality
from ternhost.planning.cells import Row
from ternhost.planning.existing import Existing
from ternhost.planning.simulation import default, optimal_figures, simulate

RECORD, DEVICE = "record", "device"
UNITS = (RECORD, DEVICE)
NONE = "none"  # no public rows
NAMED = "named"  # the right public rows, and the share of label 1 is named, too
DEFAULT = "default"  # what `tern train` does if no option says anything of public rows

BOARDS = 20  # of which each holds many records, where the record is the unit
MOST_RECORDS = 500  # of such a board
MOST_DEVICES = 20_000  # of one record each, where the device is the unit


@dataclass(frozen=True)
class Fleet:
    """Devices of which each holds many records.

    devices, records: how many there are, and how many records are dealt to each. by: a column that
    says which device holds which record, in their place.
    """

    devices: int | None = None
    records: int | None = None
    by: str = ""


FLEETS = {  # by the name of the set
    "diamonds": Fleet(300, 150),
    "weather": Fleet(by=STATION_AND_WEEK),
    "fair": Fleet(20, 200),
}
_SEED_OF_PLANS = 1_001  # the first one, so that no run of a plan is one that it is compared with


@dataclass(frozen=True)
class Setting:
    """What a run trains with, beside its seed.

    - folder: where the files of the set are
    - name: of the set
    - unit: RECORD, where 20 boards hold many records each, or DEVICE, where each device holds one
    - epsilon: of all reports of a board, or of the one report of a device
    - is_fleet: whether the devices are those of FLEETS instead
    """

    folder: str
    name: str
    unit: str
    epsilon: str
    is_fleet: bool = False

    @property
    def files(self) -> Files:
        """The files of the set."""
        return files_of(self.name, Path(self.folder))

    @property
    def loaded(self) -> tuple[Dataset, str]:
        """The data set, and the name of the model that suits it."""
        by = ""
        if self.is_fleet:
            by = FLEETS[self.name].by
        return loaded(self.files.table, by)


@lru_cache(maxsize=1)
def loaded(table: Path, by: str = "") -> tuple[Dataset, str]:
    """Return the data set of a table, and the name of the model that suits it.

    by: the column that says which device holds a record; empty if any may.
    """
    task = datasets.task_of(str(table))
    dataset = datasets.load(str(table), classes=task == MULTICLASS, selection=Selection(by=by))
    return dataset, SUITED[task]


def devices_of(dataset: Dataset) -> int:
    """Return how many devices of one record each there are, no two of which hold the same one."""
    return min(MOST_DEVICES, len(dataset.training))


def records_of_board(dataset: Dataset) -> int:
    """Return how many records each board holds, no two of which are the same."""
    in_steps = 25  # so that the number is round
    return min(MOST_RECORDS, len(dataset.training) // BOARDS // in_steps * in_steps)


def has_direct(dataset: Dataset) -> bool:
    """Tell whether devices of one record each can answer once, for which public rows are of use."""
    return dataset.task == CLASSIFICATION


# Rows


def references(setting: Setting) -> list[Row]:
    """Return the figures of the model without privacy, and of the answer that knows no features."""
    dataset, model = setting.loaded
    optimum = optimal_figures(dataset, model)
    baseline = judging.baselines(dataset, MODELS[model])
    row: Row = {
        "measures": list(optimum),
        "boards": BOARDS,
        "records_of_board": records_of_board(dataset),
        "devices": devices_of(dataset),
    }
    for name in optimum:
        row[f"optimum_{name}"] = optimum[name]
        row[f"baseline_{name}"] = baseline[name]
    return [row]


def trained(setting: Setting, public: str, seed: int) -> list[Row]:
    """Train once; return the figures of the model, and how it decides on the rarer class.

    public: DEFAULT, NONE, NAMED, or the kind of public rows. If tern refuses them the row only says so.
    """
    try:
        learner = simulate(learner_of(setting, public, seed), seed)
    except UsageError as error:
        if public in (DEFAULT, NONE):
            raise
        return [{"refused": error.message}]
    assert learner.dataset is not None
    decided = judging.decisions(learner.dataset, MODELS[learner.model], learner.weights)
    return [{**learner.figures(), **_decisions(decided)}]


def _decisions(decided: dict[str, Any]) -> Row:
    """Return the numbers of `judging.decisions` that tables show."""
    row: Row = {}
    if decided:
        row["recall"] = decided["recall"]
        # A model of several classes has more of them than the rarest one.
        for name, recall in decided.get("recall_of_class", {}).items():
            row[f"recall_{name}"] = recall
        row["calibration"] = decided["mean_probability"] - decided["share"]
    return row


def learner_of(setting: Setting, public: str, seed: int) -> Learning:
    """Return the learner of a run before its first round. public: as of `trained`."""
    path = str(setting.files.table)
    dataset, model = setting.loaded
    file_of_rows, share = "", None
    if public == NAMED:
        file_of_rows = str(setting.files.public[RIGHT])
        share = round(float(dataset.shares[1]), 2)
    elif public not in (DEFAULT, NONE):
        file_of_rows = str(setting.files.public[public])
    if setting.unit == RECORD:
        if public == NONE:
            file_of_rows = NONE
        return _existing(setting, dataset).learner(seed, file_of_rows)
    if setting.is_fleet:
        return _direct_of_many(setting, file_of_rows or NONE, share, seed)

    devices = devices_of(dataset)
    if public == DEFAULT:
        return default(dataset, devices, seed, model, setting.epsilon)
    options = Direct.Options(
        data=path, model=model, epsilon=setting.epsilon, reports=devices, seed=seed
    )
    # Without rows, some devices tell of their features (--moments).
    options = replace(options, public=file_of_rows or NONE)
    return Direct(options, Population(clients=devices), dataset)


def _direct_of_many(setting: Setting, public: str, share: float | None, seed: int) -> Learning:
    """Return the learner from one report of each device of a fleet.

    public: as of its options. share: of label 1, if it is named.
    """
    dataset, model = setting.loaded
    fleet = FLEETS[setting.name]
    options = Direct.Options(
        data=str(setting.files.table),
        by=fleet.by,
        model=model,
        epsilon=setting.epsilon,
        records=fleet.records,
        public=public,
        share_of_positives=share,
        seed=seed,
    )
    return Direct.suited(options, Population(clients=fleet.devices), dataset)


def _existing(setting: Setting, dataset: Dataset) -> Existing:
    """Return the boards of a setting, with the options of their learner."""
    fleet = Fleet(BOARDS, records_of_board(dataset))
    if setting.is_fleet:
        fleet = FLEETS[setting.name]
    options = fedsum.Options(
        data=str(setting.files.table),
        by=fleet.by,
        run_epsilon=setting.epsilon,
        records=fleet.records,
        seed=_SEED_OF_PLANS,
    )
    return Existing(fleet.devices, options, workers=1)


def planned(setting: Setting) -> list[Row]:
    """Plan as `tern plan` does; return the interval in which a run is to lie, for each measure.

    The keys are the measure with _low and _high.
    """
    dataset, model = setting.loaded
    if setting.unit == RECORD:
        result = existing_plan.plan(_existing(setting, dataset))
        curve = result["units"][0]["curve"]
    else:
        options = one_report.Planned(
            epsilon=setting.epsilon,
            data=str(setting.files.table),
            model=model,
            devices=(devices_of(dataset),),
            seed=_SEED_OF_PLANS,
            workers=1,
        )
        result = one_report.plan(options)
        curve = result["curve"]
    last = curve[-1]
    row: Row = {}
    for measure, prefix in quality.measures(result):
        for end in ("low", "high"):
            row[f"{measure}_{end}"] = last[f"{prefix}run_{end}"]
    return [row]


def setting_of(
    folder: Path, name: str, unit: str, epsilon: str, *, is_fleet: bool = False
) -> Setting:
    """Return a setting. Raises KeyError for an unknown set."""
    return Setting(str(folder), SETS[name].name, unit, epsilon, is_fleet)
