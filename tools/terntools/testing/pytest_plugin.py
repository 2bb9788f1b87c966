"""The pytest plugin `tern`: each device test is collected once more for every target with MicroPython on it.

The folders of device tests are those of the ini option `tern_device_tests`. Options are named as
pytest-embedded's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ternhost.errors import TernError
from ternhost.links.serial import BAUD
from terntools.testing import device_tests
from terntools.testing.device_tests import KINDS, BoardTarget, Outcome, Target

pytest_plugins = ["terntools.testing.pytest_hardware"]

_BOARD = BoardTarget.name


class DeviceTestError(Exception):
    """A device test that did not pass on a target."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.name)
        self.outcome = outcome


class Targets:
    """The targets of a session, side by side: each runs its files in a thread of its own, while other tests go on."""

    def __init__(self, config: pytest.Config) -> None:
        self.names: list[str] = [name for name in config.getoption("target").split(",") if name]
        self._timeout: float = config.getoption("device_timeout")
        self._port: str | None = config.getoption("port")
        self._baud: int = config.getoption("baud")
        if self._port and _BOARD not in self.names:
            self.names.append(_BOARD)
        if unknown := [name for name in self.names if name not in (*KINDS, _BOARD)]:
            raise pytest.UsageError(
                f"--target: there is no '{unknown[0]}', only {', '.join((*KINDS, _BOARD))}"
            )
        if _BOARD in self.names and not self._port:
            raise pytest.UsageError(f"--target {_BOARD} needs --port")
        # A core is left to the other tests.
        self._pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 1), "device-tests")
        self._results: dict[tuple[str, Path], Future[dict[str, Outcome]]] = {}
        self._running: list[Target] = []
        self._stopped = False
        self._lock = threading.Lock()

    def lacks(self, name: str) -> Mapping[str, str]:
        """What a target has not, and why."""
        return device_tests.BOARD_LACKS if name == _BOARD else KINDS[name].lacks

    def begin(self, wanted: Mapping[str, Mapping[Path, Sequence[str]]]) -> None:
        """Begin to run, on each target named, these functions of these files."""
        order = [name for name in (_BOARD, *KINDS) if name in wanted]  # the slowest first
        for name in order:
            for path in wanted[name]:
                self._results[name, path] = Future()
            self._pool.submit(self._run, name, wanted[name])

    def outcomes(self, name: str, path: Path) -> dict[str, Outcome]:
        """Those of a file on a target, once it has run. Raises what kept the target from running it."""
        return self._results[name, path].result()

    def _run(self, name: str, files: Mapping[Path, Sequence[str]]) -> None:
        target: Target | None = None
        try:
            target = self._make(name, list(files))
            with self._lock:
                if self._stopped:
                    target.close()
                    return
                self._running.append(target)
            for path, names in files.items():
                outcomes = device_tests.run_file(target, path, names, self._timeout)
                self._results[name, path].set_result({outcome.name: outcome for outcome in outcomes})
        except BaseException as error:  # it is every test's that has no result yet
            for path in files:
                if not self._results[name, path].done():
                    self._results[name, path].set_exception(error)
        finally:
            with self._lock:
                if target in self._running:
                    self._running.remove(target)
                    target.close()  # at once: an emulated Pico to which no time is idle keeps a core busy

    def _make(self, name: str, paths: Sequence[Path]) -> Target:
        if name == _BOARD:
            assert self._port is not None
            return BoardTarget(self._port, self._baud)
        return KINDS[name].make(paths)

    def close(self) -> None:
        """End what still runs, and begin no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._stopped = True
            while self._running:
                self._running.pop().close()


_TARGETS_KEY = pytest.StashKey[Targets]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tern", "device tests")
    group.addoption(
        "--target",
        default="unix",
        metavar="LIST",
        help="where device tests run beside CPython (default: unix)",
    )
    group.addoption("--not-on-cpython", action="store_true", help="device tests on --target and --port alone")
    group.addoption(
        "--device-timeout", type=float, default=device_tests.TIMEOUT, help="seconds a device test file"
    )
    group.addoption(
        "--port", metavar="PORT", help="a board on which they run too: a device or a socket:// URL"
    )
    group.addoption("--baud", type=int, default=BAUD, help="of --port (default: %(default)s)")
    parser.addini("tern_device_tests", "folders of device tests", type="paths", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TARGETS_KEY] = Targets(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if targets := config.stash.get(_TARGETS_KEY, None):
        targets.close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    folders = parent.config.getini("tern_device_tests")
    if (
        file_path.match("test_*.py")
        and file_path.parent in folders
        and parent.config.stash[_TARGETS_KEY].names
    ):
        file: pytest.Collector = DeviceFile.from_parent(parent, path=file_path)
        return file
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # What runs on targets goes on beside the other tests, and is asked for last.
    items.sort(key=lambda item: isinstance(item, DeviceItem))
    if not config.getoption("not_on_cpython"):
        return
    folders = config.getini("tern_device_tests")
    here = [item for item in items if not isinstance(item, DeviceItem) and item.path.parent in folders]
    config.hook.pytest_deselected(items=here)
    items[:] = [item for item in items if item not in here]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    option = session.config.option
    if option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
        return  # no test will be run
    wanted: dict[str, dict[Path, list[str]]] = {}
    for item in session.items:
        if isinstance(item, DeviceItem) and not item.get_closest_marker("skip"):
            wanted.setdefault(item.target, {}).setdefault(item.path, []).append(item.test_name)
    session.config.stash[_TARGETS_KEY].begin(wanted)


class DeviceFile(pytest.File):
    """A file of device tests; it runs once on each target."""

    def collect(self) -> Iterator[pytest.Item]:
        targets = self.config.stash[_TARGETS_KEY]
        needs = device_tests.needs(self.path)
        for target in targets.names:
            lacks = targets.lacks(target)
            absent = device_tests.absence(target)
            for name in device_tests.test_names(self.path):
                item = DeviceItem.from_parent(self, name=f"{name}[{target}]", test_name=name, target=target)
                if absent:
                    item.add_marker(pytest.mark.skip(reason=absent))
                elif needs.get(name) in lacks:
                    item.add_marker(pytest.mark.skip(reason=lacks[needs[name]]))
                yield item


class DeviceItem(pytest.Item):
    """One test function on one target."""

    parent: DeviceFile

    def __init__(self, *, test_name: str, target: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.test_name = test_name
        self.target = target

    def runtest(self) -> None:
        outcome = self.config.stash[_TARGETS_KEY].outcomes(self.target, self.path)[self.test_name]
        if outcome.state != device_tests.PASSED:
            raise DeviceTestError(outcome)
        self.add_report_section("call", f"{self.target} output", outcome.output)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        error = excinfo.value
        if isinstance(error, DeviceTestError):
            return f"on {self.target}:\n{device_tests.with_source(error.outcome.output, self.path)}"
        if isinstance(error, TernError):
            return f"{error.message}\n  {error.hint}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, 0, self.name
