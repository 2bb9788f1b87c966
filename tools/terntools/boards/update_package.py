"""Packages of an update in the field (shared_specs/update.md): their content, number and code."""

import hashlib
import hmac
import re
import struct
import time
from collections.abc import Mapping

from tern import frames, wire
from tern.update import KEY_LABEL, MAIN
from ternhost.errors import StorageError, UsageError
from ternhost.store.store import Store

CODE_BYTES = 32
_PATH = re.compile(r"([A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*\.(py|mpy|json)")
STATE = "update %d"  # of a store, a device: [number of its last package, SHA-256 of the content]
_FIRST_SECOND = 1_577_836_800  # 2020-01-01 UTC


def content(files: Mapping[str, bytes]) -> bytes:
    """Return a package of these files, by path, without its code.

    A path is relative to the folder of the program; main.py comes last. Raises UsageError for a
    path or a size that a board does not take.
    """
    package = bytearray()
    for path in sorted(files, key=lambda path: (path == MAIN, path)):
        if not _PATH.fullmatch(path) or len(path) > 255:
            raise UsageError(
                f"{path!r} cannot be part of a package",
                hint="a path is relative, of letters, digits and _-., no part begins with a dot, "
                "and it ends with .py, .mpy or .json",
            )
        name = path.encode()
        size = struct.pack("<I", len(files[path]))
        package += bytes((len(name),)) + name + size + files[path]
    size_with_code = len(package) + CODE_BYTES
    if size_with_code > wire.MAX_PACKAGE:
        raise UsageError(f"a package may have {wire.MAX_PACKAGE:,} bytes, not {size_with_code:,}")
    return bytes(package)


def sealed(key: bytes, number: int, content: bytes) -> bytes:
    """The package: its content and, HMAC-SHA256 under the device's key, its code."""
    head = struct.pack("<II", number, len(content) + CODE_BYTES)
    return content + hmac.digest(frames.digest(key, KEY_LABEL), head + content, "sha256")


def number_for(store: Store, device: int, content: bytes, again: bool = False) -> int:
    """Return the number of a package for `device`, stored before the board hears of it.

    The same content keeps its number, so that an interrupted transfer goes on. Other content, or
    the same `again`, gets a larger one. Raises StorageError.
    """
    digest = hashlib.sha256(content).hexdigest()
    with store.transaction():
        last, last_digest = store.state(STATE % device) or (0, "")
        if last_digest == digest and not again:
            return int(last)
        number = max(last + 1, int(time.time()) - _FIRST_SECOND)
        if number >> 32:
            raise StorageError(
                "there is no larger number for a package", hint="set this machine's clock"
            )
        store.save_state({STATE % device: (number, digest)})
    return int(number)
