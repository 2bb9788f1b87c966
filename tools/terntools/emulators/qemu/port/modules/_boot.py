import vfs
from flash import Flash

_flash = Flash()
_heads = bytearray(512)  # of the two blocks that LittleFS begins with
_flash.readblocks(0, memoryview(_heads)[:256], 0)
_flash.readblocks(1, memoryview(_heads)[256:], 0)
if set(_heads) == {0xFF}:  # new; what is damaged is left as it is
    vfs.VfsLfs2.mkfs(_flash, progsize=256)
vfs.mount(vfs.VfsLfs2(_flash, progsize=256), "/")
del _flash, _heads, Flash, vfs
