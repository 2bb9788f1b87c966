"""Finds which functions spend the time of a report on the emulated Pico.

The emulator counts the cycles of each instruction, and follows calls and returns from outside. So
the device does not notice that it is profiled, and a report takes as long as without a profile, to
the cycle.
"""

import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ternbench import subjects
from ternbench.call_tree import CallTree, Names, Report, duration_us
from ternbench.cases import Case
from ternbench.latency import MAIN_ITERATIONS, Bench
from ternbench.time_left import TimedSteps
from ternhost.terminal import Progress
from terntools.boards import fold, mpy
from terntools.emulators import pico
from terntools.emulators.pico import symbols

REPORTS = 80
"""How many reports are profiled by default; about five of them move a block of the flash."""

MOST_REPORTS = 400
"""How many can be profiled: as many as `tern bench latency` measures."""


def measure(
    case: Case, progress: Progress, count: int = REPORTS, slowest: bool = False
) -> tuple[dict[str, Any], str]:
    """Profile reports of one kind, and return the result for JSON, and folded stacks of it.

    case: the kind of report. count: the number of reports. The result is about the report with the
    median time, or about the slowest one. Raises DeviceError if the emulated Pico is not built.
    """
    with tempfile.TemporaryDirectory(prefix="tern-profile-") as folder:
        file = Path(folder, "profile")
        steps = TimedSteps(progress)
        with steps.starting(subjects.profiled_pico(file)) as device:
            bench = Bench(device, steps)
            bench.prepare(case)
            steps.say(f"profiling {count} reports: {case.label}")
            clock_times = _serve(device, bench.messages(case, count))
            names = _names(device)
        tree = CallTree(symbols.read(pico.symbol_files()), names, subjects.PROGRAM.stem)
        tree.read(file)

    reports = tree.reports(count)
    durations = [duration_us(report) for report in reports]
    by_duration = sorted(range(count), key=durations.__getitem__)
    chosen = by_duration[-1] if slowest else by_duration[(count - 1) // 2]
    report = reports[chosen]
    result = {
        "device": device.name,
        "unit": device.unit,
        "case": {"name": case.label, **asdict(case)},
        "reports": count,
        "chosen": "slowest" if slowest else "median",
        "us": durations[chosen],
        "us_by_clock": clock_times[chosen],
        "us_fastest": durations[by_duration[0]],
        "us_slowest": durations[by_duration[-1]],
        **_tables(tree, report),
    }
    return result, tree.folded(report)


def _serve(device: subjects.BoardSubject, messages: Sequence[bytes]) -> list[int]:
    """Let the device answer requests in windows like those of `tern bench latency`.

    Returns the microseconds of each report by the clock of the device.
    """
    times = []
    for start in range(0, len(messages), MAIN_ITERATIONS):
        for times_of_report in device.serve(messages[start : start + MAIN_ITERATIONS]):
            times.append(sum(times_of_report))
    return times


def _tables(tree: CallTree, report: Report) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of a report: lists of rows, each with the fields of `call_tree.Row`."""
    interpreter = tree.interpreter(report)
    calls = []
    for path, row in tree.python_paths(report).items():
        calls.append({"path": path, **row._asdict()})
    functions = []
    for name, row in tree.python_functions(report).items():
        files = _largest_first(interpreter.get(name, {}))
        functions.append({"name": name, **row._asdict(), "interpreter_us": files})
    c_files = []
    for name, row in tree.c_files(report).items():
        c_files.append({"name": name, **row._asdict()})
    c_functions = []
    for (name, file), row in tree.c_functions(report).items():
        c_functions.append({"name": name, **row._asdict(), "file": file})
    return {
        "calls": calls,
        "functions": functions,
        "c_files": c_files,
        "c_functions": c_functions,
    }


def _largest_first(times: Mapping[str, float]) -> dict[str, float]:
    """Return the same times, sorted."""
    return dict(sorted(times.items(), key=lambda item: (-item[1], item[0])))


def _names(device: subjects.BoardSubject) -> Names:
    """Ask the board for the addresses of its functions and modules."""
    library = mpy.library(mpy.BOARDS["pico"].processor)
    long_words = {short: word for word, short in fold.short_names(library).items()}

    def restored(name: str) -> str:
        """Return a name with dots, with the words that it had before the library was folded."""
        return ".".join(long_words.get(word, word) for word in name.split("."))

    functions: defaultdict[int, list[str]] = defaultdict(list)
    modules = {}
    for module, module_address, functions_of_module in device.functions():
        modules[module_address] = module
        for address, name in functions_of_module:
            functions[address].append(restored(name))
    return Names(functions, modules, restored)
