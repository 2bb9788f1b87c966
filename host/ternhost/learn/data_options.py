"""Options of every run that uses records: which ones, whose they are, and which judge models."""

from dataclasses import dataclass
from functools import partial

from ternhost import datasets
from ternhost.datasets import Selection
from ternhost.datasets.on_devices import DeviceRecords
from ternhost.datasets.on_devices import parse as parse_device_records
from ternhost.options import OptionGroup, option, require

of_records = partial(option, group="the records")


@dataclass(frozen=True)
class OwnerOptions(OptionGroup):
    """The records, and the device that each belongs to."""

    data: str = of_records("flights", metavar="D")
    by: str = of_records("", metavar="COLUMN", shown="the schema's, or none")
    time: str = of_records("", metavar="COLUMN", shown="the schema's, or none")

    @property
    def owners(self) -> Selection:
        """Which device holds which records, with the records that judge models as the data say."""
        return Selection(self.by, self.time)

    @property
    def selection(self) -> Selection:
        """Which device holds which records, and which records judge models."""
        return self.owners

    @property
    def on_devices(self) -> DeviceRecords | None:
        """What is known of records that only the devices know; None if there is a data set.

        Raises UsageError.
        """
        return parse_device_records(self.data)


@dataclass(frozen=True)
class DataOptions(OwnerOptions):
    """The records, the device that each belongs to, and the records that judge models."""

    held_out: float | None = of_records(None, metavar="SHARE", shown="the schema's, or 0.1")

    def check(self) -> None:
        if self.held_out is not None:
            leaves_some = 0 < self.held_out < 1
            require(leaves_some, "held_out", "above 0 and below 1", self.held_out)

    @property
    def selection(self) -> Selection:
        return Selection(self.by, self.time, self.held_out)

    def load(self, *, classes: bool = False) -> datasets.Dataset:
        """Load the records as a data set for models: see `datasets.load`. Raises UsageError."""
        return datasets.load(self.data, classes=classes, selection=self.selection)
