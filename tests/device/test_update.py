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
    library,
    load,
    offer,
    package,
    program,
    provision,
    running,
    send,
    state_of,
    tree,
    update_of,
    updated,
)

from tern import frames, host_frames, update, wire


def test_frames_of_the_specification():
    # An UPDATE frame brings a part of a package (new program files); the board answers UPDATED.
    # update.json, which other implementations share, holds valid and invalid ones of both. An
    # invalid frame has an error, no answer, and changes no file.
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
            _, state = ask(update_of(folder), memoryview(data))
            assert state in (wire.RECEIVING, wire.OLD)
        else:
            before = before or tree(folder)
            reply = bytearray(wire.MAX_FRAME)
            error = raises(frames.FrameError, update_of(folder).take, memoryview(data), key, reply)
            assert error.code == case["error"], case["comment"]
            assert not any(reply)
    assert tree(folder) == before


def test_packages_of_the_specification():
    # A package holds new program files and a code made with the device's key. update.json, which
    # other implementations share, holds valid ones with their files and invalid ones, which leave
    # no trace on the board.
    folder = provision()
    before = tree(folder)
    for case in vectors.cases("update.json", "packages"):
        board_update = update_of(folder)
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
    # A package (new program files) comes in parts. Parts may be lost or repeated: the answer is
    # always (the offset that the board wants next, its state), by which the host goes on, even
    # after a restart of the board.
    folder = provision()
    new = package(3, files("new"))
    total = len(new)

    def ask_for(board_update, offset, end):
        data = new[offset:end]
        return ask(board_update, frame(number=3, offset=offset, total=total, data=data))

    board_update = update_of(folder)
    assert ask_for(board_update, 10, 20) == (0, wire.RECEIVING)  # 0 is wanted first
    assert ask_for(board_update, 0, 20) == (20, wire.RECEIVING)
    for offset in (0, 10, 19, 21, 40):
        assert ask_for(board_update, offset, offset + 20) == (20, wire.RECEIVING)

    board_update = update_of(folder)  # a restart
    assert ask_for(board_update, 20, total) == (total, wire.RECEIVING)
    assert send(board_update, 3, new) == wire.RESTARTING
    assert read(folder + "/lib2/main.py") == program("new")


def test_a_board_without_a_loader_is_reset_once():
    # A loader, main.py of the board, starts a new program. If there is none, the old program runs
    # again after the reset; the board must not reset for ever, but may try once for each new
    # package.
    folder = updated()
    board_update = update_of(folder)  # the old program runs again
    assert (board_update.state, board_update.restart) == (wire.RESTARTING, False)
    board_update.confirm()  # of the old program, which changes nothing
    assert state_of(folder) == (0, wire.RESTARTING, 3)

    assert offer(board_update, 3, "new") == wire.RESTARTING
    assert not board_update.restart
    assert offer(board_update, 4, "newer") == wire.RESTARTING
    assert board_update.restart
    assert state_of(folder) == (0, wire.RESTARTING, 4)


def test_data_beyond_the_end_of_the_package_is_not_taken():
    folder = provision()
    request = bytearray(frame(number=3, offset=0, total=100, data=bytes(60)))
    struct.pack_into("<I", request, 13, 50)  # a total smaller than the data
    frames.seal(KEY, request, len(request) - wire.TAG_BYTES)
    assert ask(update_of(folder), memoryview(request)) == (0, wire.RECEIVING)
    assert len(read(folder + "/update.bin")) == 8  # the header alone


def test_an_older_package_does_not_interrupt_the_one_on_its_way():
    # Packages of program files are numbered. While 30 bytes of number 3 are there, number 2 and a
    # different number 3 are called OLD, and number 3 goes on at byte 30.
    board_update = update_of(provision())
    third = package(3, files("third"))
    total = len(third)
    ask(board_update, frame(number=3, offset=0, total=total, data=third[:30]))

    assert offer(board_update, 2, "second") == wire.OLD
    # Another package of the same number.
    other = frame(number=3, offset=0, total=total + 1, data=third[:30])
    assert ask(board_update, other) == (0, wire.OLD)
    assert ask(board_update, frame(number=3, offset=0, total=total)) == (30, wire.RECEIVING)


def test_no_package_comes_in_before_the_one_on_trial_is_confirmed():
    # A new program is on trial until it confirms that it works; else the board goes back to the
    # old one. There are only two folders (/lib and /lib2), so that no third program (4) may come
    # in. load() starts the board.
    folder = provision()
    board_update = update_of(folder)
    assert offer(board_update, 3, "new") == wire.RESTARTING
    assert offer(board_update, 4, "four") == wire.BUSY
    load(folder)
    with running(folder + "/lib2"):
        board_update = update_of(folder)
        assert offer(board_update, 3, "new") == wire.TRIAL
        assert offer(board_update, 2, "second") == wire.OLD
        assert offer(board_update, 4, "four") == wire.BUSY


def test_an_older_package_never_comes_back():
    # Packages of program files are numbered, and an old one may have a known flaw. Once number 3
    # is confirmed, number 2 is refused by the running board and after a restart.
    folder = updated()
    load(folder)
    with running(folder + "/lib2"):
        board_update = update_of(folder)
        board_update.confirm()
        assert state_of(folder) == (1, wire.CONFIRMED, 3)
        for each in (board_update, update_of(folder)):
            assert offer(each, 3, "new") == wire.CONFIRMED
            assert offer(each, 2, "second") == wire.OLD

        assert offer(board_update, 4, "fourth") == wire.RESTARTING
        assert read(folder + "/lib/main.py") == program("fourth")
        assert read(folder + "/lib2/tern/part.py") == library("new")


def test_a_package_that_was_rolled_back_is_not_tried_again():
    # A new program is on trial after the first start. It does not confirm itself by the second, so
    # that the old one runs again; the same number 3 is then refused, and a later number is taken.
    folder = updated()  # number 3
    load(folder)  # the trial
    load(folder)  # it was not confirmed

    board_update = update_of(folder)
    assert offer(board_update, 3, "new") == wire.ROLLED_BACK
    board_update.confirm()  # the program that runs is not the one that was on trial
    assert state_of(folder) == (0, wire.ROLLED_BACK, 3)
    assert offer(board_update, 4, "new") == wire.RESTARTING


def test_only_the_program_on_trial_can_confirm_it():
    # state_of() is (folder of the proven program: 0 for /lib, state, number of the package).
    # The loader could not write the end of the trial: the old program runs, but boot.bin names the
    # new one.
    folder = updated()
    load(folder)
    board_update = update_of(folder)  # from /lib
    assert board_update.state == wire.ROLLED_BACK
    board_update.confirm()
    assert state_of(folder) == (0, wire.TRIAL, 3)


def test_the_folder_that_runs_is_never_overwritten():
    # A board has two folders for programs, /lib and /lib2. An update is written to the one that
    # does not run, so that a power cut leaves a program that works.
    for path, number_of_folder in (("/lib", 0), ("/lib2", 1)):
        folder = provision()
        # A program may insert other paths before its own.
        with running(folder + path), running(folder + "/drivers"):
            board_update = update_of(folder)
        assert offer(board_update, 3, "new") == wire.RESTARTING
        assert ("lib2" in os.listdir(folder)) == (path == "/lib")
        proven_folder, _, _ = state_of(folder)
        assert proven_folder == number_of_folder


def test_an_install_that_runs_out_of_memory_begins_anew():
    # A package of program files is whole, but checking its hash runs out of memory: nothing is
    # installed, and the host can send it again.
    folder = provision()
    board_update = update_of(folder)
    new = package(3, files("new"))
    total = len(new)
    ask(board_update, frame(number=3, offset=0, total=total, data=new))

    question = frame(number=3, offset=0, total=total)  # all is there: the board installs it
    with replaced(update, sha256=no_memory):
        raises(MemoryError, ask, board_update, question)
    assert send(board_update, 3, new) == wire.RESTARTING
    assert read(folder + "/lib2/main.py") == program("new")


def test_an_update_removes_the_files_of_the_earlier_library():
    # /lib2 holds an earlier program. Its modules of tern are removed, as they do not belong to the
    # new one; the user's driver.py stays.
    folder = provision()
    for path in ("/lib2", "/lib2/tern", "/lib2/tern/links"):
        os.mkdir(folder + path)
    for path in ("tern/old.py", "tern/links/old.py", "driver.py"):
        write(folder + "/lib2/" + path, b"1\n")
    assert offer(update_of(folder), 3, "new") == wire.RESTARTING
    start = len(folder + "/lib2/")
    names = sorted(path[start:] for path in tree(folder + "/lib2"))
    assert names == ["driver.py", "main.py", "tern/part.py"]


def test_a_program_that_does_not_confirm_itself_is_rolled_back():
    # A new program is started once, on trial. Whether it fails, is no Python, says nothing or is
    # missing: the next start runs the old one again, for good. Rows: main.py, and the name that it
    # notes when it runs. state_of() is (proven folder, state, number of the package).
    if not LOADER:
        return
    silent = b"import seen\nseen.ran.append('silent')\n"
    for text, ran in (
        (b"raise ValueError\n", ""),
        (b"while\n", ""),
        (silent, "silent"),
        (b"", "old"),  # a program that is missing
    ):
        folder = updated(content=(("main.py", text),))
        if not text:
            os.remove(folder + "/lib2/main.py")
        assert load(folder) == ran
        assert ("reset" in board.calls) == (not ran)
        assert state_of(folder) == (0, wire.TRIAL, 3)

        for _ in range(2):
            assert load(folder) == "old"
            assert state_of(folder) == (0, wire.ROLLED_BACK, 3)


def test_the_loader_starts_a_program_that_is_there():
    # boot.bin names the folder of the program, 1 for /lib2. If that is missing or unfinished the
    # loader takes the other, for a board in the field must never end without a program.
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

    # Without a valid boot.bin, /lib would be first, but has no program.
    os.remove(folder + "/lib/main.py")
    write(folder + "/boot.bin", b"")
    assert load(folder) == "two"


def test_a_locked_board_ends_in_a_reset():
    # A locked board has no prompt, over which anybody could read its files: Ctrl-C is off
    # (kbd_intr -1), and however its program ends, the board is reset. Unlocked, it turns Ctrl-C on
    # again (3) and ends at the prompt.
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
    # 600_000 ms are ten minutes. load(start=board.callback) lets the timer expire.
    # It resets the board unless the program has confirmed itself by then.
    if not LOADER:
        return
    for confirmed, calls, next_program in ((False, ["reset"], "old"), (True, [], "new")):
        folder = updated()
        del board.timers[:]
        assert load(folder) == "new"
        assert board.timers.pop() == (600_000, FakeTimer.ONE_SHOT)
        if confirmed:
            with running(folder + "/lib2"):
                update_of(folder).confirm()
        load(folder, start=board.callback)
        assert board.calls == calls
        assert load(folder) == next_program
        assert not board.timers


def test_the_loaders_timer_is_a_hardware_timer_only_on_a_board_without_software_timers():
    if not LOADER:
        return
    for has_software_timers, number in ((True, -1), (False, 1)):
        FakeTimer.has_software_timers = has_software_timers
        try:
            assert load(updated()) == "new"
        finally:
            FakeTimer.has_software_timers = True
        assert FakeTimer.number == number, number
