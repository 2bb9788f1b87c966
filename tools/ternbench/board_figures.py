"""The figures of a board that `tern hil` compares with a hardware map's expectations."""

import contextlib
import io
import json
import tempfile
from dataclasses import replace
from typing import Any

from ternbench import latency
from ternbench.cases import Case
from ternbench.subjects import BoardSubject, subject
from ternhost import errors
from ternhost.cli import main
from ternhost.errors import TernError
from terntools.boards import deploy
from terntools.testing.hardware import MappedBoard

_HEAP_DIMENSION = 100
_READS_NO_BOARD = ("csv", "model")  # "meters" that cannot see a board asleep


def of_reports(board: MappedBoard) -> dict[str, float]:
    """Measure the time, memory and flash that reports take on a board.

    Returns values by the names that a hardware map's expectations use.
    """
    case = Case()
    with subject(board.fleet) as device:
        bench = latency.Bench(device)
        heap = bench.heap(replace(case, d=_HEAP_DIMENSION))
        report = bench.report(case, latency.MAIN_ITERATIONS)
        assert isinstance(device, BoardSubject)  # a map names boards
        library = deploy.library_files(device.machine)
        return {
            f"latency-{device.unit}": report["median"],
            f"latency-slowest-{device.unit}": report["slowest"],
            "heap-bytes": heap["peak"],
            "garbage-bytes": heap["garbage_per_report"],
            "library-bytes": sum(map(len, library.values())),
        }


def of_meter(board: MappedBoard) -> dict[str, float]:
    """Measure energy with the board's meter.

    Returns the energy of a report, and the current asleep if the map expects it. Raises TernError
    with the message of `tern bench energy`.
    """
    with tempfile.TemporaryDirectory(prefix="tern-energy-") as folder:
        result = _bench_energy(board, folder)
    figures = {
        "energy-uj": result["microjoules_per_report"],
        "asleep-ua": result["asleep_microamperes"],
    }
    return {name: value for name, value in figures.items() if value is not None}


def _bench_energy(board: MappedBoard, folder: str) -> dict[str, Any]:
    """Run `tern bench energy` with the options of the board's meter, and return its result.

    folder: where it writes its session. Raises TernError if the command fails.
    """
    command = ["bench", "energy", "--json", "--sessions", folder, "--fleet", board.fleet]
    for name, value in board.meter.items():
        command.append(f"--{name}" if value is True else f"--{name}={value}")
    expects_asleep = any(expectation.figure == "asleep-ua" for expectation in board.expect)
    if expects_asleep and board.meter.get("meter") not in _READS_NO_BOARD:
        command.append("--asleep")

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main(command)
    result: dict[str, Any] = json.loads(output.getvalue())
    if code != errors.OK:
        raise TernError(result["error"], result["hint"])
    return result
