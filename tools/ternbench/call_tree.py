"""Reads what the profiler of the emulated Pico has written, and adds it up by function.

The profiler (profile.mjs of terntools) knows a call path as a node of a tree. A path leads from the
outermost function through functions of Python and of C: a Python function is followed by the C
functions with which the interpreter runs it, and these by the Python functions that it calls.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from terntools.emulators.pico.symbols import Function

# Kinds of nodes, as in profile.mjs: a number below 0 is no function, a small one a C function, and
# a large one a Python function.
_WAITING = -1
_INTERRUPT = -2
_UNKNOWN = 0
_NATIVE = 1
_FIRST_C_FUNCTION = 2
_FIRST_PYTHON_FUNCTION = 1 << 20
_WORDS = {
    _WAITING: "(waiting)",
    _INTERRUPT: "(interrupts)",
    _UNKNOWN: "(unknown)",
    _NATIVE: "(machine code of Python)",
}
_OUTSIDE = "(outside of Python)"

# Times that the program reads for a report, as `serve` in latency_program.py does: at its start, when
# the question is there, when the answer is made, and when it is sent.
_READINGS = 4
_US = 1e-3  # of a nanosecond


class Spent(NamedTuple):
    """What a node spent itself: nanoseconds, calls, and bytes of the heap.

    The bytes are those that it allocated and that nobody has freed yet. They can be negative, if
    what it allocated earlier was freed.
    """

    nanoseconds: float
    calls: int
    bytes: int

    def plus(self, other: "Spent") -> "Spent":
        return Spent(
            self.nanoseconds + other.nanoseconds,
            self.calls + other.calls,
            self.bytes + other.bytes,
        )


NOTHING = Spent(0, 0, 0)
Report = Mapping[int, Spent]
"""What each node of the tree spent in a report."""


class Row(NamedTuple):
    """What a function spent in a report.

    own_us: microseconds without the functions that it calls. For a Python function these are the
    Python functions: what the interpreter does for it is its own. total_us: with all functions that
    it calls. calls: how often it was called. bytes: that it allocated itself in the heap; an
    allocation is a multiple of 16.
    """

    own_us: float
    total_us: float
    calls: int
    bytes: int


@dataclass
class _Sum:
    """Adds up the numbers of a Row."""

    own: Spent = NOTHING
    total_nanoseconds: float = 0.0

    def row(self) -> Row:
        return Row(
            own_us=self.own.nanoseconds * _US,
            total_us=self.total_nanoseconds * _US,
            calls=self.own.calls,
            bytes=self.own.bytes,
        )


@dataclass(frozen=True)
class Names:
    """The names of Python functions and modules, by their addresses on the board.

    functions: for each function all names under which modules know it. restored: returns the long
    name for a name that was shortened for the board.
    """

    functions: Mapping[int, Sequence[str]]
    modules: Mapping[int, str]
    restored: Callable[[str], str]

    def name(self, address: int, module_address: int, own_name: str) -> str:
        """Return the name of a function, with its module and class.

        module_address: of its module; 0 if unknown. own_name: what the function itself says, such
        as "tern.client.respond", without its class; "" for machine code, which has no name.
        """
        names = self.functions.get(address, ())
        module, _, _ = own_name.rpartition(".")
        module = self.modules.get(module_address, module)
        for name in names:
            if name.startswith(f"{module}."):
                return name
        if own_name:
            return self.restored(own_name)
        if names:
            return names[0]
        return f"{module or 'unknown module'}.(machine code)"


@dataclass
class CallTree:
    """The call paths that the profiler has seen, and what was spent in each report.

    symbols: the C functions. names: of the board. program: the name of the module whose readings of
    the clock begin and end a report.
    """

    symbols: Sequence[Function]
    names: Names
    program: str
    _callers: dict[int, int] = field(default_factory=dict)
    _kinds: dict[int, int] = field(default_factory=dict)
    _python_names: dict[int, str] = field(default_factory=dict)
    # What was spent between two readings of the clock by the program.
    _segments: list[Report] = field(default_factory=list)

    def read(self, profile: Path) -> None:
        """Read the file that the profiler has written."""
        segment: dict[int, Spent] = {}
        with profile.open() as lines:
            for line in lines:
                record = json.loads(line)
                for node, caller, kind in record["nodes"]:
                    self._callers[node] = caller
                    self._kinds[node] = kind
                for number, address, module_address, own_name in record["pythons"]:
                    name = self.names.name(address, module_address, own_name)
                    self._python_names[number] = name
                for node, *numbers in record["spent"]:
                    segment[node] = segment.get(node, NOTHING).plus(Spent(*numbers))
                reader = self._python_names.get(record["by"], "")
                if reader.startswith(f"{self.program}."):
                    self._segments.append(segment)
                    segment = {}

    def reports(self, count: int) -> list[Report]:
        """Return the last `count` reports."""
        segments = self._segments[-_READINGS * count :]
        reports: list[Report] = []
        for start in range(0, len(segments), _READINGS):
            report: dict[int, Spent] = {}
            # The first of the segments ends when the report begins.
            for segment in segments[start + 1 : start + _READINGS]:
                for node, spent in segment.items():
                    report[node] = report.get(node, NOTHING).plus(spent)
            reports.append(report)
        return reports

    def python_functions(self, report: Report) -> dict[str, Row]:
        """Return the Python functions of a report by name, the largest own time first."""
        return _rows(self._python_paths(report))

    def python_paths(self, report: Report) -> dict[tuple[str, ...], Row]:
        """Return the call paths of Python functions, each after that of its caller.

        Of the paths with the same caller, the one with the longest total time comes first.
        """
        paths = []
        for names, spent in self._python_paths(report):
            beginnings = [tuple(names[:length]) for length in range(1, len(names) + 1)]
            paths.append((beginnings, spent))
        rows = _rows(paths)

        def order(path: tuple[str, ...]) -> list[tuple[float, str]]:
            beginnings = [path[:length] for length in range(1, len(path) + 1)]
            return [(-rows[beginning].total_us, beginning[-1]) for beginning in beginnings]

        return {path: rows[path] for path in sorted(rows, key=order)}

    def interpreter(self, report: Report) -> dict[str, dict[str, float]]:
        """Return how a Python function's own time divides into files of the interpreter.

        The result has microseconds by the name of the function and that of the file.
        """
        times: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for node, spent in report.items():
            if spent.nanoseconds:
                kinds = self._path(node)
                function = self._python_part(kinds)[-1]
                times[function][self._file(kinds[-1])] += spent.nanoseconds * _US
        return {function: dict(files) for function, files in times.items()}

    def c_functions(self, report: Report) -> dict[tuple[str, str], Row]:
        """Return the C functions of a report by name and file, the largest own time first."""
        paths = []
        for kinds, spent in self._c_paths(report):
            paths.append(([(self._name(kind), self._file(kind)) for kind in kinds], spent))
        return _rows(paths)

    def c_files(self, report: Report) -> dict[str, Row]:
        """Return the files of the C functions of a report by name, the largest own time first.

        A call within a file does not count as a call of it.
        """
        paths = []
        for kinds, spent in self._c_paths(report):
            files = [self._file(kind) for kind in kinds]
            is_inner_call = files[-1:] == files[-2:-1]
            paths.append((files, spent._replace(calls=0) if is_inner_call else spent))
        return _rows(paths)

    def folded(self, report: Report) -> str:
        """Return the call paths of a report as "folded stacks", from which flame graphs are drawn.

        There is a line for each path: names that are separated by semicolons, and nanoseconds.
        """
        lines = []
        for node, spent in report.items():
            if spent.nanoseconds:
                names = [self._name(kind).replace(" ", "_") for kind in self._path(node)]
                lines.append(f"{';'.join(names)} {round(spent.nanoseconds)}\n")
        return "".join(sorted(lines))

    def _path(self, node: int) -> list[int]:
        """Return the kinds of a node and of its callers, the outermost first."""
        kinds = []
        while node:
            kinds.append(self._kinds[node])
            node = self._callers[node]
        kinds.reverse()
        return kinds

    def _python_part(self, kinds: Iterable[int]) -> list[str]:
        """Return the names of the Python functions on a path; an interrupt counts as one."""
        return [self._name(kind) for kind in kinds if _is_python(kind)] or [_OUTSIDE]

    def _python_paths(self, report: Report) -> Iterator[tuple[list[str], Spent]]:
        """Yield the Python functions of the path of each node, and what the node spent.

        Only a node that is a Python function has calls.
        """
        for node, spent in report.items():
            kinds = self._path(node)
            is_call = bool(kinds) and _is_python(kinds[-1])
            yield self._python_part(kinds), spent if is_call else spent._replace(calls=0)

    def _c_paths(self, report: Report) -> Iterator[tuple[list[int], Spent]]:
        """Yield the kinds of the C functions of the path of each node, and what the node spent.

        Python functions spend nothing themselves, since C functions run them.
        """
        for node, spent in report.items():
            kinds = self._path(node)
            if kinds and not _is_python(kinds[-1]):
                yield [kind for kind in kinds if not _is_python(kind)], spent

    def _name(self, kind: int) -> str:
        if kind >= _FIRST_PYTHON_FUNCTION:
            return self._python_names[kind]
        if kind >= _FIRST_C_FUNCTION:
            _, _, name, _ = self.symbols[kind - _FIRST_C_FUNCTION]
            return name
        return _WORDS[kind]

    def _file(self, kind: int) -> str:
        """Return the file of a C function; for another kind, what it is called."""
        if _FIRST_C_FUNCTION <= kind < _FIRST_PYTHON_FUNCTION:
            _, _, _, file = self.symbols[kind - _FIRST_C_FUNCTION]
            return file
        return _WORDS[kind]


def _is_python(kind: int) -> bool:
    """Return whether a node is a Python function, or an interrupt, which takes the place of one."""
    return kind >= _FIRST_PYTHON_FUNCTION or kind == _INTERRUPT


def _rows(paths: Iterable[tuple[Sequence[Any], Spent]]) -> dict[Any, Row]:
    """Add up what was spent by function, the largest own time first.

    paths: functions that call each other, the outermost first, and what the last one spent.
    """
    sums: defaultdict[Any, _Sum] = defaultdict(_Sum)
    for functions, spent in paths:
        last = sums[functions[-1]]
        last.own = last.own.plus(spent)
        for function in set(functions):  # once, even if it calls itself
            sums[function].total_nanoseconds += spent.nanoseconds
    rows = {function: found.row() for function, found in sums.items()}
    return dict(sorted(rows.items(), key=lambda item: (-item[1].own_us, item[0])))


def duration_us(report: Report) -> float:
    """Return the microseconds of a report."""
    return sum(spent.nanoseconds for spent in report.values()) * _US
