"""A fleet that exists, to be planned for: its devices, its records, and the reports it can make."""

import math
from dataclasses import dataclass, replace

from tern.fixed import MAX_EPSILON
from ternhost.datasets import Dataset
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.models.projections import Split, best_split
from ternhost.learn.one_answer.direct import Direct
from ternhost.learn.sums.fedsum import FedSum, Options
from ternhost.options import require
from ternhost.planning import records
from ternhost.planning.one_report import RUNS
from ternhost.planning.whole_devices import MOST_HELD, WholeDevices, epsilon_text
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.units import DEVICE, parse_unit
from ternhost.text import counted

NO_ROWS = "none"  # of the option --public


@dataclass(frozen=True)
class Existing:
    """A fleet, and the options of FedSum on it.

    - devices: their number; None for the devices that the records name as their owners
    - options: those of FedSum; for its `data` see `records.load`
    - runs: how often training is simulated
    - workers: as in `run_cells`

    Raises UsageError for an option that makes no sense.
    """

    devices: int | None
    options: Options
    runs: int = RUNS
    workers: int | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for options that make no sense together."""
        require(self.runs >= 2, "runs", "2 or more", self.runs)
        most = MOST_HELD // self.options.most_records
        if self.devices is not None:
            require(1 <= self.devices <= most, "devices", f"1 to {most:,}", self.devices)
        if parse_unit(self.options.unit) == DEVICE:
            hint = "leave --unit out: the plan shows the unit device beside the unit record"
            raise UsageError("a fleet that exists is planned for a unit within a device", hint)

    @property
    def loaded(self) -> tuple[Dataset, str]:
        """The data set, and the name of the model: by default the one that suits the labels.

        The data set has owners if the devices are those that the records name. Raises UsageError if
        the user names the column of the devices, and another number of devices.
        """
        options = self.options
        data, model = records.load(options.data, options.model or None, options.selection)
        if data.owners is None or self.devices in (None, records.owner_count(data)):
            return data, model
        if options.by:
            devices = counted(records.owner_count(data), "device")
            text = f"--by {options.by}: {data.name} has records of {devices}, not of {self.devices}"
            raise UsageError(text, "leave out --devices or --by")
        return data.without_owners(), model

    @property
    def device_count(self) -> int:
        """The number of devices. Raises UsageError if neither the user nor the records tell it."""
        if self.devices is not None:
            return self.devices
        data, _ = self.loaded
        if data.owners is None:
            text = "a plan for a fleet that exists needs the number of its devices"
            hint = "such as --devices 20; or name the column of a table that says it: --by COLUMN"
            raise UsageError(text, hint)
        return records.owner_count(data)

    def learner(self, seed: int, public: str = NO_ROWS) -> FedSum:
        """Return FedSum for this fleet, with the records given to their owners, or else dealt.

        If there are too few to deal, several devices hold the same ones. seed: that of the run.
        public: which records FedSum may read without noise, as in its options.
        """
        data, model = self.loaded
        options = replace(self.options, seed=seed, public=public, model=model)
        if data.owners is not None:
            return FedSum(options, Population(), data)
        learner = FedSum(options, Population(clients=self.device_count, knows_records=False), data)
        learner.holdings = learner.deal(data, self.device_count, again=True)
        return learner

    def with_epsilon(self, epsilon: int) -> "Existing":
        """Return the same fleet with another epsilon of the whole run, in millionths."""
        return replace(self, options=replace(self.options, run_epsilon=epsilon_text(epsilon)))

    def whole_devices(self, split: Split) -> WholeDevices:
        """Return the same devices where each report protects all of a device's records.

        split: the reports among which a device divides the budget of its life.
        """
        data, _ = self.loaded
        number_of_records = self.options.records
        if data.owners is None:
            number_of_records = self.options.most_records
        names = ("data", "by", "time", "held_out", "public", "threshold")
        further = tuple((name, getattr(self.options, name)) for name in names)
        return WholeDevices(
            self.device_count, number_of_records, split.epsilon, split.reports, further
        )


def micro_epsilon(existing: Existing) -> int:
    """Return the epsilon of the whole run, in millionths."""
    most = 1000 * MICRO
    return parse_epsilon(existing.options.run_epsilon, most, "--run-epsilon")


def splits_to_try(existing: Existing, learner: FedSum) -> list[Split]:
    """Return the reports of a device to try: a single one, and the best split, if it is another.

    The last one is the best. Only where devices answer about all of their records there may be more
    than one report.

    learner: FedSum for the same model. Raises UsageError for an epsilon that no report can have.
    """
    budget = micro_epsilon(existing)
    one = Split(reports=1, epsilon=budget, variance=math.nan)
    if not can_split(existing, learner):
        parse_epsilon(existing.options.run_epsilon, option="--run-epsilon")
        return [one]
    best = best_split(budget, learner.d)
    if best.reports > 1 and budget <= MAX_EPSILON:  # a single report can have it, too
        return [one, best]
    return [best]


def can_split(existing: Existing, learner: FedSum) -> bool:
    """Return whether a device may answer several times. learner: FedSum for the same model."""
    data, model = existing.loaded
    any_split = Split(reports=1, epsilon=MICRO, variance=math.nan)
    learner_class = existing.whole_devices(any_split).learner_class(data, model)
    return learner_class is Direct and learner.options.most_records > 1


def split_to_run(existing: Existing, learner: FedSum) -> Split:
    """Return the best of `splits_to_try`."""
    return splits_to_try(existing, learner)[-1]
