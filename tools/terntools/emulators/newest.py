"""Builds emulators of Debian's newest MicroPython, on which tests run beside the pinned version."""

from pathlib import Path

from ternhost import cache
from ternhost.cache import Progress
from terntools.emulators import micropython
from terntools.emulators.qemu.build import NEWEST

SUFFIX = "-newest"  # ends the names of these emulators


def build(progress: Progress) -> Path:
    """Build the interpreter and the firmware of QEMU's machines; return the folder of the firmware.

    The parameter and errors are those of `micropython.build_newest` and `Build.make`.
    """
    micropython.build_newest(progress)
    return NEWEST.make(progress)


def is_built() -> bool:
    """Return whether all of these emulators are there."""
    return bool(micropython.find_newest() and cache.find_entry(NEWEST.recipe))
