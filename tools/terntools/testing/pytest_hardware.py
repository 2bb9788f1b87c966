"""Fixtures of pytest for tests with boards in the loop.

The boards are those of `--hardware-map FILE`, that of `--port PORT`, or the emulated ones of
`--target`. A test with the fixture `dut` (device under test) runs once for each board, and one with
`fleet` gets all boards together. A test with the fixtures `expectation` and `measured` runs once for
each figure that the map expects something of. With the mark
`@pytest.mark.hardware(fixture="ppk2")` a test runs only on boards to which that is wired.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import pytest

from tern import host_frames
from ternhost.errors import TernError
from terntools.boards import machines, starting
from terntools.boards.repl import Repl
from terntools.boards.slot import slot_of
from terntools.emulators import catalogue
from terntools.testing import board_figures, board_program, device_tests, hardware_map
from terntools.testing.expectations import Expectation
from terntools.testing.hardware import MappedBoard

_NO_BOARDS = "no boards: --hardware-map FILE, --port PORT or --target pico,rv32,..."

_MAPPED_BOARDS = pytest.StashKey[list[MappedBoard]]()


class Dut:
    """A board under test: its entry in the hardware map, and the port at which it is."""

    def __init__(self, board: MappedBoard, port: str) -> None:
        self.board = board
        self.port = port

    def repl(self) -> Repl:
        """Return the board's console, the raw REPL of MicroPython, as a context manager."""
        return Repl(self.port, self.board.baud, visits=True)

    def deploy(self, *more: str) -> machines.Machine:
        """Install the device library on the board, and return what kind of board it is.

        more: names of extra modules to install, of `mpy.on_demand`.
        """
        with self.repl() as repl:
            return board_program.install_library(repl, more)

    def start(self) -> host_frames.Hello:
        """Start the board's program, and return the first frame that it sends, its HELLO.

        Raises DeviceError if there is none.
        """
        with self.repl() as repl:  # at the end the board starts anew
            slot = slot_of(repl)
        return starting.wait_for_hello(self.port, slot)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name a hardware map."""
    group = parser.getgroup("tern")
    boards = "boards to test, in the shape of twister's hardware map"
    group.addoption("--hardware-map", metavar="FILE", help=boards)
    group.addoption("--hardware-id", metavar="ID", help="only this board of the map")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of tests with boards, and read the hardware map.

    Raises pytest.UsageError for a wrong map.
    """
    map_file = config.getoption("hardware_map")
    if map_file:
        only_id = config.getoption("hardware_id")
        try:
            boards = hardware_map.read_map(map_file, [only_id] if only_id else [])
        except TernError as error:
            raise pytest.UsageError(*filter(None, (error.message, error.hint))) from error
        config.stash[_MAPPED_BOARDS] = boards
    needs = "hardware(fixture=None): needs a board, with that fixture if one is named"
    config.addinivalue_line("markers", needs)
    config.addinivalue_line(
        "markers", "trial: on the boards of a hardware map, runs before all other tests"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move tests with the mark `trial` to the front if there is a hardware map."""
    if config.getoption("hardware_map"):
        # False sorts before True; the sort keeps the order of all others.
        items.sort(key=lambda item: item.get_closest_marker("trial") is None)


def _boards(config: pytest.Config) -> list[MappedBoard]:
    """Return the boards that the options name: of a map, at a port, or emulated ones."""
    if _MAPPED_BOARDS in config.stash:
        return config.stash[_MAPPED_BOARDS]

    port = config.getoption("port")
    if port:
        return [
            MappedBoard(id="board", platform="board", serial=port, baud=config.getoption("baud"))
        ]

    boards = []
    for target in config.getoption("target").split(","):
        if target in catalogue.NAMES and not device_tests.absence(target):
            platform = catalogue.platform_of(target)
            boards.append(MappedBoard(id=platform, platform=platform, serial=None))
    return boards


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat a test for each board or expectation, if it has one of the fixtures of this plugin."""
    if {"expectation", "mapped_board"} & set(metafunc.fixturenames):
        _parametrize_expectations(metafunc)
    if "dut" in metafunc.fixturenames:
        _parametrize_boards(metafunc)


def _parametrize_expectations(metafunc: pytest.Metafunc) -> None:
    """Repeat a test for each figure of each board that the hardware map expects something of."""
    pairs = []
    ids = []
    for board in _boards(metafunc.config):
        for expectation in board.expect:
            pairs.append((board, expectation))
            ids.append(f"{board.id}-{expectation.figure}")
    metafunc.parametrize(("mapped_board", "expectation"), pairs, ids=ids, scope="module")


def _parametrize_boards(metafunc: pytest.Metafunc) -> None:
    """Repeat a test for each board that has the fixtures which the test's marks name.

    If there is no such board, the test is skipped.
    """
    needed_fixtures = set()
    for mark in metafunc.definition.iter_markers("hardware"):
        if mark.kwargs.get("fixture"):
            needed_fixtures.add(mark.kwargs["fixture"])

    boards = _boards(metafunc.config)
    parameters = []
    for board in boards:
        # A map may add to a fixture's name what it is, as in "ppk2:left".
        fixtures = {fixture.split(":")[0] for fixture in board.fixtures}
        if needed_fixtures <= fixtures:
            parameters.append(pytest.param(board, id=board.id))
    if not parameters:
        reason = _NO_BOARDS
        if boards:
            reason = f"no board has {' and '.join(sorted(needed_fixtures))}"
        parameters.append(pytest.param(None, id="none", marks=pytest.mark.skip(reason=reason)))
    metafunc.parametrize("dut", parameters, indirect=True, scope="module")


@contextlib.contextmanager
def _running(board: MappedBoard) -> Iterator[Dut]:
    """Yield the board under test; an emulated one is booted, and ends with the context."""
    name = catalogue.name_of(board.platform)
    if name and board.serial is None:
        with contextlib.ExitStack() as stack:
            try:
                emulated = stack.enter_context(catalogue.boot(name))
            except TernError as error:  # such as an emulator that is not built
                pytest.fail(f"{error.message}\n  {error.hint}", pytrace=False)
            yield Dut(board, emulated.url)
    else:
        assert board.serial is not None  # a map has a port for every real board
        yield Dut(board, board.serial)


@pytest.fixture(scope="module")
def dut(request: pytest.FixtureRequest) -> Iterator[Dut]:
    """Yield a board under test. The test runs once for each board that fits."""
    with _running(request.param) as board:
        yield board


@pytest.fixture(scope="module")
def _figures_of_board(mapped_board: MappedBoard) -> Callable[[str], Mapping[str, float]]:
    """Return a function that measures a figure, and returns it with those measured together with it.

    Each measurement runs once for a board.
    """
    figures_by_measurement: dict[board_figures.Measurement, Mapping[str, float]] = {}

    def measure(figure: str) -> Mapping[str, float]:
        measurement = board_figures.MEASUREMENTS[figure]
        if measurement not in figures_by_measurement:
            try:
                figures_by_measurement[measurement] = measurement(mapped_board)
            except TernError as error:
                pytest.fail(f"{error.message}\n  {error.hint}", pytrace=False)
        return figures_by_measurement[measurement]

    return measure


@pytest.fixture
def measured(
    mapped_board: MappedBoard,
    expectation: Expectation,
    _figures_of_board: Callable[[str], Mapping[str, float]],
) -> float:
    """Measure the figure that an expectation is about, on its board, and return the value.

    The test is skipped if the figure cannot be measured here, such as an energy without a meter. It
    fails if the measurement fails.
    """
    figure = expectation.figure
    if reason := board_figures.why_not_measured(figure, mapped_board):
        pytest.skip(reason)
    figures = _figures_of_board(figure)
    if figure not in figures:
        pytest.fail(
            f"{mapped_board.id} gives no {figure}, only {', '.join(figures)}", pytrace=False
        )
    return figures[figure]


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest) -> Iterator[list[Dut]]:
    """Yield all boards under test together. The test is skipped if there are none."""
    boards = _boards(request.config)
    if not boards:
        pytest.skip(_NO_BOARDS)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_running(board)) for board in boards]
