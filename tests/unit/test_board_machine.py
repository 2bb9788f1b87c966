"""What a board says about itself decides for which processor its files are compiled."""

import pytest

from terntools.boards.machines import Machine

# sys.implementation._mpy of a board with the RISC-V instruction set: version 6, native version 3,
# and the index of the processor.
RISC_V = 6 | 3 << 8 | 11 << 10


class FakeRepl:
    """Stands in for the prompt of a board that has some value of sys.implementation._mpy."""

    name = "a board"

    def __init__(self, mpy_code):
        self._mpy_code = mpy_code

    def value(self, _code):
        return self._mpy_code, "rp2", "Raspberry Pi Pico2 with RP2350", (1, 28, 0), False, False


@pytest.mark.parametrize("extensions", [0, 1, 3])
def test_extensions_of_the_processor_do_not_change_for_which_one_is_compiled(extensions):
    """From MicroPython 1.27 on, the bits from 16 on name extensions, such as Zba of a RISC-V."""
    machine = Machine.of(FakeRepl(RISC_V | extensions << 16))
    assert machine.processor == "rv32imc"
