"""The emulated boards by name: the Pico, and the machines of QEMU."""

from pathlib import Path

from terntools.emulators import qemu
from terntools.emulators.pico import boot_pico
from terntools.emulators.process import EmulatedMachine

PICO = "pico"
NAMES = (PICO, *qemu.MACHINES)

SUFFIX = "-emulated"  # ends the platform of an emulated board in a hardware map


def platform_of(name: str) -> str:
    """Return what a hardware map, a file that lists boards to test, calls an emulated board."""
    return name + SUFFIX


def name_of(platform: str) -> str | None:
    """Return the name of the emulated board that a hardware map calls `platform`.

    The result is None if the platform is not an emulated board.
    """
    name = platform.removesuffix(SUFFIX)
    if name == platform or name not in NAMES:
        return None
    return name


def boot(
    name: str, flash: Path | None = None, *, seed: int | None = None, skip_idle: bool = False
) -> EmulatedMachine:
    """Start an emulated board.

    name: one of NAMES. flash: the file that keeps its flash memory; None: the flash is lost at the end.
    seed: makes its random numbers the same in each run; None: they are not. skip_idle: time in which a
    Pico only waits passes at once; on QEMU's machines it passes as on this machine. Raises DeviceError
    and UsageError.
    """
    if name == PICO:
        return boot_pico(flash, seed=seed, skip_idle=skip_idle)
    return qemu.boot(name, flash, seed=seed)
