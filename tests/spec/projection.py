"""Reports about a whole vector from cards.md alone, in integers of any size.

Runs on MicroPython, too, and imports nothing of the library that it checks.
"""

import hashlib

from spec.sums import isqrt, uniform


def rotated(values, size, question):
    s = hashlib.sha256(question + b"rotation").digest()
    if size == 128:
        s += hashlib.sha256(s).digest()
    signs = [1 - 2 * (s[i // 8] >> i % 8 & 1) for i in range(3 * size)]
    odd = [-1 if sum([j >> bit & 1 for bit in range(7)]) % 2 else 1 for j in range(size)]
    v = list(values) + [0] * (size - len(values))
    for p in (0, size, 2 * size):
        v = [v[j] * signs[p + j] for j in range(size)]
        v = [sum([odd[i & j] * v[i] for i in range(size)]) for j in range(size)]
    return v


def ranked(v):
    """The coordinate of each rank."""
    return sorted(range(len(v)), key=lambda j: (-abs(v[j]), j))


def length(values):
    return isqrt(sum([((abs(x) + 4) >> 3) ** 2 for x in values]))


def symbol(byte, values, question, n, k, a, b, radius):
    """The symbol for these Q1.14 values. byte: a function that returns the next byte."""
    size = 2**n
    v = rotated(values, size, question)
    of_rank = ranked(v)
    t = 0 if uniform(byte, 2 * radius) < radius + min(length(values), radius) else 1
    u = uniform(byte, k * a + (2 * size - k) * b)
    if u < k * a:
        j, turned = of_rank[u // a], 0
    else:
        q = (u - k * a) // b
        j, turned = (of_rank[q], 1) if q < k else (of_rank[k + (q - k) // 2], (q - k) % 2)
    return j + size * ((v[j] < 0) ^ t ^ turned)
