"""Updates in the field: frames and packages of the vectors, hostile ones, and the program that the
loader starts.
"""

import os
import struct

import scratch
import vectors
from checks import no_memory, raises, replaced
from scratch import read, write
from small_board import KEY
from update_rig import (
    LOADER,
    FakeTimer,
    ask,
    board,
    boot,
    files,
    frame,
    load,
    package,
    program,
    provision,
    running,
    send,
    state_of,
    tree,
)

from tern import frames, host_frames, update, wire
from tern.boards.emulated import Board
from tern.update import Update


def test_frames_of_the_specification():
    folder = provision()
    before = None
    for case in vectors.cases("update.json", "frames"):
        key = bytes.fromhex(case["key"])
        data = bytes.fromhex(case["frame"])
        fields = case.get("fields")
        if case["kind"] == "updated":
            question = frames.digest(KEY, bytes.fromhex(case["asked"])[: -wire.TAG_BYTES])
            assert frames.answer_key(question) == key
            try:
                values = host_frames.decode_updated(data, key)
                assert values == tuple(
                    [fields[name] for name in ("device", "number", "wanted", "state")]
                )
                assert case["result"] == "valid", case["comment"]
            except frames.FrameError:
                assert case["result"] == "invalid", case["comment"]
        elif case["result"] == "valid":
            values = [fields[name] for name in ("device", "number", "offset", "total")]
            out = bytearray(wire.MAX_FRAME)
            n = host_frames.encode_update(out, key, *(values + [bytes.fromhex(case["data"])]))
            assert out[:n] == data
            _, state = ask(Update(Board(folder)), memoryview(data))
            assert state in (wire.RECEIVING, wire.OLD)
        else:
            before = before or tree(folder)
            reply = bytearray(wire.MAX_FRAME)
            error = raises(
                frames.FrameError, Update(Board(folder)).take, memoryview(data), key, reply
            )
            assert error.code == case["error"], case["comment"]
            assert not any(reply)
    assert tree(folder) == before


def test_packages_of_the_specification():
    folder = provision()
    before = tree(folder)
    for case in vectors.cases("update.json", "packages"):
        board_update = Update(Board(folder))
        state = send(board_update, case["number"], bytes.fromhex(case["package"]))
        if case["result"] == "valid":
            assert state == wire.RESTARTING and board_update.restart, case["comment"]
            assert state_of(folder) == (0, wire.RESTARTING, case["number"])
            installed = tree(folder + "/lib2")
            for path in case["files"]:
                assert installed.pop(folder + "/lib2/" + path) == bytes.fromhex(case["files"][path])
            assert not installed
            os.remove(folder + "/boot.bin")
            scratch.remove(folder + "/lib2")
        else:
            assert state == case["state"] and not board_update.restart, case["comment"]
            names = os.listdir(folder)
            assert "boot.bin" not in names and "update.bin" not in names, case["comment"]
    assert tree(folder, ("lib2",)) == before


def test_data_at_a_wrong_offset_is_answered_with_the_wanted_offset():
    folder = provision()
    new = package(3, files("new"))
    total = len(new)
    board_update = Update(Board(folder))
    assert ask(board_update, frame(3, 10, total, new[10:20])) == (0, wire.RECEIVING)
    assert ask(board_update, frame(3, 0, total, new[:20])) == (20, wire.RECEIVING)
    for offset in (0, 10, 19, 21, 40):
        assert ask(board_update, frame(3, offset, total, new[offset : offset + 20])) == (
            20,
            wire.RECEIVING,
        )
    board_update = Update(Board(folder))  # a restart
    assert ask(board_update, frame(3, 20, total, new[20:])) == (total, wire.RECEIVING)
    assert send(board_update, 3, new) == wire.RESTARTING
    assert read(folder + "/lib2/main.py") == files("new")[1][1]


def test_a_board_without_a_loader_is_reset_once():
    folder = provision()
    assert send(Update(Board(folder)), 3, package(3, files("new"))) == wire.RESTARTING
    board_update = Update(Board(folder))  # the old program runs again
    assert (board_update.state, board_update.restart) == (wire.RESTARTING, False)
    board_update.confirm()
    assert state_of(folder) == (0, wire.RESTARTING, 3)
    assert (
        send(board_update, 3, package(3, files("new"))) == wire.RESTARTING
        and not board_update.restart
    )
    assert (
        send(board_update, 4, package(4, files("newer"))) == wire.RESTARTING
        and board_update.restart
    )
    assert state_of(folder) == (0, wire.RESTARTING, 4)


def test_data_beyond_the_end_of_the_package_is_not_taken():
    folder = provision()
    request = bytearray(frame(3, 0, 100, bytes(60)))
    struct.pack_into("<I", request, 13, 50)  # a total smaller than the data
    frames.seal(KEY, request, len(request) - wire.TAG_BYTES)
    assert ask(Update(Board(folder)), memoryview(request)) == (0, wire.RECEIVING)
    assert len(read(folder + "/update.bin")) == 8


def test_an_older_package_never_comes_back():
    folder = provision()
    second = package(2, files("second"))
    third = package(3, files("third"))
    board_update = Update(Board(folder))
    ask(board_update, frame(3, 0, len(third), third[:30]))
    # An older package, and another one of the same number, do not interrupt the one on its way.
    assert ask(board_update, frame(2, 0, len(second), second)) == (0, wire.OLD)
    assert ask(board_update, frame(3, 0, len(third) + 1, third[:30])) == (0, wire.OLD)
    assert ask(board_update, frame(3, 0, len(third), b"")) == (30, wire.RECEIVING)
    assert send(board_update, 3, third) == wire.RESTARTING
    assert send(board_update, 4, package(4, files("four"))) == wire.BUSY
    load(folder)
    with running(folder + "/lib2"):
        board_update = Update(Board(folder))
        assert send(board_update, 3, third) == wire.TRIAL
        assert send(board_update, 2, second) == wire.OLD
        assert send(board_update, 4, package(4, files("four"))) == wire.BUSY
        board_update.confirm()
        assert state_of(folder) == (1, wire.CONFIRMED, 3)
        for an_update in (board_update, Update(Board(folder))):
            assert send(an_update, 3, third) == wire.CONFIRMED
            assert send(an_update, 2, second) == wire.OLD
        assert send(board_update, 4, package(4, files("fourth"))) == wire.RESTARTING
        assert read(folder + "/lib/main.py") == files("fourth")[1][1]
        assert read(folder + "/lib2/tern/part.py") == files("third")[0][1]


def test_a_package_that_was_rolled_back_is_not_tried_again():
    folder = provision()
    new = package(3, files("new"))
    assert send(Update(Board(folder)), 3, new) == wire.RESTARTING
    load(folder)
    load(folder)
    board_update = Update(Board(folder))
    assert send(board_update, 3, new) == wire.ROLLED_BACK
    board_update.confirm()  # the program that runs is not the one that was on trial
    assert state_of(folder) == (0, wire.ROLLED_BACK, 3)
    assert send(board_update, 4, package(4, files("new"))) == wire.RESTARTING


def test_only_the_program_on_trial_can_confirm_it():
    # The loader could not write the end of the trial: the old program runs, but boot.bin names the
    # new one.
    folder = provision()
    assert send(Update(Board(folder)), 3, package(3, files("new"))) == wire.RESTARTING
    load(folder)
    board_update = Update(Board(folder))  # from /lib
    assert board_update.state == wire.ROLLED_BACK
    board_update.confirm()
    assert state_of(folder) == (0, wire.TRIAL, 3)


def test_the_folder_that_runs_is_never_overwritten():
    for path in ("/lib", "/lib2"):
        folder = provision()
        # A program may insert other paths before its own.
        with running(folder + path), running(folder + "/drivers"):
            board_update = Update(Board(folder))
        assert send(board_update, 3, package(3, files("new"))) == wire.RESTARTING
        assert ("lib2" in os.listdir(folder)) == (path == "/lib")
        assert state_of(folder)[0] == (path == "/lib2")


def test_an_install_that_runs_out_of_memory_begins_anew():
    folder = provision()
    board_update = Update(Board(folder))
    new = package(3, files("new"))
    ask(board_update, frame(3, 0, len(new), new))
    for _ in range(2):
        with replaced(update, sha256=no_memory):
            raises(MemoryError, ask, board_update, frame(3, 0, len(new)))
    assert send(board_update, 3, new) == wire.RESTARTING
    assert read(folder + "/lib2/main.py") == files("new")[1][1]


def test_an_update_removes_the_files_of_the_earlier_library():
    folder = provision()
    for path in ("/lib2", "/lib2/tern", "/lib2/tern/links"):
        os.mkdir(folder + path)
    for path in ("tern/old.py", "tern/links/old.py", "driver.py"):
        write(folder + "/lib2/" + path, b"1\n")
    assert send(Update(Board(folder)), 3, package(3, files("new"))) == wire.RESTARTING
    names = sorted(path[len(folder) + 6 :] for path in tree(folder + "/lib2"))
    assert names == ["driver.py", "main.py", "tern/part.py"]


def test_a_program_that_does_not_confirm_itself_is_rolled_back():
    if not LOADER:
        return
    silent = b"import seen\nseen.ran.append('silent')\n"
    for text, ran in (
        (b"raise ValueError\n", ""),
        (b"while\n", ""),
        (silent, "silent"),
        (b"", "old"),
    ):
        folder = provision()
        assert send(Update(Board(folder)), 3, package(3, (("main.py", text),))) == wire.RESTARTING
        if not text:
            os.remove(folder + "/lib2/main.py")
        assert load(folder) == ran
        assert ("reset" in board.calls) == (not ran)
        assert state_of(folder) == (0, wire.TRIAL, 3)
        for _ in range(2):
            assert load(folder) == "old"
            assert state_of(folder) == (0, wire.ROLLED_BACK, 3)


def test_the_loader_starts_a_program_that_is_there():
    if not LOADER:
        return
    folder = provision()
    assert load(folder) == "old"  # no boot.bin, no /lib2
    write(folder + "/boot.bin", boot(1, wire.CONFIRMED, 3))
    assert load(folder) == "old"  # /lib2 is missing
    os.mkdir(folder + "/lib2")
    assert load(folder) == "old"  # or was not finished
    os.mkdir(folder + "/lib2/tern")
    for path, data in files("two"):
        write(folder + "/lib2/" + path, data)
    assert load(folder) == "two"
    os.remove(folder + "/lib/main.py")
    write(folder + "/boot.bin", b"")
    assert load(folder) == "two"


def test_a_locked_board_ends_in_a_reset():
    if not LOADER:
        return
    for text in (
        program("old"),
        b"raise ValueError\n",
        b"raise KeyboardInterrupt\n",
        b"raise SystemExit\n",
    ):
        folder = provision()
        write(folder + "/lib/main.py", text)
        write(folder + "/lock", b"")
        load(folder)
        assert board.calls == ["kbd_intr -1", "reset"], board.calls
        os.remove(folder + "/lock")
        load(folder)
        assert board.calls == ["kbd_intr -1", "kbd_intr 3"], board.calls


def test_the_loaders_timer_ends_the_trial_of_a_program_that_hangs():
    # It resets the board unless the program has confirmed itself by then.
    if not LOADER:
        return
    del board.timers[:]
    for confirmed in (False, True):
        folder = provision()
        assert send(Update(Board(folder)), 3, package(3, files("new"))) == wire.RESTARTING
        assert load(folder) == "new"
        assert board.timers.pop() == (600_000, FakeTimer.ONE_SHOT)
        if confirmed:
            with running(folder + "/lib2"):
                Update(Board(folder)).confirm()
        load(folder, board.callback)
        assert board.calls == ([] if confirmed else ["reset"])
        assert load(folder) == ("new" if confirmed else "old")
        assert not board.timers
