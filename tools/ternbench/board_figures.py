"""Measures the figures of a board that `tern hil` compares with a hardware map's expectations.

A hardware map is a file that lists the boards on a desk. For each it may say which latency, memory
or energy to expect.
"""

import contextlib
import io
import json
import tempfile
from dataclasses import replace
from typing import Any

from ternbench import latency
from ternbench.cases import Case
from ternbench.meters import choice
from ternbench.subjects import BoardSubject, subject
from ternhost import errors
from ternhost.cli import main
from ternhost.errors import TernError
from terntools.boards import software
from terntools.testing.hardware import MappedBoard

_HEAP_DIMENSION = 100  # coordinates of the report whose memory is measured


def of_reports(board: MappedBoard) -> dict[str, float]:
    """Measure the time, memory and flash that reports take on a board.

    board: an entry of a hardware map, the file that lists the boards of a laboratory and what is
    expected of them. Returns the measured values by the names that the map has for them, such as
    "heap-bytes".
    """
    case = Case()
    with subject(board.fleet) as device:
        bench = latency.Bench(device)
        heap = bench.heap(replace(case, d=_HEAP_DIMENSION))
        report = bench.report(case, latency.MAIN_ITERATIONS)
        assert isinstance(device, BoardSubject)  # a map names boards
        library = software.library_files(device.machine)
        return {
            f"latency-{device.unit}": report["median"],
            f"latency-slowest-{device.unit}": report["slowest"],
            "heap-bytes": heap["peak"],
            "garbage-bytes": heap["garbage_per_report"],
            "library-bytes": sum(map(len, library.values())),
        }


def of_meter(board: MappedBoard) -> dict[str, float]:
    """Measure the energy of a report with the meter that the map names for the board.

    The current in deep sleep is measured, too, if the map expects something of it. Returns values by
    figure. Raises TernError with the message of `tern bench energy` if that fails.
    """
    with tempfile.TemporaryDirectory(prefix="tern-energy-") as folder:
        result = _bench_energy(board, folder)
    figures = {
        "energy-uj": result["microjoules_per_report"],
        "asleep-ua": result["asleep_microamperes"],
    }
    return {name: value for name, value in figures.items() if value is not None}


def _bench_energy(board: MappedBoard, folder: str) -> dict[str, Any]:
    """Run `tern bench energy` with the board's meter, and return its result.

    folder: where the command writes its files. Raises TernError if it fails.
    """
    assert board.meter is not None  # `tern hil` skips a figure of a meter otherwise
    command = ["bench", "energy", "--json", "--sessions", folder, "--fleet", board.fleet]
    command.append(f"--meter={board.meter}")
    expected_figures = {expectation.figure for expectation in board.expect}
    can_see_sleep = choice.parse(board.meter).meter.needs_board
    if "asleep-ua" in expected_figures and can_see_sleep:
        command.append("--asleep")

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main(command)
    result: dict[str, Any] = json.loads(output.getvalue())
    if code != errors.OK:
        raise TernError(result["error"], result["hint"])
    return result
