"""Ask a board what it is: its processor, and what its MicroPython can do."""

from dataclasses import dataclass
from typing import Self

from ternhost.errors import UsageError
from terntools.boards import mpy
from terntools.boards.repl import Repl

# By the index of the processor in sys.implementation._mpy (MicroPython, "MicroPython .mpy files").
_PROCESSORS = (
    None,
    "x86",
    "x64",
    "armv6",
    "armv6m",
    "armv7m",
    "armv7em",
    "armv7emsp",
    "armv7emdp",
    "xtensa",
    "xtensawin",
    "rv32imc",
    "rv64imc",
)
_MPY_VERSION = 6
_NATIVE_VERSION = 3

# Asks a board for the kinds of .mpy files that it runs (as a number), sys.platform, its description,
# the version of MicroPython, whether it has a network, and whether it has AES.
_TELL_MACHINE = """
import sys
try:
    import network
    has_network = True
except ImportError:
    has_network = False
try:
    from cryptolib import aes
    has_aes = True
except ImportError:
    has_aes = False
about = sys.implementation
code = getattr(about, '_mpy', 0)
description = getattr(about, '_machine', '')
_tell((code, sys.platform, description, tuple(about[1][:3]), has_network, has_aes))
"""


class TooOldError(UsageError):
    """The board's MicroPython cannot take what mpy-cross makes."""


@dataclass(frozen=True)
class Machine:
    """The kind of a board, on which it depends which files it gets."""

    processor: str  # as mpy-cross calls it
    platform: str  # sys.platform
    description: str  # such as "Raspberry Pi Pico with RP2040"
    version: str  # of MicroPython
    network: bool  # whether its MicroPython has a network
    aes: bool  # whether its MicroPython has AES

    @classmethod
    def of(cls, repl: Repl) -> Self:
        """Ask the board what it is.

        Raises TooOldError if its MicroPython cannot run the native code that mpy-cross makes.
        """
        mpy_code, platform, description, version_numbers, network, aes = repl.value(_TELL_MACHINE)
        version = ".".join(map(str, version_numbers))
        # sys.implementation._mpy has the version of .mpy files in its lowest 8 bits, then 2 bits of
        # the version of native code, then 4 bits of the processor (MicroPython, "MicroPython .mpy
        # files").
        mpy_version = mpy_code & 0xFF
        native_version = mpy_code >> 8 & 3
        processor_index = mpy_code >> 10 & 15
        processor = None
        if processor_index < len(_PROCESSORS):
            processor = _PROCESSORS[processor_index]
        is_current = (mpy_version, native_version) == (_MPY_VERSION, _NATIVE_VERSION)
        if not is_current or processor is None:
            raise TooOldError(
                f"the MicroPython on {repl.name} ({version}) cannot run native code that mpy-cross "
                f"makes (its .mpy version is {mpy_version}.{native_version}, needed is "
                f"{_MPY_VERSION}.{_NATIVE_VERSION})",
                hint=f"flash MicroPython {mpy.OLDEST_MICROPYTHON} or later: tern board flash",
            )
        return cls(
            processor=processor,
            platform=platform,
            description=description,
            version=version,
            network=network,
            aes=aes,
        )
