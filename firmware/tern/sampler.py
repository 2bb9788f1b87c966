"""Draw a card's symbols for a vector of inputs, in the order of shared_specs/cards.md.

A card is the certified table of integers that defines a mechanism of local differential privacy;
the device reports a symbol, the index of one of its outputs, instead of a value. The inner loops
are `leaves`: viper functions that call nothing and never allocate. Each has the form

    leaf(xs, out, pool, job)

xs: the inputs, int16 in Q1.14 (a value v stands for v / 2**14); a leaf clips them to -1 .. 1.
out: the symbols, uint16.
pool: random bytes, those of an entropy Stream.
job: an int32 array, whose first four slots are the same for all leaves:
    job[0]  the next coordinate: the index in xs and out at which to begin or go on
    job[1]  the coordinate at which to stop
    job[2]  the position in the pool: the index of the next random byte
    job[3]  the end of the random bytes in the pool
    job[4:] the parameters of the card; each leaf says what they are

A leaf does not check the end of the pool before each byte. It reads up to SLACK bytes past it, and
looks once, after the coordinate. If the end was passed, the leaf forgets the coordinate, leaves
job[0] and job[2] at its beginning and returns. The caller adds random bytes and calls it again.

An event of probability p / 2**n is drawn by comparing p with random bytes, as a number to base 256
whose first byte is the highest: the event happens if the random number is below p. The bytes are
compared one after the other, and the next one is read only if all before are equal. So a draw takes
one byte nearly always (255 times of 256), and its probability is exact.
"""

from tern.compat import const, micropython, ptr8, ptr16, ptr32
from tern.shapes import LAPLACE, MIXTURE, TABLE, WINDOW
from tern.table import table

# What laplace() draws next; see the table above it.
_OFFSET = const(0)
_OVER_T = const(1)
_OVER_K = const(2)


@micropython.viper
def window(xs: ptr16, out: ptr16, pool: ptr8, job: ptr32):
    """Draw the symbols of a window card for inputs, or for window starts, until the pool ends.

    A window card of N symbols rounds an input at random to the start of a window of W neighbouring
    symbols. There are S + 1 possible starts, 0 .. S, with S = N - W. With probability P / 2**30 the
    symbol is uniform in the window, otherwise uniform among the S symbols outside of it
    (shared_specs/cards.md).

    job[4:] has the parameters of the card:
        job[4]  S, the number of symbols outside of the window
        job[5]  W, the number of symbols in the window
        job[6]  P, the threshold of 30 bits
        job[7]  the mask of S: the smallest 2**b - 1 that covers 0 .. S - 1
        job[8]  the mask of W
        job[9]  1 if xs are the window starts themselves, as for categories; 0 if they are inputs
    """
    coordinate = job[0]
    stop = job[1]
    position = job[2]
    end = job[3]
    outside = job[4]
    window = job[5]
    while coordinate < stop:
        # `position` moves on only once the coordinate is complete; `at` is where we read.
        at = position
        if job[9]:
            start = xs[coordinate] & 65535
            if start > outside:
                start = outside
        else:
            # x + 1 in steps of 2**-14, clipped to 0 .. 2. A ptr16 loads an unsigned number, so that
            # a negative x is x + 2**16; the mask takes that away again. What is still negative,
            # x < -1, appears as a number above 49151, which no int16 x >= -1 reaches.
            scaled = (xs[coordinate] + 16384) & 65535
            if scaled > 49151:
                scaled = 0
            elif scaled > 32768:
                scaled = 32768
            # The window starts at S (x + 1) / 2, rounded down, or one later with the probability of
            # the fraction, so that its mean is exact. With x + 1 in steps of 2**-14 the quotient by
            # 2 has 15 bits behind the point; S < 256, so that the product is below 2**23.
            scaled *= outside
            start = scaled >> 15
            # Bernoulli(fraction): shifted by one, its 15 bits are two whole bytes.
            rest = (scaled & 32767) << 1
            while rest:
                draw = pool[at] - (rest >> 8)
                at += 1
                rest = (rest & 255) << 8
                if draw:
                    if draw < 0:
                        start += 1
                    break

        # Bernoulli(P / 2**30): compare the 30 bits of P with random bytes. The byte in front is
        # rest >> 22; the other 22 bits move up by 8 for the next one.
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

        # Uniform in 0 .. count - 1 by rejection: masked bytes until one is below `count`. A mask of
        # 0 means a count of 1, for which nothing is read.
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
        # In the window, count from its start; outside, leave the window out.
        if inside:
            draw += start
        elif draw >= start:
            draw += window
        out[coordinate] = draw
        coordinate += 1

    # Write back where to go on. An index above 0 must be in a variable (see tern.compat).
    job[0] = coordinate
    coordinate = 2
    job[coordinate] = position


@micropython.viper
def grid(xs: ptr16, out: ptr16, pool: ptr8, job: ptr32):
    """Round inputs at random to the grid of a laplace card: the first of its two passes.

    The grid has 2**q steps to 1. An input is rounded down, or up with the probability of the
    fraction, so that its mean is exact. `out` gets the number of steps above the lowest output;
    noise() then adds the noise to it.

    job[4:] has the parameters of the card:
        job[4]  q + 1: x + 1 goes from 0 to 2, which is 2**(q + 1) steps
        job[5]  t, and
        job[6]  s: the scale of the noise is t / s steps
        job[7]  the lowest output, in steps; negative
        job[8]  the highest output, in steps
        job[9]  the mask of t: the smallest 2**b - 1 that covers 0 .. t - 1
    """
    coordinate = job[0]
    stop = job[1]
    position = job[2]
    end = job[3]
    shift = job[4]
    # Steps are counted from x = -1, which is 2**q steps below 0.
    lowest = job[7] + (1 << shift >> 1)
    while coordinate < stop:
        at = position
        # x + 1 in steps of 2**-14, clipped to 0 .. 2, as in window()
        scaled = (xs[coordinate] + 16384) & 65535
        if scaled > 49151:
            scaled = 0
        elif scaled > 32768:
            scaled = 32768
        # The step below the input, plus 1 with the probability of the fraction. q <= 14, so that
        # the shifted number is at most 2**30.
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

        # The pool ended within this coordinate, which is drawn again after a refill.
        if at > end:
            break
        position = at
        out[coordinate] = step - lowest
        coordinate += 1
    job[0] = coordinate
    coordinate = 2
    job[coordinate] = position


@micropython.viper
def noise(xs: ptr16, out: ptr16, pool, parameters):
    """Add exact discrete Laplace noise to each step in `out` and clamp: the second pass.

    xs: not used; it is there because all leaves have the same parameters. parameters: the job
    array, with the slots that grid() lists.
    """
    job = ptr32(parameters)
    stop = job[1]
    # `out` counts steps from the lowest output, so that this is the largest symbol.
    highest = job[8] - job[7]
    coordinate = job[0]
    while coordinate < stop:
        position = job[2]
        step = int(out[coordinate]) + int(laplace(pool, parameters))
        # laplace() always reads a byte, so that it has moved on unless the pool ended within it.
        if job[2] == position:
            break
        if step < 0:
            step = 0
        elif step > highest:
            step = highest
        out[coordinate] = step
        coordinate += 1
    job[0] = coordinate


# Noise of scale t / s (Canonne, Kamath and Steinke 2020, Algorithms 1 and 2):
#
# 1. offset = uniform(0 .. t - 1), kept with probability exp(-offset / t); else begin again.
# 2. whole = how often Bernoulli(exp(-1)) succeeds before it fails.
# 3. The magnitude is (offset + t * whole) // s; its sign is a random bit, and -0 begins again.
#
# Bernoulli(exp(-p)), p <= 1: draw Bernoulli(p / k) for k = 1, 2, 3, ... up to the first failure.
# The result is 1 if that came at an odd k. Bernoulli(p / k) is Bernoulli(p) and then Bernoulli(1 /
# k).
#
# laplace() is one loop around one uniform draw, since a second copy of the draw would take room. A
# step says what the draw is for. `kept` is 0 while the offset is chosen (1), and 1 while `whole` is
# counted (2).
#
# | step   | kept | u below | does                  | on success              | on failure |
# |--------|------|---------|-----------------------|-------------------------|------------|
# | OFFSET | 0    | t       | offset = u            | k = 1, OVER_T           |            |
# | OVER_T | 0    | t       | Bernoulli(offset / t) | k = 1: k = 2, OVER_T;   | `failed`   |
# |        |      |         |                       | else OVER_K             |            |
# | OVER_K | 0    | k       | Bernoulli(1 / k)      | k + 1, OVER_T           | `failed`   |
# | OVER_K | 1    | k       | Bernoulli(1 / k)      | k + 1, OVER_K           | `failed`   |
#
# | `failed` | odd k: the result is 1   | even k: the result is 0                                |
# |----------|--------------------------|--------------------------------------------------------|
# | kept = 0 | kept = 1, k = 2, OVER_K  | OFFSET                                                 |
# | kept = 1 | whole + 1, k = 2, OVER_K | a bit for the sign: done, or, with a negative zero,    |
# |          |                          | OFFSET                                                 |
#
# Bernoulli(exp(-1)) begins with k = 2, since Bernoulli(1 / 1) cannot fail.


@micropython.viper
def laplace(pool: ptr8, job: ptr32) -> int:
    """Draw exact discrete Laplace noise of scale t / s, and move the position behind its bytes.

    Returns Z, with P(Z = z) proportional to exp(-|z| s / t). If the pool ends within the draw, the
    position job[2] stays as it was, and the result must not be used.

    job: the slots that grid() lists. Source: Canonne, Kamath, Steinke, The Discrete Gaussian for
    Differential Privacy (2020), Algorithms 1 and 2, as in shared_specs/cards.md. The comment above
    explains the steps.
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
        # The draw is out of t, or, for Bernoulli(1 / k), out of k, whose mask grows with it.
        bound = t
        mask = job[9]
        if step == _OVER_K:
            bound = k
            mask = 1
            while mask < k - 1:
                mask = mask << 1 | 1

        # A uniform integer below `bound`, by rejection: as many bytes as the mask covers, the
        # lowest first. t is at most 2**20, so three bytes suffice. For t = 1 nothing is read.
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

        # What the draw means; see the first table.
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

        # A Bernoulli(exp(-p)) has ended: its result is 1 if k is odd. See the second table.
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
                        if result == 0:  # there is no negative zero: begin again
                            done = 0
                        result = 0 - result  # a leaf negates no variable (see tern.compat)
                    at += 1
                kept = 0
                whole = 0
                step = _OFFSET
    # The bytes count as used only if all of them were there.
    if at <= end:
        i = 2
        job[i] = at
    return result


# The leaves of each shape, one for each pass over the inputs.
_LEAVES = {TABLE: (table,), WINDOW: (window,), LAPLACE: (grid, noise)}


@micropython.viper
def sample(card, stream, xs, out, n):
    """Draw a symbol of `card` for each of the inputs xs[:n], and write them into out[:n].

    xs: array('h'), Q1.14. out: array('H'). stream: the entropy Stream. Raises EntropyError, after
    which no symbol counts.
    """
    # A viper function, since MicroPython would search the heap for room for the variables of
    # another one, which has more than 11 words of them.
    complete = False
    try:
        if int(card.shape) <= int(LAPLACE):
            _run(card, stream, xs, out, 0, n)
        else:
            _draw_each(card, stream, xs, out, n)
        complete = True
    finally:
        # `out` may hold rounded inputs that are still without noise: they must not stay in memory.
        if not complete:
            _clear(out, n)


def _draw_each(card, stream, xs, out, n):
    """Draw as sample() does, one by one, for a card whose symbols are those of other cards."""
    if card.shape == MIXTURE:
        # Each input is drawn by the first card with probability threshold / 2**30, else by the
        # second one, whose symbols follow those of the first.
        for index in range(n):
            if stream.below(card.threshold):
                _run(card.first, stream, xs, out, index, index + 1)
            else:
                _run(card.second, stream, xs, out, index, index + 1)
                out[index] += card.first.symbols
    else:  # a hierarchy has a method of its own
        for index in range(n):
            out[index] = card.body.draw(stream, xs[index])


def _clear(out, n):
    """Set out[:n] to 0."""
    for index in range(n):
        out[index] = 0


def sample_categories(card, stream, categories, out, n):
    """Draw symbols of a window card for categories[:n], and write them into out[:n].

    A category is used as the start of the window itself, without rounding. With W = 1 this is
    generalised randomised response: the true category with probability P / 2**30, else one of the
    others.

    categories: array('h') of numbers 0 .. N - W. Raises ValueError for another card, and
    EntropyError as sample().
    """
    if card.shape != WINDOW:
        raise ValueError("categories need a window card")
    card.job[9] = 1  # the slot that tells window() what xs are
    try:
        _run(card, stream, categories, out, 0, n)
    finally:
        card.job[9] = 0


@micropython.viper
def _run(card, stream, xs, out, start: int, end: int):
    """Run the leaves of a card over xs[start:end]; refill the pool whenever one needs it.

    The position and the end of the pool, stream.cursor[:2], are copied to job[2:4] before each call
    of a leaf; the new position is copied back after it.
    """
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
            # The leaf stopped early, since the pool ended.
            stream.refill()
