"""Fixed-point numbers: Q1.14 inputs, and an integer lower bound of exp for certificates."""

from tern.compat import const

ONE = const(16384)  # 1.0 in Q1.14
MAX_EPSILON = const(20_000_000)  # micro-epsilon
EXP_BITS = const(40)  # exp_lower is in units of 2**-40
_GUARD_BITS = const(20)
_MICRO = const(1_000_000)


def saturate(value):
    """Return `value` (Q1.14) clamped to [-ONE, ONE]."""
    if value > ONE:
        return ONE
    if value < -ONE:
        return -ONE
    return value


def exp_lower(micro_epsilon):
    """Return a lower bound of 2**40 * exp(micro_epsilon / 10**6), within a relative 2**-38.

    A Taylor series whose terms are rounded down, in units of 2**-60.
    """
    term = total = 1 << (EXP_BITS + _GUARD_BITS)
    n = 1
    while term:
        term = term * micro_epsilon // (n * _MICRO)
        total += term
        n += 1
    return total >> _GUARD_BITS
