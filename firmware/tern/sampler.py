"""Draw a card's symbols for a vector of inputs.

Each leaf function handles many coordinates in one call, without allocation, and has the arguments

    leaf(xs, out, thresholds, pool, cursor, job)

xs: int16 inputs (Q1.14; saturated here once more), out: uint16 symbols, pool and cursor: those of an entropy
Stream, job: the card's int32 parameters, [next coordinate, end, ...]. A leaf reads up to SLACK bytes past the
pool's end before it looks; then it undoes the coordinate and returns, to be called again after a refill. The
order of the draws is that of shared_specs/cards.md. Leaves are viper on a device and plain Python elsewhere
(tern.compat): draw for draw the same.
"""

from tern.compat import const, micropython, ptr8, ptr16, ptr32
from tern.entropy import EntropyError
from tern.shapes import HIERARCHY, LAPLACE, MIXTURE, TABLE, WINDOW

_OFFSET = const(0)  # steps of noise()
_OVER_T = const(1)
_OVER_K = const(2)


@micropython.viper
def table(xs: ptr16, out: ptr16, thresholds: ptr32, pool: ptr8, cursor: ptr32, job: ptr32):
    """Table cards. job: [next, end, 15 - p, thresholds a row]."""
    position = cursor[0]
    end = cursor[1]
    i = job[0]
    n = job[1]
    shift = job[2]
    columns = job[3]
    low = shift - 8
    while i < n:
        at = position
        a = (xs[i] + 16384) & 65535
        if a > 49151:  # below -1
            a = 0
        elif a > 32768:
            a = 32768
        row = a >> shift
        fraction = a & ((1 << shift) - 1)
        if fraction:  # round to the knot below or above: a uniform `shift`-bit integer < fraction?
            u = pool[at]
            at += 1
            top = fraction >> low
            if u < top:
                row += 1
            elif u == top:
                if pool[at] >> (8 - low) < fraction & ((1 << low) - 1):
                    row += 1
                at += 1
        row *= columns
        symbol = 0
        r = 0
        s = 24
        # Narrow [r, r + 2**(s - 2)), the 30-bit integers still possible, until one symbol is left.
        while s >= 0:
            r |= pool[at] << s >> 2 & 0x3FFFFFFF  # the first byte would reach the sign
            at += 1
            while symbol < columns and thresholds[row + symbol] <= r:
                symbol += 1
            if symbol == columns or thresholds[row + symbol] >= r + (1 << s >> 2):
                break
            s -= 8
        if at > end:
            break
        position = at
        out[i] = symbol
        i += 1
    cursor[0] = position
    job[0] = i


@micropython.viper
def window(xs: ptr16, out: ptr16, thresholds: ptr32, pool: ptr8, cursor: ptr32, job: ptr32):
    """Window cards. job: [next, end, S, W, P, mask of S, mask of W, 1 if xs are window starts already]."""
    position = cursor[0]
    end = cursor[1]
    i = job[0]
    n = job[1]
    others = job[2]
    window = job[3]
    threshold = job[4]
    while i < n:
        at = position
        if job[7]:
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
            fraction = a & 32767
            if fraction:
                u = pool[at]
                at += 1
                top = fraction >> 7
                if u < top:
                    start += 1
                elif u == top:
                    if pool[at] >> 1 < fraction & 127:
                        start += 1
                    at += 1
        inside = 0
        count = others
        mask = job[5]
        s = 24
        # A uniform 30-bit integer < P? The last byte gives 6 bits: the two below them decide nothing.
        while s >= 0:
            u = pool[at]
            top = threshold << 2 >> s & 255
            at += 1
            if u != top:
                if u < top:
                    inside = 1
                    count = window
                    mask = job[6]
                break
            s -= 8
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
    cursor[0] = position
    job[0] = i


@micropython.viper
def grid(xs: ptr16, out: ptr16, thresholds: ptr32, pool: ptr8, cursor: ptr32, job: ptr32):
    """Round inputs to a laplace card's grid: first pass.

    job: [next, end, 14 - q, t, s, lowest, highest, mask of t].
    """
    position = cursor[0]
    end = cursor[1]
    i = job[0]
    n = job[1]
    shift = job[2]
    lowest = job[5] + (16384 >> shift)
    while i < n:
        at = position
        a = (xs[i] + 16384) & 65535
        if a > 49151:
            a = 0
        elif a > 32768:
            a = 32768
        y = a >> shift
        fraction = a & ((1 << shift) - 1)
        if fraction:
            u = pool[at]
            at += 1
            if shift <= 8:
                if u >> (8 - shift) < fraction:
                    y += 1
            else:
                top = fraction >> (shift - 8)
                if u < top:
                    y += 1
                elif u == top:
                    if pool[at] >> (16 - shift) < fraction & ((1 << (shift - 8)) - 1):
                        y += 1
                    at += 1
        if at > end:
            break
        position = at
        out[i] = y - lowest
        i += 1
    cursor[0] = position
    job[0] = i


@micropython.viper
def noise(xs: ptr16, out: ptr16, thresholds: ptr32, pool: ptr8, cursor: ptr32, job: ptr32):
    """Add exact discrete Laplace noise to `out` and clamp: second pass. job as for grid.

    Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy (2020), Algorithms 1 and 2. An offset,
    uniform in 0..t-1, is kept with probability exp(-offset / t). Then `whole` counts how often Bernoulli(exp(-1))
    succeeds before it fails; the magnitude is (offset + t * whole) // s. Bernoulli(exp(-g)) succeeds if the first
    k = 1, 2, ... at which Bernoulli(g / k) fails is odd. All of it is one loop with a single uniform draw u, since a
    viper function has to be short:

    | step   | kept | u below | does                    | on success                           | on failure |
    |--------|------|---------|-------------------------|--------------------------------------|------------|
    | OFFSET | 0    | t       | offset = u              | k = 1, OVER_T                        |            |
    | OVER_T | 0    | t       | Bernoulli(offset / t)   | k = 1: k = 2, OVER_T; else OVER_K    | `failed`   |
    | OVER_K | 0    | k       | Bernoulli(1 / k)        | k + 1, OVER_T                        | `failed`   |
    | OVER_K | 1    | k       | Bernoulli(1 / k)        | k + 1, OVER_K                        | `failed`   |

    | `failed`, k | kept | follows                                                                          |
    |-------------|------|----------------------------------------------------------------------------------|
    | odd         | 0    | the offset is kept: kept = 1, k = 2, OVER_K                                      |
    | odd         | 1    | whole + 1, k = 2, OVER_K                                                         |
    | even        | 0    | the offset is not kept: OFFSET                                                   |
    | even        | 1    | a bit for the sign: y is done, or, with a negative zero, all begins anew: OFFSET |

    Bernoulli(exp(-1)) begins with k = 2, since Bernoulli(1 / 1) cannot fail.
    """
    position = cursor[0]
    end = cursor[1]
    i = job[0]
    n = job[1]
    t = job[3]
    highest = job[6] - job[5]
    while i < n:
        at = position
        y = int(out[i])
        step = _OFFSET
        kept = 0
        whole = 0
        offset = 0
        k = 1
        done = 0
        while done == 0 and at <= end:
            bound = t
            mask = job[7]
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
                        magnitude = (offset + t * whole) // job[4]
                        if pool[at] & 1 == 0:
                            y += magnitude
                            done = 1
                        elif magnitude:  # there is no negative zero
                            y -= magnitude
                            done = 1
                        at += 1
                    kept = 0
                    whole = 0
                    step = _OFFSET
        if at > end:
            break
        position = at
        if y < 0:
            y = 0
        elif y > highest:
            y = highest
        out[i] = y
        i += 1
    cursor[0] = position
    job[0] = i


_LEAVES = {TABLE: (table,), WINDOW: (window,), LAPLACE: (grid, noise)}


def sample(card, stream, xs, out, n):
    """Draw `n` symbols of `card` for the inputs xs[:n] (array 'h', Q1.14) into out[:n] (array 'H').

    Raises EntropyError when `stream` can give no more; then no symbol counts.
    """
    try:
        if card.shape == MIXTURE:
            for i in range(n):
                if stream.below(card.threshold):
                    _run(card.first, stream, xs, out, i, i + 1)
                else:
                    _run(card.second, stream, xs, out, i, i + 1)
                    out[i] += card.first.symbols
        elif card.shape == HIERARCHY:
            for i in range(n):
                out[i] = card.hierarchy.draw(stream, xs[i])
        else:
            _run(card, stream, xs, out, 0, n)
    except EntropyError:
        for i in range(n):  # may hold inputs that wait for their noise
            out[i] = 0
        raise


def sample_categories(card, stream, categories, out, n):
    """Draw `n` symbols of a window card for window starts (array 'h', 0..N-W); with W = 1, randomised response."""
    if card.shape != WINDOW:
        raise ValueError("categories need a window card")
    card.job[7] = 1
    try:
        _run(card, stream, categories, out, 0, n)
    finally:
        card.job[7] = 0


def _run(card, stream, xs, out, start, end):
    job = card.job
    for leaf in _LEAVES[card.shape]:
        job[0] = start
        job[1] = end
        while True:
            leaf(xs, out, card.thresholds, stream.pool, stream.cursor, job)
            if job[0] == end:
                break
            stream.refill()
