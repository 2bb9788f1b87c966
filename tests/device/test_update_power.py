"""Power cut at every write of an update: a program starts that works, the old one or the new, and nothing is lost."""

import tern.entropy  # noqa: F401  # isort: skip  # at the top: from deep within it would take too much of the stack

import flash_chip
from update_rig import LOADER, board, files, load, package, provision, running, send, tree

from tern import update, wire
from tern.boards.emulated import Board
from tern.compat import MICROPYTHON
from tern.ledger import LedgerError
from tern.update import Update

if MICROPYTHON:
    import vfs

    IMAGE = bytearray(40 * flash_chip.BLOCK)  # now, while there is room for it in one piece
    START = bytearray(len(IMAGE))


class Device:
    """A board on a flash chip whose power can be cut: it runs its loader, takes packages, and restarts."""

    def __init__(self, image):
        self.flash = flash_chip.Flash(image)
        self.ran = []

    def run(self, number, content, limit):
        """Let a host send the package until it is told how it ended, over so many starts; return the state."""
        for _ in range(limit):
            vfs.mount(vfs.VfsLfs2(self.flash), "/flash")
            try:
                self.ran.append(load("/flash"))
                if not self.flash.alive():
                    return -1
                assert self.ran[-1], board.error
                with running("/flash/lib2" if board.path[0] == "/flash/lib2" else "/flash/lib"):
                    board_update = Update(Board("/flash"))
                    if board_update.state == wire.TRIAL:
                        board_update.confirm()
                    state = send(board_update, number, content, 150)
            except (OSError, LedgerError):
                return -1
            finally:
                if not self.flash.alive():
                    self.flash.left = 0
                try:
                    vfs.umount("/flash")
                except OSError:
                    pass
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
    """Cut the power at every write from the first byte of a package to its confirmation; return how often.

    second: of the package after that, which takes the place of the first program of all.
    """
    device = Device(IMAGE)
    vfs.VfsLfs2.mkfs(device.flash)
    vfs.mount(vfs.VfsLfs2(device.flash), "/flash")
    provision("/flash")
    programs = ("lib", "lib2", update.BOOT, update.STAGED)
    known = tree("/flash", programs)
    vfs.umount("/flash")
    old = "old"
    number = 3
    if second:
        old = "first"
        assert device.run(2, package(2, files(old)), 3) == wire.CONFIRMED
    START[:] = IMAGE
    new = package(number, files("new"))
    ends = set()
    cut = 0
    whole = False
    while not whole:
        cut += 1
        IMAGE[:] = START
        device.flash.left = cut
        device.ran = []
        state = device.run(number, new, 3)
        whole = device.flash.alive()
        device.flash.left = 1 << 20  # power is back: the file system as it stands on the chip
        if not whole:
            state = device.run(number, new, 4)
        vfs.mount(vfs.VfsLfs2(device.flash), "/flash")
        device.ran.append(load("/flash"))
        assert tree("/flash", programs) == known, cut
        vfs.umount("/flash")
        ends.add((state,) + tuple(device.ran))
    assert cut > 100, cut
    done, undone = wire.CONFIRMED, wire.ROLLED_BACK
    assert ends == {
        (done, old, "new", "new"),  # the last run is a restart after all is over
        (done, old, old, "new", "new"),
        (undone, old, "new", old, old),
    }, ends
    return cut
