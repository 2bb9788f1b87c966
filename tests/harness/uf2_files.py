"""Makes UF2 files of flash images."""

import struct

from terntools.boards.uf2 import FLASH_START, RP2040

_PAYLOAD = 256


def from_binary(data, family=RP2040, start=FLASH_START):
    """Make a UF2 file of a flash image (.bin) that begins at address `start`."""
    blocks = [data[at : at + _PAYLOAD] for at in range(0, len(data), _PAYLOAD)]
    return b"".join(
        struct.pack(
            "<8I476sI", 0x0A324655, 0x9E5D5157, 0x2000, start + number * _PAYLOAD, _PAYLOAD, number, len(blocks),
            family, block, 0x0AB16F30,
        )
        for number, block in enumerate(blocks)
    )  # fmt: skip
