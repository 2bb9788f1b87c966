"""Fixtures for tests with boards in the loop.

The boards are those of `--hardware-map FILE`, of `--port PORT`, or the emulated ones of `--target`.
`dut` is one board after the other, `fleet` all of them. `expectation` is each one of
`mapped_board`, an entry of the map. `@pytest.mark.hardware(fixture="ppk2")` asks for a fixture.
"""

import contextlib
from collections.abc import Iterator

import pytest

from tern import host_frames
from terntools.boards import deploy
from terntools.boards.repl import Repl
from terntools.emulators import catalogue
from terntools.testing import board_program, device_tests, hardware
from terntools.testing.hardware import MappedBoard

_NO_BOARDS = "no boards: --hardware-map FILE, --port PORT or --target pico,rv32,..."


class Dut:
    """A board under test: `board`, its entry in the map, and `port`, where it is."""

    def __init__(self, board: MappedBoard, port: str) -> None:
        self.board = board
        self.port = port

    def repl(self) -> Repl:
        """The board's raw REPL, a context manager."""
        return Repl(self.port, self.board.baud, visits=True)

    def deploy(self, *more: str) -> deploy.Machine:
        """Put the device library on the board, with modules of mpy.ON_DEMAND."""
        with self.repl() as repl:
            return board_program.install_library(repl, more)

    def start(self) -> host_frames.Hello:
        """Start the program on the board, and wait for its HELLO. Raises DeviceError."""
        with self.repl():  # which ends with a start
            pass
        return deploy.wait_for_hello(self.port)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tern")
    boards = "boards to test, in the shape of twister's hardware map"
    group.addoption("--hardware-map", metavar="FILE", help=boards)
    group.addoption("--hardware-id", metavar="ID", help="only this board of the map")


def pytest_configure(config: pytest.Config) -> None:
    needs = "hardware(fixture=None): needs a board, with that fixture if one is named"
    config.addinivalue_line("markers", needs)
    config.addinivalue_line(
        "markers", "trial: on the boards of a hardware map, runs before all other tests"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("hardware_map"):
        items.sort(key=lambda item: item.get_closest_marker("trial") is None)


def _boards(config: pytest.Config) -> list[MappedBoard]:
    """Return the boards under test, by the options."""
    hardware_map = config.getoption("hardware_map")
    if hardware_map:
        only = config.getoption("hardware_id")
        boards = hardware.read_map(hardware_map)
        return [board for board in boards if only is None or board.id == only]

    port = config.getoption("port")
    if port:
        return [MappedBoard("board", "board", port, config.getoption("baud"))]

    boards = []
    for target in config.getoption("target").split(","):
        if target in catalogue.NAMES and not device_tests.absence(target):
            platform = catalogue.platform_of(target)
            boards.append(MappedBoard(platform, platform, None))
    return boards


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "expectation" in metafunc.fixturenames:
        _parametrize_expectations(metafunc)
    if "dut" in metafunc.fixturenames:
        _parametrize_boards(metafunc)


def _parametrize_expectations(metafunc: pytest.Metafunc) -> None:
    """Make a test for each expectation of each board."""
    pairs = []
    ids = []
    for board in _boards(metafunc.config):
        for expectation in board.expect:
            pairs.append((board, expectation))
            ids.append(f"{board.id}-{expectation.figure}")
    metafunc.parametrize(("mapped_board", "expectation"), pairs, ids=ids, scope="module")


def _parametrize_boards(metafunc: pytest.Metafunc) -> None:
    """Make a test for each board that has the fixtures of its marks, or a skipped one."""
    needed = set()
    for mark in metafunc.definition.iter_markers("hardware"):
        if mark.kwargs.get("fixture"):
            needed.add(mark.kwargs["fixture"])

    boards = _boards(metafunc.config)
    parameters = []
    for board in boards:
        fixtures = {fixture.split(":")[0] for fixture in board.fixtures}  # `name:what` for some
        if needed <= fixtures:
            parameters.append(pytest.param(board, id=board.id))
    if not parameters:
        reason = f"no board has {' and '.join(sorted(needed))}" if boards else _NO_BOARDS
        parameters.append(pytest.param(None, id="none", marks=pytest.mark.skip(reason=reason)))
    metafunc.parametrize("dut", parameters, indirect=True, scope="module")


@contextlib.contextmanager
def _running(board: MappedBoard) -> Iterator[Dut]:
    """Yield the board, booted if it is an emulated one."""
    name = catalogue.name_of(board.platform)
    if name and board.serial is None:
        with catalogue.boot(name) as emulated:
            yield Dut(board, emulated.url)
    else:
        assert board.serial is not None
        yield Dut(board, board.serial)


@pytest.fixture(scope="module")
def dut(request: pytest.FixtureRequest) -> Iterator[Dut]:
    """One board under test; the test runs once for each that fits."""
    with _running(request.param) as board:
        yield board


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest) -> Iterator[list[Dut]]:
    """All boards under test."""
    boards = _boards(request.config)
    if not boards:
        pytest.skip(_NO_BOARDS)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_running(board)) for board in boards]
