"""Finds the programs of others that tern starts, such as Mosquitto."""

import os
import shutil

from ternhost.errors import DeviceError

_ALSO = ("/usr/sbin", "/usr/local/sbin")  # where servers are, which few users have in their PATH


def find(name: str, search_path: str | None = None) -> str:
    """Return the path of a program. Raises DeviceError if it is not installed.

    name: of the program, and of its package in Debian. search_path: where it is looked for,
    directories with colons between them; by default in PATH, and where servers are.
    """
    if search_path is None:
        search_path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_ALSO])
    path = shutil.which(name, path=search_path)
    if path is None:
        hint = f"install it: apt-get install --no-install-recommends {name}"
        raise DeviceError(f"{name} is not installed", hint)
    return path
