"""The library as `tern deploy` installs it, with folded constants, answers as the source does."""

from contextlib import closing
from queue import SimpleQueue

import pytest
import rig
import small_board

from tern import frames, storage, wire
from ternhost.errors import FAILED
from ternhost.reach.links import open_link
from terntools.boards import deploy
from terntools.boards.program import read
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image
from terntools.emulators.pico import boot_pico

TIMEOUT = 60.0


@pytest.fixture(scope="module")
def pico(tmp_path_factory):
    """A Pico with the client and the files of one device."""
    folder = tmp_path_factory.mktemp("board")
    small_board.provision(str(folder), budget=7 * small_board.EPSILON)
    files = rig.files_below(folder)
    flash_image.fill(
        "pico", folder / "flash.bin", lambda machine: {**deploy.library_files(machine), **files}
    )
    with boot_pico(folder / "flash.bin") as board:
        deploy.wait_for_hello(board.url)
        yield board


class Asker:
    """Sends frames to a board and waits for their answers."""

    def __init__(self, url):
        self._events = SimpleQueue()
        self.link = open_link(url, self._events)
        self.hello = self.link.hello(TIMEOUT)

    def __call__(self, frame):
        small_board.asked[0] = bytes(frame)
        self.link.send(bytes(frame))
        received = self._events.get(timeout=TIMEOUT)
        assert received.error is None
        (answer,) = received.frames
        return answer


@pytest.fixture(scope="module")
def ask(pico):
    """`ask(frame)`: the answer of the Pico."""
    asker = Asker(pico.url)
    with closing(asker.link):
        yield asker


BUDGET = 7 * small_board.EPSILON
THREE, WINDOW = small_board.THREE, small_board.WINDOW  # cards; a report of THREE has four values


def test_a_deployed_pico_says_who_it_is(ask):
    hello = (ask.hello.schema, ask.hello.first, ask.hello.budget)
    assert hello == (wire.SCHEMA, 7, BUDGET)


def test_a_deployed_pico_repeats_its_report(ask):
    first = ask(small_board.round_frame(1, THREE))
    assert frames.address(first) == (7, 1)
    assert len(small_board.symbols_of(first, 4, 3)) == 4
    assert ask(small_board.round_frame(1, THREE)) == first


@pytest.mark.parametrize(
    ("words", "options", "error"),
    [
        ((1, THREE), {"shift": 1}, (wire.ERR_CHANGED_ROUND, 1)),
        ((2, small_board.LEAKING), {}, (wire.ERR_NOT_CERTIFIED, small_board.EPSILON)),
        ((2, THREE[:-1]), {}, (wire.ERR_CARD, 0)),
        ((2, THREE), {"d": 5}, (wire.ERR_DATA, 4)),
        # A second report of four values costs more than is left.
        ((2, THREE), {}, (wire.ERR_BUDGET, 3 * small_board.EPSILON)),
    ],
)
def test_a_deployed_pico_refuses_what_it_must_not_answer(ask, words, options, error):
    assert small_board.error_of(ask(small_board.round_frame(*words, **options))) == error


def test_a_deployed_pico_spends_its_whole_budget_and_keeps_its_ledger(pico, ask):
    """What the first report left pays for one value of each model."""
    for number, model in ((2, wire.LINEAR), (3, wire.LOGISTIC), (4, wire.SVM)):
        answer = ask(small_board.round_frame(number, WINDOW, k=1, model=model))
        assert answer[0] == wire.REPORT
    refused = ask(small_board.round_frame(5, WINDOW, k=1))
    assert small_board.error_of(refused) == (wire.ERR_BUDGET, 0)
    ask.link.close()
    with Repl(pico.url) as repl:
        spent = repl.read_file("/" + storage.ledger_name(7))[8:12]
    assert int.from_bytes(spent, "little") == BUDGET


# `tern deploy --main`, on a board that starts quickly


@pytest.fixture(scope="module")
def port():
    with catalogue.boot("rv32") as board:
        yield board.url


PROGRAM = """
import helper
from tern.boards.this import this_board
from tern.supervisor import run
board = this_board()
board.name = helper.NAME
run(board)
"""


def test_deploy_installs_the_imports_of_a_program(port, tmp_path, tern):
    path = tmp_path / "mine.py"
    path.write_text(PROGRAM)
    (tmp_path / "helper.py").write_text("import tern.softmax\nNAME = 'mine'\n")
    result = tern("deploy", port, "--main", str(path), "--json").json
    assert {deploy.MAIN, "/helper.py"} <= set(result["written"])
    assert (result["modules"], result["missing"]) == (["helper.py"], [])
    assert deploy.wait_for_hello(port).text.startswith("mine; ")
    with Repl(port) as repl:
        assert "/lib/tern/softmax.mpy" in repl.directory(deploy.LIBRARY)
        assert not deploy.plan(repl, program=read(path))[1], "nothing is left to do"
        without_program = deploy.plan(repl)[1]
    assert list(without_program.write) == [deploy.MAIN], "the modules stay, and main.py is tern's"


def test_a_program_that_crashes_at_once_is_no_success(port, tmp_path, tern):
    program = tmp_path / "bad.py"
    program.write_text("import tern\n\n\ndef go():\n    return 1 / 0\n\n\ngo()\n")
    ended = tern("deploy", port, "--main", str(program), code=FAILED)
    assert "stopped as soon as it was started" in ended.err
    assert 'File "main.py", line 5, in go\n  ZeroDivisionError: divide by zero' in ended.err
