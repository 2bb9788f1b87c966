"""Flash chips in RAM: one that counts what is erased, and one whose power can fail in the middle of its work."""

import gc

BLOCK = 512
BLOCKS = 24
BYTES = BLOCK * BLOCKS
_ERASED = b"\xff" * 128


class Chip:
    """A flash chip (MicroPython's block device protocol) of blocks as large as those of boards."""

    block = 4096

    def __init__(self, data):
        self.data = data
        self.erased = 0  # blocks

    def readblocks(self, block, out, offset=0):
        start = block * self.block + offset
        out[:] = memoryview(self.data)[start : start + len(out)]

    def writeblocks(self, block, data, offset=0):
        start = block * self.block + offset
        self.data[start : start + len(data)] = data

    def erase(self, block):
        for start in range(self.block * block, self.block * (block + 1), len(_ERASED)):
            self.data[start : start + len(_ERASED)] = _ERASED  # no allocation: the heap of a test may be full

    def ioctl(self, op, arg):
        if op == 4:
            return len(self.data) // self.block
        if op == 5:
            return self.block
        if op == 6:
            self.erased += 1
            self.erase(arg)
        return 0


class Flash(Chip):
    """One whose power fails after `left` more units of work.

    A unit is 16 bytes programmed or 128 erased. The one that is cut stays half done; nothing later reaches the chip.
    """

    block = BLOCK

    def __init__(self, data):
        super().__init__(data)
        self.left = 1 << 20

    def alive(self):
        return self.left > 0

    def _work(self, start, n, unit, new):
        for at in range(start, start + n, unit):
            if self.left <= 0:
                return
            self.left -= 1
            for i in range(at, at + (unit if self.left else unit // 2)):
                self.data[i] = (
                    255 if new is None else self.data[i] & new[i - start]
                )  # bits only fall until erased

    def writeblocks(self, block, data, offset=0):
        self._work(block * BLOCK + offset, len(data), 16, data)

    def erase(self, block):
        self._work(block * BLOCK, BLOCK, 128, None)


def mount(flash, **options):
    """Make the LittleFS on `flash` the folder /flash."""
    import vfs

    vfs.mount(vfs.VfsLfs2(flash, **options), "/flash")


def format(flash, **options):
    """Put an empty LittleFS on `flash`, and make it the folder /flash."""
    import vfs

    vfs.VfsLfs2.mkfs(flash, **options)
    mount(flash, **options)


def unmount():
    """Take /flash away, as well as its chip still can."""
    import vfs

    try:
        vfs.umount("/flash")
    except OSError:
        pass


def power_cycle(flash):
    """Cut the power of the mounted `flash` and give it back: the file system as it stands on the chip."""
    flash.left = 0
    unmount()
    flash.left = 1 << 20
    mount(flash)


def cut_at_every_write(flash, start, prepare, work):
    """Cut the power at each write of `work(prepare())`; yield (which write, whether `work` was whole, its result).

    Each time the chip begins as it is now; `start` is room for that. Its file system is mounted within the loop, and
    not after it.
    """
    start[:] = flash.data
    which = 0
    whole = False
    while not whole:
        which += 1
        flash.data[:] = start
        flash.left = 1 << 20
        mount(flash)
        ready = prepare()
        flash.left = which
        result = work(ready)
        ready = None
        gc.collect()  # a board has room for few clients
        whole = flash.alive()
        power_cycle(flash)
        yield which, whole, result
        unmount()
