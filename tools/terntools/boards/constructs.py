# mypy: ignore-errors
"""Runs on a device, in one file: a small program for each thing that a compiler must get right for
the library.

The device library has functions that MicroPython's viper compiles to machine code. A compiler with
a fault in that makes a library that is silently wrong. So self_check.py compiles this file twice, as
it stands and without the decorators, runs both on the board, and compares the results: the plain
programs are the reference.

The programs compute nothing of use. Each has one construct of the library in the form in which a
compiler may get it wrong; single letters stand for the values in it. CONSTRUCTS names them in their
order, with the kinds of their arguments.

Viper's integers wrap at 32 bits, and those of Python do not; so results that may be larger are cut
to their lowest 30 bits, which are the same for both. A pointer to 16 bits reads unsigned values,
and the plain program's array has signed ones; so only bits count that are the same for both.
"""

from array import array
from binascii import crc32

import micropython


@micropython.viper
def locals_in_memory(a: int, b: int, c: int) -> int:
    """Have more local variables than a processor has registers, so that some live in memory."""
    d = a ^ b
    e = b ^ c
    f = c ^ d
    g = d ^ e
    h = e ^ f
    i = f ^ g ^ 1
    j = g ^ h ^ 2
    k = h ^ i ^ 4
    m = i ^ j ^ 8
    n = j ^ k ^ 16
    return a ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ m ^ n


@micropython.viper
def many_arguments(p: ptr8, a: int, q: ptr16, b: int, r: ptr32, c: int, d: int, e: int) -> int:
    """Take more arguments than are passed in registers, pointers and integers in turn.

    Each factor is another one, so that no two arguments can be exchanged without a difference.
    """
    return (
        p[a & 7] + 3 * (q[b & 7] & 0x7FFF) + 5 * (r[c & 7] & 255) + 7 * (d & 255) + 9 * (e & 255)
    ) & 0x3FFFFFFF


@micropython.viper
def store_8(a: int, b: int, c: int, p: ptr8):
    """Store 8 bits at constant offsets: the largest that fit into an instruction, and beyond."""
    d = a + b
    e = b ^ c
    p[0] = d & 255
    p[1] = e & 255
    x = a & 255
    p[2] = x
    y = d & 127
    p[31] = y
    p[32] = x
    p[33] = (x + y) & 255
    p[127] = y
    p[128] = x
    p[255] = e & 255


@micropython.viper
def store_16(a: int, b: int, c: int, p: ptr16):
    """Store 16 bits at constant offsets: the largest that fit into an instruction, and beyond."""
    d = a + b
    e = b ^ c
    p[0] = d & 0x7FFF
    p[1] = e & 0x7FFF
    x = a & 0x7FFF
    p[2] = x
    y = d & 0xFFF
    p[31] = y
    p[32] = x
    p[127] = (x ^ y) & 0x7FFF
    p[128] = x
    p[255] = e & 0x7FFF


@micropython.viper
def store_32(a: int, b: int, c: int, p: ptr32):
    """Store 32 bits at constant offsets: the largest that fit into an instruction, and beyond."""
    d = a ^ b
    e = b ^ c
    p[0] = d
    p[1] = e
    p[2] = a
    p[31] = d
    p[32] = b
    p[63] = d ^ e
    p[64] = c
    p[255] = e


@micropython.viper
def store_32_from_registers(p: ptr32, a: int, b: int):
    """Store values that are in registers, and one that is computed."""
    p[1] = a
    p[2] = b
    p[3] = a ^ b
    p[40] = a
    p[41] = b
    p[200] = a


@micropython.viper
def load_8(p: ptr8, a: int) -> int:
    """Load 8 bits at constant offsets: the largest that fit into an instruction, and beyond."""
    return (
        p[0] + 3 * p[1] + 5 * p[31] + 7 * p[32] + 11 * p[127] + 13 * p[128] + 17 * p[255] + (a & 1)
    )


@micropython.viper
def load_16(a: int, b: int, c: int, p: ptr16) -> int:
    """Load 16 bits at constant offsets: the largest that fit into an instruction, and beyond."""
    return (
        p[0] ^ p[1] << 1 ^ p[31] << 2 ^ p[32] << 3 ^ p[127] << 4 ^ p[128] << 5 ^ p[255] << 6
    ) & 0x7FFF


@micropython.viper
def load_32(a: int, p: ptr32, b: int, q: ptr32) -> int:
    """Load 32 bits through two pointers, of which one may live in memory and not in a register."""
    x = (
        p[0]
        ^ (p[1] >> 1)
        ^ (p[31] >> 2)
        ^ (p[32] >> 3)
        ^ (p[63] >> 4)
        ^ (p[64] >> 5)
        ^ (p[255] >> 6)
    )
    return (x ^ q[0] ^ (q[1] >> 1) ^ (q[31] >> 2) ^ (q[64] >> 3) ^ (q[255] >> 4)) & 0x3FFFFFFF


@micropython.viper
def index_survives_8(i: int, p: ptr8, x: int) -> int:
    """Use an index in a variable for loads and stores of 8 bits, and then its value once more."""
    j = i & 63
    x = p[j]
    p[j] = 255 - x
    y = p[j + 1]
    p[j + 2] = y
    return (j << 16 | x << 8 | y) ^ i


@micropython.viper
def index_survives_16(i: int, p: ptr16, x: int) -> int:
    """Use an index for loads and stores of 16 bits, and then its value once more.

    To address 16 bits the index is doubled, which must not change the variable.
    """
    i = i & 63
    x = p[i] & 0x7FFF
    p[i] = 0x7FFF - x
    y = p[i + 1] & 0x7FFF
    p[i + 2] = y
    return i << 20 ^ x << 3 ^ y


@micropython.viper
def index_survives_32(i: int, p: ptr32, x: int) -> int:
    """Use an index for loads and stores of 32 bits, and then its value once more.

    To address 32 bits the index is multiplied by 4, which must not change the variable.
    """
    i = i & 63
    x = p[i]
    p[i] = x ^ 0x5555
    y = p[i + 1]
    p[i + 2] = y
    return i ^ x ^ (y >> 1)


@micropython.viper
def index_in_memory(a: int, b: int, c: int, p: ptr16, q: ptr32, n: int) -> int:
    """Run a loop whose index lives in memory, with signed values of 16 bits."""
    i = 0
    s = a & 255
    while i < 20:
        x = ((p[i] + 32768) & 65535) - 32768  # unsigned 16 bits as signed ones
        q[i] = (q[i] & 0xFFFF) + x
        p[20 + i] = x
        s = (s + x * i) & 0xFFFFFF
        i += 1
    return s ^ i


@micropython.viper
def base_survives(p: ptr32, q: ptr32, a: int) -> int:
    """Use pointers with offsets that are too large for an instruction, and then once more.

    The address is then computed on its own, which must not change the pointer.
    """
    p[100] = a
    q[100] = a ^ 1
    p[200] = a ^ 2
    q[255] = a ^ 3
    return (p[0] ^ q[0] ^ p[100] ^ q[100] ^ p[200] ^ q[255]) & 0x3FFFFFFF


@micropython.viper
def store_to_itself(p: ptr16, q: ptr8, r: ptr32, i: int):
    """Store values that are computed from the place where they go and from its neighbours."""
    i &= 15
    p[0] = (p[0] + (p[1] << 1)) & 0x7FFF
    p[i] = (p[i] & p[i + 1] | p[i + 2]) & 0x7FFF
    q[i] ^= q[i + 1]
    q[i + 2] = (q[i] & 0xE0) | (q[i] & 0x1C) >> 1
    r[0] = r[0] ^ (r[1] >> 3)
    r[i] |= r[i + 1] & 0xFFFF


@micropython.viper
def bytes_joined(p: ptr8, i: int) -> int:
    """Join integers from bytes, as the device does with the fields of a frame."""
    i &= 63
    return (p[i] | p[i + 1] << 8 | p[i + 2] << 16 | (p[i + 3] & 63) << 24) ^ (p[3] << 8 | p[4])


@micropython.viper
def shifts(a: int, n: int, b: int) -> int:
    """Shift by variables and by constants, to the left and to the right."""
    x = (a << n) ^ (b >> n) ^ ((1 << n) - 1)
    y = (a & 0xFFFF) << (30 - n) ^ (b >> (30 - n))
    z = a
    z >>= n
    z ^= (b << 3) ^ (b >> 5) ^ (a << 31 - n)
    return (x ^ y ^ z) & 0x3FFFFFFF


@micropython.viper
def compare(a: int, b: int) -> int:
    """Compare two variables in all ways. Each comparison that holds sets a bit of its own.

    The first six are conditions, the next six values in variables, the last two the truth of an
    integer.
    """
    bits = (1 if a < b else 0) | (2 if a <= b else 0) | (4 if a == b else 0)
    bits |= (8 if a != b else 0) | (16 if a >= b else 0) | (32 if a > b else 0)
    c = a < b
    d = a > b
    e = a <= b
    f = a >= b
    g = a == b
    h = a != b
    bits |= (64 if c else 0) | (128 if d else 0) | (256 if e else 0)
    bits |= (512 if f else 0) | (1024 if g else 0) | (2048 if h else 0)
    if a:
        bits |= 4096
    if not b:
        bits |= 8192
    return bits


@micropython.viper
def compare_with_constants(a: int) -> int:
    """Compare with constants that do not fit into an instruction.

    Each comparison that holds sets a bit of its own.
    """
    bits = 0
    if a > 16384:
        bits |= 1
    elif a < -16384:
        bits |= 2
    elif a == 0:
        bits |= 4
    bits |= (8 if a > 49151 else 0) | (16 if a >= 8388352 else 0) | (32 if a <= -8388352 else 0)
    return bits | (64 if (a > -1 and a < 256) or a == -256 else 0)


@micropython.viper
def casts(a: int, o) -> int:
    """Cast an object to a pointer, and a byte to an integer."""
    p = ptr8(o)
    return (int(p[0]) ^ a ^ int(a >> 1)) & 0x3FFFFFFF


@micropython.viper
def choices(a: int, b: int, c: int) -> int:
    """Use conditional expressions, `and` and `or` as values, and nested conditions."""
    x = 1 if a < b else 0
    y = (3 if c & 1 else 5) if a else 7
    z = a and b
    w = a or c
    if not (a > 0 and b > 0) or c == 0:
        x += 16
    return (x ^ y << 5 ^ (z & 0xFF) << 10 ^ (w & 0xFF) << 18) & 0x3FFFFFFF


@micropython.viper
def loops(n: int, p: ptr8) -> int:
    """Run nested loops with `break` and `continue`, and one with a condition of two parts."""
    n &= 15
    s = 0
    i = n
    while i:
        i -= 1
        j = 0
        while True:
            if j >= i:
                break
            j += 1
            if p[j] & 1:
                continue
            s += i * j
        if s > 900:
            break
    k = 0
    while k < n and p[k] != 0:
        k += 1
    return s << 8 | i << 4 | k


@micropython.viper
def division(a: int, b: int) -> int:
    """Compute floor division and remainder, also of negative numbers."""
    b = (b & 1023) + 1
    a = a >> 2
    q = (a + (b >> 1)) // b
    r = a % b
    return (q ^ r << 4 ^ (0 - a) // b ^ ((0 - a) % b) << 7) & 0x3FFFFFFF


@micropython.viper
def products(a: int, b: int, c: int) -> int:
    """Compute products that wrap at 32 bits, and sums of them."""
    x = (a >> 8) * (b >> 24) + (a & 255) * (c >> 24)
    return (a * b + x * c - a * c * 3 + (a & 16383) * b + 8192) & 0x3FFFFFFF


@micropython.viper
def saturated(a: int, b: int, p: ptr16, q: ptr32):
    """Sum products of signed 16 bits, clip the sums to a range, and store them in two arrays.

    The library multiplies so: a factor has its upper and its lower 14 bits multiplied apart, so that
    no product wraps.
    """
    i = 0
    while i < 4:
        x = ((p[i] + 32768) & 65535) - 32768  # unsigned 16 bits as signed ones
        v = (q[i] >> 12) + (a >> 14) * x + (((a & 16383) * (x >> 3) + 1024) >> 11)
        if v > 16384:
            v = 16384
        elif v < -16384:
            v = -16384
        p[i] = v
        q[i] = v * 3
        i += 1


@micropython.viper
def carries(p: ptr16, out: ptr8, base: int) -> int:
    """Write to `out` the bytes of the number that seven digits in a base make.

    The carry goes from byte to byte, the lowest first. Returns how many bytes there are.
    """
    base = (base & 1023) + 2
    used = 0
    i = 6
    while i >= 0:
        carry = (p[i] & 0x7FFF) % base
        j = 0
        while j < used:
            carry += out[j] * base
            out[j] = carry & 255
            carry >>= 8
            j += 1
        while carry:
            out[used] = carry & 255
            carry >>= 8
            used += 1
        i -= 1
    return used


@micropython.viper
def no_result(p: ptr8, a: int):
    """Return nothing, in one case early."""
    if a & 1:
        return
    p[0] = a & 255


@micropython.viper
def calls(a: int, o) -> int:
    """Call functions that are not compiled to machine code, and use their results as integers."""
    return int(len(o)) + int(o[0]) + int(_twice(a & 0xFFFF))


def _twice(n):
    return n + n


@micropython.viper
def long_way(a: int, p: ptr8) -> int:
    """Branch over a long block: self_check repeats a line until a short jump does not reach."""
    x = a & 255
    i = 0
    while i < 3:
        if x & 1:
            x = (x * 3 + p[i]) & 1023  # repeated by self_check
        else:
            x ^= 0x155
        i += 1
    return x


# The programs, with a letter for the kind of each argument:
# i: an int; n: an int by which another one is shifted; b, h, w: an array, which viper takes as a
# pointer to 8, 16 or 32 bits; o: a bytearray, which viper takes as an object.
CONSTRUCTS = (
    ("locals_in_memory", "iii"),
    ("many_arguments", "bihiwiii"),
    ("store_8", "iiib"),
    ("store_16", "iiih"),
    ("store_32", "iiiw"),
    ("store_32_from_registers", "wii"),
    ("load_8", "bi"),
    ("load_16", "iiih"),
    ("load_32", "iwiw"),
    ("index_survives_8", "ibi"),
    ("index_survives_16", "ihi"),
    ("index_survives_32", "iwi"),
    ("index_in_memory", "iiihwi"),
    ("base_survives", "wwi"),
    ("store_to_itself", "hbwi"),
    ("bytes_joined", "bi"),
    ("shifts", "ini"),
    ("compare", "ii"),
    ("compare_with_constants", "i"),
    ("casts", "io"),
    ("choices", "iii"),
    ("loops", "ib"),
    ("division", "ii"),
    ("products", "iii"),
    ("saturated", "iihw"),
    ("carries", "hbi"),
    ("no_result", "bi"),
    ("calls", "io"),
    ("long_way", "ib"),
)

# The integers that programs get: the edges of MicroPython's small ints, which have 31 bits, of 16
# bits and of 8, and some in between.
_VALUES = (
    0,
    1,
    -1,
    2,
    -7,
    100,
    255,
    256,
    -256,
    16383,
    -16385,
    32767,
    65535,
    -32768,
    0x12345678,
    -0x1ABCDEF3,
    0x3FFFFFFF,
    -0x40000000,
    49152,
)
_BLOCK = 64  # bytes that a buffer repeats
_SIZES = {"b": 320, "h": 576, "w": 1088, "o": 64}  # of buffers in bytes, by kind of argument
_TYPES = {"b": "B", "h": "h", "w": "i"}  # type codes of arrays, by kind of argument
_MOST_SHIFT = 15  # bits; as a mask, too


def _is_number(kind):
    return kind in ("i", "n")


def _arguments(kinds, turn, blocks):
    """Make the arguments of a program for one of its calls: integers, and new buffers.

    kinds: a letter for each argument, as at CONSTRUCTS. turn: the number of the call, from 0. Every
    call gets other integers and contents, which also depend on the position of the argument.
    blocks: the contents that buffers may have, _BLOCK bytes each.
    """
    arguments = []
    for position, kind in enumerate(kinds):
        if _is_number(kind):
            arguments.append(_number(kind, turn, position))
            continue
        block = blocks[(turn + position) % len(blocks)]
        content = block * (_SIZES[kind] // _BLOCK)
        if kind == "o":
            arguments.append(bytearray(content))
        else:
            arguments.append(array(_TYPES[kind], content))
    return arguments


def _number(kind, turn, position):
    """Return the integer for an argument in a call, one of _VALUES.

    Neighbouring arguments get values that are `step` apart in _VALUES. The step grows once every
    value was used, so that other pairs of values meet. turn: the number of the call.
    """
    step = turn // len(_VALUES) + 1
    value = _VALUES[(turn + position * step) % len(_VALUES)]
    if kind == "n":
        return value & _MOST_SHIFT
    return value


def _digest(function, kinds, turn, blocks):
    """Call a program; return a checksum of its result, and of its buffers after the call.

    kinds, turn, blocks: as in `_arguments`.
    """
    arguments = _arguments(kinds, turn, blocks)
    checksum = crc32(repr(function(*arguments)).encode())
    for argument, kind in zip(arguments, kinds):
        if not _is_number(kind):
            checksum = crc32(argument, checksum)
    return checksum


def _random_blocks(count):
    """Return `count` blocks of bytes that look random, the same on every interpreter.

    They come from the generator of Park and Miller: x -> 16807 x mod (2^31 - 1).
    """
    state = 1
    blocks = []
    for _ in range(count):
        block = bytearray(_BLOCK)
        for index in range(_BLOCK):
            state = state * 16807 % 2147483647
            block[index] = state >> 8 & 255  # bits 8 to 15
        blocks.append(bytes(block))
    return blocks


def run(native, plain, say=print):
    """Compare what the programs of two modules compute, both made of this file.

    native: the module compiled with the decorators. plain: the one without them. say: is called
    with "begin" and a program's name before it runs, so that a crash can be attributed; with
    "wrong" and its name if the two differ; and at the end with "end" and a checksum of what the
    plain module computed, which is the same on every correct interpreter.
    """
    blocks = _random_blocks(4)
    checksum = 0
    for name, kinds in CONSTRUCTS:
        say("begin", name)
        plain_program = getattr(plain, name)
        native_program = getattr(native, name)
        turns = len(_VALUES) + 8  # enough calls for every value and some pairs of them
        for kind in kinds:
            if not _is_number(kind):
                turns = 4  # a call with buffers takes longer
        differs = False
        for turn in range(turns):
            expected = _digest(plain_program, kinds, turn, blocks)
            result = _digest(native_program, kinds, turn, blocks)
            if result != expected and not differs:
                say("wrong", name)
                differs = True
            checksum = crc32(b"%d" % expected, checksum)
    say("end", checksum)
