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
    """Return a package of these files, without the code that authenticates it.

    Each file is the length of its path (a byte), its path, its size (4 bytes), and its content.
    main.py comes last. files: contents by path, relative to the folder of the program. Raises
    UsageError for a path or a size that a board does not take.
    """
    package = bytearray()
    for path in sorted(files, key=_main_last):
        if not _PATH.fullmatch(path) or len(path) > 255:
            raise UsageError(
                f"{path!r} cannot be part of a package",
                hint="a path is relative, of letters, digits and _-., no part begins with a dot, "
                "and it ends with .py, .mpy or .json",
            )
        name = path.encode()
        package += bytes((len(name),))
        package += name
        package += struct.pack("<I", len(files[path]))
        package += files[path]
    size_with_code = len(package) + CODE_BYTES
    if size_with_code > wire.MAX_PACKAGE:
        raise UsageError(f"a package may have {wire.MAX_PACKAGE:,} bytes, not {size_with_code:,}")
    return bytes(package)


def _main_last(path: str) -> tuple[bool, str]:
    """Sort paths by name, with main.py behind all others (False comes before True)."""
    return path == MAIN, path


def sealed(key: bytes, number: int, content: bytes) -> bytes:
    """Return a whole package: its content and then the code that authenticates it.

    The code is an HMAC-SHA256 of the package's number, its size and its content, under a key that
    follows from the device's key.
    """
    head = struct.pack("<II", number, len(content) + CODE_BYTES)
    package_key = frames.digest(key, KEY_LABEL)
    code = hmac.digest(package_key, head + content, "sha256")
    return content + code


def number_for(store: Store, device: int, content: bytes, again: bool = False) -> int:
    """Return the number of a package for a device, and store it before the board hears of it.

    The same content keeps its number, so that an interrupted transfer goes on. Other content gets a
    larger number, at least the seconds since 2020, so that packages of another host with another
    store are older or newer by their time. again: whether the same content gets a larger number,
    too. Raises StorageError.
    """
    digest = hashlib.sha256(content).hexdigest()
    with store.transaction():
        last = 0
        last_digest = ""
        stored = store.state(STATE % device)
        if stored:
            last, last_digest = stored
        if last_digest == digest and not again:
            return int(last)
        number = max(last + 1, int(time.time()) - _FIRST_SECOND)
        if number >> 32:  # the field for it has 32 bits
            raise StorageError(
                "there is no larger number for a package", hint="set this machine's clock"
            )
        store.save_state({STATE % device: (number, digest)})
    return int(number)
