"""Draw a card's symbols for a vector of inputs, in the order of shared_specs/cards.md.

No leaf allocates:

    leaf(xs, out, pool, job)

xs: int16 inputs (Q1.14, saturated here once more), out: uint16 symbols, pool: that of an entropy
Stream, job: int32, [next coordinate, end, position in the pool, its end, the card's parameters...].
A leaf reads up to SLACK bytes past the pool's end before it looks; then it undoes the coordinate
and returns, to be called again after a refill.

A comparison with a threshold compares its first 8 bits with the next byte, and goes on while both
are equal.
"""

from tern.compat import const, micropython, ptr8, ptr16, ptr32
from tern.entropy import EntropyError
from tern.shapes import LAPLACE, MIXTURE, TABLE, WINDOW
from tern.table import table

_OFFSET = const(0)  # steps of noise()
_OVER_T = const(1)
_OVER_K = const(2)


@micropython.viper
def window(xs: ptr16, out: ptr16, pool: ptr8, job: ptr32):
    """Window cards. job: [..., S, W, P, mask of S, mask of W, 1 if xs are window starts already]."""
    i = job[0]
    n = job[1]
    position = job[2]
    end = job[3]
    others = job[4]
    window = job[5]
    while i < n:
        at = position
        if job[9]:
            start = xs[i] & 65535
            if start > others:
                start = others
        else:
            a = (xs[i] + 16384) & 65535
            if a > 49151:
                a = 0
            elif a > 32768:
                a = 32768
            a *= others
            start = a >> 15
            rest = (a & 32767) << 1
            while rest:
                u = pool[at] - (rest >> 8)
                at += 1
                rest = (rest & 255) << 8
                if u:
                    if u < 0:
                        start += 1
                    break
        inside = 0
        count = others
        mask = job[7]
        rest = job[6]
        while rest:
            u = pool[at] - (rest >> 22)
            at += 1
            rest = (rest & 0x3FFFFF) << 8
            if u:
                if u < 0:
                    inside = 1
                    count = window
                    mask = job[8]
                break
        u = 0
        if mask:
            u = count
            while u >= count and at <= end:
                u = pool[at] & mask
                at += 1
        if at > end:
            break
        position = at
        if inside:
            u += start
        elif u >= start:
            u += window
        out[i] = u
        i += 1
    job[0] = i
    i = 2
    job[i] = position


@micropython.viper
def grid(xs: ptr16, out: ptr16, pool: ptr8, job: ptr32):
    """Round inputs to a laplace card's grid: first pass. job: [..., q + 1, t, s, lowest, highest,
    mask of t].
    """
    i = job[0]
    n = job[1]
    position = job[2]
    end = job[3]
    shift = job[4]
    lowest = job[7] + (1 << shift >> 1)
    while i < n:
        at = position
        a = (xs[i] + 16384) & 65535
        if a > 49151:
            a = 0
        elif a > 32768:
            a = 32768
        a <<= shift
        y = a >> 15
        rest = (a & 32767) << 1
        while rest:
            u = pool[at] - (rest >> 8)
            at += 1
            rest = (rest & 255) << 8
            if u:
                if u < 0:
                    y += 1
                break
        if at > end:
            break
        position = at
        out[i] = y - lowest
        i += 1
    job[0] = i
    i = 2
    job[i] = position


@micropython.viper
def noise(xs: ptr16, out: ptr16, pool, parameters):
    """Add exact discrete Laplace noise to `out` and clamp: second pass. job as for grid."""
    job = ptr32(parameters)
    n = job[1]
    highest = job[8] - job[7]
    i = job[0]
    while i < n:
        position = job[2]
        y = int(out[i]) + int(laplace(pool, parameters))
        if job[2] == position:  # the pool's end came first
            break
        if y < 0:
            y = 0
        elif y > highest:
            y = highest
        out[i] = y
        i += 1
    job[0] = i


# laplace() draws one uniform u after the other; what a draw means depends on the step:
#
# | step   | kept | u below | does                    | on success                           | on failure |
# |--------|------|---------|-------------------------|--------------------------------------|------------|
# | OFFSET | 0    | t       | offset = u              | k = 1, OVER_T                        |            |
# | OVER_T | 0    | t       | Bernoulli(offset / t)   | k = 1: k = 2, OVER_T; else OVER_K    | `failed`   |
# | OVER_K | 0    | k       | Bernoulli(1 / k)        | k + 1, OVER_T                        | `failed`   |
# | OVER_K | 1    | k       | Bernoulli(1 / k)        | k + 1, OVER_K                        | `failed`   |
#
# | `failed` | odd k                    | even k                                                      |
# |----------|--------------------------|-------------------------------------------------------------|
# | kept = 0 | kept = 1, k = 2, OVER_K  | OFFSET                                                      |
# | kept = 1 | whole + 1, k = 2, OVER_K | a bit for the sign: done, or, with a negative zero, OFFSET  |
#
# Bernoulli(exp(-1)) begins with k = 2, since Bernoulli(1 / 1) cannot fail.


@micropython.viper
def laplace(pool: ptr8, job: ptr32) -> int:
    """Draw exact discrete Laplace noise of scale t / s, and move the job's position behind its bytes.

    At the pool's end the position stays, and the result does not count. Canonne, Kamath, Steinke, The Discrete Gaussian
    for Differential Privacy (2020), Algorithms 1 and 2, as in shared_specs/cards.md.
    """
    at = job[2]
    end = job[3]
    t = job[5]
    y = 0
    step = _OFFSET
    kept = 0
    whole = 0
    offset = 0
    k = 1
    done = 0
    while done == 0 and at <= end:
        bound = t
        mask = job[9]
        if step == _OVER_K:
            bound = k
            mask = 1
            while mask < k - 1:
                mask = mask << 1 | 1
        u = 0
        if mask:
            u = bound
        while u >= bound and at <= end:
            u = pool[at]
            at += 1
            if mask > 255:
                u |= pool[at] << 8
                at += 1
            if mask > 65535:
                u |= pool[at] << 16
                at += 1
            u &= mask

        failed = 0
        if step == _OFFSET:
            offset = u
            k = 1
            step = _OVER_T
        elif step == _OVER_T:
            if u >= offset:
                failed = 1
            elif k == 1:
                k = 2
            else:
                step = _OVER_K
        elif u:
            failed = 1
        else:
            k += 1
            if kept == 0:
                step = _OVER_T

        if failed:
            if k & 1:
                whole += kept
                kept = 1
                k = 2
                step = _OVER_K
            else:
                if kept:
                    y = (offset + t * whole) // job[6]
                    done = 1
                    if pool[at] & 1:
                        if y == 0:  # there is no negative zero
                            done = 0
                        y = 0 - y
                    at += 1
                kept = 0
                whole = 0
                step = _OFFSET
    if at <= end:
        i = 2
        job[i] = at
    return y


_LEAVES = {TABLE: (table,), WINDOW: (window,), LAPLACE: (grid, noise)}


def sample(card, stream, xs, out, n):
    """Draw symbols for xs[:n] (array 'h', Q1.14) into out[:n] (array 'H').

    After EntropyError no symbol counts.
    """
    try:
        if card.shape <= LAPLACE:
            _run(card, stream, xs, out, 0, n)
        elif card.shape == MIXTURE:
            for i in range(n):
                if stream.below(card.threshold):
                    _run(card.first, stream, xs, out, i, i + 1)
                else:
                    _run(card.second, stream, xs, out, i, i + 1)
                    out[i] += card.first.symbols
        else:
            for i in range(n):
                out[i] = card.body.draw(stream, xs[i])
    except EntropyError:
        for i in range(n):  # may hold inputs that wait for their noise
            out[i] = 0
        raise


def sample_categories(card, stream, categories, out, n):
    """Draw `n` symbols of a window card for window starts (array 'h', 0..N-W); with W = 1,
    randomised response.
    """
    if card.shape != WINDOW:
        raise ValueError("categories need a window card")
    card.job[9] = 1
    try:
        _run(card, stream, categories, out, 0, n)
    finally:
        card.job[9] = 0


@micropython.viper
def _run(card, stream, xs, out, start: int, end: int):
    parameters = card.job
    job = ptr32(parameters)
    cursor = ptr32(stream.cursor)
    for leaf in _LEAVES[card.shape]:
        job[0] = start
        at = 1
        job[at] = end
        while True:
            at = 0
            while at < 2:
                job[at + 2] = cursor[at]
                at += 1
            leaf(xs, out, stream.pool, parameters)
            cursor[0] = job[2]
            if job[0] == end:
                break
            stream.refill()
