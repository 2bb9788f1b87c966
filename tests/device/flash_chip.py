"""Flash chips: one counts the blocks that it erases, one can lose its power in the middle of its
work.
"""

import gc
import sys

import scratch

BLOCK = 512
BLOCKS = 24
BYTES = BLOCK * BLOCKS
_ERASED = b"\xff" * 128


class Chip:
    """A flash chip in RAM (MicroPython's block device protocol), with the blocks of boards."""

    block = 4096

    def __init__(self, data):
        self.data = data
        self.blocks = len(data) // self.block
        self.erased = 0  # blocks

    def readblocks(self, block, out, offset=0):
        start = block * self.block + offset
        out[:] = memoryview(self.data)[start : start + len(out)]

    def writeblocks(self, block, data, offset=0):
        start = block * self.block + offset
        self.data[start : start + len(data)] = data

    def erase(self, block):
        """Set all bytes of a block to 255, without allocation: a test's heap may be full."""
        for start in range(self.block * block, self.block * (block + 1), len(_ERASED)):
            self.data[start : start + len(_ERASED)] = _ERASED

    def ioctl(self, op, arg):
        """Answer 4, the number of blocks; 5, their size; and 6, erase block `arg`."""
        if op == 4:
            return self.blocks
        if op == 5:
            return self.block
        if op == 6:
            self.erased += 1
            self.erase(arg)
        return 0


class FileChip(Chip):
    """A flash chip in a new file, which takes nothing of the heap."""

    def __init__(self, blocks):
        super().__init__(b"")
        self.blocks = blocks
        self._file = open(scratch.folder() + "/chip", "w+b")  # noqa: SIM115
        for block in range(blocks):
            self.erase(block)

    def readblocks(self, block, out, offset=0):
        self._file.seek(block * self.block + offset)
        self._file.readinto(out)

    def writeblocks(self, block, data, offset=0):
        self._file.seek(block * self.block + offset)
        self._file.write(data)

    def erase(self, block):
        self._file.seek(block * self.block)
        for _ in range(self.block // len(_ERASED)):
            self._file.write(_ERASED)


def chip(blocks):
    """Return a new chip of so many blocks.

    Whether a board's heap has so large a hole is chance. So the chip is a file, on MicroPython for
    unix. A board has no other flash for it, and raises MemoryError if its heap has no room.
    """
    if sys.platform == "linux":
        return FileChip(blocks)
    return Chip(bytearray(blocks * Chip.block))


class Flash(Chip):
    """A chip whose power fails after `left` more units of work.

    A unit is 16 bytes programmed or 128 erased. The last one stays half done, and no later one
    reaches the chip.
    """

    block = BLOCK

    def __init__(self, data):
        super().__init__(data)
        self.left = 1 << 20

    def alive(self):
        return self.left > 0

    def _work(self, start, n, unit, new):
        """Program n bytes from `start` on with those of `new`, or erase them (None), unit by unit.

        Bits only fall until they are erased. The unit during which the power fails is half done.
        """
        for at in range(start, start + n, unit):
            if self.left <= 0:
                return
            self.left -= 1
            for i in range(at, at + (unit if self.left else unit // 2)):
                self.data[i] = 255 if new is None else self.data[i] & new[i - start]

    def writeblocks(self, block, data, offset=0):
        self._work(block * BLOCK + offset, len(data), 16, data)

    def erase(self, block):
        self._work(block * BLOCK, BLOCK, 128, None)


def mount(flash, **options):
    """Mount the LittleFS on `flash` as /flash."""
    import vfs

    vfs.mount(vfs.VfsLfs2(flash, **options), "/flash")


def format(flash, **options):
    """Make an empty LittleFS on `flash`, and mount it as /flash."""
    import vfs

    vfs.VfsLfs2.mkfs(flash, **options)
    mount(flash, **options)


def unmount():
    """Unmount /flash, even if its chip has no power."""
    import vfs

    try:
        vfs.umount("/flash")
    except OSError:
        pass


def power_cycle(flash):
    """Cut the power of the mounted `flash`, and mount the file system that is then on the chip."""
    flash.left = 0
    unmount()
    flash.left = 1 << 20
    mount(flash)


def cut_at_every_write(flash, start, prepare, work):
    """Cut the power at each write of `work(prepare())`, one after the other.

    Yields (number of the write, whether work ended, its result). The chip begins each time with its
    present content, for which `start` is a buffer. Its file system is mounted within the loop, but
    not after it.
    """
    start[:] = flash.data
    write_number = 0
    whole = False
    while not whole:
        write_number += 1
        flash.data[:] = start
        flash.left = 1 << 20
        mount(flash)
        prepared = prepare()
        flash.left = write_number
        result = work(prepared)
        prepared = None
        gc.collect()  # a board has room for few clients
        whole = flash.alive()
        power_cycle(flash)
        yield write_number, whole, result
        unmount()
