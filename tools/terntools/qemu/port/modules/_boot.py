import flash
import vfs

_flash = flash.Flash()
try:
    _files = vfs.VfsLfs2(_flash, progsize=256)
except OSError:
    vfs.VfsLfs2.mkfs(_flash, progsize=256)
    _files = vfs.VfsLfs2(_flash, progsize=256)
vfs.mount(_files, "/")
del _files, _flash, flash, vfs
