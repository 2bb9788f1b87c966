"""The library as `tern deploy` installs it, with folded constants, answers as the source does."""

import pytest

from ternhost.errors import FAILED
from terntools.boards import deploy
from terntools.boards.program import read
from terntools.boards.repl import Repl
from terntools.emulators import catalogue

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
