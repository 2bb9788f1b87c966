"""The emulated boards, by name: the Pico, and the machines of QEMU."""

from pathlib import Path

from terntools.emulators import qemu
from terntools.emulators.pico import boot_pico
from terntools.emulators.process import EmulatedMachine

PICO = "pico"
NAMES = (PICO, *qemu.MACHINES)

_PLATFORM = "-emulated"  # in a hardware map


def platform_of(name: str) -> str:
    return name + _PLATFORM


def name_of(platform: str) -> str | None:
    """Return the emulated board that a hardware map calls `platform`.

    The result is None if the platform is not an emulated board.
    """
    name, suffix, text_after = platform.partition(_PLATFORM)
    return name if suffix and not text_after and name in NAMES else None


def boot(
    name: str, flash: Path | None = None, *, seed: int | None = None, skip_idle: bool = False
) -> EmulatedMachine:
    """Start an emulated board on a `flash` file; without one its flash is lost at the end.

    seed: makes random bits repeatable. skip_idle: a Pico's waiting time passes at once; that of
    QEMU's machines is this machine's. Raises DeviceError and UsageError.
    """
    if name == PICO:
        return boot_pico(flash, seed=seed, skip_idle=skip_idle)
    return qemu.boot(name, flash, seed=seed)
