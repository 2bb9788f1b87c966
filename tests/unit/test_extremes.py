"""Whatever Python hands to the public API, a wrong value is a TernError and nothing else.

The parameters are read from the functions and the options themselves, so that a new one is tried,
too.
"""

import inspect
from contextlib import suppress
from dataclasses import fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import ternhost
from ternhost import Simulated
from ternhost.learn.base import ALGORITHMS
from ternhost.options import options_of
from ternhost.run.begin import plan_run
from ternhost.run.options import RunOptions

pytestmark = pytest.mark.usefixtures("here")


class NoText:
    """An object that cannot even be shown."""

    def __repr__(self):
        raise RuntimeError("no text")


EXTREMES = [
    None,
    True,
    np.True_,
    0,
    -1,
    1,
    2**31,
    10**30,
    -(10**30),
    10**5000,
    0.0,
    0.5,
    -0.5,
    1e300,
    5e-324,
    float("nan"),
    float("inf"),
    -float("inf"),
    Decimal(0),
    Decimal("0.1"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    Decimal("1e999999"),
    Decimal("1e-999999"),
    Fraction(1, 3),
    1j,
    np.int64(-5),
    np.float32(0.25),
    np.float64("nan"),
    np.array(3),
    np.array([1.0, 2.0]),
    np.zeros((2, 0)),
    "",
    " ",
    "x",
    "nan",
    "1e9999999",
    "-1",
    "1:1",
    "1:0.5,2:0.5",
    "nan:1",
    "1:nan",
    ":,:",
    "devices:",
    "devices:0",
    "devices:-1:1e9",
    "devices:10:99999999999",
    "a" * 10_000,
    "\0",
    "\n",
    "\ud800",
    "../..",
    "/",
    b"",
    b"\x11\x80",
    bytes(70_000),
    [],
    [1, 2],
    {},
    {"a": 1},
    set(),
    object(),
    NoText(),
    print,
    int,
    Path(),
    Path("nothing"),
]


def name_of(value):
    """A name of an extreme for the report of a test."""
    with suppress(Exception):
        return f"{type(value).__name__} {value!r}"[:40]
    return type(value).__name__


extremes = pytest.mark.parametrize("value", EXTREMES, ids=map(name_of, EXTREMES))


def parameters_of_learners():
    """Each parameter of each learner."""
    for name, learner in ALGORITHMS.items():
        for option in options_of(learner.Options):
            yield pytest.param(learner.Options, option.name, id=f"{name}-{option.name}")


def parameters_of(*classes):
    """Each parameter of dataclasses that are not learners."""
    for cls in classes:
        for field in fields(cls):
            if field.init:
                yield pytest.param(cls, field.name, id=f"{cls.__name__}-{field.name}")


def only_tern_errors(call):
    """Call a function, which may raise a TernError, and return what it returns, or None."""
    with suppress(ternhost.TernError):
        return call()
    return None


@pytest.mark.parametrize(("learner", "parameter"), parameters_of_learners())
def test_a_wrong_parameter_of_a_learner_is_a_tern_error(learner, parameter):
    """A value that the learner takes is tried in a run, too, as far as its plan."""
    for value in EXTREMES:
        options = only_tern_errors(lambda value=value: learner(**{parameter: value}))
        if options is not None:
            only_tern_errors(lambda options=options: planned(options))


def planned(learner):
    """Plan a run of a learner, without writing anything."""
    run = ternhost.Run(learner, Simulated(200))
    run.check()


@pytest.mark.parametrize(
    ("cls", "parameter"), parameters_of(ternhost.Protection, ternhost.Terms, ternhost.Schedule)
)
def test_a_wrong_parameter_of_a_part_is_a_tern_error(cls, parameter):
    parts = {
        ternhost.Protection: "protection",
        ternhost.Terms: "terms",
        ternhost.Schedule: "schedule",
    }
    for value in EXTREMES:
        part = only_tern_errors(lambda value=value: cls(**{parameter: value}))
        if part is not None:
            run = {parts[cls]: part}
            only_tern_errors(lambda run=run: ternhost.Run(fleet=Simulated(200), **run))
