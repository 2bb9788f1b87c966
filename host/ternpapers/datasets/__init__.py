"""The data sets of the papers, in files that users must get themselves."""

from functools import partial
from pathlib import Path

from ternhost.datasets.base import REGRESSION, Dataset
from ternhost.datasets.sources import Source
from ternpapers.datasets import images, ipums, motions, vehicle, wisdm


def _above_mean(file: Path | None) -> Dataset:
    """Load census records whose label says whether the income is above the mean."""
    return ipums.ipums(file, dataset="ipums").above_mean(ipums.INCOME)


def _income(file: Path | None) -> Dataset:
    """Load census records whose label is the income."""
    return ipums.ipums(file, dataset="ipums-regression").regression(ipums.INCOME)


BASIC_MOTIONS = Source(
    motions.motions,
    positive=("Running", "Badminton"),
    has_file=True,
    about="the activity, from windows of a watch's acceleration and rotation",
)
WISDM = Source(
    wisdm.wisdm,
    positive=("Walking",),
    has_file=True,
    about="the activity, from windows of 10 seconds of a phone's acceleration",
)
WISDM_RECORDS = Source(
    wisdm.records,
    positive=("Walking",),
    has_file=True,
    table=wisdm.table,
    about="the activity, from single samples of a phone's acceleration",
)
VEHICLE = Source(
    vehicle.vehicle,
    positive=("3",),  # vehicle.py says why
    has_file=True,
    about="the kind of a vehicle, from 100 features of sensors beside a road",
)
VEHICLE_6 = Source(
    partial(vehicle.vehicle, last=6),
    positive=("3",),
    has_file=True,
    about="the same, from the last six features",
)
MNIST = Source(
    partial(images.load, "mnist"),
    positive=("1", "3", "5", "7", "9"),
    has_file=True,
    about="a digit in a picture of 7 x 7 pixels",
)
FASHION_MNIST = Source(
    partial(images.load, "fashion-mnist"),
    positive=("sandal", "sneaker", "ankle boot"),
    has_file=True,
    about="a piece of clothing in a picture of 7 x 7 pixels",
)
IPUMS = Source(
    _above_mean,
    has_file=True,
    table=ipums.ipums,
    about="whether the income of a person of a census is above the mean",
)
IPUMS_REGRESSION = Source(
    _income,
    REGRESSION,
    has_file=True,
    table=partial(ipums.ipums, dataset="ipums-regression"),
    about="the income of a person of a census",
)
