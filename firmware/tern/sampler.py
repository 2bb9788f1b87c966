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
    """Draw the symbols of a window card for inputs, or for window starts, until the pool ends.

    A window card of N symbols rounds an input at random to one of the S + 1 starts of a window of W
    symbols. With probability P / T the symbol is uniform in the window, else uniform among the S =
    N - W symbols outside of it (shared_specs/cards.md).

    job: [next coordinate, end, position, end of the pool, S, W, P, mask of S, mask of W, 1 if xs
    are window starts already].
    """
    i = job[0]
    n = job[1]
    position = job[2]
    end = job[3]
    outside = job[4]
    window = job[5]
    while i < n:
        at = position
        if job[9]:
            start = xs[i] & 65535
            if start > outside:
                start = outside
        else:
            # x + 1 in steps of 2**-14, clipped to 0 .. 2; below -1 the sum wraps around to 16 bits
            scaled = (xs[i] + 16384) & 65535
            if scaled > 49151:
                scaled = 0
            elif scaled > 32768:
                scaled = 32768
            # The window starts at floor(S (x + 1) / 2), or, with the probability of the
            # fraction, one later.
            scaled *= outside
            start = scaled >> 15
            rest = (scaled & 32767) << 1
            while rest:
                draw = pool[at] - (rest >> 8)
                at += 1
                rest = (rest & 255) << 8
                if draw:
                    if draw < 0:
                        start += 1
                    break

        # Bernoulli(P / T): compare the 30 bits of P with the pool, a byte at a time.
        inside = 0
        count = outside
        mask = job[7]
        rest = job[6]
        while rest:
            draw = pool[at] - (rest >> 22)
            at += 1
            rest = (rest & 0x3FFFFF) << 8
            if draw:
                if draw < 0:
                    inside = 1
                    count = window
                    mask = job[8]
                break

        # Uniform in the window, or among the symbols outside of it: by rejection.
        draw = 0
        if mask:
            draw = count
            while draw >= count and at <= end:
                draw = pool[at] & mask
                at += 1

        # The pool ended within this coordinate, which is drawn again after a refill.
        if at > end:
            break
        position = at
        if inside:
            draw += start
        elif draw >= start:
            draw += window
        out[i] = draw
        i += 1

    # Write back where to go on; a variable serves as an index above 0: see compat.
    job[0] = i
    i = 2
    job[i] = position


@micropython.viper
def grid(xs: ptr16, out: ptr16, pool: ptr8, job: ptr32):
    """Round inputs at random to the grid of a laplace card, unbiased: the first of two passes.

    The grid has 2**q steps to 1. `out` gets the number of steps above the lowest output; noise()
    then adds the noise to it.

    job: [next coordinate, end, position, end of the pool, q + 1, t, s, lowest, highest, mask of t].
    """
    i = job[0]
    n = job[1]
    position = job[2]
    end = job[3]
    shift = job[4]
    lowest = job[7] + (1 << shift >> 1)
    while i < n:
        at = position
        # x + 1 in steps of 2**-14, clipped to 0 .. 2; below -1 the sum wraps around to 16 bits
        scaled = (xs[i] + 16384) & 65535
        if scaled > 49151:
            scaled = 0
        elif scaled > 32768:
            scaled = 32768
        # The step below the input, plus 1 with the probability of the fraction.
        scaled <<= shift
        step = scaled >> 15
        rest = (scaled & 32767) << 1
        while rest:
            comparison = pool[at] - (rest >> 8)
            at += 1
            rest = (rest & 255) << 8
            if comparison:
                if comparison < 0:
                    step += 1
                break

        if at > end:
            break
        position = at
        out[i] = step - lowest
        i += 1
    job[0] = i
    i = 2
    job[i] = position


@micropython.viper
def noise(xs: ptr16, out: ptr16, pool, parameters):
    """Add exact discrete Laplace noise to each step in `out` and clamp: the second pass.

    job as for grid(), [next coordinate, end, position, ..., lowest, highest, mask of t].
    """
    job = ptr32(parameters)
    n = job[1]
    highest = job[8] - job[7]
    i = job[0]
    while i < n:
        position = job[2]
        step = int(out[i]) + int(laplace(pool, parameters))
        if job[2] == position:  # the pool's end came first
            break
        if step < 0:
            step = 0
        elif step > highest:
            step = highest
        out[i] = step
        i += 1
    job[0] = i


# laplace() draws one uniform u after the other; what a draw means depends on the step:
#
# | step   | kept | u below | does                  | on success              | on failure |
# |--------|------|---------|-----------------------|-------------------------|------------|
# | OFFSET | 0    | t       | offset = u            | k = 1, OVER_T           |            |
# | OVER_T | 0    | t       | Bernoulli(offset / t) | k = 1: k = 2, OVER_T;   | `failed`   |
# |        |      |         |                       | else OVER_K             |            |
# | OVER_K | 0    | k       | Bernoulli(1 / k)      | k + 1, OVER_T           | `failed`   |
# | OVER_K | 1    | k       | Bernoulli(1 / k)      | k + 1, OVER_K           | `failed`   |
#
# | `failed` | odd k                    | even k                                                 |
# |----------|--------------------------|--------------------------------------------------------|
# | kept = 0 | kept = 1, k = 2, OVER_K  | OFFSET                                                 |
# | kept = 1 | whole + 1, k = 2, OVER_K | a bit for the sign: done, or, with a negative zero,    |
# |          |                          | OFFSET                                                 |
#
# Bernoulli(exp(-1)) begins with k = 2, since Bernoulli(1 / 1) cannot fail.


@micropython.viper
def laplace(pool: ptr8, job: ptr32) -> int:
    """Draw exact discrete Laplace noise of scale t / s, and move the position behind its bytes.

    Returns the noise. At the end of the pool the position stays as it was, and the result does not
    count.

    job as for grid(). Source: Canonne, Kamath, Steinke, The Discrete Gaussian for Differential
    Privacy (2020), Algorithms 1 and 2, as in shared_specs/cards.md. The table above has the steps.
    """
    at = job[2]
    end = job[3]
    t = job[5]
    result = 0
    step = _OFFSET
    kept = 0
    whole = 0
    offset = 0
    k = 1
    done = 0
    while done == 0 and at <= end:
        # The draw is out of t, or, for Bernoulli(1 / k), out of k.
        bound = t
        mask = job[9]
        if step == _OVER_K:
            bound = k
            mask = 1
            while mask < k - 1:
                mask = mask << 1 | 1

        # A uniform integer below `bound`, by rejection: as many bytes as the mask covers.
        draw = 0
        if mask:
            draw = bound
        while draw >= bound and at <= end:
            draw = pool[at]
            at += 1
            if mask > 255:
                draw |= pool[at] << 8
                at += 1
            if mask > 65535:
                draw |= pool[at] << 16
                at += 1
            draw &= mask

        failed = 0
        if step == _OFFSET:
            offset = draw
            k = 1
            step = _OVER_T
        elif step == _OVER_T:
            if draw >= offset:
                failed = 1
            elif k == 1:
                k = 2
            else:
                step = _OVER_K
        elif draw:
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
                    result = (offset + t * whole) // job[6]
                    done = 1
                    if pool[at] & 1:
                        if result == 0:  # there is no negative zero
                            done = 0
                        result = 0 - result
                    at += 1
                kept = 0
                whole = 0
                step = _OFFSET
    if at <= end:
        i = 2
        job[i] = at
    return result


_LEAVES = {TABLE: (table,), WINDOW: (window,), LAPLACE: (grid, noise)}


def sample(card, stream, xs, out, n):
    """Draw a symbol of `card` for each of xs[:n] (array 'h', Q1.14) into out[:n] (array 'H').

    stream: the entropy Stream. Raises EntropyError, after which no symbol counts.
    """
    try:
        if card.shape <= LAPLACE:
            _run(card, stream, xs, out, 0, n)
        elif card.shape == MIXTURE:
            for index in range(n):
                if stream.below(card.threshold):
                    _run(card.first, stream, xs, out, index, index + 1)
                else:
                    _run(card.second, stream, xs, out, index, index + 1)
                    out[index] += card.first.symbols
        else:
            for index in range(n):
                out[index] = card.body.draw(stream, xs[index])
    except EntropyError:
        for index in range(n):  # may hold inputs that wait for their noise
            out[index] = 0
        raise


def sample_categories(card, stream, categories, out, n):
    """Draw symbols of a window card for categories[:n], which are the window starts themselves.

    categories: array 'h' of 0 .. N - W. With W = 1 this is randomised response. Raises ValueError
    for another card, and EntropyError as sample().
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
    """Run the leaves of a card over xs[start:end]; refill the pool whenever one needs it."""
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
