"""tern deploys past files that hide the library or have any names, and programs with their imports."""

import pytest
import rig

from ternhost import errors
from ternhost.errors import FAILED, DeviceError
from ternhost.provision.boards import fleet_file
from terntools.boards import deploy, hiding, installing, software, starting
from terntools.boards.program import read
from terntools.boards.repl import Repl
from terntools.boards.slot import slot_of
from terntools.emulators import catalogue, flash_image

FILES = ("/lib/tern/client.mpy", "/lib/tern/ledger.mpy", "/lib/tern/app.mpy")  # of a deployment


@pytest.fixture(scope="module")
def port():
    """The port of a board that starts quickly."""
    with catalogue.boot("rv32") as machine:
        yield machine.url


@pytest.fixture
def board(port):
    """The prompt of this board, without files and with a fresh heap."""
    with Repl(port) as repl:
        for name in {path.split("/")[1] for path in repl.files.sizes("/")}:
            repl.files.remove(f"/{name}")
            repl.files.remove_tree(f"/{name}")
        repl.soft_reset()
        yield repl


def hiding_paths(repl, files, before=""):
    """The paths that hide the library on a board with these files. before: code that runs first."""
    for path, text in files.items():
        repl.files.write(path, text)
    repl.run(before)
    return hiding.find(repl, FILES)


@pytest.mark.parametrize(
    "text",
    [
        b"while True:\n    pass\n",
        b"import machine\nmachine.reset()\n",
        b"def\n",
    ],
    ids=["never ends", "resets the board", "is broken"],
)
def test_what_hides_the_library_is_found_and_not_run(board, text):
    """A file that MicroPython would import instead of a module of the library, or of one that this
    needs, is found by its name: to import it, and see, might hang or reset the board.
    """
    paths = ("/hashlib.py", "/os.py", "/tern.py")
    assert hiding_paths(board, dict.fromkeys(paths, text)) == paths


NOT_HIDING = (
    "/config.py",
    "/tern",
    "/helpers/tern.py",
    "/umqtt/simple.py",
    "/gc.py",  # built in, which comes first
    "/random.py",  # which the library does not import
    "/lib/hashlib.py",
)


def test_files_that_hide_nothing_stay(board):
    assert hiding_paths(board, dict.fromkeys(NOT_HIDING, b"")) == ()


@pytest.mark.parametrize("folder", ["lib", "/lib2"], ids=["relative path", "other library"])
def test_the_library_does_not_hide_itself_where_its_folder_comes_first(board, folder):
    """Where the folder of the library is searched first, nothing hides the library, not even
    /tern.py.
    """
    files = {"/lib/tern/__init__.py": b"", "/lib2/tern/__init__.py": b"", "/tern.py": b""}
    assert hiding_paths(board, files, f"import sys\nsys.path.insert(0, {folder!r})") == ()


def test_files_in_another_folder_of_the_path_hide_the_library(board):
    """A program may have changed the folders in which MicroPython looks for modules: a relative
    one, and even an entry that is no text.
    """
    paths = ("/data/more/tern.py", "/data/tern.py")
    change_path = (
        "import sys, os\nos.chdir('/data')\nsys.path.insert(0, 'more')\nsys.path.append(5)"
    )
    assert hiding_paths(board, dict.fromkeys(paths, b""), change_path) == paths


def test_what_hides_the_library_is_renamed_beside_what_was_renamed_before(board):
    """No file of the user's is overwritten."""
    board.files.write("/tern.py", b"new")
    board.files.write("/tern.py.hidden", b"old")

    hiding_files = hiding.find(board, FILES)
    hiding.rename(board, hiding.new_paths(board, hiding_files))

    assert board.files.read("/tern.py.hidden.hidden") == b"new"
    assert board.files.read("/tern.py.hidden") == b"old"


# On a board with the library


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The port of a board with the library, which serves."""
    flash = tmp_path_factory.mktemp("deployed") / "flash.bin"
    flash_image.fill("rv32", flash, software.library_files)
    with catalogue.boot("rv32", flash) as machine:
        starting.wait_for_hello(machine.url)
        yield machine.url


def test_a_folder_that_hides_the_library_is_renamed_if_the_user_agrees(deployed):
    """A folder /tern on a board is imported before the library in /lib, and so hides it. `tern
    deploy` refuses to install beside it, unless the user allows it to rename the folder.
    """
    with Repl(deployed) as repl:
        repl.files.write("/tern/__init__.py", b'__version__ = "0.0.9"\n')

    refused = rig.tern("board", "deploy", deployed, code=errors.USAGE)
    assert "rename /tern on the board" in refused.err
    assert "--yes" in refused.err

    result = rig.tern("board", "deploy", deployed, "--yes", "--json").json
    assert result["moved"] == ["/tern"]
    assert "tern 0.0.9" not in result["hello"], "the library in /lib runs"
    with Repl(deployed, visits=True) as repl:
        assert repl.files.read("/tern.hidden/__init__.py") == b'__version__ = "0.0.9"\n'


NAMES = (b"/l\xe4rm.csv", b"/\xff\xfe", "/日本".encode(), b"/" + b"x" * 200)


def test_a_board_with_names_in_any_bytes_serves_and_can_be_deployed_to(deployed):
    """A board may have files whose names are not UTF-8. It serves all the same, and a deployment
    leaves them there.
    """
    with Repl(deployed, visits=True) as repl:
        for name in NAMES:
            repl.run(f"open({name!r}, 'w').close()")
        repl.run("import os\nos.mkdir(b'/\\xe4')")

    assert starting.wait_for_hello(deployed).text
    rig.tern("board", "deploy", deployed, "--module", "local", code=0)
    with Repl(deployed) as repl:
        names = {name.decode(errors="surrogateescape") for name in NAMES}
        assert names <= set(repl.files.sizes("/"))


# Programs of users


PROGRAM = """
import helper
from tern.boards.this import this_board
from tern.supervisor import run
board = this_board()
board.name = helper.NAME
run(board)
"""


def test_deploy_installs_the_imports_of_a_program(port, tmp_path, tern):
    """The program mine.py of a user imports helper.py, and that a module of the library which
    boards do not get by themselves. `tern board deploy --main mine.py` installs all three.
    """
    path = tmp_path / "mine.py"
    path.write_text(PROGRAM)
    (tmp_path / "helper.py").write_text("import tern.softmax\nNAME = 'mine'\n")
    result = tern("board", "deploy", port, "--main", str(path), "--json").json

    assert {software.MAIN, "/helper.py"} <= set(result["written"])
    assert (result["modules"], result["missing"]) == (["helper.py"], [])
    assert starting.wait_for_hello(port).text.startswith("mine; ")
    with Repl(port) as repl:
        assert "/lib/tern/softmax.mpy" in repl.files.sizes(software.LIBRARY)
        assert not installing.plan(repl, program=read(path))[1], "nothing is left to do"
        without_program = installing.plan(repl)[1]
    assert list(without_program.write) == [software.MAIN], "the modules stay, and main.py is tern's"


def test_a_program_that_crashes_at_once_is_no_success(port, tmp_path, tern):
    """`tern board deploy` waits for the program that it has installed, and shows where it failed."""
    program = tmp_path / "bad.py"
    program.write_text("import tern\n\n\ndef go():\n    return 1 / 0\n\n\ngo()\n")
    ended = tern("board", "deploy", port, "--main", str(program), code=FAILED)
    assert "stopped as soon as it was started" in ended.err
    assert 'File "main.py", line 5, in go\n  ZeroDivisionError: divide by zero' in ended.err


def test_a_program_that_stops_later_is_no_success(port, tmp_path, tern, monkeypatch):
    """A slow board shows the error of a program only after `tern board deploy` has listened to it.
    But a program that serves the host must answer, and the board's prompt shows that it has ended.
    """
    monkeypatch.setattr(deploy, "FIRST_SECONDS", 0.0)
    program = tmp_path / "late.py"
    program.write_text("import tern.app\n\n1 / 0\n")
    ended = tern("board", "deploy", port, "--main", str(program), code=FAILED)
    assert 'File "main.py", line 3, in <module>\n  ZeroDivisionError' in ended.err


SILENT = """
import time
from tern.app import App
from tern.boards.this import this_board
from tern.model import Model
from tern.recorder import Recorder
node = App(this_board(), Recorder(2), Model())
while True:
    time.sleep(1)
"""


def test_the_reason_of_a_silent_board_is_one_of_its_program(port, tmp_path, tern, monkeypatch):
    """A program makes an App, and never runs it. A second App of one start would be an error, but
    there is only one, so the error of `tern board deploy` names no exception.
    """
    monkeypatch.setattr(starting, "_SECONDS_TO_ANSWER", 1.0)
    monkeypatch.setattr(starting, "_SECONDS_TO_FAIL", 5.0)
    program = tmp_path / "silent.py"
    program.write_text(SILENT)
    tern("board", "deploy", port, "--main", str(program))
    with pytest.raises(DeviceError) as caught:
        starting.wait_for_hello(port, patience=1.0)
    assert "main.py ends" not in caught.value.message


def test_a_program_that_ends_by_an_exception_is_the_reason_of_a_silent_board(board, port):
    board.files.write("/main.py", b"1 / 0\n")
    board.close()
    with pytest.raises(DeviceError, match=r"main\.py ends with ZeroDivisionError"):
        starting.wait_for_hello(port, patience=1.0)


# The slot of a board


def test_a_board_tells_its_slot(board):
    board.files.write("/fleet.bin", fleet_file(bytes(32), slot=700))
    assert slot_of(board) == 0.7


@pytest.mark.parametrize("data", [None, b"", b"another file"])
def test_a_board_without_a_fleet_has_no_slot(board, data):
    if data is not None:
        board.files.write("/fleet.bin", data)
    assert slot_of(board) == 0.0
