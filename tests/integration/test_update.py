"""Updates of real MicroPython boards in the field, over a port and over Mosquitto; and those that go wrong."""

import json
import subprocess
import threading
import time
from queue import SimpleQueue

import field
import pytest
import rig
from harness.arena import Arena
from harness.proxy import Faults
from harness.raw_client import wait_for

from ternhost.links import open_link

TRIAL = "20"


def tern_update(*arguments, cwd):
    """`tern update ... --json`: (exit code, its object)."""
    done = subprocess.run(
        [*rig.TERN, "update", *map(str, arguments), "--json"],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def kept(directory):
    """What no update may touch, byte for byte."""
    return {
        path: path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
        and path.relative_to(directory).parts[0] in ("clients.bin", "records.bin", "fleet.bin", "ledger", "mqtt.json")
    }


def name_of(board):
    """What the program that runs calls itself."""
    link = open_link(board.port, SimpleQueue())
    try:
        return link.hello(10.0).text.split(";")[0]
    finally:
        link.close()


@pytest.fixture
def field_board(site, micropython):
    made = site(clients=1, boards=1)
    field.install(made.directories[0], "old")
    board = field.FieldBoard(micropython, made.directories[0])
    board.store = made.store.path
    yield board
    board.close()


def update(board, text, tmp_path, *arguments):
    program = tmp_path / "product.py"
    program.write_text(text)
    return tern_update(
        "all", "--store", board.store, "--port", board.port, "--machine", "emulated", "--main", program,
        "--trial", TRIAL, *arguments, cwd=tmp_path,
    )  # fmt: skip


def test_over_a_port(field_board, tmp_path):
    assert name_of(field_board) == "old"
    before = kept(field_board.directory)
    assert len(before) >= 3
    for count, name in enumerate(("new", "newer", "newest"), 1):
        code, said = update(field_board, field.source(name), tmp_path)
        assert (code, [one["state"] for one in said["boards"]]) == (0, ["confirmed"]), said
        assert name_of(field_board) == name
        assert field.boot(field_board.directory) == (count % 2, 3, said["boards"][0]["package"])
        field_board.kill()
        assert name_of(field_board) == name
    assert kept(field_board.directory) == before
    code, again = update(field_board, field.source("newest"), tmp_path)
    assert (code, again) == (0, said), "there already"


@pytest.mark.parametrize("text", ["raise ValueError\n", "import tern.nothing\n", "pass\n"])
def test_one_that_fails_is_rolled_back(field_board, tmp_path, text):
    before = kept(field_board.directory)
    for _ in range(2):  # the second time under another number
        code, said = update(field_board, text, tmp_path)
        assert (code, said["boards"][0]["state"]) == (1, "rolled back"), said
        assert field.boot(field_board.directory) == (0, 4, said["boards"][0]["package"])
    assert name_of(field_board) == "old"
    assert kept(field_board.directory) == before
    code, said = update(field_board, field.source("new"), tmp_path)
    assert (code, name_of(field_board)) == (0, "new")
