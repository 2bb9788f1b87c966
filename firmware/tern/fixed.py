"""Fixed-point numbers: Q1.14 inputs, and an integer lower bound of exp for certificates."""

from tern.compat import const

ONE = const(16384)  # 1.0 in Q1.14, in which v stands for v / 2**14
MAX_EPSILON = const(20_000_000)  # micro-epsilon
EXP_BITS = const(40)  # exp_lower is in units of 2**-40
_GUARD_BITS = const(20)  # further bits while it is computed, for the errors of rounding
_MICRO = const(1_000_000)


def saturate(value):
    """Return `value` (Q1.14) clamped to [-ONE, ONE]."""
    if value > ONE:
        return ONE
    if value < -ONE:
        return -ONE
    return value


def bin_of(value, bits):
    """Return which of 2**bits equal bins of [-1, 1] holds `value` (Q1.14).

    Values beyond are in the first bin or the last; a value between two bins is in the upper one.
    """
    return max(0, min(value + ONE, 2 * ONE - 1)) >> 15 - bits


def exp_lower(micro_epsilon):
    """Return a lower bound of 2**40 * exp(micro_epsilon / 10**6), within a relative 2**-38.

    A certificate that holds for a lower bound of exp(epsilon) holds for exp(epsilon) itself. The
    Taylor series sum(epsilon**n / n!) is added up in units of 2**-60, with every term rounded
    down, until a term is 0. Device and host must get exactly this integer (cards.md, exp_lower).
    """
    term = total = 1 << (EXP_BITS + _GUARD_BITS)
    n = 1
    while term:
        term = term * micro_epsilon // (n * _MICRO)
        total += term
        n += 1
    return total >> _GUARD_BITS
