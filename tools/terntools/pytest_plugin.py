"""The pytest plugin `tern`: each device test is collected once more for every target with MicroPython on it.

The folders of device tests are those of the ini option `tern_device_tests`. Options are named as
pytest-embedded's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ternhost.errors import TernError
from ternhost.links.serial import BAUD
from terntools import device_tests
from terntools.device_tests import BoardTarget, Outcome, PicoTarget, Target, UnixTarget

pytest_plugins = ["terntools.pytest_hardware"]

_TARGETS: dict[str, type[Any]] = {kind.name: kind for kind in (UnixTarget, PicoTarget, BoardTarget)}


class DeviceTestError(Exception):
    """A device test that did not pass on a target."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.name)
        self.outcome = outcome


class Targets:
    """The targets of a session, each made when its first test runs."""

    def __init__(self, config: pytest.Config) -> None:
        self.names: list[str] = [name for name in config.getoption("target").split(",") if name]
        self.timeout: float = config.getoption("device_timeout")
        self._port: str | None = config.getoption("port")
        self._baud: int = config.getoption("baud")
        if self._port and BoardTarget.name not in self.names:
            self.names.append(BoardTarget.name)
        if unknown := [name for name in self.names if name not in _TARGETS]:
            raise pytest.UsageError(f"--target: there is no '{unknown[0]}', only {', '.join(_TARGETS)}")
        if BoardTarget.name in self.names and not self._port:
            raise pytest.UsageError(f"--target {BoardTarget.name} needs --port")
        self._made: dict[str, Target] = {}

    def __getitem__(self, name: str) -> Target:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Target:
        kind = _TARGETS[name]
        if kind is BoardTarget:
            assert self._port is not None
            return BoardTarget(self._port, self._baud)
        target: Target = kind()
        return target

    def close(self) -> None:
        for target in self._made.values():
            target.close()
        self._made.clear()


_TARGETS_KEY = pytest.StashKey[Targets]()
_LAST_KEY = pytest.StashKey[pytest.Item]()  # the last test of the session that needs a target


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
    if not config.getoption("not_on_cpython"):
        return
    folders = config.getini("tern_device_tests")
    here = [item for item in items if not isinstance(item, DeviceItem) and item.path.parent in folders]
    config.hook.pytest_deselected(items=here)
    items[:] = [item for item in items if item not in here]


def pytest_collection_finish(session: pytest.Session) -> None:
    for item in session.items:
        if isinstance(item, DeviceItem):
            session.config.stash[_LAST_KEY] = item


def pytest_runtest_teardown(item: pytest.Item) -> None:
    # At once: an emulated Pico to which no time is idle keeps a core busy.
    if item is item.config.stash.get(_LAST_KEY, None):
        item.config.stash[_TARGETS_KEY].close()


class DeviceFile(pytest.File):
    """A file of device tests; it runs once on each target."""

    def collect(self) -> Iterator[pytest.Item]:
        self._outcomes: dict[str, dict[str, Outcome]] = {}
        reasons = device_tests.not_on_boards(self.path)
        for target in self.config.stash[_TARGETS_KEY].names:
            for name in device_tests.test_names(self.path):
                item = DeviceItem.from_parent(self, name=f"{name}[{target}]", test_name=name, target=target)
                if name in reasons and _TARGETS[target].is_board:
                    item.add_marker(pytest.mark.skip(reason=reasons[name]))
                yield item

    def outcome(self, wanted: DeviceItem) -> Outcome:
        if wanted.target not in self._outcomes:
            targets = self.config.stash[_TARGETS_KEY]
            names = [
                item.test_name
                for item in self.session.items
                if isinstance(item, DeviceItem)
                and item.parent is self
                and item.target == wanted.target
                and not item.get_closest_marker("skip")
            ]
            outcomes = device_tests.run_file(targets[wanted.target], self.path, names, targets.timeout)
            self._outcomes[wanted.target] = {outcome.name: outcome for outcome in outcomes}
        return self._outcomes[wanted.target][wanted.test_name]


class DeviceItem(pytest.Item):
    """One test function on one target."""

    parent: DeviceFile

    def __init__(self, *, test_name: str, target: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.test_name = test_name
        self.target = target

    def runtest(self) -> None:
        outcome = self.parent.outcome(self)
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
