"""The residual of a record, by which its features are multiplied in a gradient; and the sigmoid.

Boards with a Thumb processor get those of firmware/thumb, in assembler, in their place.
"""

from tern.compat import const, micropython, ptr8, ptr32
from tern.wire import LINEAR, SVM

_ONE = const(16384)
_MAX_RESIDUAL = const(2047)  # see the bounds in tern.gradient

# Slots of a job of tern.gradient.
_MODEL = const(2)
_EXPONENT = const(3)
_FINE = const(5)

# The table of sigmoid_tail(): 2**14 / (1 + exp(i / 8)), rounded, for i = 0 .. 80, two bytes each.
# From t = 10 on, the tail counts as 0.
_TAIL = const(10 * 16384)
SIGMOID = (
    b"\x00\x20\x01\x1e\x05\x1c\x12\x1a\x2a\x18\x50\x16\x88\x14\xd4\x12\x36\x11"
    b"\xaf\x0f\x41\x0e\xeb\x0c\xad\x0b\x87\x0a\x7a\x09\x82\x08\xa1\x07\xd4\x06"
    b"\x1a\x06\x72\x05\xdb\x04\x53\x04\xd8\x03\x6b\x03\x09\x03\xb2\x02\x64\x02"
    b"\x1e\x02\xe0\x01\xa9\x01\x78\x01\x4d\x01\x27\x01\x05\x01\xe6\x00\xcc\x00"
    b"\xb4\x00\x9f\x00\x8d\x00\x7c\x00\x6e\x00\x61\x00\x56\x00\x4c\x00\x43\x00"
    b"\x3b\x00\x34\x00\x2e\x00\x29\x00\x24\x00\x20\x00\x1c\x00\x19\x00\x16\x00"
    b"\x13\x00\x11\x00\x0f\x00\x0d\x00\x0c\x00\x0a\x00\x09\x00\x08\x00\x07\x00"
    b"\x06\x00\x05\x00\x05\x00\x04\x00\x04\x00\x03\x00\x03\x00\x03\x00\x02\x00"
    b"\x02\x00\x02\x00\x02\x00\x01\x00\x01\x00\x01\x00\x01\x00\x01\x00\x01\x00"
)


@micropython.viper
def sigmoid_tail(t: int, table: ptr8) -> int:
    """Return 1 / (1 + exp(t)) for t >= 0, both in units of 2**-14.

    table: SIGMOID, which has an entry for every 1/8, between which it is interpolated.
    """
    if t >= _TAIL:
        return 0
    # 1/8 is 2**11 units; an entry has two bytes, so its offset is (t >> 11) * 2.
    at = (t >> 11) << 1
    value = table[at] | table[at + 1] << 8
    decrease = value - (table[at + 2] | table[at + 3] << 8)
    # The fraction of the interval is (t & 2047) / 2048; 1024 rounds to nearest.
    return value - (decrease * (t & 2047) + 1024 >> 11)


@micropython.viper
def residual(job: ptr32, label: int, table) -> int:
    """Return the residual of a record, in units of 2**-14, for the sums that dot() left in job[:2].

    job: the parameters that a Gradient keeps. label: the label of the record, an int16. table:
    SIGMOID.
    """
    # z = w.x = (256 high + (job[1] & 255)) * 2**exponent, in units of 2**-14. Without the last 8
    # bits it is high * 2**(exponent + 8), a shift right by 4 to 22.
    low = job[1]
    high = job[0] + (low >> 8)
    shift = -8 - job[_EXPONENT]

    size = 0  # of the residual, which is negative for y = 1
    if job[_MODEL] == int(SVM):
        # The residual is -y where y z < 1, else 0. y z is rounded down, which is exact for
        # y z < 1. So the last 8 bits count where z is negated: then `high` stands for -z, rounded
        # down.
        if label <= 0:
            high = 0 - high - ((low & 255) + 255 >> 8)
        if high >> shift < _ONE:
            size = _ONE
    else:
        score = high + (1 << shift - 1) >> shift  # z, rounded to nearest
        if job[_MODEL] == int(LINEAR):
            # The residual is z - y, limited so that its products fit.
            limit = _MAX_RESIDUAL >> job[_FINE] << 14
            score -= label
            if score > limit:
                score = limit
            elif score + limit < 0:
                score = 0 - limit
            return score
        # The residual is -y / (1 + exp(y z)); the table has it for y z >= 0, and the sigmoid of a
        # negative margin is 1 minus the sigmoid of the positive one.
        if label <= 0:
            score = 0 - score
        if score >= 0:
            size = int(sigmoid_tail(score, table))
        else:
            size = _ONE - int(sigmoid_tail(0 - score, table))
    if label > 0:
        size = 0 - size
    return size
