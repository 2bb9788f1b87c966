"""A board whose flash is full keeps the release that it runs, and the user learns what to remove."""

import pytest
import rig
from harness.waiting import wait_for_board

from ternhost.errors import OK, STORAGE
from terntools.boards import software
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image

DEVICE = 7
LOG = "/log.csv"  # of the user's, which takes the room
FILL = f"""
import os
with open({LOG!r}, "wb") as file:
    while os.statvfs("/")[3] > FREE_BLOCKS:
        file.write(bytes(4096))
        file.flush()
"""
# So the library on the board is another one than the host's, and a deployment has files to write.
AGE = """
import os
for name in os.listdir("/lib/tern"):
    if name.endswith(".mpy"):
        open("/lib/tern/" + name, "ab").write(b"old")
"""


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """The port of an emulated board that is device 7 of a fleet."""
    folder = tmp_path_factory.mktemp("full")
    flash_image.fill("rv32", folder / "flash.bin", software.library_files)
    member = f"--store {folder}/fleet.sqlite --device {DEVICE} --data flights --records 9"
    with catalogue.boot("rv32", folder / "flash.bin") as machine:
        rig.tern("board", "provision", machine.url, *member.split(), code=0)
        yield machine.url


def make_full(url, free_blocks):
    """Leave so many free blocks on the board's flash, and make its library an older one."""
    with Repl(url, visits=True) as repl:
        repl.files.remove(LOG)
        repl.run(AGE)
        repl.run(f"FREE_BLOCKS = {free_blocks}\n{FILL}", timeout=60)


def ledgers(url):
    """The contents of the board's ledgers, by path."""
    with Repl(url, visits=True) as repl:
        return {path: repl.files.read(path) for path in repl.files.sizes("/ledger")}


def test_a_deployment_without_room_says_what_takes_it(board):
    make_full(board, free_blocks=1)
    printed = rig.tern("board", "deploy", board, code=STORAGE)
    assert LOG in printed.err


# Without room for the bytes, nothing is begun. With 10 to 17 blocks there is room for the bytes, but
# not for the blocks of all files: the deployment breaks off, and is undone.
@pytest.mark.parametrize("free_blocks", [0, 10, 14])
def test_a_board_without_room_keeps_its_release(board, free_blocks):
    make_full(board, free_blocks)
    before = ledgers(board)
    with Repl(board, visits=True) as repl:
        old = repl.files.sizes("/lib/tern")

    rig.tern("board", "deploy", board, code=STORAGE)

    wait_for_board(board, DEVICE)
    with Repl(board, visits=True) as repl:
        files = repl.files.sizes("/")
        assert repl.files.sizes("/lib/tern") == old
    assert not [path for path in files if path.endswith(".new")]
    assert ledgers(board).keys() == before.keys()


def test_a_deployment_succeeds_once_there_is_room(board):
    make_full(board, free_blocks=1)
    rig.tern("board", "deploy", board, code=STORAGE)
    with Repl(board, visits=True) as repl:
        repl.files.remove(LOG)
    rig.tern("board", "deploy", board, code=OK)
    wait_for_board(board, DEVICE)
