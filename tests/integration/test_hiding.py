"""tern deploys to a board with files of any names, and past files that hide the library: on an emulated Pico."""

import json

import pytest
import rig

from ternhost import errors
from terntools.boards import deploy
from terntools.boards.repl import Repl
from terntools.emulators.pico import boot_pico


@pytest.fixture
def board(tmp_path):
    with boot_pico(tmp_path / "flash.bin") as pico:
        yield pico


NAMES = (b"/l\xe4rm.csv", b"/\xff\xfe", "/日本".encode(), b"/" + b"x" * 200)


def test_a_board_with_names_in_any_bytes_serves_and_can_be_deployed_to(tmp_path):
    with boot_pico(tmp_path / "flash.bin") as pico:
        rig.tern("deploy", pico.url, code=0)
        with Repl(pico.url) as repl:
            for name in NAMES:
                repl.run(f"open({name!r}, 'w').close()")
            repl.run("import os\nos.mkdir(b'/\\xe4')")
    with boot_pico(tmp_path / "flash.bin") as pico:
        assert deploy.wait_for_hello(pico.url, 60).text
        rig.tern("deploy", pico.url, "--whole", code=0)
        with Repl(pico.url) as repl:
            assert {name.decode(errors="surrogateescape") for name in NAMES} <= set(repl.directory("/"))


def test_a_folder_that_hides_the_library_is_renamed_if_the_user_agrees(board):
    rig.tern("deploy", board.url, code=0)
    with Repl(board.url) as repl:
        repl.write_file("/tern/__init__.py", b'__version__ = "0.0.9"\n')
        repl.write_file("/hashlib.py", b"own = 1\n")
        assert deploy.plan(repl)[1].move == ("/hashlib.py", "/tern")
    refused = rig.tern("deploy", board.url, code=errors.USAGE)
    assert "rename /hashlib.py, /tern on the board" in refused.err
    assert "--yes" in refused.err
    deployed = json.loads(rig.tern("deploy", board.url, "--yes", "--json", code=0).out)
    assert deployed["moved"] == ["/hashlib.py", "/tern"]
    assert "tern 0.0.9" not in deployed["hello"]
    with Repl(board.url) as repl:
        assert repl.read_file("/tern.hidden/__init__.py") == b'__version__ = "0.0.9"\n'
        assert deploy.plan(repl)[1].move == ()
