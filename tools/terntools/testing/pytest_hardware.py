"""Fixtures for tests with boards in the loop, of `--hardware-map FILE`, `--port PORT` or (emulated)
`--target`.

`dut` is one board after the other, `fleet` all; `expectation` is each one of `mapped_board`, an
entry of the map. `@pytest.mark.hardware(fixture="ppk2")` asks for a fixture.
"""

import contextlib
from collections.abc import Iterator

import pytest

from tern import host_frames
from terntools.boards import deploy, hiding
from terntools.boards.repl import Repl
from terntools.emulators import catalogue
from terntools.testing import device_tests, hardware
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
            machine, changes = deploy.plan(repl, more=more)
            hiding.require_none(repl, changes.move)
            deploy.install(repl, machine, changes)
            return machine

    def start(self) -> host_frames.Hello:
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
    if path := config.getoption("hardware_map"):
        wanted = config.getoption("hardware_id")
        return [board for board in hardware.read_map(path) if wanted in (None, board.id)]
    if port := config.getoption("port"):
        return [MappedBoard("board", "board", port, config.getoption("baud"))]
    targets = config.getoption("target").split(",")
    names = [name for name in targets if name in catalogue.NAMES and not device_tests.absence(name)]
    return [MappedBoard(platform, platform, None) for platform in map(catalogue.platform_of, names)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "expectation" in metafunc.fixturenames:
        pairs = [(board, each) for board in _boards(metafunc.config) for each in board.expect]
        names = [f"{board.id}-{each.figure}" for board, each in pairs]
        metafunc.parametrize(("mapped_board", "expectation"), pairs, ids=names, scope="module")
    if "dut" not in metafunc.fixturenames:
        return
    marks = metafunc.definition.iter_markers("hardware")
    wanted = [mark.kwargs["fixture"] for mark in marks if mark.kwargs.get("fixture")]
    boards = _boards(metafunc.config)
    # Twister writes `name:what` for some fixtures.
    fitting = [
        board for board in boards if {*wanted} <= {each.split(":")[0] for each in board.fixtures}
    ]
    params = [pytest.param(board, id=board.id) for board in fitting]
    if not params:
        reason = f"no board has {' and '.join(wanted)}" if boards else _NO_BOARDS
        params = [pytest.param(None, id="none", marks=pytest.mark.skip(reason=reason))]
    metafunc.parametrize("dut", params, indirect=True, scope="module")


@contextlib.contextmanager
def _running(board: MappedBoard) -> Iterator[Dut]:
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
    with _running(request.param) as one:
        yield one


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest) -> Iterator[list[Dut]]:
    """All boards under test."""
    boards = _boards(request.config)
    if not boards:
        pytest.skip(_NO_BOARDS)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_running(board)) for board in boards]
