"""The pytest plugin `tern`: runs device tests also on MicroPython.

Device tests are those in the folders that the setting `tern_device_tests` names. pytest runs them
on CPython, and with this plugin once more on every target: MicroPython on this machine, an emulated
board, or a real one. Options have the names of pytest-embedded's. With pytest-xdist,
`--dist loadgroup` runs each file once on each target.
"""

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ternhost.errors import TernError
from ternhost.reach.ports import names
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
    """The targets of a test session, and the outcomes of the tests on them.

    A target is made when a test first needs it, and runs a file once for all its tests. names: of the
    targets. kinds: how each is made, and what it leaves out. wanted: which functions of each file are
    to run on each target.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Read which targets the options name. With --exhaustive they run all their tests."""
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
                # Nothing is left out, neither tests nor cases of test vectors.
                self.kinds[name] = replace(kind, spared={}, only_vectors=False, one_of=1)
        self.wanted: dict[tuple[str, Path], list[str]] = {}
        self._made: dict[str, Future[Target]] = {}
        self._results: dict[tuple[str, Path], Future[dict[str, Outcome]]] = {}

    def outcomes(self, name: str, path: Path) -> dict[str, Outcome]:
        """Return the outcomes of the `wanted` functions of a file on a target, by the function's name.

        The file runs at the first call, once for all of them. name: of the target. path: of the file.
        Raises the error that kept the target from running it, at each call.
        """
        return _once(self._results, (name, path), lambda: self._run(name, path))

    def _run(self, name: str, path: Path) -> dict[str, Outcome]:
        """Run the `wanted` functions of a file on a target, which is made if it is not there yet."""
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
    """Raise pytest.UsageError for an unknown target, or for a board if --port does not name one.

    names: of the targets. port: the value of --port.
    """
    known_names = (*KINDS, _BOARD)
    for name in names:
        if name not in known_names:
            text = f"--target: there is no '{name}', only {', '.join(known_names)}"
            raise pytest.UsageError(text)
    if _BOARD in names and not port:
        raise pytest.UsageError(f"--target {_BOARD} needs --port")


def _once(results: dict[K, Future[V]], key: K, make: Callable[[], V]) -> V:
    """Return the result of the first call of `make` with this key, or raise that call's exception again.

    results: keeps the result or the exception of each key.
    """
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
    port = (
        "a board on which they run too: a0, id:SERIAL, a path or a URL such as socket://HOST:PORT"
    )
    group.addoption("--port", metavar="PORT", help=port)
    group.addoption("--baud", type=int, default=BAUD, help="of --port (default: %(default)s)")
    parser.addini("tern_device_tests", "folders of device tests", type="paths", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Make the targets of the session. None of them starts yet.

    Raises pytest.UsageError for an unknown target, or a port that is not there.
    """
    if config.option.port:
        try:
            config.option.port = names.resolve(config.option.port)
        except TernError as error:
            raise pytest.UsageError(f"--port: {error.message}", error.hint) from error
    config.addinivalue_line(
        "markers", "xdist_group(name): tests that run in one process of pytest-xdist"
    )
    config.stash[_TARGETS_KEY] = Targets(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the targets of the session."""
    targets = config.stash.get(_TARGETS_KEY, None)
    if targets is not None:
        targets.close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a collector of the tests for the targets, if this is a file of device tests.

    The result is None for other files, and without targets. pytest itself collects the tests on CPython.
    """
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
    """Note which functions of each file are to run on each target."""
    wanted = session.config.stash[_TARGETS_KEY].wanted
    for item in session.items:
        if isinstance(item, DeviceItem) and not item.get_closest_marker("skip"):
            names = wanted.setdefault((item.target, item.path), [])
            names.append(item.test_name)


class DeviceFile(pytest.File):
    """A file of device tests, collected for the targets."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for each test function and target.

        It is skipped if the target is not there or lacks a feature that the test needs.
        """
        targets = self.config.stash[_TARGETS_KEY]
        needs = device_tests.needs(self.path)
        for target in targets.names:
            kind = targets.kinds[target]
            why_absent = device_tests.absence(target)
            reason_by_feature = {**kind.lacks, **kind.spared}
            for name in device_tests.selected(self.path, kind.only_vectors):
                item: DeviceItem = DeviceItem.from_parent(
                    self, name=f"{name}[{target}]", test_name=name, target=target
                )
                needed_feature = needs.get(name, "")
                reason = why_absent or reason_by_feature.get(needed_feature)
                reason = reason or kind.cannot_run.get(f"{self.path.name}::{name}")
                if reason:
                    item.add_marker(pytest.mark.skip(reason=reason))
                yield item


class DeviceItem(pytest.Item):
    """A test function on a target."""

    parent: DeviceFile

    def __init__(self, *, test_name: str, target: str, **kwargs: Any) -> None:
        """Make the item of a test function on a target.

        test_name: of the function. target: the name of the target.
        """
        super().__init__(**kwargs)
        self.test_name = test_name
        self.target = target
        # pytest-xdist runs a group in one process: a file on a target, which runs it only once.
        # All tests on a real board are one group, since only one process can have its port.
        group = f"{self.path.stem}-{target}"
        if target == _BOARD:
            group = _BOARD
        self.add_marker(pytest.mark.xdist_group(group))

    def runtest(self) -> None:
        """Raise DeviceTestError unless the function has passed; run the file if it has not run yet."""
        targets = self.config.stash[_TARGETS_KEY]
        outcome = targets.outcomes(self.target, self.path)[self.test_name]
        # The first test of a file takes the time of all; its own is a property in --junitxml.
        self.user_properties.append(("seconds", outcome.seconds))
        if not outcome.passed:
            raise DeviceTestError(outcome)
        self.add_report_section("call", f"{self.target} output", outcome.output)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return what pytest shows for a failed test.

        That is the target's output, with lines of source in its tracebacks, or the message of an error of
        tern.
        """
        error = excinfo.value
        if isinstance(error, DeviceTestError):
            return f"on {self.target}:\n{device_tests.with_source(error.outcome.output, self.path)}"
        if isinstance(error, TernError):
            return error.message + (f"\n  {error.hint}" if error.hint else "")
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where the test is, as pytest shows it."""
        return self.path, 0, self.name
