"""Exact discrete Laplace and Gaussian noise for a sum (shared_specs/cards.md, sum).

The algorithms are 1 to 3 of Canonne, Kamath, Steinke, The Discrete Gaussian for Differential
Privacy (2020), in 32-bit integers. No leaf (a viper function that does the inner work) allocates.

All leaves share a `job`, an int32 array of the noise's parameters. t, c and m are fields of the
card, the table that defines the mechanism: t is the scale of a Laplace variable, and c t / m is the
variance of a Gaussian one.

    job[0]  the position in the pool of random bytes: the index of the next byte
    job[1]  the end of the random bytes in the pool
    job[2]  t
    job[3]  2 c; 0 for Laplace noise
    job[4]  t m
    job[5]  m

A leaf does not check the end before each byte; the pool has room behind it. Once the position is
beyond the end, no result counts, and the caller draws again after it has added random bytes.
"""

from tern.compat import micropython, ptr8, ptr32


@micropython.viper
def uniform(pool: ptr8, job: ptr32, n: int) -> int:
    """Draw an integer in 0 .. n - 1, all equally likely, where 1 <= n <= 2**20.

    This is rejection: random bytes are masked to the bits of n - 1 until the number is below n.
    """
    at = job[0]
    end = job[1]
    # The mask is the smallest 2**b - 1 that covers n - 1. Each step copies the highest bit to twice
    # as many places below it: 1, 2, 4, 8, 16.
    mask = n - 1
    mask |= mask >> 1
    mask |= mask >> 2
    mask |= mask >> 4
    mask |= mask >> 8
    mask |= mask >> 16

    # For n = 1 the mask is 0, and nothing is read. Otherwise `draw` begins too large, so that the
    # loop runs at least once. One to three bytes cover the mask, the lowest first.
    draw = 0
    if mask:
        draw = n
    while draw >= n and at <= end:
        draw = pool[at]
        at += 1
        if mask > 255:
            draw |= pool[at] << 8
            at += 1
        if mask > 65535:
            draw |= pool[at] << 16
            at += 1
        draw &= mask
    job[0] = at
    return draw


@micropython.viper
def decays(pool, job, a: int, n: int, b: int, m: int) -> int:
    """Draw a bit that is 1 with probability exp(-(a / n) (b / m)), where a <= n and b <= m.

    So decays(pool, job, 1, 1, 1, 1) is a Bernoulli variable of exp(-1).

    Source: Algorithm 1. With p = (a / n) (b / m), draw Bernoulli(p / k) for k = 1, 2, 3, ... until
    the first failure. That all of the first k succeed has the probability p**k / k!, so that the
    first failure comes at an odd k with probability 1 - p + p**2 / 2! - ... = exp(-p).

    At the end of the pool the result is 0, and does not count.
    """
    parameters = ptr32(job)
    k = 1
    succeeds = 1
    # With p = 0 the first draw fails for certain, so that k stays 1: the bit is 1.
    if a == 0 or b == 0:
        succeeds = 0
    while succeeds:
        # Bernoulli(p / k) is Bernoulli(a / n), Bernoulli(b / m) and Bernoulli(1 / k). A factor of 1
        # needs no draw, and no draw follows one that failed.
        if (
            (n > 1 and int(uniform(pool, job, n)) >= a)
            or (m > 1 and int(uniform(pool, job, m)) >= b)
            or (k > 1 and int(uniform(pool, job, k)) > 0)
        ):
            succeeds = 0
        else:
            k += 1
    # The position is beyond the end of the pool: callers that loop while the bit is 1 must stop.
    if parameters[0] > parameters[1]:
        k = 0
    return k & 1


@micropython.viper
def noise(pool, job) -> int:
    """Draw Z: discrete Laplace noise of scale t if c is 0, else Gaussian of variance c t / m.

    P(Z = z) is proportional to exp(-|z| / t), or to exp(-z**2 / (2 c t / m)).

    The Gaussian is a Laplace draw Y that is kept with probability exp(-(|Y| m - c)**2 / (2 c t m)),
    or else drawn again (Algorithm 3). 32 bits do not hold that square, so the exponent is split.
    With D = | |Y| m - c |,

        D**2 / (2 c t m) = (D / 2c) (D / tm) = (X + e / 2c) (V + g / tm)

    where X and e are quotient and remainder of D / 2c, V and g those of D / tm. The exponential of
    a sum is a product: Y is kept if four groups of events all happen, one group for each of

        exp(-X V)   exp(-X g / tm)   exp(-V e / 2c)   exp(-(e / 2c) (g / tm))

    pool: bytes. job: see the module. |Y| is below 2**9 t except with a probability of exp(-511), so
    that m |Y| < 2**29, since t m <= 2**20.
    """
    parameters = ptr32(job)
    t = parameters[2]
    double_c = parameters[3]
    result = 0
    accepted = 0
    while accepted == 0 and parameters[0] <= parameters[1]:
        # Discrete Laplace: |Y| mod t is uniform and kept with probability exp(-(|Y| mod t) / t),
        # and |Y| // t is geometric: the number of times that Bernoulli(exp(-1)) succeeds.
        result = int(uniform(pool, job, t))
        if int(decays(pool, job, result, t, 1, 1)):
            while int(decays(pool, job, 1, 1, 1, 1)):
                result += t
            negative = int(uniform(pool, job, 2))
            # There is no negative zero, which would make 0 twice as likely: begin again.
            if result or negative == 0:
                accepted = 1
                if double_c:
                    distance = parameters[5] * result - (double_c >> 1)
                    if distance < 0:
                        distance = 0 - distance
                    t_times_m = parameters[4]
                    quotient_c = distance // double_c
                    quotient_tm = distance // t_times_m
                    remainder_c = distance - quotient_c * double_c
                    remainder_tm = distance - quotient_tm * t_times_m
                    # exp(-X V): X V times Bernoulli(exp(-1)); two loops, as X V might not fit
                    i = quotient_c
                    while i and accepted:
                        j = quotient_tm
                        while j and accepted:
                            accepted = int(decays(pool, job, 1, 1, 1, 1))
                            j -= 1
                        i -= 1

                    # exp(-X g / tm): X times Bernoulli(exp(-g / tm))
                    i = quotient_c
                    while i and accepted:
                        accepted = int(decays(pool, job, remainder_tm, t_times_m, 1, 1))
                        i -= 1

                    # exp(-V e / 2c): V times Bernoulli(exp(-e / 2c))
                    i = quotient_tm
                    while i and accepted:
                        accepted = int(decays(pool, job, remainder_c, double_c, 1, 1))
                        i -= 1

                    # exp(-(e / 2c) (g / tm)): one Bernoulli variable
                    if accepted:
                        accepted = int(
                            decays(pool, job, remainder_c, double_c, remainder_tm, t_times_m)
                        )
                if negative:
                    result = 0 - result  # a leaf negates no variable (see tern.compat)
    return result


@micropython.viper
def draw_noise(stream, parameters) -> int:
    """Draw the noise of noise() from an entropy Stream. Raises EntropyError.

    parameters: the job array.
    """
    job = ptr32(parameters)
    cursor = ptr32(stream.cursor)
    while True:
        at = 0
        while at < 2:  # position and end
            job[at] = cursor[at]
            at += 1
        value = int(noise(stream.pool, parameters))
        # Else the pool ended within the draw, which begins again after a refill.
        if job[0] <= job[1]:
            break
        stream.refill()
    cursor[0] = job[0]
    return value
