"""The library as `tern deploy` installs it, with folded constants, answers as the source does."""

from contextlib import closing
from queue import SimpleQueue

import pytest
import rig
import small_board

from tern import frames, storage, wire
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


def test_a_deployed_pico_answers_rounds_refuses_and_keeps_its_budget(pico):
    three, window = small_board.THREE, small_board.WINDOW
    ask = Asker(pico.url)
    with closing(ask.link):
        hello = (ask.hello.schema, ask.hello.first, ask.hello.budget)
        assert hello == (wire.SCHEMA, 7, 7 * small_board.EPSILON)
        first = ask(small_board.round_frame(1, three))
        assert frames.address(first) == (7, 1)
        assert len(small_board.symbols_of(first, 4, 3)) == 4
        assert ask(small_board.round_frame(1, three)) == first
        for frame, error in (
            (small_board.round_frame(1, three, shift=1), (wire.ERR_CHANGED_ROUND, 1)),
            (
                small_board.round_frame(2, small_board.LEAKING),
                (wire.ERR_NOT_CERTIFIED, small_board.EPSILON),
            ),
            (small_board.round_frame(2, three[:-1]), (wire.ERR_CARD, 0)),
            (small_board.round_frame(2, three, d=5), (wire.ERR_DATA, 4)),
            (small_board.round_frame(2, three), (wire.ERR_BUDGET, 3 * small_board.EPSILON)),
        ):
            assert small_board.error_of(ask(frame)) == error
        forged = small_board.round_frame(2, three, key=bytes(32))
        assert small_board.error_of(ask(forged), 0) == (wire.ERR_TAG, 0)
        for number, model in ((2, wire.LINEAR), (3, wire.LOGISTIC), (4, wire.SVM)):
            assert ask(small_board.round_frame(number, window, k=1, model=model))[0] == wire.REPORT
        assert small_board.error_of(ask(small_board.round_frame(5, window, k=1))) == (
            wire.ERR_BUDGET,
            0,
        )
    with Repl(pico.url) as repl:
        spent = repl.read_file("/" + storage.ledger_name(7))[8:12]
        assert int.from_bytes(spent, "little") == 7 * small_board.EPSILON


def test_deploy_installs_the_imports_of_a_program(tmp_path, tern):
    path = tmp_path / "mine.py"
    path.write_text(
        "import helper\nfrom tern.boards.this import this_board\nfrom tern.supervisor import run\n"
        "board = this_board()\nboard.name = helper.NAME\nrun(board)\n"
    )
    (tmp_path / "helper.py").write_text("import tern.softmax\nNAME = 'mine'\n")
    program = read(path)
    with catalogue.boot("rv32") as board:
        result = tern("deploy", board.url, "--main", str(path), "--json").json
        assert {deploy.MAIN, "/helper.py"} <= set(result["written"])
        assert (result["modules"], result["missing"]) == (["helper.py"], [])
        assert deploy.wait_for_hello(board.url).text.startswith("mine; ")
        with Repl(board.url) as repl:
            assert repl.read_file(deploy.MAIN) == program.main
            assert "/lib/tern/softmax.mpy" in repl.directory(deploy.LIBRARY)
            assert not deploy.plan(repl, program=program)[1]
            changed = deploy.plan(repl)[1]
        assert list(changed.write) == [deploy.MAIN], (
            "without --main, the modules stay and main.py is tern's"
        )
