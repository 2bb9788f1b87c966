"""A flash chip in RAM, whose power can fail in the middle of its work."""

BLOCK = 512
BLOCKS = 24
BYTES = BLOCK * BLOCKS


class Flash:
    """A flash chip in RAM (MicroPython's block device protocol) whose power fails after `left` more units of work.

    A unit is 16 bytes programmed or 128 erased. The one that is cut stays half done; nothing later reaches the chip.
    """

    def __init__(self, data):
        self.data = data
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

    def readblocks(self, block, out, offset=0):
        start = block * BLOCK + offset
        out[:] = self.data[start : start + len(out)]

    def writeblocks(self, block, data, offset=0):
        self._work(block * BLOCK + offset, len(data), 16, data)

    def ioctl(self, op, arg):
        if op == 4:
            return len(self.data) // BLOCK
        if op == 5:
            return BLOCK
        if op == 6:
            self._work(arg * BLOCK, BLOCK, 128, None)
        return 0


def mount(flash, **options):
    """Make the LittleFS on `flash` the folder /flash."""
    import vfs

    vfs.mount(vfs.VfsLfs2(flash, **options), "/flash")


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
