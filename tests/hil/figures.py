"""Measures the figures that the hardware map expects of a board.

`tern hil` runs it after the tests.
"""

import contextlib
import io
import json
from dataclasses import replace

import pytest

from ternhost.cli import main
from terntools.bench import latency
from terntools.bench.subjects import subject
from terntools.boards import deploy
from terntools.testing.expectations import OF_METER


@pytest.fixture(scope="module")
def bench_figures(mapped_board):
    case = latency.Case()
    with subject(mapped_board.fleet) as on:
        bench = latency.Bench(on)
        heap = bench.heap(replace(case, d=100))
        report = bench.report(case, latency.MAIN_ITERATIONS)
        return {
            f"latency-{on.unit}": report["median"],
            f"latency-slowest-{on.unit}": report["slowest"],
            "heap-bytes": heap["peak"],
            "garbage-bytes": heap["garbage_per_report"],
            "library-bytes": sum(map(len, deploy.library_files(on.machine).values())),
        }


@pytest.fixture(scope="module")
def meter_figures(mapped_board, tmp_path_factory):
    words = ["bench", "energy", "--json", "--sessions", str(tmp_path_factory.mktemp("energy"))]
    words += [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in mapped_board.meter.items()
    ]
    if mapped_board.meter.get("meter") not in ("csv", "model"):
        words += ["--asleep"] * any(each.figure == "asleep-ua" for each in mapped_board.expect)
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main([*words, "--fleet", mapped_board.fleet])
    if code:
        pytest.fail(errors.getvalue(), pytrace=False)
    result = json.loads(output.getvalue())
    figures = {
        "energy-uj": result["microjoules_per_report"],
        "asleep-ua": result["asleep_microamperes"],
    }
    return {name: value for name, value in figures.items() if value is not None}


def test_figure(mapped_board, expectation, request, record_property):
    figure = expectation.figure
    if figure in OF_METER and not mapped_board.meter:
        pytest.skip(f"{figure} needs a meter: add meter: to the board in the hardware map")
    figures = request.getfixturevalue("meter_figures" if figure in OF_METER else "bench_figures")
    if figure not in figures:
        pytest.fail(
            f"{mapped_board.id} gives no {figure}, only {', '.join(figures)}", pytrace=False
        )
    record_property("figure", figure)
    record_property("value", figures[figure])
    record_property("expected", str(expectation))
    if not expectation.allows(figures[figure]):
        pytest.fail(f"{figure} is {figures[figure]:,.6g}, expected {expectation}", pytrace=False)
