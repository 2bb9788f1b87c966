"""Two ways to fill a buffer: with zeros, and with the input blocks of AES in counter mode.

Boards with a Thumb processor get the functions of firmware/thumb, in assembler, in their place.
Buffers begin at a multiple of 4, as every bytearray does, since they are filled in words of 4
bytes.
"""

from tern.compat import micropython, ptr8, ptr32


@micropython.viper
def erase(buffer, n: int):
    """Overwrite the first n bytes of a buffer with zeros; n is a multiple of 4."""
    words = ptr32(buffer)
    n >>= 2
    while n:
        n -= 1
        words[n] = 0


@micropython.viper
def count_up(counter: ptr8, blocks, n: int):
    """Fill n bytes of `blocks` with the numbers after `counter`, and leave it at the last one.

    Each number has 16 bytes, the highest first; n is a multiple of 16.
    """
    number = ptr32(counter)
    words = ptr32(blocks)
    at = 0
    while n:
        # Add 1 to the last byte; a byte that becomes 0 carries to the one before.
        j = 16
        value = 0
        while value == 0 and j:
            j -= 1
            value = (counter[j] + 1) & 255
            counter[j] = value
        words[at] = number[0]
        words[at + 1] = number[1]
        words[at + 2] = number[2]
        words[at + 3] = number[3]
        at += 4
        n -= 16
