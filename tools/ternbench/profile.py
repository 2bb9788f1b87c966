"""Finds where the time of a report goes on the emulated Pico, by function.

The emulator counts the cycles of every instruction, and follows calls and returns from outside (see
profile.mjs of terntools). So the device does not notice that it is measured, and a report takes as
long as without a profile, to the cycle.
"""

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ternbench import subjects
from ternbench.cases import Case
from ternbench.latency import Bench
from ternbench.time_left import TimedSteps
from ternhost.terminal import Progress
from terntools.boards import fold, mpy
from terntools.emulators import pico

REPORTS = 80
"""How many reports are profiled, unless the user says otherwise."""

_PROGRAM = subjects.PROGRAM.stem
_BOUNDARIES = 4  # times that the program reads for a report, as `serve` in latency_program.py does

# Kinds of nodes, as in profile.mjs.
_WAITING = -1
_INTERRUPT = -2
_ROM = 1
_NATIVE = 2
_FIRST_C_FUNCTION = 3
_FIRST_PYTHON_FUNCTION = 1 << 20

_NANOS = 1e-3  # microseconds

Spent = dict[int, tuple[float, int]]
"""By node of the call tree: nanoseconds that it spent itself, and how often it was called."""


@dataclass(frozen=True)
class Segment:
    """What was spent from one reading of the clock by the program to its next one."""

    spent: Spent

    @property
    def nanoseconds(self) -> float:
        return sum(nanoseconds for nanoseconds, _ in self.spent.values())


@dataclass(frozen=True)
class Names:
    """The names of the functions of a board.

    python: by the address of a function, all names under which modules know it. modules: by the
    address of a module, its name.
    """

    python: Mapping[int, Sequence[str]]
    modules: Mapping[int, str]

    def function(self, address: int, context: int) -> str:
        """Return the name of a function. context: the address of its module; 0 if unknown."""
        names = self.python.get(address, ())
        module = self.modules.get(context, "")
        for name in names:
            if name.startswith(f"{module}."):
                return name
        if names:
            return names[0]
        return f"{module or 'a program'}: an inner function"


@dataclass(frozen=True)
class Function:
    """What a function, or a file of functions, spent in a report, in microseconds.

    own: without the functions that it calls, but for those of a lower language: the interpreter's
    time for a Python function is the function's own. total: with all that it calls. where: of a
    Python function, its own time by the interpreter's file.
    """

    name: str
    own_us: float
    total_us: float
    calls: int
    file: str = ""
    where: Mapping[str, float] | None = None


class CallTree:
    """The call paths that the emulator has seen, and the reports among them."""

    def __init__(self, file: Path, names: Names, table: Sequence[Sequence[Any]]) -> None:
        """Read a profile.

        file: that the emulator wrote. names: of the board. table: of the firmware's C functions, see
        `pico.functions`.
        """
        self._names = names
        self._table = table
        self._parents: dict[int, int] = {}
        self._kinds: dict[int, int] = {0: 0}
        self._python: dict[int, tuple[int, int]] = {}  # address and module of each function
        self.segments: list[Segment] = []
        self._read(file)

    def _read(self, file: Path) -> None:
        """Read the segments that the program's own readings of the clock separate."""
        spent: Spent = {}
        with file.open() as lines:
            for line in lines:
                record = json.loads(line)
                for node, parent, kind in record["nodes"]:
                    self._parents[node] = parent
                    self._kinds[node] = kind
                for number, address, context in record["pythons"]:
                    self._python[number] = (address, context)
                for node, nanoseconds, calls in record["spent"]:
                    nanoseconds_before, calls_before = spent.get(node, (0, 0))
                    spent[node] = (nanoseconds_before + nanoseconds, calls_before + calls)
                if self._is_program(record["by"]):
                    self.segments.append(Segment(spent))
                    spent = {}

    def _is_program(self, number: int) -> bool:
        """Return whether a function is one of latency_program.py."""
        _, context = self._python.get(number, (0, 0))
        return self._names.modules.get(context) == _PROGRAM

    def reports(self, count: int) -> list[Spent]:
        """Return what each of the last `count` reports spent."""
        last_segments = self.segments[-_BOUNDARIES * count :]
        reports = []
        for start in range(0, len(last_segments), _BOUNDARIES):
            # The first segment ends when the report begins.
            parts = last_segments[start + 1 : start + _BOUNDARIES]
            reports.append(_sum(part.spent for part in parts))
        return reports

    def path(self, node: int) -> list[int]:
        """Return the kinds of a node and its callers, from the outermost one on."""
        kinds = []
        while node:
            kinds.append(self._kinds[node])
            node = self._parents[node]
        return kinds[::-1]

    def name(self, kind: int) -> str:
        """Return the name of a function, or what another kind of node is called."""
        if kind >= _FIRST_PYTHON_FUNCTION:
            return self._names.function(*self._python[kind])
        if kind >= _FIRST_C_FUNCTION:
            name: str = self._table[kind - _FIRST_C_FUNCTION][2]
            return name
        return {
            _WAITING: "(waiting)",
            _INTERRUPT: "(interrupts)",
            _ROM: "(boot ROM)",
            _NATIVE: "(machine code of Python functions)",
        }.get(kind, "(unknown)")

    def file(self, kind: int) -> str:
        """Return the source file of a C function; for other kinds, what they are called."""
        if _FIRST_C_FUNCTION <= kind < _FIRST_PYTHON_FUNCTION:
            name: str = self._table[kind - _FIRST_C_FUNCTION][3]
            return name
        return self.name(kind)


def _sum(parts: Iterable[Spent]) -> Spent:
    """Add up what was spent in several segments, by node."""
    total: Spent = {}
    for part in parts:
        for node, (nanoseconds, calls) in part.items():
            nanoseconds_before, calls_before = total.get(node, (0, 0))
            total[node] = (nanoseconds_before + nanoseconds, calls_before + calls)
    return total


def _is_python(kind: int) -> bool:
    """Return whether a kind of node is a Python function, or takes the place of one."""
    return kind >= _FIRST_PYTHON_FUNCTION or kind == _INTERRUPT


class _Sums:
    """Adds up own and total times and calls by name."""

    def __init__(self) -> None:
        self.own: defaultdict[str, float] = defaultdict(float)
        self.total: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)

    def add(self, path: Sequence[str], microseconds: float, calls: int) -> None:
        """Add the time of the last function of a call path, and its calls."""
        self.own[path[-1]] += microseconds
        self.calls[path[-1]] += calls
        for name in set(path):  # once, even if it is recursive
            self.total[name] += microseconds

    def functions(self, **more: Mapping[str, Any]) -> list[Function]:
        """Return the sums, the largest own time first. more: further fields, by the function's name."""
        functions = []
        for name in sorted(self.total, key=lambda name: (-self.own[name], name)):
            fields = {field: values[name] for field, values in more.items()}
            functions.append(
                Function(
                    name,
                    own_us=self.own[name],
                    total_us=self.total[name],
                    calls=self.calls[name],
                    **fields,
                )
            )
        return functions


def python_functions(tree: CallTree, spent: Spent) -> list[Function]:
    """Return the Python functions of a report, with the time of the interpreter for each in it."""
    sums = _Sums()
    where: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for node, (nanoseconds, calls) in spent.items():
        path = tree.path(node)
        names = [tree.name(kind) for kind in path if _is_python(kind)] or ["(no function)"]
        if not path or not _is_python(path[-1]):
            calls = 0  # those of a C function
        sums.add(names, nanoseconds * _NANOS, calls)
        if path and nanoseconds:
            where[names[-1]][tree.file(path[-1])] += nanoseconds * _NANOS
    return sums.functions(where={name: dict(where[name]) for name in sums.total})


def c_functions(tree: CallTree, spent: Spent) -> list[Function]:
    """Return the C functions of a report."""
    sums = _Sums()
    files = {}
    for path, nanoseconds, calls in _c_paths(tree, spent):
        names = []
        for kind in path:
            names.append(tree.name(kind))
            files[names[-1]] = tree.file(kind)
        sums.add(names, nanoseconds * _NANOS, calls)
    return sums.functions(file=files)


def c_files(tree: CallTree, spent: Spent) -> list[Function]:
    """Return the files of the C functions of a report. A file is called when another one calls it."""
    sums = _Sums()
    for path, nanoseconds, calls in _c_paths(tree, spent):
        names = [tree.file(kind) for kind in path]
        if len(names) > 1 and names[-1] == names[-2]:
            calls = 0
        sums.add(names, nanoseconds * _NANOS, calls)
    return sums.functions()


def _c_paths(tree: CallTree, spent: Spent) -> Iterator[tuple[list[int], float, int]]:
    """Yield the call path of each node without its Python functions, its nanoseconds and calls."""
    for node, (nanoseconds, calls) in spent.items():
        path = tree.path(node)
        if not path or _is_python(path[-1]):
            continue  # these spend nothing themselves: their C functions do
        yield [kind for kind in path if not _is_python(kind)], nanoseconds, calls


def paths(tree: CallTree, spent: Spent) -> list[dict[str, Any]]:
    """Return the call paths of Python functions in a report, each after its caller."""
    sums = _Sums()
    for node, (nanoseconds, calls) in spent.items():
        path = tree.path(node)
        names = []
        for kind in path:
            if _is_python(kind):
                names.append(tree.name(kind))
        if not path or not _is_python(path[-1]):
            calls = 0
        # A path stands for itself and for each of its beginnings.
        beginnings = [";".join(names[:length]) for length in range(1, len(names) + 1)]
        sums.add(beginnings or ["(no function)"], nanoseconds * _NANOS, calls)
    rows = []
    for function in sums.functions():
        row = {
            "path": function.name.split(";"),
            "own_us": function.own_us,
            "total_us": function.total_us,
            "calls": function.calls,
        }
        rows.append(row)
    return _in_order_of_calls(rows)


def _in_order_of_calls(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort call paths: each comes after its caller, and of those with one caller the longest first."""
    total_of_path = {tuple(row["path"]): row["total_us"] for row in rows}

    def key(row: Mapping[str, Any]) -> list[tuple[float, str]]:
        path = tuple(row["path"])
        beginnings = [path[:length] for length in range(1, len(path) + 1)]
        return [(-total_of_path[beginning], beginning[-1]) for beginning in beginnings]

    return sorted(rows, key=key)


def folded(tree: CallTree, spent: Spent) -> str:
    """Return the call paths of a report as "folded stacks", which flame graphs are drawn from.

    There is a line for each path: the names, separated by semicolons, and the nanoseconds.
    """
    lines = []
    for node, (nanoseconds, _) in spent.items():
        names = [tree.name(kind).replace(" ", "_") for kind in tree.path(node)]
        if nanoseconds:
            lines.append(f"{';'.join(names)} {round(nanoseconds)}\n")
    return "".join(sorted(lines))


def measure(case: Case, progress: Progress, count: int = REPORTS) -> tuple[dict[str, Any], str]:
    """Profile reports of one kind, and return the result for JSON, and folded stacks.

    case: the kind of report. count: the number of reports. The result is about the report with the
    median time.
    """
    with tempfile.TemporaryDirectory(prefix="tern-profile-") as folder:
        file = Path(folder, "profile")
        steps = TimedSteps(progress)
        with steps.starting(subjects.profiled_pico(file)) as device:
            bench = Bench(device, steps)
            bench.prepare(case)
            steps.say(f"{count} reports: {case.label}")
            times = [sum(parts) for parts in device.serve(bench.messages(case, count))]
            tree = CallTree(file, _names(device), json.loads(pico.functions_file().read_text()))
    reports = tree.reports(count)
    totals = [sum(nanoseconds for nanoseconds, _ in report.values()) for report in reports]
    order = sorted(range(count), key=totals.__getitem__)
    chosen = order[(count - 1) // 2]
    spent = reports[chosen]
    result = {
        "device": device.name,
        "unit": subjects.MICROSECONDS,
        "case": {"name": case.label, **asdict(case)},
        "reports": count,
        "report_us": totals[chosen] * _NANOS,
        "fastest_us": totals[order[0]] * _NANOS,
        "slowest_us": totals[order[-1]] * _NANOS,
        "clock_us": times[chosen],
        "functions": [asdict(function) for function in python_functions(tree, spent)],
        "c_files": [asdict(function) for function in c_files(tree, spent)],
        "c_functions": [asdict(function) for function in c_functions(tree, spent)],
        "paths": paths(tree, spent),
    }
    return result, folded(tree, spent)


def _names(device: subjects.BoardSubject) -> Names:
    """Ask the board for the names of its functions, and put back those that were shortened."""
    long_names = {short: name for name, short in fold.short_names(mpy.library()).items()}
    python: defaultdict[int, list[str]] = defaultdict(list)
    modules = {}
    for module, module_address, functions in device.functions():
        modules[module_address] = module
        for address, name in functions:
            words = [long_names.get(word, word) for word in name.split(".")]
            python[address].append(".".join(words))
    return Names(python, modules)
