"""Exact discrete Laplace and Gaussian noise of a sum (shared_specs/cards.md). No leaf allocates.

Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy (2020), Algorithms 1 to 3.
A job is [position in the pool, its end, t, 2 c, t m, m]. Each leaf reads from pool[job[0]] on;
beyond job[1] no result counts.
"""

from tern.compat import micropython, ptr8, ptr32


@micropython.viper
def uniform(pool: ptr8, job: ptr32, n: int) -> int:
    """Draw an integer in 0 .. n - 1, n <= 2**20, all equally likely, by rejection."""
    at = job[0]
    end = job[1]
    # The smallest 2**b - 1 that covers n - 1.
    mask = n - 1
    mask |= mask >> 1
    mask |= mask >> 2
    mask |= mask >> 4
    mask |= mask >> 8
    mask |= mask >> 16

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

    With a = n = b = m = 1 this is a Bernoulli variable of exp(-1). Algorithm 1: draw Bernoulli(a b
    / (n m k)) for k = 1, 2, ... until the first failure; the bit is 1 if that came at an odd k. At
    the end of the pool the result is 0, and does not count.
    """
    parameters = ptr32(job)
    k = 1
    succeeds = 1
    if a == 0 or b == 0:
        succeeds = 0
    while succeeds:
        if (
            (n > 1 and int(uniform(pool, job, n)) >= a)
            or (m > 1 and int(uniform(pool, job, m)) >= b)
            or (k > 1 and int(uniform(pool, job, k)) > 0)
        ):
            succeeds = 0
        else:
            k += 1
    if parameters[0] > parameters[1]:
        k = 0
    return k & 1


@micropython.viper
def noise(pool, job) -> int:
    """Draw Z: discrete Laplace of scale t if c is 0, else discrete Gaussian of variance c t / m.

    The Gaussian is a Laplace draw Y that is kept with probability exp(-(|Y| m - c)**2 / (2 c t m))
    (Algorithm 3). With D = | |Y| m - c |, that exponent is (X + e / 2c) (V + g / tm), where X and e
    are quotient and remainder of D / 2c, V and g those of D / tm. Its four products are drawn one
    by one, as in shared_specs/cards.md (Noise).

    job: see above. |Y| is below 2**9 t, beyond which 32 bits do not hold it, except with a
    probability of exp(-511).
    """
    parameters = ptr32(job)
    t = parameters[2]
    double_c = parameters[3]
    result = 0
    accepted = 0
    while accepted == 0 and parameters[0] <= parameters[1]:
        # Discrete Laplace: result mod t, kept with exp(-result / t), plus t times a geometric draw.
        result = int(uniform(pool, job, t))
        if int(decays(pool, job, result, t, 1, 1)):
            while int(decays(pool, job, 1, 1, 1, 1)):
                result += t
            negative = int(uniform(pool, job, 2))
            if result or negative == 0:  # there is no negative zero
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
                    # X V times Bernoulli(exp(-1))
                    i = quotient_c
                    while i and accepted:
                        j = quotient_tm
                        while j and accepted:
                            accepted = int(decays(pool, job, 1, 1, 1, 1))
                            j -= 1
                        i -= 1

                    # X times Bernoulli(exp(-g / tm))
                    i = quotient_c
                    while i and accepted:
                        accepted = int(decays(pool, job, remainder_tm, t_times_m, 1, 1))
                        i -= 1

                    # V times Bernoulli(exp(-e / 2c))
                    i = quotient_tm
                    while i and accepted:
                        accepted = int(decays(pool, job, remainder_c, double_c, 1, 1))
                        i -= 1

                    # Bernoulli(exp(-(e / 2c) (g / tm)))
                    if accepted:
                        accepted = int(
                            decays(pool, job, remainder_c, double_c, remainder_tm, t_times_m)
                        )
                if negative:
                    result = 0 - result
    return result
