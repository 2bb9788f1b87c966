"""Updates in the field: frames and packages of the vectors, hostile ones, and what the loader starts."""

import os
import struct

import scratch
import vectors
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
)  # fmt: skip

from tern import frames, host_frames, update, wire
from tern.boards.emulated import Board
from tern.update import Update


def test_frames_of_the_specification():
    folder = provision()
    before = None
    for case in vectors.cases("update.json", "frames"):
        key = bytes.fromhex(case["key"])
        given = bytes.fromhex(case["frame"])
        fields = case.get("fields")
        if case["kind"] == "updated":
            answered = frames.answer_key(frames.digest(KEY, bytes.fromhex(case["asked"])[: -wire.TAG_BYTES]))
            assert answered == key
            try:
                told = host_frames.decode_updated(given, key)
                assert told == (fields["device"], fields["number"], fields["wanted"], fields["state"])
                assert case["result"] == "valid", case["comment"]
            except frames.FrameError:
                assert case["result"] == "invalid", case["comment"]
        elif case["result"] == "valid":
            data = bytes.fromhex(case["data"])
            numbers = [fields[name] for name in ("device", "number", "offset", "total")]
            out = bytearray(wire.MAX_FRAME)
            n = host_frames.encode_update(out, key, *(numbers + [data]))
            assert out[:n] == given
            _, state = ask(Update(Board(folder)), memoryview(given))
            assert state in (wire.RECEIVING, wire.OLD)
        else:
            before = before or tree(folder)
            reply = bytearray(wire.MAX_FRAME)
            try:
                Update(Board(folder)).take(memoryview(given), key, reply)
                raise AssertionError(case["comment"])
            except frames.FrameError as error:
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
            there = tree(folder + "/lib2")
            for path in case["files"]:
                assert there.pop(folder + "/lib2/" + path) == bytes.fromhex(case["files"][path])
            assert not there
            os.remove(folder + "/boot.bin")
            scratch.remove(folder + "/lib2")
        else:
            assert state == case["state"] and not board_update.restart, case["comment"]
            names = os.listdir(folder)
            assert "boot.bin" not in names and "update.bin" not in names, case["comment"]
    assert tree(folder, ("lib2",)) == before


def test_a_frame_that_does_not_verify_changes_nothing():
    folder = provision()
    board_update = Update(Board(folder))
    new = package(3, files("new"))
    ask(board_update, frame(3, 0, len(new), new[:20]))
    before = tree(folder)
    good = bytes(frame(3, 20, len(new), new[20:40]))
    reply = bytearray(wire.MAX_FRAME)
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 4
        try:
            board_update.take(memoryview(bad), KEY, reply)
            raise AssertionError(at)
        except frames.FrameError:
            pass
    assert tree(folder) == before and not any(reply)
    assert ask(board_update, memoryview(good)) == (40, wire.RECEIVING)


def test_another_offset_than_wanted_is_answered_with_the_one_wanted():
    folder = provision()
    new = package(3, files("new"))
    total = len(new)
    board_update = Update(Board(folder))
    assert ask(board_update, frame(3, 10, total, new[10:20])) == (0, wire.RECEIVING)
    assert ask(board_update, frame(3, 0, total, new[:20])) == (20, wire.RECEIVING)
    for offset in (0, 10, 19, 21, 40):
        assert ask(board_update, frame(3, offset, total, new[offset : offset + 20])) == (20, wire.RECEIVING)
    board_update = Update(Board(folder))  # a restart
    assert ask(board_update, frame(3, 20, total, new[20:])) == (total, wire.RECEIVING)
    assert send(board_update, 3, new) == wire.RESTARTING
    assert read(folder + "/lib2/main.py") == files("new")[1][1]


def test_a_board_without_a_loader_is_reset_once():
    folder = provision()
    assert send(Update(Board(folder)), 3, package(3, files("new"))) == wire.RESTARTING
    board_update = Update(Board(folder))  # what ran before runs again
    assert (board_update.state, board_update.restart) == (wire.RESTARTING, False)
    board_update.confirm()
    assert state_of(folder) == (0, wire.RESTARTING, 3)
    assert send(board_update, 3, package(3, files("new"))) == wire.RESTARTING and not board_update.restart
    assert send(board_update, 4, package(4, files("newer"))) == wire.RESTARTING and board_update.restart
    assert state_of(folder) == (0, wire.RESTARTING, 4)


def test_more_than_the_package_is_not_taken():
    folder = provision()
    board_update = Update(Board(folder))
    asked = bytearray(frame(3, 0, 100, bytes(60)))
    struct.pack_into("<I", asked, 13, 50)  # a total that the data does not fit
    frames.seal(KEY, asked, len(asked) - wire.TAG_BYTES)
    assert ask(board_update, memoryview(asked)) == (0, wire.RECEIVING)
    assert len(read(folder + "/update.bin")) == 8


def test_an_older_package_never_comes_back():
    folder = provision()
    second = package(2, files("second"))
    third = package(3, files("third"))
    board_update = Update(Board(folder))
    ask(board_update, frame(3, 0, len(third), third[:30]))
    assert ask(board_update, frame(2, 0, len(second), second)) == (
        0,
        wire.OLD,
    )  # nor does it end the one on its way
    assert ask(board_update, frame(3, 0, len(third) + 1, third[:30])) == (0, wire.OLD)  # two of one number
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
        for number, content in ((3, third), (2, second)):
            for one in (board_update, Update(Board(folder))):
                assert send(one, number, content) == (wire.CONFIRMED if number == 3 else wire.OLD)
        fourth = package(4, files("fourth"))
        assert send(board_update, 4, fourth) == wire.RESTARTING
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
    board_update.confirm()  # what runs is not what was on trial
    assert state_of(folder) == (0, wire.ROLLED_BACK, 3)
    assert send(board_update, 4, package(4, files("new"))) == wire.RESTARTING


def test_a_trial_is_confirmed_by_itself_alone():
    # The loader could not write that it is over: the old program runs while boot.bin says that the new one does.
    folder = provision()
    assert send(Update(Board(folder)), 3, package(3, files("new"))) == wire.RESTARTING
    load(folder)
    board_update = Update(Board(folder))  # from /lib
    assert board_update.state == wire.ROLLED_BACK
    board_update.confirm()
    assert state_of(folder) == (0, wire.TRIAL, 3)


def test_the_folder_that_runs_is_never_written_over():
    for path in ("/lib", "/lib2"):
        folder = provision()
        with running(folder + path), running(folder + "/drivers"):  # a path of the program's own, before it
            board_update = Update(Board(folder))
        assert send(board_update, 3, package(3, files("new"))) == wire.RESTARTING
        assert ("lib2" in os.listdir(folder)) == (path == "/lib")
        assert state_of(folder)[0] == (path == "/lib2")


def test_an_install_that_runs_out_of_memory_begins_anew():
    folder = provision()
    board_update = Update(Board(folder))
    new = package(3, files("new"))
    ask(board_update, frame(3, 0, len(new), new))
    digest = update.sha256
    for _ in range(2):
        update.sha256 = _no_memory
        try:
            ask(board_update, frame(3, 0, len(new)))
            raise AssertionError
        except MemoryError:
            pass
        update.sha256 = digest
    assert send(board_update, 3, new) == wire.RESTARTING
    assert read(folder + "/lib2/main.py") == files("new")[1][1]


def _no_memory(_):
    raise MemoryError


def test_what_a_library_left_is_not_in_the_next():
    folder = provision()
    os.mkdir(folder + "/lib2")
    os.mkdir(folder + "/lib2/tern")
    os.mkdir(folder + "/lib2/tern/links")
    for path in ("tern/old.py", "tern/links/old.py", "driver.py"):
        write(folder + "/lib2/" + path, b"1\n")
    assert send(Update(Board(folder)), 3, package(3, files("new"))) == wire.RESTARTING
    there = sorted(path[len(folder) + 6 :] for path in tree(folder + "/lib2"))
    assert there == ["driver.py", "main.py", "tern/part.py"]


def test_a_damaged_boot_bin_is_as_good_as_none():
    folder = provision()
    assert send(Update(Board(folder)), 3, package(3, files("new"))) == wire.RESTARTING
    good = read(folder + "/boot.bin")
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        write(folder + "/boot.bin", bad)
        board_update = Update(Board(folder))
        assert (board_update.state, board_update.number) == (wire.CONFIRMED, 0), at
        with running(folder + "/lib2"):  # which is then not written over
            board_update = Update(Board(folder))
        if LOADER:
            assert load(folder) == "old"
    assert send(board_update, 3, package(3, files("new"))) == wire.RESTARTING
    assert read(folder + "/lib/main.py") == files("new")[1][1]


def test_programs_that_do_not_prove_themselves():
    if not LOADER:
        return
    silent = b"import seen\nseen.ran.append('silent')\n"
    for text, ran in ((b"raise ValueError\n", ""), (b"while\n", ""), (silent, "silent"), (b"", "old")):
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


def test_the_loader_starts_what_there_is():
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
    for state in range(256):  # no state makes it fail
        write(folder + "/boot.bin", boot(state & 3, state, 3))
        assert load(folder) == "two"


def test_a_locked_board_ends_in_a_reset():
    if not LOADER:
        return
    for text in (program("old"), b"raise ValueError\n", b"raise KeyboardInterrupt\n", b"raise SystemExit\n"):
        folder = provision()
        write(folder + "/lib/main.py", text)
        write(folder + "/lock", b"")
        load(folder)
        assert board.calls == ["kbd_intr -1", "reset"], board.calls
        os.remove(folder + "/lock")
        load(folder)
        assert board.calls == ["kbd_intr -1", "kbd_intr 3"], board.calls


def test_the_trial_of_a_program_that_hangs_ends():
    # The timer of the loader looks after a while: a reset where the host was not reached, nothing where it was.
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
