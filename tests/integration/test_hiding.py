"""tern deploys to a board with files of any names, and past files that hide the library: on an
emulated Pico.
"""

import json

import pytest
import rig

from ternhost import errors
from ternhost.errors import UsageError
from terntools.boards import deploy, hiding
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
            assert {name.decode(errors="surrogateescape") for name in NAMES} <= set(
                repl.directory("/")
            )


FILES = ("/lib/tern/client.mpy", "/lib/tern/ledger.mpy", "/lib/tern/app.mpy")  # of a deployment


def hides(board, files, before=""):
    """The paths that hide the library on a board with these files in its root. before: code of a
    boot.py.
    """
    with Repl(board.url) as repl:
        for path, text in files.items():
            repl.write_file(path, text)
        repl.run(before)
        return hiding.find(repl, FILES)


RUNS = {
    "never ends": b"while True:\n    pass\n",
    "ends the program": b"raise SystemExit\n",
    "is interrupted": b"raise KeyboardInterrupt\n",
    "prints": b"print('hello', 5)\n",
    "resets the board": b"import machine\nmachine.reset()\n",
    "is broken": b"def\n",
}


@pytest.mark.parametrize("runs", RUNS)
def test_what_hides_the_library_is_found_and_not_run(board, runs):
    paths = ("/hashlib.py", "/os.py", "/tern.py")
    assert hides(board, dict.fromkeys(paths, RUNS[runs])) == paths


def test_everything_that_hides_the_library_is_found_at_once(board):
    paths = ("/asyncio/__init__.py", "/tern.mpy", "/tern.py", "/tern/__init__.py")
    found = hides(board, dict.fromkeys(paths, b""))
    assert found == ("/asyncio", "/tern", "/tern.mpy", "/tern.py")


def test_files_that_hide_nothing_stay(board):
    """Among them a module that is built in, which comes first, and one that the library does not
    import.
    """
    paths = (
        "/config.py",
        "/tern",
        "/helpers/tern.py",
        "/umqtt/simple.py",
        "/gc.py",
        "/random.py",
        "/lib/hashlib.py",
    )
    assert hides(board, dict.fromkeys(paths, b"")) == ()


@pytest.mark.parametrize("folder", ["/lib", "lib", "/lib/", "/lib2"])
def test_the_library_does_not_hide_itself_where_its_folder_comes_first(board, folder):
    files = {"/lib/tern/__init__.py": b"", "/lib2/tern/__init__.py": b"", "/tern.py": b""}
    assert hides(board, files, f"import sys\nsys.path.insert(0, {folder!r})") == ()


def test_files_in_another_folder_of_the_path_hide_the_library(board):
    before = "import sys, os\nos.chdir('/data')\nsys.path.insert(0, 'more')\nsys.path.append(5)"
    found = hides(board, {"/data/tern.py": b"", "/data/more/tern.py": b""}, before)
    assert found == ("/data/more/tern.py", "/data/tern.py")


@pytest.mark.parametrize("renamed", [{}, {"/tern": "/tern.hidden"}])
def test_a_second_deployment_knows_what_an_interrupted_one_renamed(renamed):
    undoer = deploy._UNDOER.replace(b"{}", repr(renamed).encode(), 1)
    assert deploy._renamed_before(undoer) == renamed


def test_a_deployment_that_an_earlier_release_left_interrupted_renamed_nothing():
    first_line, _, _ = deploy._UNDOER.partition(b"\n")
    assert deploy._renamed_before(first_line + b"\nimport os\n") == {}


def test_a_command_that_does_not_ask_refuses_what_hides_the_library(board):
    with Repl(board.url) as repl:
        repl.write_file("/tern.py", b"")
        _, changes = deploy.plan(repl)
        with pytest.raises(
            UsageError, match=r"/tern\.py on .* would be imported instead of the library"
        ):
            hiding.require_none(repl, changes.move)


def test_what_hides_the_library_is_renamed_beside_what_was_renamed_before(board):
    with Repl(board.url) as repl:
        repl.write_file("/tern.py", b"new")
        repl.write_file("/tern.py.hidden", b"old")
        hiding.rename(repl, hiding.new_paths(repl, hiding.find(repl, FILES)))
        assert repl.read_file("/tern.py.hidden.hidden") == b"new"
        assert repl.read_file("/tern.py.hidden") == b"old"


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
