"""The pytest plugin `tern`: collects device tests once more for every target.

Device tests are those in the folders of the setting `tern_device_tests`. Options are named as
pytest-embedded's. With pytest-xdist, `--dist loadgroup` runs each file once on each target.
"""

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ternhost.errors import TernError
from ternhost.reach.ports.link import BAUD
from terntools.testing import device_tests
from terntools.testing.device_tests import KINDS, BoardTarget, Kind, Outcome, Target

pytest_plugins = ["terntools.testing.pytest_hardware"]

_BOARD = BoardTarget.name
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class DeviceTestError(Exception):
    """A device test that did not pass on a target."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.name)
        self.outcome = outcome


class Targets:
    """The targets of a session.

    Each is made when a test first asks for it, and runs a file once for all its tests. wanted: the
    functions of each file that run on each target.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Read the options; `--exhaustive` removes what a kind of target spares."""
        self.names: list[str] = [name for name in config.getoption("target").split(",") if name]
        self.kinds = dict(KINDS)
        port = config.getoption("port")
        if port:
            board = partial(BoardTarget, port, config.getoption("baud"))
            self.kinds[_BOARD] = Kind(board, device_tests.BOARD_LACKS)
            if _BOARD not in self.names:
                self.names.append(_BOARD)
        _require_known(self.names, port)
        if config.getoption("exhaustive"):
            for name, kind in self.kinds.items():
                self.kinds[name] = replace(kind, spared={}, only_vectors=False, one_of=1)
        self.wanted: dict[tuple[str, Path], list[str]] = {}
        self._made: dict[str, Future[Target]] = {}
        self._results: dict[tuple[str, Path], Future[dict[str, Outcome]]] = {}

    def outcomes(self, name: str, path: Path) -> dict[str, Outcome]:
        """Return the outcomes of the `wanted` functions of a file, which runs once for all of them.

        name: of the target. Raises the error that kept the target from running it.
        """
        return _once(self._results, (name, path), lambda: self._run(name, path))

    def _run(self, name: str, path: Path) -> dict[str, Outcome]:
        target = _once(self._made, name, self.kinds[name].make)
        target.one_of = self.kinds[name].one_of
        outcomes = device_tests.run_file(target, path, self.wanted[name, path])
        return {outcome.name: outcome for outcome in outcomes}

    def close(self) -> None:
        """Close the targets that were made."""
        for target in self._made.values():
            if not target.exception():
                target.result().close()


def _require_known(names: list[str], port: str | None) -> None:
    """Raise pytest.UsageError for an unknown target, and for a board without a port."""
    known_names = (*KINDS, _BOARD)
    for name in names:
        if name not in known_names:
            text = f"--target: there is no '{name}', only {', '.join(known_names)}"
            raise pytest.UsageError(text)
    if _BOARD in names and not port:
        raise pytest.UsageError(f"--target {_BOARD} needs --port")


def _once(results: dict[K, Future[V]], key: K, make: Callable[[], V]) -> V:
    """Return the result of `make`, or raise its exception, from the first call with this key."""
    if key not in results:
        results[key] = Future()
        try:
            results[key].set_result(make())
        except Exception as error:
            results[key].set_exception(error)
    return results[key].result()


_TARGETS_KEY = pytest.StashKey[Targets]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of device tests."""
    group = parser.getgroup("tern", "device tests")
    where = "where device tests run beside CPython (default: unix)"
    group.addoption("--target", default="unix", metavar="LIST", help=where)
    group.addoption(
        "--not-on-cpython", action="store_true", help="device tests on --target and --port alone"
    )
    group.addoption("--exhaustive", action="store_true", help="slow tests as well")
    port = "a board on which they run too: a device or a socket:// URL"
    group.addoption("--port", metavar="PORT", help=port)
    group.addoption("--baud", type=int, default=BAUD, help="of --port (default: %(default)s)")
    parser.addini("tern_device_tests", "folders of device tests", type="paths", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "xdist_group(name): tests that run in one process of pytest-xdist"
    )
    config.stash[_TARGETS_KEY] = Targets(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    targets = config.stash.get(_TARGETS_KEY, None)
    if targets is not None:
        targets.close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a file of device tests for the targets, in addition to CPython."""
    folders = parent.config.getini("tern_device_tests")
    if not file_path.match("test_*.py") or file_path.parent not in folders:
        return None
    if not parent.config.stash[_TARGETS_KEY].names:
        return None
    return DeviceFile.from_parent(parent, path=file_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests on CPython if --not-on-cpython is given."""
    if not config.getoption("not_on_cpython"):
        return
    folders = config.getini("tern_device_tests")
    on_cpython = []
    for item in items:
        if not isinstance(item, DeviceItem) and item.path.parent in folders:
            on_cpython.append(item)
    config.hook.pytest_deselected(items=on_cpython)
    items[:] = [item for item in items if item not in on_cpython]


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = session.config.stash[_TARGETS_KEY].wanted
    for item in session.items:
        if isinstance(item, DeviceItem) and not item.get_closest_marker("skip"):
            wanted.setdefault((item.target, item.path), []).append(item.test_name)


class DeviceFile(pytest.File):
    """A file of device tests; it runs once on each target."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for each test and target, skipped if the target lacks what the test needs."""
        targets = self.config.stash[_TARGETS_KEY]
        needs = device_tests.needs(self.path)
        for target in targets.names:
            kind = targets.kinds[target]
            why_absent = device_tests.absence(target)
            lacks = {**kind.lacks, **kind.spared}
            for name in device_tests.selected(self.path, kind.only_vectors):
                item: DeviceItem = DeviceItem.from_parent(
                    self, name=f"{name}[{target}]", test_name=name, target=target
                )
                reason = why_absent or lacks.get(needs.get(name, ""))
                if reason:
                    item.add_marker(pytest.mark.skip(reason=reason))
                yield item


class DeviceItem(pytest.Item):
    """One test function on one target."""

    parent: DeviceFile

    def __init__(self, *, test_name: str, target: str, **kwargs: Any) -> None:
        """Create the item of one test function for one target."""
        super().__init__(**kwargs)
        self.test_name = test_name
        self.target = target
        # Under xdist one process runs a file on a target; and the board's port is for one process.
        group = _BOARD if target == _BOARD else f"{self.path.stem}-{target}"
        self.add_marker(pytest.mark.xdist_group(group))

    def runtest(self) -> None:
        outcome = self.config.stash[_TARGETS_KEY].outcomes(self.target, self.path)[self.test_name]
        # The first test of a file takes the time of all; its own is a property in --junitxml.
        self.user_properties.append(("seconds", outcome.seconds))
        if not outcome.passed:
            raise DeviceTestError(outcome)
        self.add_report_section("call", f"{self.target} output", outcome.output)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the target's output with lines of source, or the message of an error of tern."""
        error = excinfo.value
        if isinstance(error, DeviceTestError):
            return f"on {self.target}:\n{device_tests.with_source(error.outcome.output, self.path)}"
        if isinstance(error, TernError):
            return f"{error.message}\n  {error.hint}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, 0, self.name
