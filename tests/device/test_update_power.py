"""Power cut at every write of an update: the old program or the new one starts, and no other file
is lost.
"""

import tern.entropy  # noqa: F401  # isort: skip  # at the top: deep within other calls it would overflow the stack

import flash_chip
from flash_chip import mount, unmount
from update_rig import (
    LOADER,
    board,
    files,
    load,
    package,
    provision,
    running,
    send,
    tree,
    update_of,
)

from tern import update, wire
from tern.compat import MICROPYTHON
from tern.ledger import LedgerError

if MICROPYTHON:
    IMAGE = bytearray(40 * flash_chip.BLOCK)  # here, while the heap is in one piece
    START = bytearray(len(IMAGE))


class Device:
    """A board on a flash chip whose power can be cut: it runs its loader, takes packages, and
    restarts.
    """

    def __init__(self, image):
        self.flash = flash_chip.Flash(image)
        self.ran = []

    def run(self, number, content, limit):
        """Let a host send the package over at most `limit` starts; return its last state, or -1
        after a power cut.
        """
        for _ in range(limit):
            mount(self.flash)
            try:
                self.ran.append(load("/flash"))
                if not self.flash.alive():
                    return -1
                assert self.ran[-1], board.error
                with running("/flash/lib2" if board.path[0] == "/flash/lib2" else "/flash/lib"):
                    board_update = update_of("/flash")
                    if board_update.state == wire.TRIAL:
                        board_update.confirm()
                    state = send(board_update, number, content, 150)
            except (OSError, LedgerError):
                return -1
            finally:
                if not self.flash.alive():
                    self.flash.left = 0
                unmount()
            if not self.flash.alive():
                return -1
            if state not in (wire.RESTARTING, wire.BUSY):
                return state
        raise AssertionError("no end")


def test_power_cut_at_every_write_of_littlefs():
    if MICROPYTHON and LOADER:
        cut_at_every_write()


def test_power_cut_at_every_write_of_a_second_update():
    if MICROPYTHON and LOADER:
        cut_at_every_write(second=True)


def cut_at_every_write(second=False):
    """Cut the power at every write from the first byte of a package to its confirmation; return how
    often.

    second: cut it during a second update, which overwrites the program that the board was delivered
    with.
    """
    device = Device(IMAGE)
    flash_chip.format(device.flash)
    provision("/flash")
    programs = ("lib", "lib2", update.BOOT, update.STAGED)
    other_files = tree("/flash", programs)
    unmount()
    old = "old"
    if second:
        old = "first"
        assert device.run(2, package(2, files(old)), 3) == wire.CONFIRMED
    START[:] = IMAGE
    new = package(3, files("new"))
    histories = set()  # (state, programs that ran)
    cut = 0
    whole = False
    while not whole:
        cut += 1
        IMAGE[:] = START
        device.flash.left = cut
        device.ran = []
        state = device.run(3, new, 3)
        whole = device.flash.alive()
        device.flash.left = 1 << 20  # power is back: the file system as it stands on the chip
        if not whole:
            state = device.run(3, new, 4)
        mount(device.flash)
        device.ran.append(load("/flash"))
        assert tree("/flash", programs) == other_files, cut
        unmount()
        histories.add((state,) + tuple(device.ran))
    assert cut > 100, cut
    assert histories == {
        (wire.CONFIRMED, old, "new", "new"),  # the last run is a restart after the update
        (wire.CONFIRMED, old, old, "new", "new"),
        (wire.ROLLED_BACK, old, "new", old, old),
    }, histories
    return cut
