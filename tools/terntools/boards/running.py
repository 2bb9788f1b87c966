"""What a board that runs MicroPython says about itself before and after it is flashed."""

from dataclasses import dataclass

from ternhost.errors import UsageError
from terntools.boards import binary_info, uf2
from terntools.boards.prompt_errors import ExecutionError
from terntools.boards.repl import Repl

# Tells the name of the Python, the board's description, and the chip's number.
ASK = """
import sys
name = sys.implementation[0]
try:
    description = sys.implementation._machine
except AttributeError:  # MicroPython before 1.20
    import os
    description = os.uname().machine
try:
    import umachine
    number = umachine.unique_id()
except ImportError:  # CircuitPython
    number = b''
_tell((name, description, number))
"""


@dataclass(frozen=True)
class RunningBoard:
    """What a board says about itself."""

    description: str  # such as "Raspberry Pi Pico with RP2040"
    unique_id: str  # the chip's number, in hexadecimal digits
    # The addresses in flash of a Pico's files; None if it does not say, and for other boards.
    files: range | None

    @property
    def is_pico(self) -> bool:
        return "RP2" in self.description


def inspect(port: str) -> RunningBoard:
    """Ask the board on `port` what it is, and start its program again.

    Raises DeviceError if no MicroPython answers, RefusedError from a locked board, UsageError for
    another Python.
    """
    with Repl(port, visits=True) as repl:
        python_name, description, chip_number = repl.value(ASK)
        if python_name != "micropython":
            text = f"the board on {port} runs {python_name}, and tern cannot flash it from there"
            hint = (
                "start its boot loader by hand, and run the same command again: on a Pico, hold BOOTSEL while you plug "
                "it in; on an ESP32, hold BOOT, press RESET, let BOOT go, and add --no-reset"
            )
            raise UsageError(text, hint)
        unique_id = chip_number.hex()
        board = RunningBoard(description, unique_id, files=None)
        if not board.is_pico:
            return board
        return RunningBoard(description, unique_id, files=files_of_pico(repl))


def files_of_pico(repl: Repl) -> range | None:
    """Find the addresses in flash where a Pico keeps its files; None if it does not say."""

    def read_flash(address: int, n: int) -> bytes:
        """Return n bytes of the Pico's flash, from an address on; none outside of the flash."""
        if not uf2.FLASH_START <= address < uf2.FLASH_END:
            return b""
        data: bytes = repl.evaluate(f"bytes(__import__('uctypes').bytearray_at({address}, {n}))")
        return data

    try:
        return binary_info.file_system(read_flash)
    except ExecutionError:  # a MicroPython without uctypes
        return None
