"""Whatever Python hands to the public API, a wrong value is a TernError and nothing else.

The parameters are read from the functions and the options themselves, so that a new one is tried,
too.
"""

import inspect
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import ternhost
import ternhost.api.learners
from ternhost import Simulated
from ternhost.learn.base import ALGORITHMS
from ternhost.options import options_of
from terntools.boards import api

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
    "²",
    "9" * 5000,
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


@pytest.mark.parametrize(("learner", "parameter"), list(parameters_of_learners()))
def test_a_wrong_parameter_of_a_learner_is_a_tern_error(learner, parameter):
    for value in EXTREMES:
        only_tern_errors(lambda value=value: learner(**{parameter: value}))


@pytest.mark.slow
@pytest.mark.parametrize(("learner", "parameter"), list(parameters_of_learners()))
def test_what_a_learner_takes_is_planned_or_refused(learner, parameter):
    """A run with each value that the learner takes is planned as far as that goes without one."""
    tried = []
    for value in EXTREMES:
        options = only_tern_errors(lambda value=value: learner(**{parameter: value}))
        if options is None or options in tried:
            continue
        tried.append(options)
        only_tern_errors(lambda options=options: ternhost.Run(options, Simulated(200)).check())


# Records

CELLS = [1.0, -0.5, 0.25, 0.0]


def records_of_numpy():
    """Records of wrong shapes and types, and some that are taken."""
    good, labels = np.array([CELLS, CELLS]).T, np.array([1, -1, 1, -1])
    yield from (None, [], (), {}, [[1.0, 1]], [CELLS, CELLS, CELLS], good, labels, iter([good]))
    yield from ((good, labels), [good.tolist(), labels.tolist()], (good, good), (good, labels[:2]))
    yield from ((good[None], labels), (good[:0], labels[:0]), (good[:, :0], labels), (labels, good))
    yield from ((good, labels * 0), (good, labels > 0), (good, labels.astype(str)), (good, None))
    for value in (np.nan, np.inf, 1j):
        yield from ((np.full((4, 2), value), labels), (good, np.full(4, value)))
    yield from ((good.astype(object), labels), (good, [1, "x", None, 2]))
    yield ([[1, 2], [3]], [1, 2])
    yield (np.array([[object()] * 2] * 4), labels)
    yield (np.ma.masked_array(good, good > 0.5), labels)
    yield ((row for row in good), labels)
    yield {"a": CELLS}
    for wrong in ([], "abcd", b"abcd", 3, None, [NoText()] * 4, [[1], [2], [3], [4]], good):
        yield {"a": wrong, "y": labels}
    for names in ((1, 2), ("", "y"), (None, float("nan")), (b"a", "y"), (("a", 1), ("a", 2))):
        yield dict(zip(names, (CELLS, labels), strict=True))
    yield {"a": CELLS, " a": CELLS, "y": labels}
    for value in EXTREMES:
        yield {"a": [value] * 4, "y": labels}
        yield {"a": CELLS, "y": [value] * 4}
        yield {"a": CELLS, "y": [value, 1, value, 1]}


def records_of_pandas():
    """Data frames of many shapes and types."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": CELLS, "b": CELLS, "y": [1, -1, 1, -1]})
    yield from (frame, frame[:0], frame[["y"]], frame["a"], frame.iloc[:, :0], frame.T)
    yield from (frame.set_axis(["a", "a", "y"], axis=1), frame.set_axis([1, 2, 3], axis=1))
    yield frame.set_axis([None, 2.5, pandas.Timestamp(0)], axis=1)
    yield frame.set_axis(pandas.MultiIndex.from_product([["a"], [1, 2, 3]]), axis=1)
    yield frame.assign(y=1)
    yield frame.assign(a=pandas.to_datetime(["2026-01-01"] * 4))
    yield frame.assign(a=pandas.to_timedelta([1, 2, 3, 4]))
    for value in (float("nan"), float("inf"), None, pandas.NA, pandas.NaT, "x", 1j, NoText()):
        yield frame.assign(a=[value, *CELLS[1:]])
        yield frame.assign(y=[value, 1, -1, 1])
    yield frame.astype(object)
    yield frame.convert_dtypes()
    for kind in ("category", "string", "bool", "Int64", "float32"):
        yield frame.assign(a=frame["a"].round()).astype({"a": kind, "y": kind})


@pytest.mark.parametrize("records", [records_of_numpy, records_of_pandas])
@pytest.mark.parametrize("function", [ternhost.train, ternhost.collect, ternhost.infer])
def test_wrong_records_are_a_tern_error(records, function):
    for data in records():
        only_tern_errors(lambda data=data: ternhost.Data(data).options())
    for data in records():
        parts = {"data": data, "directory": "runs"}
        run = only_tern_errors(lambda parts=parts: ternhost.Run(LEARNERS[function], **parts))
        if run is not None:
            only_tern_errors(run.check)


@pytest.mark.parametrize("records", [records_of_numpy, records_of_pandas])
def test_wrong_rows_for_a_model_are_a_tern_error(records):
    model = ternhost.DeviceModel(1, np.array([[5, 6, 7]], np.int16), -14)
    by_schema = replace(model, features=("constant", "a", "b"), schema=SCHEMA)
    for rows in (*records(), *EXTREMES):
        for each in (model, replace(by_schema, schema=None), by_schema):
            only_tern_errors(lambda each=each, rows=rows: each.predict(rows))
        only_tern_errors(lambda rows=rows: ternhost.describe(rows))


@pytest.mark.parametrize("name", ["by", "time", "held_out", "label", "schema"])
def test_a_wrong_field_of_data_is_a_tern_error(name):
    columns = {"a": CELLS, "b": CELLS, "y": [1, -1, 1, -1]}
    for value in EXTREMES:
        data = only_tern_errors(lambda value=value: ternhost.Data(columns, **{name: value}))
        if data is not None:
            repr(data)
            run = only_tern_errors(lambda data=data: ternhost.Run(FEDSGD, "simulated:2", data=data))
            only_tern_errors(lambda run=run: run and run.check())


PARTS = {
    ternhost.Protection: "protection",
    ternhost.Terms: "terms",
    ternhost.Schedule: "schedule",
}


@pytest.mark.parametrize(("cls", "parameter"), list(parameters_of(*PARTS)))
def test_a_wrong_parameter_of_a_part_is_a_tern_error(cls, parameter):
    for value in EXTREMES:
        part = only_tern_errors(lambda value=value: cls(**{parameter: value}))
        if part is not None:
            run = {PARTS[cls]: part}
            only_tern_errors(lambda run=run: ternhost.Run(FEDSGD, Simulated(200), **run))


# Functions and classes that are called with arguments: valid ones, to which one extreme is added.
FEDSGD = ternhost.FedSGD(reports=20)
LEARNERS = {
    ternhost.train: FEDSGD,
    ternhost.collect: ternhost.Values(),
    ternhost.infer: ternhost.Infer(),
}
SCHEMA = ternhost.Schema(
    (
        ternhost.Numeric("a", Decimal(-3), Decimal(3)),
        ternhost.Categorical("b", ("x", "y")),
        ternhost.Numeric("y", Decimal(-3), Decimal(3)),
    ),
    label="y",
)
CARD = ternhost.design("duchi", 1)
VALID = {
    ternhost.Run: {"learner": FEDSGD, "fleet": Simulated(200)},
    ternhost.Run.resume: {"run": "mine"},
    ternhost.resume: {"run": "mine"},
    ternhost.list_runs: {},
    ternhost.Result.load: {"run": "mine"},
    ternhost.Simulated: {"devices": 3},
    ternhost.Emulated: {"boards": 3},
    ternhost.Broker: {"directory": "mine"},
    ternhost.design: {"mechanism": "duchi", "epsilon": 1},
    ternhost.Card: {"data": CARD.data},
    ternhost.Card.load: {"path": "mine.card"},
    CARD.certify: {},
    CARD.distribution: {"value": 0.5},
    ternhost.write_statement: {"what": "mine"},
    ternhost.account: {"card": CARD, "rounds": 2},
    ternhost.fleet_summary: {"place": "mine"},
    ternhost.RoundsForYears: {"years": 2, "every": "1h"},
    ternhost.Statistic: {"statistic": "mean"},
    ternhost.first_unusual: {"limits": [0, 32767], "rows": [[1, 2]]},
    ternhost.certify: {"matrix": [["3/4", "1/4"], ["1/4", "3/4"]]},
}
# The functions of the tools for boards.
MEMBER = api.MemberOptions(7, "iris", store="mine.sqlite")
UPDATE = api.UpdateOptions("mine.py", broker="mine")
VALID |= {
    api.MemberOptions: {"device": 7, "data": "iris"},
    api.UpdateOptions: {"main": "mine.py", "broker": "mine"},
    api.up: {"board": "mine", "options": MEMBER},
    api.update: {"devices": [7], "options": UPDATE},
    api.records: {"board": "mine"},
}
# What is not called by users with arguments of their own, or is tried elsewhere in this file.
ELSEWHERE = {
    "Account",
    "Attribute",
    "Categorical",
    "CollectResult",
    "Data",
    "DeviceModel",
    "describe",
    "Numeric",
    "Schema",
    "FleetChoice",
    "FleetSummary",
    "Histogram",
    "InferResult",
    "Ports",
    "Result",
    "PlanResult",
    "Quantile",
    "Status",
    "Store",
    "TrainResult",
    "Verdict",
    "list_cards",
    *(cls.__name__ for cls in PARTS),
}
# With few runs, what is taken is planned quickly; large numbers of devices and runs would take long.
WRONG_OF_PLANS = ({"learner": 3}, {"devices": "x"}, {"devices": [1.5]}, {"devices": True})
WRONG_OF_PLANS += ({"goal": float("nan")}, {"runs": 1.5}, {"runs": 0}, {"workers": 0})
WRONG_OF_PLANS += ({"on_progress": 3}, {"devices": 0}, {"devices": []}, {"workers": "x"})
WRONG_OF_PLANS += ({"rounds": 2}, {"rounds": "1h"}, {"on_progress": 0})
WRONG_OF_PLANS += ({"on_progress": np.array([1, 2])},)


@pytest.mark.parametrize("wrong", WRONG_OF_PLANS, ids=str)
def test_a_wrong_argument_of_a_plan_is_a_tern_error(wrong):
    with pytest.raises(ternhost.TernError):
        ternhost.plan(**{"learner": ternhost.FedSGD(), "devices": 100} | wrong)


LIKE_RUN = {"train", "collect", "infer", "serve"}  # which take what Run takes


def parameters_of_functions():
    """Each parameter of each function of `VALID`."""
    for function in VALID:
        for name in inspect.signature(function).parameters:
            yield pytest.param(function, name, id=f"{function.__qualname__}-{name}")


@pytest.mark.parametrize(("function", "parameter"), list(parameters_of_functions()))
def test_a_wrong_argument_of_a_function_is_a_tern_error(function, parameter):
    for value in EXTREMES:
        arguments = {**VALID[function], parameter: value}
        only_tern_errors(lambda arguments=arguments: function(**arguments))


def test_a_wrong_cell_of_a_table_of_probabilities_is_a_tern_error():
    for value in EXTREMES:
        only_tern_errors(lambda value=value: ternhost.certify([[value, "1/4"], ["1/4", "3/4"]]))


def test_a_wrong_name_in_a_table_of_probabilities_is_a_tern_error():
    halves = [["1/2", "1/2"], ["1/2", "1/2"]]
    for value in EXTREMES:
        only_tern_errors(lambda value=value: ternhost.certify(halves, inputs=[value, "1"]))


def test_a_wrong_path_of_a_store_is_a_tern_error():
    for value in EXTREMES:
        store = only_tern_errors(lambda value=value: ternhost.Store(value))
        if store is not None:
            store.close()


@pytest.mark.parametrize("value", range(len(EXTREMES)))
def test_a_wrong_port_is_a_tern_error(value):
    only_tern_errors(lambda: ternhost.Ports(EXTREMES[value]))


@pytest.mark.parametrize("name", sorted(LIKE_RUN))
def test_a_function_that_carries_out_a_run_takes_what_a_run_takes(name):
    of_function = inspect.signature(getattr(ternhost, name)).parameters.keys()
    assert of_function <= inspect.signature(ternhost.Run).parameters.keys()


def test_everything_that_is_exported_is_tried():
    tried = {function.__qualname__.partition(".")[0] for function in VALID}
    learners = {cls.__name__ for cls in vars(ternhost.api.learners).values() if is_dataclass(cls)}
    elsewhere = ELSEWHERE | {"plan"}
    errors = {name for name in ternhost.__all__ if name.endswith("Error")}
    known = tried | elsewhere | LIKE_RUN | learners | errors
    assert set(ternhost.__all__) <= known
